/**
 * Makes sure that one node agent at a time works in a directory: two would both adopt the same machines.
 *
 * A socket in Linux' abstract namespace, named after the directory's device and inode. The kernel drops it with the
 * process, so there is no stale lock to judge. It does not reach across network namespaces: an agent in a container
 * of its own must have a directory of its own.
 */
import { stat } from "node:fs/promises";
import { createServer } from "node:net";

/** Throws an Error for people when another agent has the directory. Held until the process ends. */
export async function lockDirectory(directory: string): Promise<void> {
  const { dev, ino } = await stat(directory);
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const isTaken = error.code === "EADDRINUSE";
      const text = `${directory} is in use by another node agent; stop that one, or choose another --data-dir`;
      reject(isTaken ? new Error(text) : error);
    });
    server.listen({ path: `\0flotilla-node-${dev}-${ino}` }, resolve);
  });
  server.unref();
}
