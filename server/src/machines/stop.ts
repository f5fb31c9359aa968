/**
 * Stops a machine and waits until it has stopped. Its disk is kept, and its memory on request: the machine is
 * suspended then.
 *
 * Always:
 * - A stop is idempotent, and also applies to a machine that is starting.
 * - A machine that cannot be suspended runs on, and the caller gets the reason.
 * - The memory of a suspended machine is kept until it starts, or is stopped without keeping its memory. It
 *   takes disk of its tenant's plan; where that is used up the suspend is refused.
 * - The request is kept when the node is unreachable or slow, and the machine reconciler executes it.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { diskRefusal } from "../usage/quota.ts";
import { readCeilings, readTotals } from "../usage/store.ts";
import { requestStop } from "./change.ts";
import { convergePatiently } from "./converge.ts";
import type { MachineRecord } from "./record.ts";
import type { ConvergeServices, MachineServices } from "./services.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { isStoppedByMove, nextPhase, phaseOf } from "./state.ts";

const WRITE_TRIES_MAX = 8;

export interface StopOptions {
  readonly tenantId: string;
  readonly id: string;
  /** Whether to suspend it; absent: false. */
  readonly keepsMemory?: boolean;
  readonly signal: AbortSignal;
}

/** The machine, stopped; or started again by a concurrent request. */
export async function stopMachine(
  services: ConvergeServices & Pick<MachineServices, "nodeWaitMs">,
  options: StopOptions,
): Promise<MachineRecord> {
  const { clock } = services.context;
  const deadline = clock.monotonic() + services.nodeWaitMs;
  let latest = await acceptStop(services, options);
  while (phaseOf(latest) === "stopping") {
    const waitMs = Math.max(0, deadline - clock.monotonic());
    const observed = await convergePatiently(services, latest, { waitMs, signal: options.signal });
    // An ephemeral machine is deleted when it has stopped, which is what was requested.
    if (observed === undefined || (observed.deletedAt !== null && !observed.isEphemeral))
      throw machineNotFound(options.id);
    latest = observed;
    // Otherwise another stop replaced it, which is awaited as well.
    if (clock.monotonic() >= deadline && phaseOf(latest) === "stopping") throw notStopped(latest, services.nodeWaitMs);
  }
  // A failure of a start that a concurrent request made after the stop is not one of the stop.
  if (latest.error !== null) throw notStopped(latest, services.nodeWaitMs);
  if (options.keepsMemory === true && latest.desiredState === "running")
    throw await notSuspended(services, latest, options);
  return latest;
}

async function acceptStop(
  services: Pick<MachineServices, "cache" | "context">,
  options: StopOptions,
): Promise<MachineRecord> {
  const { context, cache } = services;
  for (let attempt = 0; attempt < WRITE_TRIES_MAX; attempt += 1) {
    const machine = await cache.read(options);
    if (machine === undefined) throw machineNotFound(options.id);
    const phase = phaseOf(machine);
    const next = nextPhase(phase, "stopRequested");
    if (next === undefined) throw machineNotFound(options.id);
    const { keepsMemory = false } = options;
    const discardsMemory = machine.keepsMemory && !keepsMemory && machine.desiredState === "stopped";
    // One that its move stops would run again if the move failed.
    if (next === phase && !discardsMemory && !isStoppedByMove(machine)) return machine;
    if (keepsMemory) refuseSuspend(machine);
    if (keepsMemory && attempt > 0) await refuseOverDisk(context, machine);
    const { tenantId } = machine;
    const change = requestStop(machine, context.clock.now(), keepsMemory);
    const written = (await cache.write([keepsMemory ? { ...change, suspend: { tenantId } } : change])).get(machine.id);
    if (written !== undefined) return written;
  }
  throw new Refusal("unavailable", `stop of machine ${options.id} kept conflicting with concurrent changes; try again`);
}

function refuseSuspend({ id, isEphemeral, moveId }: MachineRecord): void {
  if (isEphemeral) throw new Refusal("conflict", `machine ${id} is ephemeral: it is deleted when it stops`);
  if (moveId !== null)
    throw new Refusal("conflict", `machine ${id} is being moved to another node; suspend it after the move`);
}

async function refuseOverDisk(context: Pick<Context, "db">, machine: MachineRecord): Promise<void> {
  const refusal = await diskRefusalOfMemory(context, machine);
  if (refusal !== null) throw refusal;
}

/** The refusal when the machine's memory does not fit in the disk of its tenant's plan; null: it fits. */
export async function diskRefusalOfMemory(
  { db }: Pick<Context, "db">,
  { tenantId, memoryMb }: MachineRecord,
): Promise<Refusal | null> {
  const held = await readTotals(db, tenantId);
  const ceilings = await readCeilings(db, tenantId);
  const memoryGb = Math.ceil(memoryMb / 1024);
  return held.diskGb + memoryGb > ceilings.maxTotalDiskGb ? diskRefusal(memoryGb, held, ceilings, null) : null;
}

/**
 * The refusal for a machine that runs on. Its node has received that it is to run, if it can be reached now.
 */
async function notSuspended(
  services: ConvergeServices & Pick<MachineServices, "nodeWaitMs">,
  machine: MachineRecord,
  { signal }: StopOptions,
): Promise<Refusal> {
  const { suspendRefusal } = machine.observedDetails;
  await convergePatiently(services, machine, { waitMs: services.nodeWaitMs, signal }).catch(() => undefined);
  const reason = suspendRefusal?.reason ?? "another request started it, or its node refused: see its events";
  return new Refusal(suspendRefusal?.code ?? "conflict", `machine ${machine.id} runs and was not suspended: ${reason}`);
}

const notStopped = (machine: MachineRecord, waitedMs: number): Refusal =>
  new Refusal(
    "unavailable",
    machine.error ??
      `machine ${machine.id} has not stopped after ${waitedMs / 1000} s; the stop continues, read the machine to see its state`,
  );
