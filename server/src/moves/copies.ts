/**
 * Removes copies of machines' files from nodes that do not own them: what a failed move left on its target,
 * and what a completed one left on its source.
 *
 * Always: a copy is removed only when the machine's row names another owner. The request has the row's
 * generation, so it has no effect on a machine that comes back to the node later.
 *
 * A node that does not answer is asked again when it reports the machine.
 */
import { NodeUnreachable } from "../link/refusals.ts";
import type { MachineServices } from "../machines/services.ts";
import { forgetCopy, listObsoleteCopies, type ObsoleteCopy } from "./store.ts";

/** Removes the obsolete copies of a machine. Returns how many could not be removed now. */
export async function removeCopies(
  services: Pick<MachineServices, "context" | "link" | "nodeWaitMs">,
  machineId: string,
): Promise<number> {
  const copies = await listObsoleteCopies(services.context.db, { machineIds: [machineId], nodeId: null });
  const removed = await Promise.all(copies.map((copy) => removeCopy(services, copy)));
  return removed.filter((isGone) => !isGone).length;
}

/**
 * A node reports machines that it does not own: removes their copies in the background. Returns the machines
 * of which it may have one.
 */
export async function removeReportedCopies(
  services: Pick<MachineServices, "context" | "inBackground" | "link" | "nodeWaitMs">,
  nodeId: string,
  machineIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const copies = await listObsoleteCopies(services.context.db, { machineIds, nodeId });
  for (const copy of copies)
    services.inBackground(`removal of a copy of ${copy.machineId}`, () => removeCopy(services, copy));
  return new Set(copies.map(({ machineId }) => machineId));
}

/** Whether the node has confirmed that it has none. */
export async function removeCopy(
  { context, link, nodeWaitMs }: Pick<MachineServices, "context" | "link" | "nodeWaitMs">,
  copy: ObsoleteCopy,
): Promise<boolean> {
  const { machineId, nodeId, address, generation } = copy;
  try {
    const desired = { generation, state: "absent", spec: null } as const;
    const observed = await link.putMachine({ nodeId, address }, machineId, desired, { waitMs: nodeWaitMs });
    if (observed.state !== "absent") return false;
    await forgetCopy(context.db, copy);
    return true;
  } catch (error) {
    if (!(error instanceof NodeUnreachable)) throw error;
    context.log.info({ nodeId, machineId }, "a copy of a machine is removed when its node answers");
    return false;
  }
}
