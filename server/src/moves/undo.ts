/**
 * Ends a move that was not completed, and removes what it has left.
 *
 * Always: may be done twice, also by two servers at once. An unreachable node removes its parts of the
 * machine later.
 */
import { discardIncoming, type MoveCall, releaseOutgoing } from "../link/moves.ts";
import { converge } from "../machines/converge.ts";
import { nodeOf } from "../machines/record.ts";
import type { ConvergeServices, MachineServices } from "../machines/services.ts";
import { removeCopies } from "./copies.ts";
import { listObsoleteCopies, type ObsoleteCopy, releaseMachine } from "./store.ts";

const DISCARD_TIMEOUT_MS = 10_000;

/** Leaves the machine where it was. The order matters: once it is released, no server completes the move. */
export async function undoMove(
  services: ConvergeServices & Pick<MachineServices, "activity" | "inBackground" | "nodeWaitMs">,
  call: Omit<MoveCall, "signal">,
): Promise<void> {
  const { context, cache, activity } = services;
  const { machineId, moveId } = call;
  const released = await releaseMachine(context, { machineId, moveId });
  cache.forget(machineId);
  // It may be paused.
  if (released?.desiredState === "running")
    services.inBackground(`end of a move of ${machineId}`, () =>
      converge(services, released, { waitMs: services.nodeWaitMs }),
    );
  if (released !== undefined)
    activity.note(machineId, { type: "machine.moveEnded", data: { nodeId: nodeOf(released).nodeId } });
  await Promise.all([forgetPoints(services, machineId), discardParts(services, call)]);
  await removeCopies(services, machineId);
}

/**
 * Removes the parts of the machine on nodes that do not own it. An unreachable node removes them later, when
 * the answer to its heartbeat names the move.
 */
export async function discardParts(
  { context, link }: Pick<MachineServices, "context" | "link">,
  call: Omit<MoveCall, "signal">,
): Promise<void> {
  const { machineId } = call;
  const copies = await listObsoleteCopies(context.db, { machineIds: [machineId], nodeId: null });
  const discard = ({ nodeId, address }: ObsoleteCopy): Promise<void> =>
    discardIncoming(link, { nodeId, address }, { ...call, signal: AbortSignal.timeout(DISCARD_TIMEOUT_MS) }).catch(
      (error: unknown) => context.log.info({ error, nodeId, machineId }, "a node keeps parts of a move that has ended"),
    );
  await Promise.all(copies.map(discard));
}

/** The machine runs on where it is. A node that does not answer watches in vain until the machine stops. */
async function forgetPoints(
  { cache, link }: Pick<MachineServices, "cache" | "link">,
  machineId: string,
): Promise<void> {
  const machine = await cache.readAny(machineId);
  if (machine === undefined || machine.nodeId === null) return;
  const signal = AbortSignal.timeout(DISCARD_TIMEOUT_MS);
  await releaseOutgoing(link, nodeOf(machine), { machineId, signal }).catch(() => undefined);
}
