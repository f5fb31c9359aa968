/**
 * How many VMs of each kind to keep prepared. Pure.
 *
 * Always:
 * - The number of a kind follows how many were needed at once: the most that were being started at one moment
 *   of the last DEMAND_MS, so that a repeated burst finds them, and machines that are started one after
 *   another need one. It halves with each HALF_LIFE_MS in which none was taken.
 * - Kinds share what there is: the minimum of each comes first, then one of each that is needed, then each
 *   gets as many as the others, up to what it needs.
 * - Beyond the minimum, and one of each kind that is needed, no more are prepared than take REFILL_MS on this
 *   host, and none while its processors are under pressure. The one is prepared whatever it takes: starts
 *   from the template that it leaves take less of the processors than boots. What waits already is kept while
 *   it is needed and memory permits it.
 * - Some kinds have a minimum without demand, so that the first machine starts quickly; after UNUSED_MS the
 *   minimum is one.
 */

/** A machine's start. Monotonic milliseconds. */
export interface Start {
  /** When it took a VM, or would have. */
  readonly at: number;
  /** null: it is under way, or was abandoned. */
  readonly endedAt: number | null;
}

/** What is known about one kind. */
export interface Demand {
  /** Recent starts of machines of this kind, oldest first. */
  readonly starts: readonly Start[];
  /** How many are kept without demand. */
  readonly minimum: number;
  /** When one was last taken; before the first, when the kind was added. Monotonic milliseconds. */
  readonly usedAt: number;
  /** The memory of the guest. */
  readonly memoryMb: number;
  /** The VMs that wait. */
  readonly waiting: { readonly length: number };
}

export interface PreparedFacts {
  readonly now: number;
  readonly demands: readonly Demand[];
  readonly totalMemoryMb: number;
  readonly availableMemoryMb: number;
  /** How long it takes to prepare one on this host, in milliseconds. */
  readonly prepareMs: number;
  /**
   * In which part of the last minute a process waited for a processor, in percent; null: the host does not
   * say.
   */
  readonly processorPressure: number | null;
}

/** How long a start counts as demand. */
export const DEMAND_MS = 10 * 60_000;
/** A burst of requests arrives within such a time, and a start of it may end before the last one begins. */
const BURST_MS = 1_000;
/** A start that is under way for longer was abandoned. */
const START_MS_MAX = 2 * 60_000;
/** Machines that run wait for a processor most of the time. */
const PRESSURE_MAX = 50;
/** The number halves after each such time without a start of the kind. */
const HALF_LIFE_MS = 5 * 60_000;
/** After this long without a start, a minimum falls to one. */
const UNUSED_MS = 30 * 60_000;
/** How long the host prepares VMs after a burst, which may not be repeated. */
const REFILL_MS = 60_000;
export const PREPARED_MAX = 96;
/** Private memory of a prepared VM, with a margin: 44 MB measured. */
export const PREPARED_MB = 52;
/** Share of the host's memory that all prepared VMs may use. */
const SHARE_MAX = 0.25;
/** Share of the host's memory that is kept free for machines: below it none is prepared. */
const FREE_SHARE_MIN = 0.2;

/**
 * The target number of each kind, in the order of `demands`, which is their priority where only some get
 * another one.
 */
export function targetCounts({
  now,
  demands,
  totalMemoryMb,
  availableMemoryMb,
  prepareMs,
  processorPressure,
}: PreparedFacts): readonly number[] {
  const waiting = demands.reduce((sum, demand) => sum + demand.waiting.length, 0);
  const byShare = Math.floor((totalMemoryMb * SHARE_MAX) / PREPARED_MB);
  const byFree = waiting + Math.floor((availableMemoryMb - totalMemoryMb * FREE_SHARE_MIN) / PREPARED_MB);
  const bound = Math.min(PREPARED_MAX, byShare, byFree);
  // No machine of a kind that is larger than the host is ever placed on it.
  const fits = demands.map(({ memoryMb }) => memoryMb <= totalMemoryMb);
  const minimum = demands.map((demand, at) => (fits[at] ? minimumOf(demand, now) : 0));
  const needed = demands.map((demand, at) => (fits[at] ? neededOf(demand, now) : 0));
  const targets = demands.map(() => 0);
  raise(targets, minimum, bound);
  const isPressed = (processorPressure ?? 0) > PRESSURE_MAX;
  const one = needed.map((count) => Math.min(count, 1));
  raise(targets, one, bound);
  if (!isPressed) raise(targets, needed, Math.min(bound, Math.floor(REFILL_MS / prepareMs)));
  raise(
    targets,
    needed.map((count, at) => Math.min(count, demands[at]?.waiting.length ?? 0)),
    bound,
  );
  return targets;
}

/** Raises the targets evenly, each up to its own limit, and in all up to `bound`. */
function raise(targets: number[], limits: readonly number[], bound: number): void {
  let left = bound - targets.reduce((one, two) => one + two, 0);
  for (let isRaised = true; isRaised && left > 0; ) {
    isRaised = false;
    for (const [at, target] of targets.entries()) {
      if (left <= 0 || target >= (limits[at] ?? 0)) continue;
      targets[at] = target + 1;
      left -= 1;
      isRaised = true;
    }
  }
}

const minimumOf = ({ minimum, usedAt }: Demand, now: number): number =>
  now - usedAt < UNUSED_MS ? minimum : Math.min(minimum, 1);

const neededOf = ({ starts, usedAt }: Demand, now: number): number =>
  Math.floor(
    mostAtOnce(starts.filter(({ at }) => now - at < DEMAND_MS)) / 2 ** Math.floor((now - usedAt) / HALF_LIFE_MS),
  );

/** The most of these starts that were under way at one moment. */
function mostAtOnce(starts: readonly Start[]): number {
  const ends = starts
    .map(({ at, endedAt }) => Math.max(at + BURST_MS, Math.min(endedAt ?? Infinity, at + START_MS_MAX)))
    .toSorted((one, two) => one - two);
  let most = 0;
  let ended = 0;
  for (const [begun, { at }] of starts.entries()) {
    while ((ends[ended] ?? Infinity) <= at) ended += 1;
    most = Math.max(most, begun + 1 - ended);
  }
  return most;
}
