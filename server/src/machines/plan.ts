/**
 * What to do with a machine whose desired and observed states differ: the decisions of the machine
 * reconciler. Pure.
 *
 * Rules in order, first match wins; the log names the rule.
 */
import type { MachineRecord } from "./record.ts";
import { includes, isSettled, isUsedUp, UNREACHABLE_STATUSES, phaseOf } from "./state.ts";

/** A start pulls its image, which may be gigabytes over a slow network. */
const START_DEADLINE_MS = 30 * 60_000;
/** A node ends the VMM much earlier. */
const STOP_DEADLINE_MS = 5 * 60_000;

export type MachineAction =
  /** Delete it: it was meant to exist only while it ran. */
  | "remove"
  /** Record that nothing is left to do. */
  | "settle"
  /** Abandon its desired state, and record why. */
  | "abandon"
  /** Wait for its node. */
  | "wait"
  /** Send its desired state to its node, and apply the answer. */
  | "send";

interface Rule {
  readonly when: string;
  readonly test: (machine: MachineRecord, now: number) => boolean;
  readonly then: MachineAction;
}

const isPast = (machine: MachineRecord, now: number, deadlineMs: number): boolean =>
  now - machine.desiredAt > deadlineMs;

const RULES: readonly Rule[] = [
  { when: "an ephemeral machine has stopped", test: isUsedUp, then: "remove" },
  { when: "it has reached its desired state", test: isSettled, then: "settle" },
  {
    when: "it did not start before its deadline",
    test: (machine, now) =>
      phaseOf(machine) === "starting" && machine.moveId === null && isPast(machine, now, START_DEADLINE_MS),
    then: "abandon",
  },
  {
    when: "its node is unreachable",
    test: (machine) => machine.nodeStatus !== null && includes(UNREACHABLE_STATUSES, machine.nodeStatus),
    then: "wait",
  },
  {
    when: "it did not stop before its deadline",
    test: (machine, now) =>
      phaseOf(machine) === "stopping" &&
      machine.moveId === null &&
      machine.error === null &&
      isPast(machine, now, STOP_DEADLINE_MS),
    then: "abandon",
  },
  { when: "it has not reached its desired state", test: () => true, then: "send" },
];

export function planMachine(
  machine: MachineRecord,
  now: number,
): { readonly action: MachineAction; readonly when: string } {
  const rule = RULES.find(({ test }) => test(machine, now));
  // The last rule matches everything.
  return { action: rule?.then ?? "send", when: rule?.when ?? "" };
}

/** Why the server abandons a desired state. */
export function abandonText(machine: MachineRecord): string {
  const minutes = (ms: number): string => `${Math.round(ms / 60_000)} minutes`;
  const seen = machine.observedDetails.progress ?? machine.observedState;
  if (machine.desiredState === "stopped")
    return `machine ${machine.id} has not stopped after ${minutes(STOP_DEADLINE_MS)} on node ${machine.nodeId} (last seen: ${seen}); delete it, or stop it again`;
  const verb = machine.isAutoStarted ? "auto-start" : "start";
  return `${verb} failed: not running after ${minutes(START_DEADLINE_MS)} on node ${machine.nodeId} (last seen: ${seen}); start it again, or delete it`;
}
