/**
 * Stops idle machines and machines of suspended tenants, and deletes expired ones.
 *
 * Always: a machine is stopped by the same fenced write as by its owner. So two servers stop it once, and a
 * machine that was started, stopped or used through this server since then is left as it is.
 *
 * A command that begins on another server in the quarter of a second before its activity is written may find
 * its machine stopping; its error says that the connection broke.
 */
import { type NewEvent, printEvent } from "@flotilla/contract/event-types";
import { requestStop } from "../change.ts";
import { converge } from "../converge.ts";
import type { MachineName, MachineRecord } from "../record.ts";
import { deleteIfMade } from "../remove.ts";
import type { ConvergeServices, MachineServices } from "../services.ts";
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
  const { context, cache } = services;
  const change = { ...requestStop(machine, context.clock.now()), timeline: [event] };
  const written = (await cache.write([change])).get(machine.id);
  if (written === undefined) return false;
  services.inBackground(`${printEvent(event).message} (${machine.id})`, () =>
    converge(services, written, { waitMs: services.nodeWaitMs }),
  );
  return true;
}

/** Deletes it in any state; false when it was deleted already, or its owner has given it more time. */
export async function removeExpired(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  name: MachineName,
): Promise<boolean> {
  const machine = await findAnyMachine(services.context.db, name.id);
  if (machine === undefined || machine.deletedAt !== null || !isExpired(machine, services.context.clock.now()))
    return false;
  if ((await deleteIfMade(services, name)) === undefined) return false;
  services.context.log.info(
    { machineId: name.id, ttlSeconds: machine.ttlSeconds },
    "a machine was deleted: its ttl is over",
  );
  return true;
}

const isExpired = ({ ttlSeconds, createdAt }: MachineRecord, now: number): boolean =>
  ttlSeconds !== null && ttlSeconds > 0 && now >= createdAt + ttlSeconds * 1000;
