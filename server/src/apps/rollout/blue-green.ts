/**
 * Blue-green: a complete set of the new release is made beside the others. Once all of it is healthy, traffic
 * goes to it in one change of the table, and the others are retired. Pure.
 *
 * Always: the table has instances of one set. The others are kept until every ingress knows the new set.
 */
import type { Goal } from "./facts.ts";
import { phaseOf } from "./rolling.ts";
import { possible, type Sides } from "./sides.ts";

export function blueGreen(sides: Sides): Goal {
  const { count, to, others, isPromoted } = sides;
  const isSwitched = isPromoted || to.healthy >= count;
  const isOver = isSwitched && to.serving >= count;
  const wanted = possible(count, count, sides);
  return {
    to: wanted,
    others: isOver ? 0 : count,
    refills: !isSwitched,
    surge: count,
    routed: isSwitched ? "to" : "others",
    ...phaseOf({ ...sides, wanted }),
    promotes: isSwitched,
    isDone: isOver && others.wanted.length === 0,
  };
}
