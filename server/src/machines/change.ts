/**
 * Changes of a machine's facts by requests of users and decisions of the server: facts → new facts, pure.
 *
 * A `Change` is the content of one fenced write: the new facts, their events for the timeline, and the runs
 * that were reported with them. observe.ts makes the changes for reports; store.ts writes all changes with
 * one statement.
 *
 * Always: a change of the desired state raises the generation, and sets when the reconcilers check the row
 * next.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import type { ImageFault } from "@flotilla/contract/errors";
import type { ObservedDetails } from "./observed.ts";
import type { Run } from "@flotilla/contract/link/link";
import type { Overcommit } from "../placement/place.ts";
import { isActive, isSettled, isUsedUp, type MachineFacts, phaseOf } from "./state.ts";

/** The columns of a machine that change. Instants are epoch milliseconds. */
export interface MutableMachine extends MachineFacts {
  readonly id: string;
  /** The fence: a write with another revision than the row's has no effect. */
  readonly revision: number;
  readonly desiredAt: number;
  /** With the desired state `stopped`: whether its node suspends it, or keeps its memory. */
  readonly keepsMemory: boolean;
  readonly isEphemeral: boolean;
  readonly isAutoStarted: boolean;
  /** It was observed running since its start was last requested. */
  readonly hasRun: boolean;
  /** Code of a failure that the image causes, so that another start does not help. */
  readonly observedReasonCode: ImageFault | null;
  readonly observedDetails: ObservedDetails;
  readonly readyAt: number | null;
  readonly reconcileAt: number | null;
}

/** A run that the node reported with its machine's state. Written once, however often it is reported. */
export type ReportedRun = Pick<Run, "bootId" | "startedAt" | "endedAt" | "cause" | "egressBytes">;

/** What a start takes of its node, and of the one to which the machine is being moved. */
export interface Reservation {
  /** The machine is placed on the node by this start. Otherwise its disk is there already. */
  readonly isNew: boolean;
  readonly overcommit: Overcommit;
}

export interface Change {
  /** The new facts; `revision` is that of the old ones. */
  readonly next: MutableMachine;
  readonly timeline: readonly NewEvent[];
  /** Absent: none. */
  readonly runs?: readonly ReportedRun[];
  /** Absent: the change is not a start, and no ceiling of running machines applies. */
  readonly start?: Start;
  /** A suspend. It has no effect when the memory does not fit in the disk of its tenant's plan. */
  readonly suspend?: { readonly tenantId: string };
}

/** What makes a change a start. It has no effect when its tenant or its node does not admit it any more. */
export interface Start {
  readonly tenantId: string;
  /**
   * The start is refused when the tenant has this many active machines, or they use all memory or processors
   * of its plan; null: the machine is active already.
   */
  readonly activeMax: number | null;
  /** It is refused when the tenant's budget has no room for its first window. */
  readonly isBudgeted: boolean;
  /** null: the machine has its share of its node already. */
  readonly reservation: Reservation | null;
  /** The API key that starts the machine. */
  readonly startedBy: string;
}

/** Delay after a request or a report until the reconciler calls the node again for an unsettled machine. */
const RECONCILE_AFTER_MS = 5_000;

/** When the machine reconciler checks the machine next; null: it has settled. Epoch milliseconds. */
export function reconcileAt(machine: MutableMachine, now: number): number | null {
  if (isUsedUp(machine)) return now;
  return isSettled(machine) ? null : now + RECONCILE_AFTER_MS;
}

/** The boot that was last seen running or stopping; null when there is none. */
export function runningBoot({ observedState, observedBootId }: MachineFacts): string | null {
  return observedState === "running" || observedState === "stopping" ? observedBootId : null;
}

export interface StartRequest {
  readonly tenantId: string;
  readonly nodeId: string;
  readonly overcommit: Overcommit;
  readonly activeMax: number;
  readonly isBudgeted: boolean;
  readonly isAutomatic: boolean;
  readonly keyId: string;
  readonly now: number;
}

/** A start in a phase from which it leads to `starting`. */
export function requestStart(
  machine: MutableMachine,
  { tenantId, nodeId, overcommit, activeMax, isBudgeted, isAutomatic, keyId, now }: StartRequest,
): Change {
  const next: MutableMachine = {
    ...machine,
    desiredState: "running",
    moveStops: false,
    // The node of a machine that is being moved receives `stopped`, and keeps the memory in case the move
    // fails.
    keepsMemory: machine.keepsMemory && machine.moveId !== null,
    generation: machine.generation + 1,
    desiredAt: now,
    nodeId,
    error: null,
    isAutoStarted: isAutomatic,
    hasRun: false,
    observedDetails: { ...machine.observedDetails, progress: null, timings: null },
    // A machine that is still stopping boots again when it has stopped: it is not ready.
    readyAt: null,
    reconcileAt: now + RECONCILE_AFTER_MS,
  };
  // One that is still stopping is counted already, except by the node to which it moves to be stopped there.
  const isCounted = isActive(machine);
  // A machine in a move starts where the move ends, or where it is: the statement reserves its share of both.
  const reservation = isCounted && !machine.moveStops ? null : { isNew: machine.nodeId === null, overcommit };
  const start = { tenantId, activeMax: isCounted ? null : activeMax, isBudgeted, reservation, startedBy: keyId };
  return { next, timeline: [], start };
}

/**
 * Stops a machine, in a phase that leads to `stopping`, or to discard its memory. If its node may have
 * received a start without answering, something may run: it keeps its share until the node says otherwise.
 */
export function requestStop(machine: MutableMachine, now: number, keepsMemory = false): Change {
  const stopped: MutableMachine = {
    ...machine,
    desiredState: "stopped",
    keepsMemory,
    moveStops: false,
    generation: machine.generation + 1,
    desiredAt: now,
    error: null,
    readyAt: null,
    reconcileAt: now + RECONCILE_AFTER_MS,
  };
  const mayRun = machine.moveId === null && isActive(machine) && !isActive(stopped);
  const next: MutableMachine = mayRun ? { ...stopped, observedState: "preparing" } : stopped;
  return { next, timeline: [] };
}

/**
 * The desired state of a machine when an attempt to run it is not repeated: a failed one stays stopped, with
 * its reason.
 */
export function abandonedState(machine: MutableMachine): Pick<MutableMachine, "desiredState" | "error"> {
  const { desiredState, error, observedReason } = machine;
  if (phaseOf(machine) !== "failed" || desiredState !== "running") return { desiredState, error };
  return { desiredState: "stopped", error: observedReason ?? "no reason is known" };
}

/** Abandons a phase that is past its deadline: the desired state becomes `stopped`, `error` the reason. */
export function abandon(machine: MutableMachine, reason: string, now: number): Change {
  const next: MutableMachine = {
    ...machine,
    desiredState: "stopped",
    keepsMemory: false,
    generation: machine.generation + 1,
    desiredAt: now,
    error: reason,
    readyAt: null,
    reconcileAt: now,
  };
  return { next, timeline: [{ type: "machine.abandoned", data: { reason } }] };
}
