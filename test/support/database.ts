/**
 * An empty database for several processes.
 */
import { realpath } from "node:fs/promises";
import { freshDatabase } from "../../server/test/support/server.ts";

/** The database's socket as a path that is valid in every process. */
export async function sharedDatabaseUrl(): Promise<string> {
  const url = await freshDatabase({ isEmpty: true });
  const host = /@([^/]+)\//.exec(url)?.[1] ?? "";
  return url.replace(host, encodeURIComponent(await realpath(decodeURIComponent(host))));
}
