/**
 * Deletes a machine, in any state: it is gone for its owner when the one statement has committed.
 *
 * Always: delete wins over every start, stop and report that is under way, because it needs no fence and nothing leads
 * out of it; its runs end in the same statement, so its usage is settled.
 *
 * The node is told right afterwards, and by the machine reconciler if this process dies or the node is away.
 */
import { converge } from "./converge.ts";
import type { MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { machineNotFound } from "./start.ts";
import { phaseOf } from "./state.ts";
import { removeMachine } from "./store.ts";

/** The machine as it was left. */
export async function deleteMachine(
  services: MachineServices,
  options: { readonly tenantId: string; readonly id: string },
): Promise<MachineRecord> {
  const machine = await removeMachine(services.context, options);
  services.cache.forget(options.id);
  if (machine === undefined) throw machineNotFound(options.id);
  if (phaseOf(machine) !== "deleted") {
    services.inBackground(`deletion of ${machine.id}`, () => converge(services, machine, { waitMs: 0 }));
  }
  return machine;
}
