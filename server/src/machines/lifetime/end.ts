/**
 * Ends machines whose time is over: stops the idle and those of suspended tenants, deletes the expired.
 *
 * Always: a machine is stopped by the same fenced write as by its owner, so two servers stop it once, and one that was
 * started, stopped or used through this server meanwhile is left alone. A command that begins on another server in the
 * quarter of a second before its activity is written may find its machine stopping; it is told that the connection broke.
 */
import { Refusal } from "@flotilla/contract/errors";
import { requestStop } from "../change.ts";
import { converge } from "../converge.ts";
import type { MachineName, MachineRecord } from "../record.ts";
import { deleteMachine } from "../remove.ts";
import type { MachineServices } from "../services.ts";
import { includes, UNREACHABLE_STATUSES, phaseOf } from "../state.ts";
import { findAnyMachine } from "../store.ts";

/** Whether it was stopped. */
export async function stopIdle(services: MachineServices, { id }: MachineName): Promise<boolean> {
  const { context, activity } = services;
  const machine = await findAnyMachine(context.db, id);
  if (machine === undefined || phaseOf(machine) !== "running" || activity.isBusy(id)) return false;
  // What is done on a node that is away is not heard of here.
  if (machine.nodeStatus !== null && includes(UNREACHABLE_STATUSES, machine.nodeStatus)) return false;
  return stop(services, machine, `auto-stop: nothing was done in the machine for ${machine.autoStopSeconds} s`);
}

/** Whether it was stopped; its owner starts it again, when the reason is gone. `reason`: for its events. */
export async function stopForTenant(services: MachineServices, { id }: MachineName, reason: string): Promise<boolean> {
  const machine = await findAnyMachine(services.context.db, id);
  if (machine?.desiredState !== "running") return false;
  return stop(services, machine, `stopped: ${reason}`);
}

async function stop(services: MachineServices, machine: MachineRecord, message: string): Promise<boolean> {
  const { context, cache } = services;
  const change = { ...requestStop(machine, context.clock.now()), timeline: [{ level: "info", message }] as const };
  const written = (await cache.write([change])).get(machine.id);
  if (written === undefined) return false;
  services.inBackground(`${message} (${machine.id})`, () =>
    converge(services, written, { waitMs: services.nodeWaitMs }),
  );
  return true;
}

/** Deletes it, whatever it does; false when somebody else has. */
export async function removeExpired(services: MachineServices, name: MachineName): Promise<boolean> {
  const machine = await findAnyMachine(services.context.db, name.id);
  if (machine === undefined || machine.deletedAt !== null) return false;
  try {
    await deleteMachine(services, name);
  } catch (error) {
    // Another server, or the owner, was faster by a moment.
    if (error instanceof Refusal && error.code === "not_found") return false;
    throw error;
  }
  services.context.log.info(
    { machineId: name.id, ttlSeconds: machine.ttlSeconds },
    "a machine was deleted: its ttl is over",
  );
  return true;
}
