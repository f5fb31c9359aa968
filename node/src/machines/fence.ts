/**
 * Whether a machine's VMs are fenced, and what becomes of a machine that its fence has ended.
 *
 * Always:
 * - A fence that was lifted is never requested again while the node has the machine, because an earlier request may arrive late. A
 *   machine that was given to a user must not end because of it.
 * - A fenced machine is started only while the lease has LEFT_MS_MIN left: without a server the node does not know whether it was
 *   replaced.
 */
import { messageOf } from "@flotilla/base/errors";
import type { DesiredMachine } from "@flotilla/contract/link";
import type { RequestedFence } from "../driver/driver.ts";
import type { Journal } from "./journal.ts";
import type { Machine } from "./machine.ts";

export type Fence = "on" | "lifted";

/** Of the lease, for a start: less than what is left when one heartbeat after another is acknowledged. */
const LEFT_MS_MIN = 10_000;

/** The fence after a request. Pure. */
export function nextFence(known: Fence | undefined, { isFenced = false, state }: DesiredMachine): Fence | undefined {
  if (state === "absent" || known === "lifted") return known;
  if (isFenced) return "on";
  return known === undefined ? undefined : "lifted";
}

/** The machine's journal with the fence of a request. */
export function withFence(known: Journal, desired: DesiredMachine): Pick<Journal, "fence"> {
  const fence = nextFence(known.fence, desired);
  return fence === undefined ? {} : { fence };
}

/** What a VM is to have from its start on, or has already. */
export function requestedFence({ fence, boot }: Journal, bootId: string): RequestedFence | undefined {
  if (boot?.bootId === bootId && boot.isFenced === true && boot.record !== null) return "had";
  return fence === "on" ? "on" : undefined;
}

/** Whether it must not be started now. */
export const isCutOff = ({ journal, deps }: Machine): boolean =>
  journal.fence === "on" && deps.driver.lease.leftMs < LEFT_MS_MIN;

/** Waits until a server acknowledges heartbeats. */
export async function awaitLease(machine: Machine, signal: AbortSignal): Promise<void> {
  machine.progress = "its node waits for a server to answer";
  await machine.deps.driver.lease.untilLeft(LEFT_MS_MIN, signal);
}

/** Whether its VM, and each that it gets, is fenced. */
export function isFenced({ journal, held, deps }: Machine): boolean {
  if (held.vm !== null) return held.vm.isFenced;
  if (journal.boot !== null) return journal.boot.isFenced === true;
  return journal.fence === "on" && deps.driver.canFence;
}

/** Gives its VM a fence, or lifts it, as the journal says. A failure is logged: the server requests the change again. */
export async function applyFence(machine: Machine): Promise<void> {
  const { held, journal, deps, log } = machine;
  const { vm } = held;
  const isOn = journal.fence === "on";
  if (vm === null || vm.isFenced === isOn || journal.fence === undefined) return;
  // The timer would end it at once.
  if (isOn && deps.driver.lease.leftMs < LEFT_MS_MIN) return;
  try {
    await vm.setFenced(isOn);
  } catch (error) {
    log.warn({ reason: messageOf(error) }, isOn ? "a VM could not be fenced" : "the fence of a VM could not be lifted");
  }
  const { boot } = machine.journal;
  if (held.vm === vm && boot !== null) void machine.update({ boot: { ...boot, isFenced: vm.isFenced } });
  machine.changed();
}

/** Its fence has ended its VM, or may have while no agent ran. It starts again when a server answers, unless that is not permitted. */
export function noteFenced(machine: Machine, detail: string): void {
  const { generation, desired, spec, ending } = machine.journal;
  machine.log.warn({ generation, detail }, "a fenced VM has ended");
  if (desired !== "running" || ending?.generation === generation) return;
  const reason = `the machine was ended: ${detail}`;
  machine.event("warn", reason);
  if (spec?.restart === "never") void machine.update({ ending: { generation, kind: "failed", reason } });
}
