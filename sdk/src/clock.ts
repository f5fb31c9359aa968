/**
 * The SDK's only clock and timers: a pause between retries, and timeouts. They work in browsers and in Node,
 * and do not keep a process alive longer than the call they belong to.
 */

/** Epoch milliseconds. */
export const now = (): number => Date.now();

/** Resolves after the time, or immediately when the signal is aborted. Never rejects. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
  });
}

/** Timers overflow to 1 ms above this. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/**
 * Calls `end` after the time, unless the returned function was called before. Never for more than 24 days, as
 * with Infinity.
 */
export function after(ms: number, end: () => void): () => void {
  if (ms > TIMER_MS_MAX) return () => {};
  const timer = setTimeout(end, ms);
  return () => clearTimeout(timer);
}
