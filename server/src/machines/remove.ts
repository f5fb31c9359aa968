/**
 * Deletes a machine in any state: its owner does not see it any more when the one statement has committed.
 *
 * Always:
 * - A delete wins over every concurrent start, stop and report, because it needs no fence and nothing leads
 *   out of it.
 * - Its runs stop counting in the same statement, so its usage is final.
 *
 * The node is called immediately afterwards, and by the machine reconciler if this process dies or the node
 * is unreachable.
 */
import { converge } from "./converge.ts";
import type { MachineRecord } from "./record.ts";
import type { ConvergeServices, MachineServices } from "./services.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { phaseOf } from "./state.ts";
import { removeMachine } from "./store.ts";

/**
 * The deleted machine. `ifUnused`: only one that has never run. Throws a Refusal when there is no such
 * machine.
 */
export async function deleteMachine(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  options: { readonly tenantId: string; readonly id: string; readonly ifUnused?: boolean },
): Promise<MachineRecord> {
  const machine = await deleteIfMade(services, options);
  if (machine === undefined) throw machineNotFound(options.id);
  return machine;
}

/**
 * The deleted machine; undefined: there is none, because it was not made, or its owner or another server was
 * faster.
 */
export async function deleteIfMade(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  options: { readonly tenantId: string; readonly id: string; readonly ifUnused?: boolean },
): Promise<MachineRecord | undefined> {
  const machine = await removeMachine(services.context, options);
  services.cache.forget(options.id);
  if (machine !== undefined) removeFromNode(services, machine);
  return machine;
}

/** Has its node remove a machine that was deleted, in the background. */
export function removeFromNode(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  machine: MachineRecord,
): void {
  if (phaseOf(machine) !== "deleted")
    services.inBackground(`deletion of ${machine.id}`, () => converge(services, machine, { waitMs: 0 }));
}
