/**
 * Claims operations: new ones immediately, and those of a server that died once its lease has run out. Ends
 * those that are past their deadline.
 *
 * Writes operations through their store. It only claims, and leaves the work to run.ts, which may
 * take an hour, so an activation is short. Two servers never have the same operation at the same time. If the
 * server dies after the claim, the lease runs out.
 */
import type { Context } from "../context.ts";
import { OPERATION_LEASE_MS, type OperationRunner } from "./run.ts";
import { claimOperations } from "./store.ts";
import type { Reconciler } from "../family.ts";

export function operationReconciler(context: Context, runner: OperationRunner): Reconciler {
  return {
    name: "operations",
    purpose: "works on operations, including those of a server that died",
    periodMs: 1_000,
    wakeOn: ["operations"],
    async activate() {
      const { kinds, room } = runner;
      if (room.all === 0) return { errors: [], counts: { claimed: 0, again: 0 }, isRepair: false };
      const claimed = await claimOperations(context, { kinds, room, leaseMs: OPERATION_LEASE_MS });
      for (const operation of claimed) runner.take(operation);
      const again = claimed.filter(({ attempt }) => attempt > 1).length;
      return { errors: [], counts: { claimed: claimed.length, again }, isRepair: again > 0 };
    },
  };
}
