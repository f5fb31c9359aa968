/**
 * Removes copies of machines that moves have left on nodes, and that nothing else finds: their nodes did not
 * answer when the moves ended, and report nothing of them, because they never had them or have lost their
 * answer.
 *
 * Writes machine_copies, through copies.ts. Two servers may remove the same copy: the node's verb is
 * idempotent.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { MachineServices } from "../machines/services.ts";
import { removeCopy } from "./copies.ts";
import { listRemovableCopies } from "./store.ts";
import type { Reconciler } from "../family.ts";

const COPIES_PER_ACTIVATION_MAX = 64;

export function copyReconciler(services: Pick<MachineServices, "context" | "link" | "nodeWaitMs">): Reconciler {
  return {
    name: "copies",
    purpose: "removes copies of machines that moves have left on nodes that did not answer",
    periodMs: 30_000,
    wakeOn: [],
    async activate() {
      const copies = await listRemovableCopies(services.context.db, COPIES_PER_ACTIVATION_MAX);
      const errors: string[] = [];
      const gone = await Promise.all(
        copies.map((copy) =>
          removeCopy(services, copy).catch((error: unknown) => {
            errors.push(`${copy.machineId}: ${ownMessageOf(error)}`);
            return false;
          }),
        ),
      );
      return { counts: { removed: gone.filter(Boolean).length }, errors };
    },
  };
}
