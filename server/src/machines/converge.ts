/**
 * Sends a machine's desired state to its node and writes the answer: this one call starts, stops and removes
 * machines. Handlers make it inline, for speed; the machine reconciler makes it if a handler died.
 *
 * Always: any number of servers may make it concurrently and repeatedly: the node's verb is idempotent, and
 * the write is fenced.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { DesiredMachine, MachineSpec, ObservedMachine } from "@flotilla/contract/link/link";
import { NodeUnreachable } from "../link/refusals.ts";
import type { Change } from "./change.ts";
import { applyMissing, applyObservation, uncertainBoot } from "./observe.ts";
import { type MachineRecord, specOf } from "./record.ts";
import { listEndedBoots } from "./run-store.ts";
import type { ConvergeServices, MachineServices } from "./services.ts";
import { phaseOf, sentState } from "./state.ts";
import type { Durability } from "./store.ts";

/** More concurrent writers than this do not occur. */
const WRITE_TRIES_MAX = 8;
/** The pause between attempts. A restart of a node's agent takes a few of them. */
const NODE_RETRY_MS = 500;

export interface ConvergeOptions {
  /** How long the node may take until nothing moves. */
  readonly waitMs: number;
  readonly signal?: AbortSignal;
  /**
   * Durability of the write that a machine runs; every other answer is written to the disk. Default: disk.
   */
  readonly durability?: Durability;
}

/**
 * The machine as it is known after the node answered; undefined when there is no row of it any more. Throws
 * NodeUnreachable.
 */
export async function converge(
  services: ConvergeServices,
  machine: MachineRecord,
  options: ConvergeOptions,
): Promise<MachineRecord | undefined> {
  if (machine.nodeId === null || machine.nodeAddress === null) return machine;
  const desired: DesiredMachine = {
    generation: machine.generation,
    state: sentState(machine),
    spec: machine.desiredState === "absent" ? null : sentSpec(machine, services.secrets),
    keepsMemory: machine.keepsMemory,
    keepsCommands: machine.moveId !== null,
    isFenced: machine.fence === "on",
    hasDisk: hasDisk(machine),
  };
  const node = { nodeId: machine.nodeId, address: machine.nodeAddress };
  const report = await services.link.putMachine(node, machine.id, desired, options);
  const isMissing =
    desired.hasDisk === true && desired.state !== "absent" && isAbsentBefore(report, desired.generation);
  return await applyReport(services, machine, { report, isMissing }, options.durability);
}

/**
 * Whether its node must have its disk: it has reported a boot, or has received the machine from another node.
 */
const hasDisk = ({ observedBootId, observedGeneration, movedBy }: MachineRecord): boolean =>
  observedBootId !== null || (movedBy !== null && observedGeneration > 0);

/** One that was removed for a newer request was overtaken: that says nothing of its disk. */
const isAbsentBefore = (report: ObservedMachine, generation: number): boolean =>
  report.state === "absent" && report.generation < generation;

/**
 * A stop needs no secrets, so it also works on a server that cannot decrypt them. The next start sends them.
 */
function sentSpec(machine: MachineRecord, secrets: MachineServices["secrets"]): MachineSpec {
  try {
    return specOf(machine, secrets);
  } catch (error) {
    // With its memory kept it may run on, or on another node, without another start.
    const isStop = machine.desiredState === "stopped" && !machine.keepsMemory && machine.moveId === null;
    if (!isStop || !(error instanceof Refusal)) throw error;
    return specOf({ ...machine, secretEnv: null }, secrets);
  }
}

/** As `converge`, and tries again for as long as `waitMs` while the node's agent is unreachable. */
export async function convergePatiently(
  services: ConvergeServices,
  machine: MachineRecord,
  { waitMs, signal, durability = "disk" }: ConvergeOptions & { readonly signal: AbortSignal },
): Promise<MachineRecord | undefined> {
  const { clock } = services.context;
  const deadline = clock.monotonic() + waitMs;
  let latest: MachineRecord | undefined = machine;
  while (latest !== undefined) {
    const leftMs = Math.max(0, deadline - clock.monotonic());
    try {
      return await converge(services, latest, { waitMs: leftMs, signal, durability });
    } catch (error) {
      if (!(error instanceof NodeUnreachable) || signal.aborted || leftMs < NODE_RETRY_MS * 2) throw error;
    }
    await clock.sleep(NODE_RETRY_MS, signal);
    const fresh: MachineRecord | undefined = await services.cache.readAny(machine.id);
    // The desired state has changed: this request was replaced.
    if (fresh?.generation !== machine.generation) return fresh;
    latest = fresh;
  }
  return undefined;
}

/** What a report changes; undefined: nothing. */
async function changeOf(
  { context }: Pick<MachineServices, "context">,
  machine: MachineRecord,
  report: ObservedMachine,
): Promise<Change | undefined> {
  const uncertain = uncertainBoot(machine, report);
  const ended = await listEndedBoots(context.db, uncertain === null ? [] : [uncertain]);
  const observation = applyObservation(machine, report, context.clock.now(), ended);
  return observation.outcome === "news" ? observation.change : undefined;
}

/** Applies a node's report of one machine; repeats the write if others write in between. */
async function applyReport(
  services: Pick<MachineServices, "cache" | "context">,
  machine: MachineRecord,
  { report, isMissing }: { readonly report: ObservedMachine; readonly isMissing: boolean },
  durability: Durability = "disk",
): Promise<MachineRecord | undefined> {
  const { context, cache } = services;
  let held: MachineRecord | undefined = machine;
  // A node that does not own the machine any more says nothing about it.
  for (let attempt = 0; attempt < WRITE_TRIES_MAX && held?.nodeId === machine.nodeId; attempt += 1) {
    // Only the request that was answered says that there must be a disk: a newer one may be about another.
    if (isMissing && held.generation !== machine.generation) return held;
    const change = isMissing ? applyMissing(held, context.clock.now()) : await changeOf(services, held, report);
    if (change === undefined) return held;
    // A start that fails is answered without a commit that follows.
    const isRunning = phaseOf(change.next) === "running";
    const written = (await cache.write([change], isRunning ? durability : "disk")).get(machine.id);
    if (written !== undefined) return written;
    held = await cache.readAny(machine.id);
  }
  return held;
}
