/**
 * Connects to the Unix sockets that a VMM has made.
 *
 * Always: a socket stands in a directory that belongs to the VMM's user, and the node agent is root, so the path is not
 * believed: it is opened without following a link, checked to be a socket of that user, and connected to through the
 * descriptor that was checked. That also frees the path from the 107 characters of a socket address. A VMM that ends as
 * soon as it is connected to breaks the socket at any time from then on: whoever is given one finds it destroyed, and no
 * error of it is ever without a listener.
 */
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { reasonOf } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";

/** Linux's O_PATH, which Node does not name: a handle on what stands at a path, without opening it. */
const O_PATH = 0o10000000;
/** A VMM needs 15 to 60 ms until its sockets are there. */
const RETRY_MS = 3;

export interface SocketPlace {
  readonly path: string;
  readonly uid: number;
}

/** Waits until the socket is there. Rejects when the signal is aborted, or at once when it is not what it should be. */
export async function connectWhenThere(place: SocketPlace, clock: Clock, signal: AbortSignal): Promise<Socket> {
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

async function connectNow({ path, uid }: SocketPlace): Promise<Socket> {
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
    const socket = connect(`/proc/self/fd/${handle.fd}`);
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.on("error", () => {}); // Before anybody else listens; `errored` keeps it.
      socket.off("error", reject);
      resolve(socket);
    });
  });
}
