/**
 * Forgets machines that were deleted 30 days ago, with their timelines and runs, old lines of other timelines, and
 * operations that ended as long ago.
 *
 * Until then a deleted machine's usage stays readable. Bounded deletes of claimed rows; two servers share the work.
 */
import type { Context } from "../context.ts";
import { purgeTombstones } from "../machines/store.ts";
import { purgeEvents } from "../events/store.ts";
import { purgeOperations } from "../operations/store.ts";
import type { Reconciler } from "./driver.ts";

const ROWS_PER_ACTIVATION_MAX = 500;

export function tombstoneReconciler(context: Context): Reconciler {
  return {
    name: "tombstones",
    purpose: "forgets deleted machines, old events and operations after 30 days",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const machines = await purgeTombstones(context, ROWS_PER_ACTIVATION_MAX);
      const events = await purgeEvents(context, ROWS_PER_ACTIVATION_MAX);
      const operations = await purgeOperations(context, ROWS_PER_ACTIVATION_MAX);
      const hasMore = [machines, events, operations].includes(ROWS_PER_ACTIVATION_MAX);
      return { errors: [], counts: { machines, events, operations }, hasMore };
    },
  };
}
