/**
 * Connects to the Unix sockets that a VMM creates.
 *
 * Always:
 * - a socket's directory belongs to the VMM's user while the node agent is root, so the path is not trusted:
 *   it is opened without following links, checked to be a socket of that user, and connected to through the
 *   checked descriptor. This also avoids the limit of 107 characters of a socket address;
 * - a returned socket always has an error listener, because a VMM that ends can break it at any time.
 */
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import type { Socket } from "node:net";
import { reasonOf } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { connectUnix } from "@flotilla/base/large-reads";

/** Linux's O_PATH, which Node does not define: refers to a path's file without opening it. */
const O_PATH = 0o10000000;
/** A VMM creates its sockets within 15 to 60 ms. */
const RETRY_MS = 3;

export interface SocketPath {
  readonly path: string;
  readonly uid: number;
}

/**
 * Waits until the socket exists. Rejects when the signal is aborted, or at once if it is not a socket of the
 * VMM's user.
 */
export async function connectWhenReady(place: SocketPath, clock: Clock, signal: AbortSignal): Promise<Socket> {
  for (;;) {
    if (signal.aborted) throw reasonOf(signal);
    const socket = await connectNow(place).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT" && error.code !== "ECONNREFUSED") throw error;
      return undefined;
    });
    if (socket !== undefined) return socket;
    await clock.sleep(RETRY_MS, signal);
  }
}

async function connectNow({ path, uid }: SocketPath): Promise<Socket> {
  const handle = await open(path, O_PATH | constants.O_NOFOLLOW);
  try {
    const stat = await handle.stat();
    if (!stat.isSocket() || stat.uid !== uid) throw new Error(`${path} is not a socket of user ${uid}`);
    return await connected(handle);
  } finally {
    await handle.close();
  }
}

function connected(handle: FileHandle): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connectUnix(`/proc/self/fd/${handle.fd}`);
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.on("error", () => {}); // Until the caller listens; `errored` keeps the error.
      socket.off("error", reject);
      resolve(socket);
    });
  });
}
