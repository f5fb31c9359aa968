/**
 * The one place of the benchmarks in which time passes.
 */

/** Milliseconds since some fixed point. */
export const monotonic = (): number => performance.now();

/** How long the work takes, in milliseconds. */
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
