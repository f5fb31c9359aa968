/**
 * Ends leases whose time is over or whose owner is silent, and deletes the machines of those that have
 * ended.
 *
 * Two servers may do it at once: one of them ends a lease, and a delete may be repeated.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { MachineServices } from "../machines/services.ts";
import type { Reconciler } from "../family.ts";
import { deleteLeased } from "./lease.ts";
import { endOverdue, listLeft } from "./store.ts";

const LEASES_PER_ACTIVATION_MAX = 100;

export function leaseReconciler(services: MachineServices): Reconciler {
  return {
    name: "leases",
    purpose: "ends leases whose time is over or whose owner is silent, and deletes their machines",
    periodMs: 1_000,
    wakeOn: [],
    async activate() {
      const { db } = services.context;
      const ended = await endOverdue(db, LEASES_PER_ACTIVATION_MAX);
      const left = await listLeft(db, LEASES_PER_ACTIVATION_MAX);
      const errors: string[] = [];
      await Promise.all(
        left.map((lease) =>
          deleteLeased(services, lease).catch((error: unknown) => {
            errors.push(`${lease.id}: ${ownMessageOf(error)}`);
          }),
        ),
      );
      return { counts: { ended: ended.length, deleted: left.length - errors.length }, errors };
    },
  };
}
