/**
 * Statistics over a benchmark's samples. Pure.
 */

/** Milliseconds. `median` is what public leaderboards call the 50th percentile. */
export interface Percentiles {
  readonly median: number;
  readonly p95: number;
  readonly p99: number;
}

/**
 * The sample of that rank among the sorted ones (nearest rank), so the result is a measured value. 0 when
 * there are none.
 */
export function percentile(samplesMs: readonly number[], share: number): number {
  const sorted = samplesMs.toSorted((one, other) => one - other);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
}

export function percentilesOf(samplesMs: readonly number[]): Percentiles {
  const [median = 0, p95 = 0, p99 = 0] = [0.5, 0.95, 0.99].map((share) => roundMs(percentile(samplesMs, share)));
  return { median, p95, p99 };
}

/** To a hundredth of a millisecond; finer digits are noise. */
export const roundMs = (ms: number): number => Math.round(ms * 100) / 100;
