/**
 * What a benchmark says of its samples. Pure.
 */

export interface Summary {
  readonly n: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly minMs: number;
  readonly maxMs: number;
}

/** Percentiles by nearest rank: every figure is a sample that was measured. Throws when there is none. */
export function summarize(samplesMs: readonly number[]): Summary {
  const sorted = samplesMs.toSorted((one, other) => one - other);
  const rank = (share: number): number => {
    const sample = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
    if (sample === undefined) throw new Error("a summary of no samples");
    return sample;
  };
  return { n: sorted.length, p50Ms: rank(0.5), p99Ms: rank(0.99), minMs: rank(0), maxMs: rank(1) };
}

export interface Comparison {
  /** What the project does. */
  readonly ours: Summary;
  /** The least that the same could take, measured in the same run. */
  readonly bare: Summary;
  readonly ratioP50: number;
  readonly ratioP99: number;
}

export function compare(oursMs: readonly number[], bareMs: readonly number[]): Comparison {
  const [ours, bare] = [summarize(oursMs), summarize(bareMs)];
  return { ours, bare, ratioP50: ours.p50Ms / bare.p50Ms, ratioP99: ours.p99Ms / bare.p99Ms };
}
