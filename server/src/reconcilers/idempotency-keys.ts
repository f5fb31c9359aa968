/**
 * Forgets idempotency keys and the answers kept under them when their time is over.
 *
 * Bounded deletes of claimed rows; two servers share the work.
 */
import type { Context } from "../context.ts";
import { removeExpiredKeys } from "../http/idempotency-store.ts";
import type { Reconciler } from "./driver.ts";

const ROWS_PER_ACTIVATION_MAX = 1_000;

export function idempotencyKeyReconciler(context: Context): Reconciler {
  return {
    name: "idempotency-keys",
    purpose: "forgets idempotency keys and their answers after 24 hours",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const removed = await removeExpiredKeys(context.db, new Date(context.clock.now()), ROWS_PER_ACTIVATION_MAX);
      return { errors: [], counts: { removed }, hasMore: removed === ROWS_PER_ACTIVATION_MAX };
    },
  };
}
