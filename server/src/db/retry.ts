/**
 * Repeats work at the server's start while the database is unavailable: it restarts, recovers from a crash,
 * or its host is still booting.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { DatabaseUnavailable } from "./database.ts";

const RETRY_MS = 100;
/** Crash recovery may take 10 s on a slow disk. */
const DEADLINE_MS = 60_000;

export interface RetryOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Ends the repetition: the last error is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * `work` must be safe to repeat. Throws its error: at once if it is not DatabaseUnavailable, otherwise after
 * 60 s.
 */
export async function whileUnavailable<T>(work: () => Promise<T>, { clock, log, signal }: RetryOptions): Promise<T> {
  const deadline = clock.monotonic() + DEADLINE_MS;
  let hasWarned = false;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const isOver = clock.monotonic() > deadline || signal?.aborted === true;
      if (!(error instanceof DatabaseUnavailable) || isOver) throw error;
      if (!hasWarned) log.warn({ reason: error.message }, "the database does not answer; trying again");
      hasWarned = true;
      await clock.sleep(RETRY_MS, signal);
    }
  }
}
