/**
 * The socket on which the server listens for the node of its host. Pure.
 */
import { join } from "node:path";
import { NODE_SOCKET_NAME } from "@flotilla/contract/link/link";
import type { ServerSettings } from "../config.ts";
import type { NodeListen } from "../http/node-listener.ts";

/** `sun_path` holds 108 bytes with its final NUL. */
const SOCKET_PATH_BYTES_MAX = 107;

/**
 * Without the socket when the data directory's path is too long for one: the host's node then calls the API's
 * address.
 */
export function nodeListensOf({ dataDirectory }: Pick<ServerSettings, "dataDirectory">): readonly NodeListen[] {
  const path = join(dataDirectory, NODE_SOCKET_NAME);
  return Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX ? [{ path }] : [];
}
