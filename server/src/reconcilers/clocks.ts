/**
 * Brings forward what a clock that was ahead has postponed: ends of leases, and times of next attempts.
 *
 * They are written by servers' clocks. One that is ahead by a month and is set back would leave them for a
 * month: webhooks would receive nothing, operations of a server that died would not be continued, idle
 * machines would run.
 *
 * Always: a failed statement is reported and does not stop the others. A crash leaves rows for the next
 * activation.
 */
import type { Context } from "../context.ts";
import type { Reconciler } from "../family.ts";
import { countEach } from "./each.ts";
import { instantsAt, POSTPONED } from "./postponed-store.ts";

export function clockReconciler({ clock, db }: Context): Reconciler {
  return {
    name: "clocks",
    purpose: "brings forward what a clock that was ahead, and has been set back, has postponed",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const at = instantsAt(clock.now());
      const { counts, errors } = await countEach(POSTPONED, (bringForward) => bringForward(db, at));
      return { errors, counts, isRepair: Object.values(counts).some((count) => count > 0) };
    },
  };
}
