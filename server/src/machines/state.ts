/**
 * Where a machine is: what was asked and what a node saw, taken together into one phase, and what may follow.
 *
 * Pure. Asked and observed are stored (server/src/machines/store.ts); the phase is computed from them by `phaseOf` and
 * never stored. TRANSITIONS says for every phase and every thing that may happen which phase follows; the functions
 * that change the facts (change.ts, observe.ts) are compared with it for every pair in state.test.ts, and docs/states.md
 * is drawn from it.
 *
 * Always: delete leads out of every phase a user can see, and nothing leads back to one of those. An absent
 * cell means that it changes nothing: a refusal for what was asked, a late report for what was observed.
 *
 * A node that has gone away is no phase: it lies over the phases in which something may run there (HIDDEN_BY_NODE).
 */
import type { DesiredState, ObservedState } from "@flotilla/contract/link";
import type { NodeStatus } from "@flotilla/contract/nodes";

/** What was asked and what was seen of one machine: everything a decision about it rests on. */
export interface MachineFacts {
  readonly desiredState: DesiredState;
  readonly generation: number;
  /** null: it has never been started, so nothing of it exists on any node. */
  readonly nodeId: string | null;
  /** Why the server itself abandoned the last request. */
  readonly error: string | null;
  readonly observedState: ObservedState;
  readonly observedGeneration: number;
  readonly observedBootId: string | null;
  readonly observedReason: string | null;
}

/**
 * `created`: never started. `starting`, `stopping`: requested and not yet reached. `failed`: the last request to run it
 * ended badly. `deleting`: the node has not yet removed everything. `deleted`: nothing is left but the row.
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

/** What users ask, what a node reports of the current generation, and what the server decides. */
export const MACHINE_EVENTS = [
  "startRequested",
  "stopRequested",
  "deleteRequested",
  /** The node works on the request. */
  "working",
  "ran",
  "failed",
  /** The guest ended by itself. */
  "poweredOff",
  "stopped",
  /** The node has no trace of it; unless that was requested, it gets the desired state again. */
  "removed",
  /** A transitional phase lasted too long. */
  "abandoned",
] as const;
export type MachineEvent = (typeof MACHINE_EVENTS)[number];

/** Observed states in which a VMM may exist. */
const OBSERVED_ACTIVE = ["preparing", "booting", "running", "stopping"] as const satisfies readonly ObservedState[];

// Rows: where the machine is. Columns: what just happened.
const TRANSITIONS = {
  created: { startRequested: "starting", stopRequested: "created", deleteRequested: "deleted" },
  stopped: {
    startRequested: "starting",
    stopRequested: "stopped",
    deleteRequested: "deleting",
    stopped: "stopped",
    removed: "stopping",
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
    removed: "starting",
    abandoned: "failed",
  },
  running: {
    startRequested: "running",
    stopRequested: "stopping",
    deleteRequested: "deleting",
    // A VMM that vanished is being cleaned up, or booted again after the host's restart.
    working: "starting",
    ran: "running",
    failed: "failed",
    poweredOff: "stopping",
    // The node has lost its journal: the desired state is sent again.
    removed: "starting",
  },
  stopping: {
    startRequested: "starting",
    stopRequested: "stopping",
    deleteRequested: "deleting",
    working: "stopping",
    failed: "stopped",
    poweredOff: "stopped",
    stopped: "stopped",
    removed: "stopping",
    abandoned: "failed",
  },
  failed: {
    startRequested: "starting",
    // The node has yet to hear of it.
    stopRequested: "stopping",
    deleteRequested: "deleting",
    failed: "failed",
  },
  deleting: {
    deleteRequested: "deleting",
    working: "deleting",
    ran: "deleting",
    failed: "deleting",
    poweredOff: "deleting",
    stopped: "deleting",
    removed: "deleted",
  },
  // A node that has something of it after all is told again to remove it.
  deleted: {
    working: "deleting",
    ran: "deleting",
    failed: "deleting",
    poweredOff: "deleting",
    stopped: "deleting",
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
      // `absent` of an older generation was seen before a start that may be on its way to the node.
      return isSettled(facts) ? "deleted" : "deleting";
    case "running":
      if (isApplied(facts) && facts.observedState === "failed") return "failed";
      return isApplied(facts) && facts.observedState === "running" ? "running" : "starting";
    case "stopped":
      if (facts.error !== null) return "failed";
      if (facts.nodeId === null) return "created";
      return isApplied(facts) && !includes(OBSERVED_ACTIVE, facts.observedState) ? "stopped" : "stopping";
  }
}

/** Whether nothing is left to do until somebody asks or a node reports. */
export function isSettled(facts: MachineFacts): boolean {
  if (facts.nodeId === null) return true;
  if (!isApplied(facts)) return false;
  switch (facts.desiredState) {
    case "absent":
      return facts.observedState === "absent";
    case "running":
      return facts.observedState === "running" || facts.observedState === "failed";
    case "stopped":
      return !includes(OBSERVED_ACTIVE, facts.observedState);
  }
}

/** Whether it takes one of the places that a plan has for running machines. The column machines.is_active says the same. */
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

/** Statuses of a node from which nothing is heard. */
export const UNREACHABLE_STATUSES = ["unreachable", "revoked"] as const satisfies readonly NodeStatus[];

/** Phases in which a machine whose node is unreachable is shown as `error`: its state is unknown. */
export const HIDDEN_BY_NODE = ["starting", "running", "stopping"] as const satisfies readonly MachinePhase[];
