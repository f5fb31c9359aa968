/**
 * The phase of a machine, computed from its desired and its observed state, and the transitions between
 * phases.
 *
 * Pure. The desired and observed states are stored (server/src/machines/store.ts); `phaseOf` computes the
 * phase, which is never stored. TRANSITIONS gives the next phase for each phase and event. state.test.ts
 * compares it with the functions that change the facts (change.ts, observe.ts) for every pair, and
 * docs/states.md is generated from it.
 *
 * Always:
 * - Delete leads out of every phase that users see, and no event leads back.
 * - A missing cell means that the event changes nothing: a request is refused, a report is late.
 *
 * A move is not a phase either: a machine that is to run and is moved is `starting`, or `stopping` if its
 * owner chose that moves stop it, and its node receives `stopped`.
 *
 * An unreachable node is not a phase: it hides the phases in which the machine may run (HIDDEN_BY_NODE).
 */
import type { DesiredState, ObservedState } from "@flotilla/contract/link/link";
import type { NodeStatus } from "@flotilla/contract/nodes";

/** The desired and observed state of one machine: the input of every decision about it. */
export interface MachineFacts {
  readonly desiredState: DesiredState;
  readonly generation: number;
  /**
   * null: never started, so it is on no node. Otherwise the node that owns its disk: it runs nowhere else.
   */
  readonly nodeId: string | null;
  /** The operation that moves it to another node, which keeps it stopped meanwhile; null: none. */
  readonly moveId: string | null;
  /**
   * It runs, and is to be stopped when `moveId` has moved it. A request of its owner since then clears it.
   */
  readonly moveStops: boolean;
  /** Why the server itself abandoned the last request. */
  readonly error: string | null;
  readonly observedState: ObservedState;
  readonly observedGeneration: number;
  readonly observedBootId: string | null;
  readonly observedReason: string | null;
}

/**
 * `created`: never started. `starting`, `stopping`: requested and not yet reached. `failed`: the last start
 * or run failed. `deleting`: the node has not yet removed everything. `deleted`: only the row is left.
 */
export const MACHINE_PHASES = [
  "created",
  "stopped",
  "starting",
  "running",
  "stopping",
  "failed",
  "deleting",
  "deleted",
] as const;
export type MachinePhase = (typeof MACHINE_PHASES)[number];

/** Requests of users, a node's reports about the current generation, and decisions of the server. */
export const MACHINE_EVENTS = [
  "startRequested",
  "stopRequested",
  "deleteRequested",
  /** The node works on the request. */
  "working",
  "ran",
  "failed",
  /** The guest powered itself off. */
  "poweredOff",
  "stopped",
  /** The node could not suspend it, and it runs on. */
  "suspendRefused",
  /** The node does not have it; unless that was requested, its disk is lost. */
  "removed",
  /** A transitional phase lasted too long. */
  "abandoned",
] as const;
export type MachineEvent = (typeof MACHINE_EVENTS)[number];

/** Observed states in which a VMM may exist. */
export const OBSERVED_ACTIVE = [
  "preparing",
  "booting",
  "running",
  "stopping",
] as const satisfies readonly ObservedState[];

// Rows: the phase. Columns: the event.
const TRANSITIONS = {
  created: { startRequested: "starting", stopRequested: "created", deleteRequested: "deleted" },
  stopped: {
    startRequested: "starting",
    stopRequested: "stopped",
    deleteRequested: "deleting",
    stopped: "stopped",
    removed: "failed",
  },
  starting: {
    startRequested: "starting",
    stopRequested: "stopping",
    deleteRequested: "deleting",
    working: "starting",
    ran: "running",
    failed: "failed",
    // The desired state becomes `stopped`, which the node has yet to apply.
    poweredOff: "stopping",
    stopped: "starting",
    suspendRefused: "running",
    removed: "failed",
    abandoned: "failed",
  },
  running: {
    startRequested: "running",
    stopRequested: "stopping",
    deleteRequested: "deleting",
    // The VMM ended and is being cleaned up, or the machine boots again after a restart of the host.
    working: "starting",
    ran: "running",
    failed: "failed",
    poweredOff: "stopping",
    suspendRefused: "running",
    removed: "failed",
  },
  stopping: {
    startRequested: "starting",
    stopRequested: "stopping",
    deleteRequested: "deleting",
    working: "stopping",
    failed: "stopped",
    poweredOff: "stopped",
    stopped: "stopped",
    // The desired state becomes `running`, which the node has yet to receive.
    suspendRefused: "starting",
    removed: "failed",
    abandoned: "failed",
  },
  failed: {
    startRequested: "starting",
    // The node has yet to receive it.
    stopRequested: "stopping",
    deleteRequested: "deleting",
    // The boot that was seen last has not ended: its node could not use the machine's files for a time.
    ran: "running",
    failed: "failed",
    suspendRefused: "running",
  },
  deleting: {
    deleteRequested: "deleting",
    working: "deleting",
    ran: "deleting",
    failed: "deleting",
    poweredOff: "deleting",
    stopped: "deleting",
    suspendRefused: "deleting",
    removed: "deleted",
  },
  // A node that still has something of it gets the removal again.
  deleted: {
    working: "deleting",
    ran: "deleting",
    failed: "deleting",
    poweredOff: "deleting",
    stopped: "deleting",
    suspendRefused: "deleting",
    removed: "deleted",
  },
} as const satisfies Record<MachinePhase, Partial<Record<MachineEvent, MachinePhase>>>;

/** The phase that follows, or undefined when the event changes nothing in this phase. */
export function nextPhase(phase: MachinePhase, event: MachineEvent): MachinePhase | undefined {
  const row: Partial<Record<MachineEvent, MachinePhase>> = TRANSITIONS[phase];
  return row[event];
}

export const includes = <T extends string>(set: readonly T[], value: string): value is T =>
  (set as readonly string[]).includes(value);

/** Whether the node has received the newest desired state. */
export const isApplied = (facts: MachineFacts): boolean => facts.observedGeneration === facts.generation;

export function phaseOf(facts: MachineFacts): MachinePhase {
  switch (facts.desiredState) {
    case "absent":
      // An older generation's `absent` was observed before a start that may be on its way to the node.
      return isSettled(facts) ? "deleted" : "deleting";
    case "running":
      if (isStoppedByMove(facts)) return "stopping";
      if (isApplied(facts) && facts.observedState === "failed") return "failed";
      return isApplied(facts) && facts.observedState === "running" ? "running" : "starting";
    case "stopped":
      if (facts.error !== null) return "failed";
      if (facts.nodeId === null) return "created";
      return isApplied(facts) && !includes(OBSERVED_ACTIVE, facts.observedState) ? "stopped" : "stopping";
  }
}

/** Whether its move stops it, at its owner's choice. A move that fails lets it run again. */
export const isStoppedByMove = ({ desiredState, moveId, moveStops }: MachineFacts): boolean =>
  desiredState === "running" && moveId !== null && moveStops;

/** Whether nothing is left to do until the next request or report. */
export function isSettled(facts: MachineFacts): boolean {
  if (facts.nodeId === null) return true;
  if (!isApplied(facts)) return false;
  if (facts.moveId !== null && facts.desiredState !== "absent") return !includes(OBSERVED_ACTIVE, facts.observedState);
  switch (facts.desiredState) {
    case "absent":
      return facts.observedState === "absent";
    case "running":
      return facts.observedState === "running" || facts.observedState === "failed";
    case "stopped":
      return !includes(OBSERVED_ACTIVE, facts.observedState);
  }
}

/**
 * Whether it counts against the plan's limit of running machines. The column machines.is_active has the same
 * rule.
 */
export function isActive(facts: MachineFacts): boolean {
  switch (facts.desiredState) {
    case "absent":
      return false;
    case "running":
      return !(facts.observedState === "failed" && isApplied(facts));
    case "stopped":
      return includes(OBSERVED_ACTIVE, facts.observedState);
  }
}

/** Whether an ephemeral machine has run and stopped, which means that it must be deleted. */
export const isUsedUp = (machine: MachineFacts & { readonly isEphemeral: boolean }): boolean =>
  machine.isEphemeral && phaseOf(machine) === "stopped";

/** The desired state that a machine's node receives: a machine that is being moved is kept stopped. */
export const sentState = ({ desiredState, moveId }: Pick<MachineFacts, "desiredState" | "moveId">): DesiredState =>
  desiredState === "running" && moveId !== null ? "stopped" : desiredState;

/**
 * The status of a machine's node: `maintenance` is an unreachable one on which an operator works,
 * `unconnected` one that reports and has no connection to this server (reached.ts).
 */
export type MachineNodeStatus = NodeStatus | "maintenance" | "unconnected";

/** Statuses of a node that does not report, or cannot be called. */
export const UNREACHABLE_STATUSES = [
  "unreachable",
  "unconnected",
  "maintenance",
  "revoked",
] as const satisfies readonly MachineNodeStatus[];

/** Phases in which a machine whose node is unreachable is shown as `error`: its state is unknown. */
export const HIDDEN_BY_NODE = ["starting", "running", "stopping"] as const satisfies readonly MachinePhase[];
