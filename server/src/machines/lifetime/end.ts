/**
 * Stops idle machines and machines of suspended tenants, and deletes, suspends or stops expired ones.
 *
 * Always: a machine is stopped by the same fenced write as by its owner. So two servers stop it once, and a
 * machine that was started, stopped or used through this server since then is left as it is.
 *
 * A command that begins on another server in the quarter of a second before its activity is written may find
 * its machine stopping; its error says that the connection broke.
 */
import { type NewEvent, printEvent } from "@flotilla/contract/event-types";
import { type Change, requestStop } from "../change.ts";
import { converge } from "../converge.ts";
import type { MachineName, MachineRecord } from "../record.ts";
import { deleteIfMade } from "../remove.ts";
import type { ConvergeServices, MachineServices } from "../services.ts";
import { diskRefusalOfMemory } from "../stop.ts";
import { includes, UNREACHABLE_STATUSES, phaseOf } from "../state.ts";
import { findAnyMachine } from "../store.ts";

/** Whether it was stopped. */
export async function stopIdle(
  services: ConvergeServices & Pick<MachineServices, "activity" | "inBackground" | "nodeWaitMs">,
  { id }: MachineName,
): Promise<boolean> {
  const { context, activity } = services;
  const machine = await findAnyMachine(context.db, id);
  if (machine === undefined || phaseOf(machine) !== "running" || activity.openIn(id) > 0) return false;
  // The activity of machines on an unreachable node is unknown.
  if (machine.nodeStatus !== null && includes(UNREACHABLE_STATUSES, machine.nodeStatus)) return false;
  return stop(services, machine, { type: "machine.autoStopped", data: { idleSeconds: machine.autoStopSeconds ?? 0 } });
}

/** Stops a machine, if it runs. Its owner may start it once `reason` has passed. Returns whether it ran. */
export async function stopForTenant(
  services: ConvergeServices & Pick<MachineServices, "inBackground" | "nodeWaitMs">,
  { id }: MachineName,
  reason: string,
): Promise<boolean> {
  const machine = await findAnyMachine(services.context.db, id);
  if (machine?.desiredState !== "running") return false;
  return stop(services, machine, { type: "machine.stoppedForTenant", data: { reason } });
}

async function stop(
  services: ConvergeServices & Pick<MachineServices, "inBackground" | "nodeWaitMs">,
  machine: MachineRecord,
  event: NewEvent,
): Promise<boolean> {
  return await write(services, machine, { ...requestStop(machine, services.context.clock.now()), timeline: [event] });
}

async function write(
  services: ConvergeServices & Pick<MachineServices, "inBackground" | "nodeWaitMs">,
  { id }: MachineRecord,
  change: Change & { readonly timeline: readonly NewEvent[] },
): Promise<boolean> {
  const written = (await services.cache.write([change])).get(id);
  if (written === undefined) return false;
  const why = change.timeline.map((event) => printEvent(event).message).join("; ");
  services.inBackground(`${why} (${id})`, () => converge(services, written, { waitMs: services.nodeWaitMs }));
  return true;
}

/** Ends a machine as its `atEnd` says; false when that is not to be done any more, or not yet. */
export async function endExpired(
  services: ConvergeServices & Pick<MachineServices, "inBackground" | "nodeWaitMs">,
  name: MachineName,
): Promise<boolean> {
  const { context } = services;
  const machine = await findAnyMachine(context.db, name.id);
  if (machine === undefined || machine.deletedAt !== null || !isExpired(machine, context.clock.now())) return false;
  const { ttlSeconds, atEnd, desiredState } = machine;
  if (atEnd !== "delete") return desiredState === "running" && (await pauseExpired(services, machine));
  if ((await deleteIfMade(services, name)) === undefined) return false;
  context.log.info({ machineId: name.id, ttlSeconds }, "a machine was deleted: its ttl is over");
  return true;
}

/** One whose node or plan has no room for its memory is stopped: nothing runs longer than it may. */
async function pauseExpired(
  services: ConvergeServices & Pick<MachineServices, "inBackground" | "nodeWaitMs">,
  machine: MachineRecord,
): Promise<boolean> {
  const { tenantId, atEnd, isEphemeral, observedDetails } = machine;
  const event: NewEvent = { type: "machine.ttlReached", data: { ttlSeconds: machine.ttlSeconds ?? 0 } };
  const isSuspend = atEnd === "suspend" && !isEphemeral && observedDetails.suspendRefusal === null;
  if (!isSuspend) return await stop(services, machine, event);
  // It is found again when it has moved.
  if (machine.moveId !== null) return false;
  const change = {
    ...requestStop(machine, services.context.clock.now(), true),
    timeline: [event],
    suspend: { tenantId },
  };
  if (await write(services, machine, change)) return true;
  return (await diskRefusalOfMemory(services.context, machine)) !== null && (await stop(services, machine, event));
}

const isExpired = ({ ttlSeconds, createdAt }: MachineRecord, now: number): boolean =>
  ttlSeconds !== null && ttlSeconds > 0 && now >= createdAt + ttlSeconds * 1000;
