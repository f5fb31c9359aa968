/**
 * The socket on which the server listens for the node of its host. Pure.
 */
import { join } from "node:path";
import { NODE_SOCKET_NAME } from "@flotilla/contract/link/link";
import type { ServerSettings } from "../config.ts";
import type { NodeListen } from "../http/node-listener.ts";

/** `sun_path` holds 108 bytes with its final NUL. */
const SOCKET_PATH_BYTES_MAX = 107;

/** Throws an Error when the data directory's path is too long for a socket in it. */
export function nodeListensOf({ dataDirectory }: Pick<ServerSettings, "dataDirectory">): readonly NodeListen[] {
  const path = join(dataDirectory, NODE_SOCKET_NAME);
  const tooMany = Buffer.byteLength(path) - SOCKET_PATH_BYTES_MAX;
  if (tooMany <= 0) return [{ path }];
  throw new Error(
    `the path of FLOTILLA_DATA_DIR is ${tooMany} bytes too long for a socket in it; choose a shorter one`,
  );
}
