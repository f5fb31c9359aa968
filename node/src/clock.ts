/**
 * Time, for the whole node agent: the only file that reads a clock or sets a timer.
 *
 * Always: durations and deadlines use `monotonic`, which nobody can set; `now` is only for what people read and for
 * what is given to guests. Timers do not keep the process alive: the sockets and VMs it serves do.
 */
import { setImmediate } from "node:timers/promises";

export interface Clock {
  /** Epoch milliseconds. */
  now(): number;
  /** Milliseconds, with fractions, since some fixed point; never goes back when the host's clock is set. */
  monotonic(): number;
  /** Resolves after the time, or at once when the signal is aborted. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls back once after the time, unless it is canceled first. */
  timer(ms: number, callback: () => void): Timer;
}

export interface Timer {
  cancel(): void;
}

/** Node's timers overflow to 1 ms above this. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
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
      const timeout = setTimeout(done, Math.min(ms, TIMER_MS_MAX));
      signal?.addEventListener("abort", done, { once: true });
    }),
  timer: (ms, callback) => {
    const timeout = setTimeout(callback, Math.min(ms, TIMER_MS_MAX)).unref();
    return { cancel: () => clearTimeout(timeout) };
  },
};

/** Resolves when everything that is ready to run in this turn of the event loop has run. */
export const endOfTurn = (): Promise<void> => setImmediate();

/** A signal that is aborted after `ms` or with `parent`; `dispose` frees the timer. */
export function deadlineSignal(
  clock: Clock,
  ms: number,
  parent?: AbortSignal,
): { readonly signal: AbortSignal; dispose(): void } {
  const controller = new AbortController();
  const abort = (): void => controller.abort(parent && reasonOf(parent));
  const timer = clock.timer(ms, () => controller.abort(new Error(`no answer within ${Math.round(ms / 1000)} s`)));
  if (parent?.aborted) abort();
  else parent?.addEventListener("abort", abort, { once: true });
  return {
    signal: controller.signal,
    dispose: () => {
      timer.cancel();
      parent?.removeEventListener("abort", abort);
    },
  };
}

/** What `work` gives, unless the signal is aborted first; nobody waits for `work` then. Rejects with the reason. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(reasonOf(signal));
    // Also when it is given up already: how it ends is heard by nobody else.
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
}

/** Why a signal was aborted, as an Error whatever was given. */
export function reasonOf(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new Error(String(reason));
}
