/**
 * Deletes expired data: each purge of the list deletes a bounded number of expired rows.
 *
 * Always: rows are claimed before they are deleted, so that two servers share the work. A failed purge is
 * reported and does not stop the others. A crash leaves rows for the next activation.
 */
import { purgeKeys } from "../apikeys/store.ts";
import { purgeAudit } from "../audit/store.ts";
import type { Context } from "../context.ts";
import { purgeEvents } from "../events/store.ts";
import { removeExpiredKeys } from "../api/idempotency-store.ts";
import { purgeConnectTokens } from "../ingress/connect/store.ts";
import { purgeTombstones } from "../machines/store.ts";
import { purgeOperations } from "../operations/store.ts";
import { purgeJoinTokens } from "../tokens/store.ts";
import type { Reconciler } from "../family.ts";
import { countEach } from "./each.ts";

/** The purges, by the name of their count in the log. Each deletes up to `max` rows and returns how many. */
const PURGES: Readonly<Record<string, (context: Context, max: number) => Promise<number>>> = {
  /** Deleted machines, with their runs: their usage stays readable for 30 days. */
  machines: purgeTombstones,
  /** Events of tenants, after 30 days. */
  events: purgeEvents,
  /** Operations, 30 days after they ended. */
  operations: purgeOperations,
  /** Idempotency keys and the answers kept under them, after 24 hours. */
  idempotencyKeys: ({ db, clock }, max) => removeExpiredKeys(db, clock.now(), max),
  /** API keys, 30 days after they were revoked or expired. */
  keys: ({ db, clock }, max) => purgeKeys(db, clock.now(), max),
  /** Join tokens, 30 days after they expired. */
  joinTokens: ({ db, clock }, max) => purgeJoinTokens(db, clock.now(), max),
  /** Connect tokens that have expired. */
  connectTokens: purgeConnectTokens,
};

const ROWS_MAX = 500;

/** `auditDays`: how long recorded calls are kept. */
export function purgeReconciler(context: Context, { auditDays = 365 }: { auditDays?: number } = {}): Reconciler {
  const purges = { ...PURGES, audit: (of: Context, max: number) => purgeAudit(of, auditDays, max) };
  return {
    name: "purges",
    purpose: "deletes expired machines, events, recorded calls, operations, credentials and idempotency keys",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const { counts, errors } = await countEach(purges, (purge) => purge(context, ROWS_MAX));
      return { errors, counts, hasMore: Object.values(counts).includes(ROWS_MAX) };
    },
  };
}
