/**
 * The SDK's only timers: a pause between tries and the end of a call's time. They work in browsers and in Node, and
 * neither keeps a process alive longer than the call it belongs to.
 */

/** Resolves after the time; rejects with the signal's reason when it is aborted first. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}

/** Calls `end` after the time, unless the returned function was called before. */
export function after(ms: number, end: () => void): () => void {
  const timer = setTimeout(end, ms);
  return () => clearTimeout(timer);
}
