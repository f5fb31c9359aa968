/**
 * Deletes expired data: each purge of a family deletes a bounded number of expired rows.
 *
 * Always: rows are claimed before they are deleted, so that two servers share the work. A failed purge is
 * reported and does not stop the others. A crash leaves rows for the next activation.
 */
import { removeExpiredKeys } from "../api/idempotency-store.ts";
import type { Context } from "../context.ts";
import type { Purge, Reconciler } from "../family.ts";
import { countEach } from "./each.ts";

/** Idempotency keys and the answers kept under them, after 24 hours: they belong to no family. */
const idempotencyKeys: Purge = ({ db, clock }, max) => removeExpiredKeys(db, clock.now(), max);

const ROWS_MAX = 500;

/** `ofFamilies`: by the name of their count in the log. */
export function purgeReconciler(context: Context, ofFamilies: Readonly<Record<string, Purge>>): Reconciler {
  const purges = { ...ofFamilies, idempotencyKeys };
  return {
    name: "purges",
    purpose: "deletes expired machines, events, recorded calls, operations, leases, credentials and idempotency keys",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const { counts, errors } = await countEach(purges, (purge) => purge(context, ROWS_MAX));
      return { errors, counts, hasMore: Object.values(counts).includes(ROWS_MAX) };
    },
  };
}
