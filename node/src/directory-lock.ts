/**
 * Makes sure that one node agent at a time works in a directory: two would both adopt the same machines.
 *
 * A socket in Linux' abstract namespace, named after the directory's device and inode. The kernel drops it with the
 * process, so there is no stale lock to judge. It does not reach across network namespaces: an agent in a container
 * of its own must have a directory of its own.
 *
 * An agent that is stopping, because what started it was killed, is waited for.
 */
import { once } from "node:events";
import { stat } from "node:fs/promises";
import { createServer } from "node:net";
import type { Clock } from "./clock.ts";

/** Longer than an agent takes to stop. */
const WAIT_MS = 12_000;
const RETRY_MS = 50;

/** Throws an Error for people when another agent keeps the directory. Held until the process ends. */
export async function lockDirectory(directory: string, clock: Clock): Promise<void> {
  const { dev, ino } = await stat(directory);
  const deadline = clock.monotonic() + WAIT_MS;
  while (!(await tryToListen(`\0flotilla-node-${dev}-${ino}`))) {
    if (clock.monotonic() > deadline)
      throw new Error(`${directory} is in use by another node agent; stop that one, or choose another --data-dir`);
    await clock.sleep(RETRY_MS);
  }
}

/** Whether the name was free. */
async function tryToListen(path: string): Promise<boolean> {
  const server = createServer((socket) => socket.destroy());
  try {
    server.listen({ path });
    await once(server, "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return false;
    throw error;
  }
  server.unref();
  return true;
}
