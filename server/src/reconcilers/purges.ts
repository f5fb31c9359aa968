/**
 * Forgets what is kept no longer: each purge of the list deletes a bounded number of rows whose time is over.
 *
 * Always: rows are claimed before they are deleted, so two servers share the work; a purge that fails is reported and does
 * not keep the others from running. A crash leaves rows for the next activation.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { purgeKeys } from "../apikeys/store.ts";
import type { Context } from "../context.ts";
import { purgeEvents } from "../events/store.ts";
import { removeExpiredKeys } from "../http/idempotency-store.ts";
import { purgeConnectTokens } from "../ingress/connect/store.ts";
import { purgeTombstones } from "../machines/store.ts";
import { purgeOperations } from "../operations/store.ts";
import type { Reconciler } from "./driver.ts";

/** What is forgotten, by the name of its count in the log. Each deletes up to `max` rows and gives how many it deleted. */
const PURGES: Readonly<Record<string, (context: Context, max: number) => Promise<number>>> = {
  /** Deleted machines, with their runs: their usage stays readable for 30 days. */
  machines: purgeTombstones,
  /** Events of tenants, after 30 days. */
  events: purgeEvents,
  /** Operations, 30 days after they ended. */
  operations: purgeOperations,
  /** Idempotency keys and the answers kept under them, after 24 hours. */
  idempotencyKeys: ({ db, clock }, max) => removeExpiredKeys(db, new Date(clock.now()), max),
  /** API keys, 30 days after they were revoked. */
  keys: ({ db, clock }, max) => purgeKeys(db, clock.now(), max),
  /** Connect tokens that have expired. */
  connectTokens: purgeConnectTokens,
};

const ROWS_MAX = 500;

export function purgeReconciler(context: Context): Reconciler {
  return {
    name: "purges",
    purpose: "forgets deleted machines, events, operations, credentials and idempotency keys when their time is over",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const errors: string[] = [];
      const counts: Record<string, number> = {};
      for (const [name, purge] of Object.entries(PURGES)) {
        try {
          counts[name] = await purge(context, ROWS_MAX);
        } catch (error) {
          errors.push(`${name}: ${ownMessageOf(error)}`);
        }
      }
      return { errors, counts, hasMore: Object.values(counts).includes(ROWS_MAX) };
    },
  };
}
