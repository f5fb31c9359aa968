/**
 * The only place of the benchmarks that uses real time.
 */

/** Milliseconds since some fixed point. */
export const monotonic = (): number => performance.now();

/** The duration of the work, in milliseconds. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = monotonic();
  await work();
  return monotonic() - startedAt;
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
