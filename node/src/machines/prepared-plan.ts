/**
 * How many VMs should wait prepared, by kind. Pure.
 *
 * Always: the number follows demand: as many as were taken in the recent past, so that a burst of the same kind finds
 * them, and half as many after each few minutes in which none was taken; never more than memory allows. A few of some
 * kinds wait without demand, so that the first machine is quick: after half an hour without one of the kind, a single one.
 */

/** What is known about one kind. */
export interface Demand {
  /** When machines of this kind were started recently: monotonic milliseconds, oldest first. */
  readonly takenAt: readonly number[];
  /** How many wait also without demand. */
  readonly minimum: number;
  /** When one was last taken; while none was, when the kind became known. Monotonic milliseconds. */
  readonly usedAt: number;
  /** Of the guest. */
  readonly memoryMb: number;
}

export interface PreparedFacts {
  readonly now: number;
  readonly demands: readonly Demand[];
  readonly totalMemoryMb: number;
  readonly availableMemoryMb: number;
  /** That wait now, of all kinds. */
  readonly waiting: number;
}

/** How long a start counts as demand. */
export const DEMAND_MS = 10 * 60_000;
/** Without a start of the kind the number falls to half after this long, and again, and again. */
const HALF_LIFE_MS = 5 * 60_000;
/** After so long without a start, one of a kind that waits also without demand is enough. */
const UNUSED_MS = 30 * 60_000;
export const PREPARED_MAX = 96;
/** Private memory of one that waits, with a margin: 44 MB measured. */
export const PREPARED_MB = 52;
/** Of the host's memory, that all that wait may take together. */
const SHARE_MAX = 0.25;
/** Of the host's memory, that stays free for machines: below it none is prepared. */
const FREE_SHARE_MIN = 0.2;

/** The number wanted of each kind, in the order of `demands`: the first are served first. */
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
