/**
 * Time, for the server, the node agent and the command line: their only file that reads a clock or sets a
 * timer.
 *
 * Always:
 * - Durations and deadlines use `monotonic`, which cannot be set. `now` is only for times that people read,
 *   that are stored, or that guests receive.
 * - Timers do not keep the process alive; sleeps do.
 */
import { uptime } from "node:os";
import { setImmediate } from "node:timers/promises";

export interface Clock {
  /** Epoch milliseconds. */
  now(): number;
  /** Milliseconds, with fractions, since some fixed point; never goes back when the host's clock is set. */
  monotonic(): number;
  /**
   * Milliseconds since the host booted, also those in which it was suspended; the same for all its processes.
   * In steps of 10.
   */
  boottime(): number;
  /** Resolves after the time, or immediately when the signal is aborted. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls back once after the time, unless it is cancelled first. */
  timer(ms: number, callback: () => void): Timer;
}

export interface Timer {
  cancel(): void;
}

/** Node's timers overflow to 1 ms above this. */
const TIMER_MS_MAX = 2 ** 31 - 1;
/** Node warns of negative times. */
const timerMs = (ms: number): number => Math.min(Math.max(ms, 0), TIMER_MS_MAX);
/** The two clocks are not read at the same moment, and one has steps. */
const BOOTTIME_STEP_SECONDS = 1;

/**
 * Whether `boottime` is the kernel's: some containers show the time since they began instead, which is behind
 * the monotonic clock. `bootSeconds` and `monotonicSeconds`: both since the host booted; default: now.
 */
export const isBoottimeOfKernel = (
  bootSeconds = uptime(),
  monotonicSeconds = Number(process.hrtime.bigint()) / 1e9,
): boolean => bootSeconds > monotonicSeconds - BOOTTIME_STEP_SECONDS;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  boottime: () => uptime() * 1000,
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) {
        resolve();
        return;
      }
      const done = (): void => {
        clearTimeout(timeout);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const timeout = setTimeout(done, timerMs(ms));
      signal?.addEventListener("abort", done, { once: true });
    }),
  timer: (ms, callback) => {
    const timeout = setTimeout(callback, timerMs(ms)).unref();
    return { cancel: () => clearTimeout(timeout) };
  },
};

/** Resolves after everything that is ready in this turn of the event loop has run. */
export const endOfTurn = (): Promise<void> => setImmediate();

/** Calls `tick` periodically until the returned function is called; does not keep the process alive. */
export function every(clock: Clock, ms: number, tick: () => void): () => void {
  const again = (): Timer =>
    clock.timer(ms, () => {
      next = again();
      tick();
    });
  let next = again();
  return () => next.cancel();
}
