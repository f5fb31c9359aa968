/**
 * Where a run is recorded that a node reports, as decision 31 says. Pure.
 *
 * Always: computed by other code than the server's. Instants are epoch milliseconds.
 */

/** Which node had a machine since when and until when; `until` null: it still has it. */
export interface Period {
  readonly node: string;
  readonly since: number;
  until: number | null;
}

/** A run as it is recorded. */
export interface PlacedRun {
  readonly from: number;
  /** null: its end is not recorded. */
  to: number | null;
  /** Its machine left the node then, and its end was not recorded. */
  leftAt: number | null;
  /** null: no bound. */
  countedUntil: number | null;
  /** What was added to its node's times. */
  readonly later: number;
}

interface Reported {
  readonly node: string;
  /** By the node's clock. */
  readonly startedAt: number;
  readonly endedAt: number | null;
  /** When its machine was deleted; null: it was not. */
  readonly deletedAt: number | null;
  /** When the report arrived. */
  readonly now: number;
}

const CLOCKS_DIFFER_MS = 3_600_000;
const EVER = Number.POSITIVE_INFINITY;

const endOf = ({ to, leftAt, countedUntil }: PlacedRun): number =>
  Math.min(to ?? EVER, leftAt ?? EVER, countedUntil ?? EVER);

/** null: it is not recorded now. `others`: what is recorded of the machine. */
export function place(run: Reported, periods: readonly Period[], others: readonly PlacedRun[]): PlacedRun | null {
  const { startedAt, endedAt, deletedAt, now } = run;
  const own = periods.filter(({ node }) => node === run.node);
  const period = own.findLast(({ since }) => since <= (endedAt ?? now) + CLOCKS_DIFFER_MS) ?? own[0];
  if (period === undefined) return null;
  if (endedAt === null && (period.until !== null || others.some((other) => endOf(other) === EVER))) return null;
  const { since } = period;
  const until = period.until ?? EVER;
  const countedUntil = deletedAt === null ? null : Math.max(since, deletedAt);
  const last = Math.max(since, Math.min(until, countedUntil ?? EVER, now));
  const length = endedAt === null ? null : Math.max(0, endedAt - startedAt);
  const wanted = Math.max(since, Math.min(startedAt, last, Math.min(until, now) - (length ?? 0)));
  const placed = (from: number, held: number | null): PlacedRun => {
    const to = held === null ? null : Math.min(Math.max(now, from), until, from + held);
    return { from, to, leftAt: null, countedUntil, later: from - startedAt };
  };
  if (isFree(placed(wanted, length), others)) return placed(wanted, length);
  const before = others.filter((other) => other.from < last && endOf(other) > other.from);
  if (length === null) return placed(Math.min(last, Math.max(wanted, ...before.map(endOf))), null);
  const best = gapsOf(since, last, before)
    .map(([from, to]) => {
      const held = Math.min(length, to - from);
      return { held, from: Math.max(from, Math.min(wanted, to - held)) };
    })
    .toSorted((a, b) => b.held - a.held || Math.abs(a.from - wanted) - Math.abs(b.from - wanted))[0];
  return best === undefined ? placed(last, 0) : placed(best.from, best.held);
}

/** Runs without length are nowhere. */
function isFree(run: PlacedRun, others: readonly PlacedRun[]): boolean {
  const overlaps = (other: PlacedRun): boolean =>
    endOf(other) > other.from && other.from < endOf(run) && run.from < endOf(other);
  return endOf(run) === run.from || !others.some(overlaps);
}

/** The times from `since` to `last` in which none of the runs is. */
function gapsOf(since: number, last: number, runs: readonly PlacedRun[]): readonly (readonly [number, number])[] {
  const gaps: [number, number][] = [];
  let at = since;
  for (const run of runs.toSorted((a, b) => a.from - b.from)) {
    const from = Math.min(run.from, last);
    if (from > at) gaps.push([at, from]);
    at = Math.max(at, endOf(run));
  }
  if (last > at) gaps.push([at, last]);
  return gaps;
}
