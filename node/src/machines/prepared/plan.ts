/**
 * How many VMs of each kind to keep prepared. Pure.
 *
 * Always:
 * - The number of a kind follows how many were needed at once: the most that were taken within BURST_MS of
 *   the last DEMAND_MS, so that a repeated burst finds them, and machines that are started one after another
 *   need few. It halves with each HALF_LIFE_MS in which none was taken.
 * - Kinds share what there is: the minimum of each comes first, then each gets as many as the others, up to
 *   what it needs.
 * - No more are prepared than take REFILL_MS on this host. What waits already is kept while it is needed and
 *   memory permits it.
 * - Some kinds have a minimum without demand, so that the first machine starts quickly; after UNUSED_MS the
 *   minimum is one.
 */

/** What is known about one kind. */
export interface Demand {
  /** When machines of this kind were started recently: monotonic milliseconds, oldest first. */
  readonly takenAt: readonly number[];
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
}

/** How long a start counts as demand. */
export const DEMAND_MS = 10 * 60_000;
/** Starts within such a time count together: what they take is not replaced before the last of them. */
const BURST_MS = 30_000;
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
}: PreparedFacts): readonly number[] {
  const waiting = demands.reduce((sum, demand) => sum + demand.waiting.length, 0);
  const byShare = Math.floor((totalMemoryMb * SHARE_MAX) / PREPARED_MB);
  const byFree = waiting + Math.floor((availableMemoryMb - totalMemoryMb * FREE_SHARE_MIN) / PREPARED_MB);
  const bound = Math.min(PREPARED_MAX, byShare, byFree);
  const byWork = Math.floor(REFILL_MS / prepareMs);
  // No machine of a kind that is larger than the host is ever placed on it.
  const fits = demands.map(({ memoryMb }) => memoryMb <= totalMemoryMb);
  const minimum = demands.map((demand, at) => (fits[at] ? minimumOf(demand, now) : 0));
  const needed = demands.map((demand, at) => (fits[at] ? neededOf(demand, now) : 0));
  const targets = demands.map(() => 0);
  raise(targets, minimum, bound);
  raise(targets, needed, Math.min(bound, byWork));
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

const neededOf = ({ takenAt, usedAt }: Demand, now: number): number =>
  Math.floor(mostAtOnce(takenAt.filter((at) => now - at < DEMAND_MS)) / 2 ** Math.floor((now - usedAt) / HALF_LIFE_MS));

/** The most of these times, which are in order, that lie within BURST_MS. */
function mostAtOnce(times: readonly number[]): number {
  let most = 0;
  let from = 0;
  for (const [at, time] of times.entries()) {
    while (time - (times[from] ?? time) >= BURST_MS) from += 1;
    most = Math.max(most, at + 1 - from);
  }
  return most;
}
