/**
 * The browser's time: the only file of the console that asks for it.
 */

export const now = (): number => Date.now();

/** Calls `act` after the time, unless the returned function is called before. */
export function after(ms: number, act: () => void): () => void {
  const timer = setTimeout(act, ms);
  return () => clearTimeout(timer);
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => void after(ms, resolve));
