/**
 * Makes sure that one process at a time uses a data directory.
 *
 * A socket in Linux' abstract namespace, named after the directory's device and inode: the kernel drops it with the
 * process, so there is no stale lock to judge, and two processes that start together cannot both get it. It does not
 * reach across network namespaces (two containers on one directory); there PostgreSQL's own lock file still keeps
 * the data safe.
 *
 * The holder tells everyone who connects whether it is stopping. So a start that follows a kill waits for the process
 * that still stops, and a second start beside one that runs is refused soon.
 */
import { once } from "node:events";
import { stat } from "node:fs/promises";
import { connect, createServer } from "node:net";
import type { Clock } from "../context.ts";

export interface LockOptions {
  readonly clock: Clock;
  /** Aborted when the holder begins to stop; ends the waiting of one that does not hold the lock yet. */
  readonly stopping?: AbortSignal | undefined;
}

/** For a holder whose starter was killed and that has not noticed yet. */
const RUNNING_WAIT_MS = 2_000;
/** As long as an orderly stop may take. */
const STOPPING_WAIT_MS = 45_000;
const RETRY_MS = 50;
const ANSWER_BYTES_MAX = 16;
const ANSWER_MS = 1_000;

/** Returns the function that gives the directory back. Throws an Error for people when another process keeps it. */
export async function lockDirectory(directory: string, { clock, stopping }: LockOptions): Promise<() => void> {
  const { dev, ino } = await stat(directory);
  const path = `\0flotilla-${dev}-${ino}`;
  const startedAt = clock.monotonic();
  for (;;) {
    const unlock = await tryToListen(path, () => stopping?.aborted === true);
    if (unlock !== null) return unlock;
    const waitMs = (await askHolder(path, clock)) === "stopping" ? STOPPING_WAIT_MS : RUNNING_WAIT_MS;
    if (clock.monotonic() - startedAt > waitMs || stopping?.aborted === true)
      throw new Error(`${directory} is in use by another Flotilla; stop that one, or choose another --data-dir`);
    await clock.sleep(RETRY_MS, stopping);
  }
}

/** null: another process has it. */
async function tryToListen(path: string, isStopping: () => boolean): Promise<(() => void) | null> {
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.end(isStopping() ? "stopping" : "running");
  });
  try {
    server.listen({ path });
    await once(server, "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return null;
    throw error;
  }
  server.unref();
  return () => void server.close();
}

/** A holder that ends meanwhile, or that cannot answer, is on its way out or soon will be asked again. */
async function askHolder(path: string, clock: Clock): Promise<string> {
  const socket = connect({ path });
  const timer = clock.timer(ANSWER_MS, () => socket.destroy());
  let answer = "";
  try {
    for await (const chunk of socket) {
      answer += String(chunk);
      if (answer.length > ANSWER_BYTES_MAX) break;
    }
  } catch {
    return "";
  } finally {
    timer.cancel();
  }
  return answer;
}
