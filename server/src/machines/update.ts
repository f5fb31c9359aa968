/**
 * Changes what an owner may change of a machine.
 *
 * Always: the change is one statement. The node of a machine that is to run receives it afterwards, or with
 * the next start if it does not answer.
 */
import type { UpdateMachineRequest } from "@flotilla/contract/machines";
import type { MachineName, MachineRecord } from "./record.ts";
import { converge } from "./converge.ts";
import type { ConvergeServices, MachineServices } from "./services.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { type DescriptionChange, updateDescription } from "./store.ts";

/** The machine as it is now. Throws a Refusal when there is none. */
export async function updateMachine(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  { tenantId, id, request }: MachineName & { readonly request: UpdateMachineRequest },
): Promise<MachineRecord> {
  const { context, cache } = services;
  const { disruption = null, ttlSeconds = null, atEnd = null, labels = null } = request;
  const change: DescriptionChange = { disruption, ttlSeconds, atEnd, labels, isBranchable: null };
  const [machine] = await cache.keep([id], async () => {
    const updated = await updateDescription(context, { tenantId, id, ...change });
    return updated === undefined ? [] : [updated];
  });
  if (machine === undefined) throw machineNotFound(id);
  // The node of a machine is not told when it is deleted.
  if (disruption !== null && machine.desiredState === "running" && machine.nodeId !== null)
    services.inBackground(`what moves do to ${id}`, () => converge(services, machine, { waitMs: 0 }));
  return machine;
}

/** The machine may be branched from now on. Throws a Refusal when there is none. */
export async function makeBranchable(
  { context, cache }: Pick<MachineServices, "cache" | "context">,
  { tenantId, id }: MachineName,
): Promise<void> {
  const [machine] = await cache.keep([id], async () => {
    const change = { disruption: null, isBranchable: true, ttlSeconds: null, atEnd: null, labels: null };
    const updated = await updateDescription(context, { tenantId, id, ...change });
    return updated === undefined ? [] : [updated];
  });
  if (machine === undefined) throw machineNotFound(id);
}
