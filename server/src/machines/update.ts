/**
 * Changes what an owner may change of a machine.
 *
 * Always: the change is one statement, and does not reach the machine's node.
 */
import type { UpdateMachineRequest } from "@flotilla/contract/machines";
import type { MachineName, MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { machineNotFound } from "./start.ts";
import { updateDescription } from "./store.ts";

/** The machine as it is now. Throws a Refusal when there is none. */
export async function updateMachine(
  { context, cache }: Pick<MachineServices, "context" | "cache">,
  { tenantId, id, request }: MachineName & { readonly request: UpdateMachineRequest },
): Promise<MachineRecord> {
  const disruption = request.disruption ?? null;
  const [machine] = await cache.keep([id], async () => {
    const updated = await updateDescription(context, { tenantId, id, disruption });
    return updated === undefined ? [] : [updated];
  });
  if (machine === undefined) throw machineNotFound(id);
  return machine;
}
