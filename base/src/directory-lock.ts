/**
 * Ensures that only one process uses a data directory.
 *
 * The lock is a socket in Linux' abstract namespace, named after the directory's device and inode. The kernel
 * drops it with the process, so there are no stale locks, and two processes that start together cannot both
 * get it. It does not reach across network namespaces: two containers must not share a directory.
 *
 * The holder tells every process that connects whether it is stopping. So a start that follows a kill waits
 * for the process that is still stopping, and a second start beside a running one is refused sooner. A holder
 * that is stopping learns in the same way that another process waits for it.
 */
import { once } from "node:events";
import { stat } from "node:fs/promises";
import { connect, createServer } from "node:net";
import type { Clock } from "./clock.ts";

export interface LockOptions {
  readonly clock: Clock;
  /** The name of the lock: programs with different names do not exclude each other. */
  readonly name: string;
  /** The possible other holder, for messages: `another node agent`. */
  readonly otherHolder: string;
  /**
   * How long to wait for a holder that does not say it is stopping: its parent may have been killed a moment
   * ago.
   */
  readonly runningWaitMs: number;
  /** How long to wait for one that says it is stopping. */
  readonly stoppingWaitMs: number;
  /** Aborted when this process begins to stop; ends the wait for the lock. */
  readonly stopping?: AbortSignal | undefined;
  /** Called while this process holds the directory and is stopping, each time another process asks for it. */
  readonly onWaiting?: () => void;
}

const RETRY_MS = 50;
const ANSWER_BYTES_MAX = 16;
const ANSWER_MS = 1_000;

/**
 * Resolves with the function that releases the directory; the end of the process releases it too. Rejects
 * with an Error for users when another process keeps it.
 */
export async function lockDirectory(directory: string, options: LockOptions): Promise<() => void> {
  const { clock, stopping } = options;
  const { dev, ino } = await stat(directory);
  const path = `\0${options.name}-${dev}-${ino}`;
  const startedAt = clock.monotonic();
  for (;;) {
    const unlock = await tryToListen(path, () => stopping?.aborted === true, options.onWaiting);
    if (unlock !== null) return unlock;
    const isStopping = (await askHolder(path, clock)) === "stopping";
    const waitMs = isStopping ? options.stoppingWaitMs : options.runningWaitMs;
    if (clock.monotonic() - startedAt > waitMs || stopping?.aborted === true)
      throw new Error(`${directory} is in use by ${options.otherHolder}; stop that one, or choose another --data-dir`);
    await clock.sleep(RETRY_MS, stopping);
  }
}

/** null: another process has it. */
async function tryToListen(
  path: string,
  isStopping: () => boolean,
  onWaiting: LockOptions["onWaiting"],
): Promise<(() => void) | null> {
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    const isLast = isStopping();
    // Closed once the answer is sent: any user of the host can connect, and may never close its end.
    socket.end(isLast ? "stopping" : "running", () => socket.destroy());
    if (isLast) onWaiting?.();
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

/** Empty when the holder ends during the call or does not answer: it is asked again soon. */
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
