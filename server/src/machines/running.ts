/**
 * Does something inside a machine: finds it, starts it if it is stopped, and hands over its record with the node that
 * runs it. The way of commands, terminals and files alike.
 *
 * Always: no database write stands on the path, and in a machine that is known to run no query either; the work is begun
 * a second time only when the node said that it did not take it up (NotRunning).
 */
import { Refusal } from "@flotilla/contract/errors";
import { NotRunning } from "../link/refusals.ts";
import { converge } from "./converge.ts";
import type { MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { awaitRunning, machineNotFound, startMachine } from "./start.ts";
import { includes, UNREACHABLE_STATUSES, phaseOf } from "./state.ts";
import { nodeUnreachableText, shownState } from "./view.ts";

const TRIES_MAX = 3;

export interface InMachineOptions {
  readonly tenantId: string;
  readonly id: string;
  readonly signal: AbortSignal;
  /** Looks at the machine before anything is done with it, a start included; throws to refuse. */
  readonly admit?: (machine: MachineRecord) => void;
}

/** What `work` gives. Throws a Refusal that says why the machine does not run, and whatever `work` throws. */
export async function inRunningMachine<T>(
  services: MachineServices,
  options: InMachineOptions,
  work: (machine: MachineRecord) => Promise<T>,
): Promise<T> {
  const { cache } = services;
  const { id } = options;
  // Of a machine that is not known to run, the database knows more than the cache.
  const known = cache.find(options);
  let machine = known !== undefined && phaseOf(known) === "running" ? known : await cache.read(options);
  for (let attempt = 1; ; attempt += 1) {
    if (machine === undefined) throw machineNotFound(id);
    options.admit?.(machine);
    const running = await ensureRunning(services, machine, options);
    try {
      return await work(running);
    } catch (error) {
      if (!(error instanceof NotRunning)) throw error;
      if (attempt >= TRIES_MAX) throw keepsExiting(id);
    }
    // What was known is out of date: the node knows better what became of the machine.
    cache.forget(id);
    machine = await cache.read(options);
    if (machine !== undefined) machine = await converge(services, machine, { waitMs: 0, signal: options.signal });
    if (machine !== undefined && machine.deletedAt !== null) throw machineNotFound(id);
  }
}

const keepsExiting = (id: string): Refusal =>
  new Refusal("conflict", `machine ${id} keeps exiting; read its events to see why`);

async function ensureRunning(
  services: MachineServices,
  machine: MachineRecord,
  options: InMachineOptions,
): Promise<MachineRecord> {
  if (machine.nodeStatus !== null && includes(UNREACHABLE_STATUSES, machine.nodeStatus)) {
    const why = nodeUnreachableText(machine.nodeId ?? "", machine.nodeStatus);
    throw new Refusal("unavailable", `machine ${machine.id} cannot be used: ${why}`);
  }
  switch (phaseOf(machine)) {
    case "running":
      return machine;
    case "starting":
      return await awaitRunning(services, machine, options);
    case "created":
    case "stopped":
    case "stopping":
      return await startFor(services, options);
    case "failed": {
      const { error } = shownState(machine);
      const text = `machine ${machine.id} is in state error: ${error}; start it again, or delete it`;
      throw new Refusal("conflict", text);
    }
    case "deleting":
    case "deleted":
      throw machineNotFound(machine.id);
  }
}

/** A stopped machine is started by its use; a refusal becomes an event, because no caller asked for a start. */
async function startFor(services: MachineServices, options: InMachineOptions): Promise<MachineRecord> {
  try {
    return await startMachine(services, { ...options, isAutomatic: true, isDetached: false });
  } catch (error) {
    // A boot that failed has its line already.
    if (error instanceof Refusal && ["quota_exceeded", "no_capacity", "unavailable"].includes(error.code))
      services.activity.note(options.id, "error", `auto-start failed: ${error.message}`);
    throw error;
  }
}

/** Throws a Refusal when the tenant has no such machine. undefined: it is known to have it. */
export function requireMachine(
  { cache }: Pick<MachineServices, "cache">,
  name: { readonly tenantId: string; readonly id: string },
): Promise<void> | undefined {
  if (cache.find(name) !== undefined) return undefined;
  return cache.read(name).then((machine) => {
    if (machine === undefined) throw machineNotFound(name.id);
  });
}
