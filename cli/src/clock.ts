/**
 * Time, for the whole command line: the only file that reads a clock or sets a timer.
 *
 * Always: `now` is only for what people read; waiting and deadlines use `monotonic`, which nobody can set.
 */

export interface Clock {
  /** Epoch milliseconds. */
  now(): number;
  /** Milliseconds since some fixed point; never goes back when the host's clock is set. */
  monotonic(): number;
  /** Resolves after the time, or at once when the signal is aborted. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls again and again until the returned function is called; keeps no process alive. */
  every(ms: number, tick: () => void): () => void;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const done = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      signal?.addEventListener("abort", done, { once: true });
    }),
  every: (ms, tick) => {
    const timer = setInterval(tick, ms).unref();
    return () => clearInterval(timer);
  },
};
