/**
 * How many VMs of each kind to keep prepared. Pure.
 *
 * Always:
 * - The number follows demand: as many as were taken in the last DEMAND_MS, so that a repeated burst finds them. It halves
 *   with each HALF_LIFE_MS in which none was taken, and is never more than memory permits.
 * - Some kinds have a minimum without demand, so that the first machine starts quickly; after UNUSED_MS the minimum is one.
 */

/** What is known about one kind. */
export interface Demand {
  /** When machines of this kind were started recently: monotonic milliseconds, oldest first. */
  readonly takenAt: readonly number[];
  /** How many are kept without demand. */
  readonly minimum: number;
  /** When one was last taken; before the first, when the kind was added. Monotonic milliseconds. */
  readonly usedAt: number;
  /** Of the guest. */
  readonly memoryMb: number;
}

export interface PreparedFacts {
  readonly now: number;
  readonly demands: readonly Demand[];
  readonly totalMemoryMb: number;
  readonly availableMemoryMb: number;
  /** Prepared VMs of all kinds. */
  readonly waiting: number;
}

/** How long a start counts as demand. */
export const DEMAND_MS = 10 * 60_000;
/** The number halves after each such time without a start of the kind. */
const HALF_LIFE_MS = 5 * 60_000;
/** After this long without a start, a minimum falls to one. */
const UNUSED_MS = 30 * 60_000;
export const PREPARED_MAX = 96;
/** Private memory of a prepared VM, with a margin: 44 MB measured. */
export const PREPARED_MB = 52;
/** Share of the host's memory that all prepared VMs may use. */
const SHARE_MAX = 0.25;
/** Share of the host's memory that is kept free for machines: below it none is prepared. */
const FREE_SHARE_MIN = 0.2;

/** The target number of each kind, in the order of `demands`, which is their priority. */
export function targetCounts({
  now,
  demands,
  totalMemoryMb,
  availableMemoryMb,
  waiting,
}: PreparedFacts): readonly number[] {
  const byShare = Math.floor((totalMemoryMb * SHARE_MAX) / PREPARED_MB);
  const byFree = waiting + Math.floor((availableMemoryMb - totalMemoryMb * FREE_SHARE_MIN) / PREPARED_MB);
  let left = Math.max(0, Math.min(PREPARED_MAX, byShare, byFree));
  return demands.map((demand) => {
    // No machine of the kind is ever placed on this host.
    if (demand.memoryMb > totalMemoryMb) return 0;
    const target = Math.min(left, targetOf(demand, now));
    left -= target;
    return target;
  });
}

function targetOf({ takenAt, minimum, usedAt }: Demand, now: number): number {
  const unusedMs = now - usedAt;
  const recent = takenAt.filter((at) => now - at < DEMAND_MS).length;
  const expected = recent / 2 ** Math.floor(unusedMs / HALF_LIFE_MS);
  return Math.max(Math.floor(expected), unusedMs < UNUSED_MS ? minimum : Math.min(minimum, 1));
}
