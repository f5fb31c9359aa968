/**
 * Canary: a few instances of the new release are made beside all others. Once they serve, or once a person
 * says so, the others are replaced as by `rolling`. Pure.
 *
 * Always: before the promotion no other instance is retired, but those of nodes that are drained, each when
 * another one of the release before serves for it. Each instance gets an equal part of the traffic, so
 * canaries that are not healthy get none.
 */
import type { AppFacts, Canary, Goal } from "./facts.ts";
import { phaseOf, rolling } from "./rolling.ts";
import { instances, possible, roomFor, serves, type Sides, sidesOf } from "./sides.ts";

export function canary({ canaryCount, autoPromote }: Omit<Canary, "type">, sides: Sides): Goal {
  const { count, to, isPromoted, isFirst } = sides;
  const canaries = Math.min(canaryCount, count);
  const serve = to.serving >= canaries;
  // Without another release, or without instances, there is nothing to compare canaries with.
  if (isPromoted || isFirst || count === 0 || (autoPromote && serve))
    return { ...rolling({ batchSize: canaryCount, waitMs: 0 }, sides), promotes: true };
  const wanted = possible(canaries, canaryCount, sides);
  const goal = { to: wanted, refills: true, routed: "all", ...othersOf(canaryCount, sides) } as const;
  if (!serve) return { ...goal, ...phaseOf({ ...sides, count: canaries, wanted }) };
  return {
    ...goal,
    phase: "awaitingPromotion",
    waitingFor: `${instances(to.serving)} of the new release serve beside the others; a person to promote them`,
  };
}

/** Replaces the instances of drained nodes one after the other, beside the canaries. */
function othersOf(canaryCount: number, sides: Sides): Pick<Goal, "others" | "surge"> {
  const { count, others } = sides;
  const staying = others.wanted.filter(({ isDrained }) => !isDrained);
  const leaving = others.wanted.length - staying.length;
  if (leaving === 0) return { others: count, surge: canaryCount };
  const surge = canaryCount + 1;
  const kept = Math.min(leaving, Math.max(0, count - staying.filter(serves).length));
  // One that is replaced makes room for the next.
  const room = leaving > kept ? 0 : roomFor(surge, sides);
  return { others: kept + Math.min(count, staying.length + room), surge };
}

/** The instances beside canaries that wait for a person. */
export interface Beside {
  readonly serving: number;
  /** As many serve as are asked, and nothing else is left. */
  readonly isReached: boolean;
}

/** null: no canaries wait for a person. */
export function besideCanaries({ count, rollout, instances: all }: AppFacts): Beside | null {
  if (rollout?.progress?.phase !== "awaitingPromotion" || rollout.isPromoted) return null;
  const { wanted, serving, leaving } = sidesOf(all, rollout.to).others;
  return { serving, isReached: serving === count && wanted.length === count && leaving === 0 };
}
