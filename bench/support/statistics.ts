/**
 * Statistics over a benchmark's samples. Pure.
 */

export interface Summary {
  readonly n: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
  readonly minMs: number;
  readonly maxMs: number;
}

/** Percentiles by nearest rank: every figure is a measured sample. Throws when there is none. */
export function summarize(samplesMs: readonly number[]): Summary {
  const sorted = samplesMs.toSorted((one, other) => one - other);
  const rank = (share: number): number => {
    const sample = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
    if (sample === undefined) throw new Error("a summary of no samples");
    return sample;
  };
  return { n: sorted.length, p50Ms: rank(0.5), p95Ms: rank(0.95), p99Ms: rank(0.99), minMs: rank(0), maxMs: rank(1) };
}

/** A target, and the result. */
export interface Reach {
  readonly what: string;
  readonly found: number;
  readonly limit: number;
  /** Whether `limit` is the minimum or the maximum for `found`. */
  readonly is: "at least" | "at most";
  readonly unit: string;
}

export function isReached({ found, limit, is }: Reach): boolean {
  return is === "at least" ? found >= limit : found <= limit;
}

export const atMost = (what: string, found: number, limit: number, unit = "ms"): Reach => {
  return { what, found, limit, is: "at most", unit };
};

export const atLeast = (what: string, found: number, limit: number, unit = ""): Reach => {
  return { what, found, limit, is: "at least", unit };
};
