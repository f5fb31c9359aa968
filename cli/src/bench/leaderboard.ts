/**
 * The results of ComputeSDK's public benchmark of sandboxes, version 1.1 of their form. Pure.
 *
 * Always: the keys, their order, the rounding, the trimmed percentiles and the score are the benchmark's, so
 * that a result can be compared with its own. A sandbox that failed has `ttiMs` 0 and its error, and counts
 * in the success rate alone.
 */
import type { Outcome } from "./create-modes.ts";
import type { CreateMode } from "./options.ts";
import { percentile, type Percentiles, roundMs } from "./statistics.ts";

/** What the benchmark runs first in a sandbox. */
export const FIRST_COMMAND = "node -v";
/** How long it waits for a sandbox. */
export const CREATE_MS = 120_000;

const TRIMMED = 0.05;
const CEILING_MS = 10_000;
const WEIGHTS = { median: 0.6, p95: 0.25, p99: 0.15 } as const;
/** A burst has the name of its form's first version. */
const MODES = { sequential: "sequential", staggered: "staggered", burst: "concurrent" } as const;

export interface LeaderboardRun {
  readonly mode: CreateMode;
  readonly staggerMs: number;
  /** In launch order. */
  readonly outcomes: readonly Outcome[];
}

export interface LeaderboardResult {
  readonly provider: "flotilla";
  readonly mode: (typeof MODES)[CreateMode];
  readonly iterations: readonly { readonly ttiMs: number; readonly error?: string }[];
  readonly summary: { readonly ttiMs: Percentiles };
  readonly compositeScore: number;
  readonly successRate: number;
}

/** The one result of a file. */
export function leaderboardResult(run: LeaderboardRun): LeaderboardResult {
  const { mode, outcomes } = run;
  const succeeded = outcomes.filter(({ error }) => error === null);
  const stats = trimmedPercentiles(succeeded.map(({ ttiMs }) => ttiMs));
  const successRate = outcomes.length === 0 ? 0 : succeeded.length / outcomes.length;
  return {
    provider: "flotilla",
    mode: MODES[mode],
    ...profileOf(run, succeeded),
    iterations: outcomes.map(({ ttiMs, error }) => ({ ttiMs: roundMs(ttiMs), ...(error === null ? {} : { error }) })),
    summary: { ttiMs: { median: roundMs(stats.median), p95: roundMs(stats.p95), p99: roundMs(stats.p99) } },
    compositeScore: successRate === 0 ? 0 : roundMs(scoreOf(stats) * successRate),
    successRate,
  };
}

function profileOf({ mode, outcomes, staggerMs }: LeaderboardRun, succeeded: readonly Outcome[]): object {
  if (mode === "sequential") return {};
  const rampProfile = succeeded.map(({ launchedAtMs, ttiMs }) => ({
    launchedAt: roundMs(launchedAtMs),
    readyAt: roundMs(launchedAtMs + ttiMs),
    ttiMs: roundMs(ttiMs),
  }));
  const readyAt = rampProfile.map((each) => each.readyAt);
  const times = {
    wallClockMs: readyAt.length === 0 ? 0 : Math.max(...readyAt),
    timeToFirstReadyMs: readyAt.length === 0 ? 0 : Math.min(...readyAt),
  };
  if (mode === "burst") return { concurrency: outcomes.length, ...times };
  return { concurrency: outcomes.length, staggerDelayMs: staggerMs, ...times, rampProfile };
}

/** Without the fastest and the slowest twentieth; the median of an even number is between two samples. */
function trimmedPercentiles(samplesMs: readonly number[]): Percentiles {
  const sorted = samplesMs.toSorted((one, other) => one - other);
  const cut = Math.floor(sorted.length * TRIMMED);
  const kept = sorted.slice(cut, sorted.length - cut);
  const middle = Math.floor(kept.length / 2);
  const [below = 0, above = 0] = [kept[kept.length % 2 === 0 ? middle - 1 : middle], kept[middle]];
  return { median: (below + above) / 2, p95: percentile(kept, 0.95), p99: percentile(kept, 0.99) };
}

/** From 0 to 100; a time of CEILING_MS or more is worth nothing. */
function scoreOf(stats: Percentiles): number {
  const worth = (ms: number): number => Math.max(0, 100 * (1 - ms / CEILING_MS));
  return WEIGHTS.median * worth(stats.median) + WEIGHTS.p95 * worth(stats.p95) + WEIGHTS.p99 * worth(stats.p99);
}
