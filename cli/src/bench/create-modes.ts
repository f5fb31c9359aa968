/**
 * The create benchmark in the form of public sandbox leaderboards: machines made one after another, staggered
 * by a fixed time, or all at once. For each machine it measures the time from create to the answer of its
 * first command ("tti").
 *
 * Always: a machine that fails is in the result with its error; its time is 0 and counts in no percentile.
 */
import type { Clock } from "@flotilla/base/clock";
import { failureOf } from "../failure.ts";
import type { CreateMode } from "./options.ts";
import { type Percentiles, percentilesOf, roundMs } from "./statistics.ts";

export interface Outcome {
  /** Milliseconds since the run began. */
  readonly launchedAtMs: number;
  /** Milliseconds; 0 when it failed. */
  readonly ttiMs: number;
  readonly error: string | null;
}

export interface ModeRun {
  readonly mode: CreateMode;
  /** Milliseconds between launches; only for a staggered run. */
  readonly staggerMs: number;
  /** In launch order. */
  readonly outcomes: readonly Outcome[];
  /** From the first launch to the last answer. */
  readonly wallClockMs: number;
}

/** The keys are the leaderboards' keys, except `successCount`, which is ours. */
export interface CreateResult {
  readonly provider: "flotilla";
  readonly mode: CreateMode;
  readonly iterations: readonly { readonly ttiMs: number; readonly error?: string }[];
  readonly summary: { readonly ttiMs: Percentiles };
  readonly successCount: number;
  readonly successRate: number;
  readonly concurrency?: number;
  readonly wallClockMs?: number;
  readonly timeToFirstReadyMs?: number;
  readonly staggerDelayMs?: number;
  readonly rampProfile?: readonly { readonly launchedAt: number; readonly readyAt: number; readonly ttiMs: number }[];
}

/** Where the machines of a run come from. */
export interface Launches {
  /** Makes one that has answered its first command; the time is from create to the answer. */
  make(): Promise<{ readonly machine: { readonly id: string }; readonly ttiMs: number }>;
  remove(id: string): Promise<void>;
}

export interface ModeOptions {
  readonly mode: CreateMode;
  readonly count: number;
  readonly staggerMs: number;
  readonly fleet: Launches;
  readonly clock: Clock;
  readonly stopped: AbortSignal;
  /** Called with the number of machines that have answered or failed. */
  readonly onDone: (done: number) => void;
}

/**
 * Rejects only when the run is stopped. Machines of a sequential run are removed one by one; others keep
 * running.
 */
export async function runMode(options: ModeOptions): Promise<ModeRun> {
  const { mode, count, staggerMs, clock, stopped, onDone } = options;
  const startedAt = clock.monotonic();
  const launched: Promise<Outcome>[] = [];
  let done = 0;
  for (let index = 0; index < count; index++) {
    stopped.throwIfAborted();
    const outcome = launch(options, startedAt);
    launched.push(outcome.finally(() => onDone((done += 1))));
    if (mode === "sequential") await outcome;
    else if (mode === "staggered" && index < count - 1) await clock.sleep(staggerMs, stopped);
  }
  const outcomes = await Promise.all(launched);
  stopped.throwIfAborted();
  return { mode, staggerMs, outcomes, wallClockMs: clock.monotonic() - startedAt };
}

async function launch({ fleet, clock, mode }: ModeOptions, startedAt: number): Promise<Outcome> {
  const launchedAtMs = clock.monotonic() - startedAt;
  try {
    const { machine, ttiMs } = await fleet.make();
    if (mode === "sequential") await fleet.remove(machine.id);
    return { launchedAtMs, ttiMs, error: null };
  } catch (error) {
    return { launchedAtMs, ttiMs: 0, error: failureOf(error, null)?.message ?? String(error) };
  }
}

/** Pure. */
export function resultOf({ mode, staggerMs, outcomes, wallClockMs }: ModeRun): CreateResult {
  const succeeded = outcomes.filter(({ error }) => error === null);
  const times = succeeded.map(({ ttiMs }) => ttiMs);
  const rampProfile = succeeded.map(({ launchedAtMs, ttiMs }) => ({
    launchedAt: roundMs(launchedAtMs),
    readyAt: roundMs(launchedAtMs + ttiMs),
    ttiMs: roundMs(ttiMs),
  }));
  return {
    provider: "flotilla",
    mode,
    iterations: outcomes.map(({ ttiMs, error }) => ({ ttiMs: roundMs(ttiMs), ...(error === null ? {} : { error }) })),
    summary: { ttiMs: percentilesOf(times) },
    successCount: succeeded.length,
    successRate: Math.round((succeeded.length / Math.max(1, outcomes.length)) * 10_000) / 10_000,
    ...(mode === "sequential"
      ? {}
      : {
          concurrency: outcomes.length,
          wallClockMs: roundMs(wallClockMs),
          timeToFirstReadyMs: times.length === 0 ? 0 : roundMs(Math.min(...times)),
        }),
    ...(mode === "staggered" ? { staggerDelayMs: staggerMs, rampProfile } : {}),
  };
}
