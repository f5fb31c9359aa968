/**
 * The next action for a machine: facts → one action, or that it has settled.
 *
 * Pure: no clock, no log, no effects. The supervisor executes the action and calls the plan again with the
 * new facts. RULES holds every decision; the table above it shows them.
 *
 * Invariants, which the supervisor keeps and plan.test.ts checks:
 * 1. A boot is in the journal from before its VMM starts until its VMM has ended and its directory is
 *    removed. So `vm: null` means that no VMM of the machine exists, and only then are there `boot` and
 *    `removeFiles`: nothing runs twice, and no disk is removed under a running VMM.
 * 2. A machine that powered off or failed is not restarted in the same generation: only a new request does
 *    that. One that crashed is restarted at the time that its ending says (restart-policy.ts).
 * 3. Absent wins in every state, and never waits for a guest agent's answer.
 * 4. While the machine's memory is saved, no VM of it runs: one that exists is killed, since a guest that
 *    runs changes the disk, which then does not fit the memory.
 * 5. A VM that is paused for a move runs again only when the machine is to run: the server then knows that no
 *    other node runs it.
 * 6. While the host is about to go down, nothing is started, and what runs is suspended or shut down; it is
 *    still to run.
 * 7. A machine that may be replaced is not started while no server answers: the node does not know whether it
 *    was.
 * 8. Executing the plan leads to a settled state in a bounded number of steps, from any state.
 */
import type { DesiredState, ObservedState } from "@flotilla/contract/link/link";
import { type Action, type Ending, STATE_DURING, type Situation, type VmState } from "./state.ts";

export type Next =
  | { readonly kind: "act"; readonly action: Action; readonly when: string }
  | { readonly kind: "settled"; readonly state: Extract<ObservedState, "stopped" | "running" | "failed"> };

interface Rule {
  /** Logged with the action. */
  readonly when: string;
  readonly vm: readonly (VmState | null)[];
  readonly desired: readonly DesiredState[] | "any";
  readonly test?: (situation: Situation) => boolean;
  readonly next: Action | Extract<Next, { kind: "settled" }>;
}

const settled = (state: Extract<Next, { kind: "settled" }>["state"]): Extract<Next, { kind: "settled" }> => ({
  kind: "settled",
  state,
});

const endedAs =
  (kind: Ending["kind"]) =>
  ({ ending, generation }: Situation): boolean =>
    ending?.kind === kind && ending.generation === generation;

const hasMemory = (situation: Situation): boolean => situation.hasMemory;

/**
 * First match wins.
 *
 *     VM           desired  further                       → next
 *     ended        any                                    → cleanBoot
 *     unreachable  any                                    → kill
 *     any          absent                                 → kill
 *     none         absent                                 → removeFiles
 *     any          any      memory is saved               → kill
 *     lost         any                                    → adopt
 *     up, c., p'd  running  failed in this generation     → kill
 *     up, paused   running  crashed in this generation    → kill
 *     up           running                                → configure
 *     configured   running  host goes down, may suspend   → suspend
 *     configured   running  host goes down                → shutDown
 *     configured   running  its VMM is to be replaced     → replaceVmm
 *     configured   running  the same, by a restart        → shutDown
 *     configured   running                                → settled: running
 *     up           stopped                                → kill
 *     paused       running  is fenced, no server answers  → awaitLease
 *     paused       running                                → unpause
 *     conf'd, p'd  stopped  is leaving                    → awaitMove
 *     paused       stopped  keeps memory, was refused     → awaitMove
 *     paused       stopped  keeps memory                  → suspend
 *     paused       stopped                                → kill
 *     configured   stopped  keeps memory, was refused     → settled: running
 *     configured   stopped  keeps memory                  → suspend
 *     configured   stopped                                → shutDown
 *     none         stopped  memory is saved, not to keep  → discardMemory
 *     none         stopped                                → settled: stopped
 *     none         running  powered off in this gen.      → settled: stopped
 *     none         running  failed in this generation     → settled: failed
 *     none         running  host goes down                → awaitHost
 *     none         running  is fenced, no server answers  → awaitLease
 *     none         running  crashed in this generation    → awaitRestart
 *     none         running  memory is saved               → resume
 *     none         running  no disk, no image             → ensureImage
 *     none         running  no disk                       → makeDisk
 *     none         running                                → boot
 */
const RULES: readonly Rule[] = [
  { when: "the VMM is gone", vm: ["ended"], desired: "any", next: "cleanBoot" },
  { when: "its agent does not answer", vm: ["unreachable"], desired: "any", next: "kill" },
  { when: "it is to be removed", vm: ["lost", "up", "configured", "paused"], desired: ["absent"], next: "kill" },
  { when: "it is to be removed", vm: [null], desired: ["absent"], next: "removeFiles" },
  {
    when: "its memory is saved",
    vm: ["lost", "up", "configured", "paused"],
    desired: "any",
    test: hasMemory,
    next: "kill",
  },
  { when: "the VM is not connected", vm: ["lost"], desired: "any", next: "adopt" },
  {
    when: "its start failed",
    vm: ["up", "configured", "paused"],
    desired: ["running"],
    test: endedAs("failed"),
    next: "kill",
  },
  {
    when: "it could not be started, and is restarted",
    vm: ["up", "paused"],
    desired: ["running"],
    test: endedAs("crashed"),
    next: "kill",
  },
  {
    when: "no server answers its node",
    vm: ["paused"],
    desired: ["running"],
    test: ({ isCutOff }) => isCutOff,
    next: "awaitLease",
  },
  { when: "it is where it is to run", vm: ["paused"], desired: ["running"], next: "unpause" },
  { when: "its agent has answered", vm: ["up"], desired: ["running"], next: "configure" },
  {
    when: "its host goes down",
    vm: ["configured"],
    desired: ["running"],
    test: ({ hostStop, isSuspendRefused }) => hostStop === "suspend" && !isSuspendRefused,
    next: "suspend",
  },
  {
    when: "its host goes down",
    vm: ["configured"],
    desired: ["running"],
    test: ({ hostStop }) => hostStop !== null,
    next: "shutDown",
  },
  {
    when: "its VMM is to be replaced",
    vm: ["configured"],
    desired: ["running"],
    test: ({ replacing }) => replacing === "live",
    next: "replaceVmm",
  },
  {
    when: "its VMM is to be replaced by a restart",
    vm: ["configured"],
    desired: ["running"],
    test: ({ replacing }) => replacing === "restart",
    next: "shutDown",
  },
  { when: "it runs", vm: ["configured"], desired: ["running"], next: settled("running") },
  { when: "it is to stop before it ran", vm: ["up"], desired: ["stopped"], next: "kill" },
  {
    when: "its move decides",
    vm: ["configured", "paused"],
    desired: ["stopped"],
    test: ({ isLeaving }) => isLeaving,
    next: "awaitMove",
  },
  {
    when: "it cannot be suspended and must not run",
    vm: ["paused"],
    desired: ["stopped"],
    test: ({ keepsMemory, isSuspendRefused }) => keepsMemory && isSuspendRefused,
    next: "awaitMove",
  },
  {
    when: "its move saves its memory",
    vm: ["paused"],
    desired: ["stopped"],
    test: ({ keepsMemory }) => keepsMemory,
    next: "suspend",
  },
  { when: "it is to stop and must not run", vm: ["paused"], desired: ["stopped"], next: "kill" },
  {
    when: "it cannot be suspended",
    vm: ["configured"],
    desired: ["stopped"],
    test: ({ keepsMemory, isSuspendRefused }) => keepsMemory && isSuspendRefused,
    next: settled("running"),
  },
  {
    when: "it is to be suspended",
    vm: ["configured"],
    desired: ["stopped"],
    test: ({ keepsMemory }) => keepsMemory,
    next: "suspend",
  },
  { when: "it is to stop", vm: ["configured"], desired: ["stopped"], next: "shutDown" },
  {
    when: "its memory is not to be kept",
    vm: [null],
    desired: ["stopped"],
    test: (situation) => hasMemory(situation) && !situation.keepsMemory,
    next: "discardMemory",
  },
  { when: "it is stopped", vm: [null], desired: ["stopped"], next: settled("stopped") },
  { when: "it powered off", vm: [null], desired: ["running"], test: endedAs("poweredOff"), next: settled("stopped") },
  { when: "its start failed", vm: [null], desired: ["running"], test: endedAs("failed"), next: settled("failed") },
  {
    when: "its host goes down",
    vm: [null],
    desired: ["running"],
    test: ({ hostStop }) => hostStop !== null,
    next: "awaitHost",
  },
  {
    when: "no server answers its node",
    vm: [null],
    desired: ["running"],
    test: ({ isCutOff }) => isCutOff,
    next: "awaitLease",
  },
  { when: "it ended unexpectedly", vm: [null], desired: ["running"], test: endedAs("crashed"), next: "awaitRestart" },
  { when: "its memory is saved", vm: [null], desired: ["running"], test: hasMemory, next: "resume" },
  {
    when: "it has no image",
    vm: [null],
    desired: ["running"],
    test: ({ hasDisk, hasImage }) => !hasDisk && !hasImage,
    next: "ensureImage",
  },
  { when: "it has no disk", vm: [null], desired: ["running"], test: ({ hasDisk }) => !hasDisk, next: "makeDisk" },
  { when: "it is to run", vm: [null], desired: ["running"], next: "boot" },
];

export function plan(situation: Situation): Next {
  const rule = RULES.find(
    ({ vm, desired, test }) =>
      vm.includes(situation.vm) &&
      (desired === "any" || desired.includes(situation.desired)) &&
      (test === undefined || test(situation)),
  );
  // The table covers every pair of vm and desired state; plan.test.ts checks them all.
  if (rule === undefined) throw new Error(`no rule for ${JSON.stringify(situation)}`);
  return typeof rule.next === "string" ? { kind: "act", action: rule.next, when: rule.when } : rule.next;
}

/** The state that is reported to the server. */
export function observedState(next: Next): ObservedState {
  return next.kind === "settled" ? next.state : STATE_DURING[next.action];
}
