/**
 * Forgets API keys that were revoked 30 days ago, and connect tokens that have expired.
 *
 * Bounded deletes of claimed rows; two servers share the work.
 */
import { purgeKeys } from "../apikeys/store.ts";
import type { Context } from "../context.ts";
import { purgeConnectTokens } from "../machines/connect/store.ts";
import type { Reconciler } from "./driver.ts";

const ROWS_PER_ACTIVATION_MAX = 1_000;

export function credentialReconciler(context: Context): Reconciler {
  return {
    name: "credentials",
    purpose: "forgets API keys 30 days after they were revoked, and connect tokens when they have expired",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const keys = await purgeKeys(context.db, context.clock.now(), ROWS_PER_ACTIVATION_MAX);
      const connectTokens = await purgeConnectTokens(context, ROWS_PER_ACTIVATION_MAX);
      const hasMore = [keys, connectTokens].includes(ROWS_PER_ACTIVATION_MAX);
      return { errors: [], counts: { keys, connectTokens }, hasMore };
    },
  };
}
