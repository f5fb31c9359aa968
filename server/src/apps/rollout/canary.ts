/**
 * Canary: a few instances of the new release are made beside all others. Once they serve, or once a person
 * says so, the others are replaced as by `rolling`. Pure.
 *
 * Always: before the promotion no other instance is retired. Each instance gets an equal part of the traffic,
 * so canaries that are not healthy get none.
 */
import type { Canary, Goal } from "./facts.ts";
import { phaseOf, rolling } from "./rolling.ts";
import { instances, possible, type Sides } from "./sides.ts";

export function canary({ canaryCount, autoPromote }: Omit<Canary, "type">, sides: Sides): Goal {
  const { count, to, isPromoted, isFirst } = sides;
  const canaries = Math.min(canaryCount, count);
  const serve = to.serving >= canaries;
  // Without another release, or without instances, there is nothing to compare canaries with.
  if (isPromoted || isFirst || count === 0 || (autoPromote && serve))
    return { ...rolling({ batchSize: canaryCount, waitMs: 0 }, sides), promotes: true };
  const wanted = possible(canaries, canaryCount, sides);
  const goal = { to: wanted, others: count, refills: true, surge: canaryCount, routed: "all" } as const;
  if (!serve) return { ...goal, ...phaseOf({ ...sides, count: canaries, wanted }) };
  return {
    ...goal,
    phase: "awaitingPromotion",
    waitingFor: `${instances(to.serving)} of the new release serve beside the others; a person to promote them`,
  };
}
