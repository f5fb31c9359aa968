/**
 * Whether a machine's VMs are fenced: what is requested, and what is so.
 *
 * Always:
 * - After a request without a fence none is given while the node has the machine, because an earlier request
 *   may arrive late, also one that was the first. A machine that was given to a user must not end because of
 *   it.
 * - A fenced machine is started only while servers acknowledge heartbeats: otherwise the node does not know
 *   whether it was replaced.
 */
import { messageOf } from "@flotilla/base/errors";
import type { DesiredMachine } from "@flotilla/contract/link/link";
import type { Driver, RequestedFence, Vm } from "../driver/driver.ts";
import { type Journal, vmmIdOf } from "./journal.ts";
import type { Machine } from "./machine.ts";
import type { Fence } from "./state.ts";

/** The fence after a request. Pure. */
function nextFence(known: Fence | undefined, { isFenced = false, state }: DesiredMachine): Fence | undefined {
  if (state === "absent" || known === "lifted") return known;
  return isFenced ? "on" : "lifted";
}

/** The machine's journal with the fence of a request; without one where VMs cannot be fenced. */
export function withFence(known: Journal, desired: DesiredMachine, { canFence }: Driver): Pick<Journal, "fence"> {
  const fence = canFence ? nextFence(known.fence, desired) : known.fence;
  return fence === undefined ? {} : { fence };
}

/** What a VM is to have from its start on, or has already. */
export function requestedFence({ fence, boot }: Journal, bootId: string): RequestedFence | undefined {
  if (boot !== null && vmmIdOf(boot) === bootId && boot.isFenced === true && boot.record !== null) return "had";
  return fence === "on" ? "on" : undefined;
}

/** Waits until a server acknowledges heartbeats. */
export async function awaitLease(machine: Machine, signal: AbortSignal): Promise<void> {
  machine.progress = "its node waits for a server to answer";
  await machine.deps.driver.lease.untilRoom(signal);
}

/** Whether the VM ends at the end of the lease. */
export const hasFence = ({ fence }: Pick<Vm, "fence">): boolean => fence?.isArmed === true;

/** Whether its VM, and each that it gets, is fenced. */
export function isFenced({ journal, held, deps }: Machine): boolean {
  if (held.vm !== null) return hasFence(held.vm);
  if (journal.boot !== null) return journal.boot.isFenced === true;
  return journal.fence === "on" && deps.driver.canFence;
}

/**
 * Gives its VM a fence, or lifts it, as the journal says. A failure is logged: the server requests the change
 * again.
 */
export async function applyFence(machine: Machine): Promise<void> {
  const { held, journal, deps, log } = machine;
  const { vm } = held;
  const isOn = journal.fence === "on";
  const fence = vm?.fence ?? null;
  if (fence === null || fence.isArmed === isOn || journal.fence === undefined) return;
  // The timer would end it at once.
  if (isOn && !deps.driver.lease.hasRoom) return;
  try {
    await fence.set(isOn);
  } catch (error) {
    log.warn({ reason: messageOf(error) }, isOn ? "a VM could not be fenced" : "the fence of a VM could not be lifted");
  }
  const { boot } = machine.journal;
  if (held.vm === vm && boot !== null) void machine.update({ boot: { ...boot, isFenced: fence.isArmed } });
  machine.changed();
}
