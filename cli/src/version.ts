/**
 * `flotilla version`: this program's version and, when it can be reached, the server's.
 *
 * An unreachable server is not an error: the command also reports this program's version.
 */
import { readFileSync } from "node:fs";
import type { Call } from "./call.ts";

export async function run(call: Call): Promise<void> {
  const text = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  const { version } = JSON.parse(text) as { version: string };
  const { url } = call.connect();
  const health = await call
    .flotilla()
    .getHealth({ timeoutMs: 2000 })
    .catch(() => null);
  if (call.output.isJson) return call.output.json({ cli: version, server: health?.version ?? null, url });
  call.output.facts([
    ["flotilla", version],
    ["server", health === null ? `not reached at ${url}` : `${health.version} at ${url}`],
  ]);
}
