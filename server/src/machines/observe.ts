/**
 * Applies what a node reports of a machine: facts held + report → new facts, or that the report says nothing new.
 *
 * Pure; store.ts writes what comes out, fenced by the revision of the facts that went in.
 *
 * Always:
 * - a report of an older generation than one that was applied is late and changes nothing;
 * - within a generation a machine only moves forward (POSITION), because a heartbeat that was written before an answer
 *   may arrive after it; another boot id than the one held is always news;
 * - a node that has lost what it knew of a machine (generation 0) is told again what is wanted; nothing is lost by that;
 * - a guest that ended by itself changes what is wanted to `stopped`, so that nothing starts it again.
 */
import type { ObservedMachine, ObservedState } from "@flotilla/contract/link";
import {
  type Change,
  abandon,
  type MutableMachine,
  type ReportedRun,
  reconcileAt,
  runningBoot,
  type TimelineEntry,
} from "./change.ts";
import { detailsOf, isSameForReaders, NOTHING_OBSERVED } from "./observed.ts";
import { includes, isActive, isSettled, isApplied, type MachinePhase, phaseOf } from "./state.ts";

export type Observation = { readonly outcome: "late" | "same" } | { readonly outcome: "news"; readonly change: Change };

/** How far a machine is on the way to what is wanted. `stopping` of a wanted machine is the end of a boot that failed. */
const POSITION = {
  running: { absent: 0, stopped: 0, preparing: 1, booting: 2, running: 3, stopping: 4, failed: 5 },
  stopped: { preparing: 0, booting: 0, running: 0, stopping: 1, absent: 2, stopped: 2, failed: 2 },
} as const satisfies Record<string, Record<ObservedState, number>>;

/**
 * A node that starts a machine again has no boot id yet and reports `preparing`, which would look like a report from before
 * the boot that has ended. So the end of that boot is applied, and the next report brings the new one.
 */
function endOfBoot(report: ObservedMachine, machine: MutableMachine): ObservedMachine {
  const isEnd = machine.desiredState === "running" && report.bootId === null && hasEnded(machine, report);
  return isEnd && isPreparing(report) ? { ...report, state: "stopping", bootId: machine.observedBootId } : report;
}

/** A row that has failed has a reason. */
const reasonOf = ({ state, reason }: ObservedMachine): string | null =>
  state === "failed" ? (reason ?? "the node gave no reason") : reason;

const isPreparing = ({ state }: ObservedMachine): boolean => state === "preparing" || state === "booting";

function isLate(machine: MutableMachine, report: ObservedMachine): boolean {
  // Never started, so it is on no node: the report is of something else.
  if (machine.nodeId === null) return true;
  // What is still there has to go, however old the report; that it is gone is believed only of the request that removed it.
  if (machine.desiredState === "absent") return report.state === "absent" && report.generation < machine.generation;
  if (report.generation < machine.observedGeneration) return true;
  if (report.generation > machine.observedGeneration) return false;
  if (report.hasPoweredOff) return machine.observedState === "failed";
  // Only a new request leads out of a failure: what else a node says was sent before it, also of a boot that is new here.
  if (machine.desiredState === "running" && machine.observedState === "failed" && isApplied(machine))
    return report.state !== "failed";
  const isOtherBoot = report.bootId !== null && report.bootId !== machine.observedBootId;
  // The end of an earlier boot is told before the beginning of the next.
  if (isOtherBoot) return report.state === "stopping" && machine.observedState !== "stopped";
  const position = POSITION[machine.desiredState];
  // What is held may belong to an older generation than the request: then there is no order to go by.
  return isApplied(machine) && position[report.state] < position[machine.observedState];
}

/** What a report changes. `now` is epoch milliseconds of the server's clock. */
export function applyObservation(machine: MutableMachine, received: ObservedMachine, now: number): Observation {
  const report = endOfBoot(received, machine);
  if (isForgotten(machine, report)) return observeForgotten(machine, report, now);
  if (isLate(machine, report)) return { outcome: "late" };
  const isRunning = report.state === "running";
  const runsAsWanted = isRunning && machine.desiredState === "running" && report.generation === machine.generation;
  const seen: MutableMachine = {
    ...machine,
    observedState: report.state,
    observedGeneration: report.generation,
    observedBootId: report.bootId ?? machine.observedBootId,
    observedReason: reasonOf(report),
    observedReasonCode: report.state === "failed" ? report.reasonCode : null,
    // The timings of the last start stay until the next one.
    observedDetails: { ...detailsOf(report), timings: report.timings ?? machine.observedDetails.timings },
    readyAt: runsAsWanted ? readyAt(machine, report, now) : null,
    hasRun: machine.hasRun || runsAsWanted,
  };
  const desired = withDesired({ ...seen, ...whenRestarting(machine, seen, now) }, report, now);
  if (isSame(machine, desired)) return { outcome: "same" };
  const next = { ...desired, reconcileAt: reconcileAt(desired, now) };
  return {
    outcome: "news",
    change: { next, timeline: timelineOf(machine, next, report), runs: reportedRuns(report), activeMax: null },
  };
}

/** A machine that ran and is started again has as long for it as after a start that was asked for. */
function whenRestarting(before: MutableMachine, after: MutableMachine, now: number): Partial<MutableMachine> {
  return phaseOf(before) === "running" && phaseOf(after) === "starting" ? { desiredAt: now } : {};
}

/** What a node says of a time, by its own clock: never before it was asked for, and never in the future. */
function instant(machine: MutableMachine, at: number, now: number): number {
  return Math.min(now, Math.max(machine.desiredAt, at));
}

/** The runs that a report tells of: the one under way, and the one before it. */
function reportedRuns({ state, bootId, runningSince, lastRun }: ObservedMachine): readonly ReportedRun[] {
  const current = state === "running" && bootId !== null && runningSince !== null;
  return [
    ...(lastRun === null ? [] : [lastRun]),
    ...(current ? [{ bootId, startedAt: runningSince, endedAt: null, cause: null }] : []),
  ];
}

/** The node says that the boot which was seen last has ended. */
const hasEnded = (machine: MutableMachine, { lastRun }: ObservedMachine): boolean =>
  lastRun !== null && lastRun.bootId === machine.observedBootId;

/** Once ready, a boot stays so: a report that does not say it was written before. */
function readyAt(machine: MutableMachine, report: ObservedMachine, now: number): number | null {
  if (machine.readyAt !== null && machine.observedBootId === report.bootId) return machine.readyAt;
  return report.readySince === null ? null : instant(machine, report.readySince, now);
}

/** The node has files of the machine, and has lost the journal that said what was wanted of it. */
function isForgotten(machine: MutableMachine, report: ObservedMachine): boolean {
  return report.generation === 0 && report.state !== "absent" && machine.nodeId !== null && machine.generation > 0;
}

/** A machine that can continue gets the desired state again; of one that cannot, its owner reads why. */
function observeForgotten(machine: MutableMachine, report: ObservedMachine, now: number): Observation {
  if (machine.desiredState === "absent") return sendAgain(machine, [], now);
  if (report.state !== "failed") return sendAgain(machine, [], now);
  const reason = reasonOf(report) ?? "";
  const isKnown = machine.error === reason || (phaseOf(machine) === "failed" && machine.observedReason === reason);
  if (isKnown) return { outcome: "same" };
  const change = abandon({ ...machine, observedState: "absent", observedBootId: null }, reason, now);
  return {
    outcome: "news",
    change: { ...change, timeline: [{ level: "error", message: `machine failed: ${reason}` }] },
  };
}

/** The node has no trace of the machine, though that was not requested: it gets the desired state again. */
export function applyNoTrace(machine: MutableMachine, now: number): Observation {
  const message = `node ${machine.nodeId} has no trace of the machine; what was on its disk is lost`;
  return sendAgain(machine, [{ level: "warn", message }], now);
}

function sendAgain(machine: MutableMachine, timeline: readonly TimelineEntry[], now: number): Observation {
  if (includes(WITHOUT_TRACE, phaseOf(machine))) return { outcome: "same" };
  if (machine.observedState === "absent" && machine.observedGeneration === 0) return { outcome: "same" };
  const next: MutableMachine = {
    ...machine,
    ...NOTHING_OBSERVED,
    reconcileAt: now,
  };
  return { outcome: "news", change: { next, timeline, activeMax: null } };
}

/** Phases in which it means nothing: there is nothing to lose, or the node is told again anyway. */
const WITHOUT_TRACE = ["created", "failed", "deleting", "deleted"] as const satisfies readonly MachinePhase[];

/** The desired state after the report: a guest's power-off is a stop, and a generation beyond ours is exceeded. */
function withDesired(machine: MutableMachine, report: ObservedMachine, now: number): MutableMachine {
  if (report.generation > machine.generation) {
    // Only after the database was put back to an earlier state: the generation must exceed what the node has seen.
    return { ...machine, generation: report.generation + 1, desiredAt: now };
  }
  const endedItself = report.state === "stopped" && report.hasPoweredOff && machine.desiredState === "running";
  if (!endedItself || report.generation < machine.generation) return machine;
  return { ...machine, desiredState: "stopped", generation: machine.generation + 1, desiredAt: now };
}

/**
 * Whether a report changes nothing that is visible, so that it need not be written: how far a start has come is told
 * by the node's events, and a boot costs the row one write, not four.
 */
function isSame(before: MutableMachine, after: MutableMachine): boolean {
  return (
    before.generation === after.generation &&
    phaseOf(before) === phaseOf(after) &&
    isSettled(before) === isSettled(after) &&
    isActive(before) === isActive(after) &&
    runningBoot(before) === runningBoot(after) &&
    (before.readyAt === null) === (after.readyAt === null) &&
    (before.observedState === "failed" ? before.observedReason : null) ===
      (after.observedState === "failed" ? after.observedReason : null) &&
    isSameForReaders(before.observedDetails, after.observedDetails)
  );
}

function timelineOf(before: MutableMachine, after: MutableMachine, report: ObservedMachine): readonly TimelineEntry[] {
  if (before.desiredState === "absent") return [];
  if (isNewRun(before, after)) return [{ level: "info", message: "machine started" }];
  const reason = after.observedReason ?? "";
  if (after.observedState === "failed" && before.observedState !== "failed" && before.desiredState === "running") {
    return [{ level: "error", message: failureText(before, reason) }];
  }
  if (report.hasPoweredOff && before.desiredState === "running" && after.desiredState === "stopped")
    return [{ level: "info", message: "machine stopped: the guest powered itself off" }];
  const phases: readonly [MachinePhase, MachinePhase] = [phaseOf(before), phaseOf(after)];
  const hasStopped =
    phases[0] === "stopping" && phases[1] === "stopped" && before.observedState !== after.observedState;
  return hasStopped ? [{ level: "info", message: "machine stopped" }] : [];
}

/** A boot that had run has crashed; one that had not could not be started. */
function failureText(before: MutableMachine, reason: string): string {
  if (before.hasRun) return `machine failed: ${reason}`;
  return `${before.isAutoStarted ? "auto-start" : "start"} failed: ${reason}`;
}

const isNewRun = (before: MutableMachine, after: MutableMachine): boolean =>
  after.observedState === "running" &&
  (before.observedState !== "running" || before.observedBootId !== after.observedBootId) &&
  // A boot that is seen stopping and running again never ended.
  !(before.observedState === "stopping" && before.observedBootId === after.observedBootId);
