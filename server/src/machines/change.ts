/**
 * Changes of a machine's facts by what users ask and what the server decides: facts → new facts, pure.
 *
 * A `Change` is everything that one fenced write puts down at once: the new facts, what the timeline says about them, and
 * the runs that were reported with them. observe.ts makes the changes that nodes report;
 * store.ts writes them all with one statement.
 *
 * Always: a change of what is wanted raises the generation, and says when the reconcilers look at the row next.
 */
import type { ImageFault } from "@flotilla/contract/errors";
import type { EventLevel } from "@flotilla/contract/machines";
import type { ObservedDetails } from "./observed.ts";
import type { Run } from "@flotilla/contract/link";
import { isActive, isSettled, type MachineFacts, phaseOf } from "./state.ts";

/** The columns of a machine that change. Instants are epoch milliseconds. */
export interface MutableMachine extends MachineFacts {
  readonly id: string;
  /** The fence: a write that names another revision than the row's loses. */
  readonly revision: number;
  readonly desiredAt: number;
  readonly isEphemeral: boolean;
  readonly isAutoStarted: boolean;
  /** It has been seen running since it was last asked to start. */
  readonly hasRun: boolean;
  /** Of a failure that its image is the cause of, and that another start does not mend. */
  readonly observedReasonCode: ImageFault | null;
  readonly observedDetails: ObservedDetails;
  readonly readyAt: number | null;
  readonly reconcileAt: number | null;
}

export interface TimelineEntry {
  readonly level: EventLevel;
  readonly message: string;
}

/** A run that the node reported together with the state of its machine. Written once, however often it is reported. */
export type ReportedRun = Pick<Run, "bootId" | "startedAt" | "endedAt" | "cause">;

export interface Change {
  /** The machine as it is to be; `revision` is the one it had. */
  readonly next: MutableMachine;
  readonly timeline: readonly TimelineEntry[];
  /** Absent: none. */
  readonly runs?: readonly ReportedRun[];
  /**
   * The change loses when the tenant has this many active machines, or they take all the memory or processors that its plan
   * allows; null: no ceiling applies.
   */
  readonly activeMax: number | null;
}

/** How long after a request or a report that leaves something to do the machine reconciler asks the node again. */
const RECONCILE_AFTER_MS = 5_000;
/** A start pulls its image, which may be gigabytes over a slow line. */
export const START_DEADLINE_MS = 30 * 60_000;
/** A node gives a guest much less before it ends the VMM. */
export const STOP_DEADLINE_MS = 5 * 60_000;

/** Whether an ephemeral machine has run and stopped, so that nothing but its deletion is left. */
export function isUsedUp(machine: MutableMachine): boolean {
  return machine.isEphemeral && phaseOf(machine) === "stopped";
}

/** When the machine reconciler has to look at the machine; null when only a question or a report changes anything. */
export function reconcileAt(machine: MutableMachine, now: number): number | null {
  if (isUsedUp(machine)) return now;
  return isSettled(machine) ? null : now + RECONCILE_AFTER_MS;
}

/** The boot that was last seen running or stopping; null when there is none. */
export function runningBoot({ observedState, observedBootId }: MachineFacts): string | null {
  return observedState === "running" || observedState === "stopping" ? observedBootId : null;
}

export interface StartRequest {
  readonly nodeId: string;
  readonly activeMax: number;
  readonly isAutomatic: boolean;
  readonly now: number;
}

/** A start was asked in a phase from which it leads to `starting`. */
export function requestStart(machine: MutableMachine, { nodeId, activeMax, isAutomatic, now }: StartRequest): Change {
  const next: MutableMachine = {
    ...machine,
    desiredState: "running",
    generation: machine.generation + 1,
    desiredAt: now,
    nodeId,
    error: null,
    isAutoStarted: isAutomatic,
    hasRun: false,
    observedDetails: { ...machine.observedDetails, progress: null, timings: null },
    // A machine that is still stopping is booted again when it has stopped: it is not ready.
    readyAt: null,
    reconcileAt: now + RECONCILE_AFTER_MS,
  };
  // One that is still stopping has its place already.
  return { next, timeline: [], activeMax: isActive(machine) ? null : activeMax };
}

/** A stop was asked in a phase from which it leads to `stopping`. */
export function requestStop(machine: MutableMachine, now: number): Change {
  const next: MutableMachine = {
    ...machine,
    desiredState: "stopped",
    generation: machine.generation + 1,
    desiredAt: now,
    error: null,
    readyAt: null,
    reconcileAt: now + RECONCILE_AFTER_MS,
  };
  return { next, timeline: [], activeMax: null };
}

/** A transitional phase is past its deadline: the machine is not wanted to run any more, and says why. */
export function abandon(machine: MutableMachine, reason: string, now: number): Change {
  const next: MutableMachine = {
    ...machine,
    desiredState: "stopped",
    generation: machine.generation + 1,
    desiredAt: now,
    error: reason,
    readyAt: null,
    reconcileAt: now,
  };
  return { next, timeline: [{ level: "error", message: reason }], activeMax: null };
}
