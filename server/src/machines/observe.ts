/**
 * Applies a node's report to a machine: stored facts + report → new facts, or that the report changes
 * nothing.
 *
 * Pure; store.ts writes the result, fenced by the revision of the stored facts.
 *
 * Always:
 * - A report of an older generation than one that was applied is late and changes nothing.
 * - Within a generation a machine only moves forward (POSITION), because a heartbeat that was written before
 *   an answer may arrive after it. Another boot id than the stored one is news while the machine is to run,
 *   unless that boot's run has ended: then the report was overtaken. Only the recorded runs say so
 *   (`uncertainBoot`).
 * - A request leads out of a failure, or the report that the boot that was seen last runs: its run has not
 *   ended. So a machine whose node could not use its files for a time is shown again when it can, and what
 *   was requested meanwhile is sent again.
 * - A node that has lost its record of a machine (generation 0) gets the desired state again; nothing is lost
 *   by that.
 * - A machine that its node had and has lost is in error: its disk is gone, and only a new request makes
 *   another.
 * - A report of a newer generation than ours means that the database was restored to an earlier state. What
 *   the node received last is then the desired state, so that a restore neither starts nor stops a machine.
 * - When a guest powers itself off, the desired state becomes `stopped`, so that nothing starts it again.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import type { ObservedMachine, ObservedState } from "@flotilla/contract/link/link";
import { type Change, abandon, type MutableMachine, type ReportedRun, reconcileAt, runningBoot } from "./change.ts";
import { detailsOf, isSameForReaders, NOTHING_OBSERVED } from "./observed.ts";
import {
  includes,
  isActive,
  isSettled,
  isApplied,
  type MachinePhase,
  OBSERVED_ACTIVE,
  phaseOf,
  sentState,
} from "./state.ts";

export type Observation = { readonly outcome: "late" | "same" } | { readonly outcome: "news"; readonly change: Change };

/** Progress towards each desired state. `stopping` while `running` is desired ends a boot that failed. */
const POSITION = {
  running: { absent: 0, stopped: 0, preparing: 1, booting: 2, running: 3, stopping: 4, failed: 5 },
  stopped: { preparing: 0, booting: 0, running: 0, stopping: 1, absent: 2, stopped: 2, failed: 2 },
} as const satisfies Record<string, Record<ObservedState, number>>;

/**
 * A node that starts a machine again has no boot id yet and reports `preparing`, which would look like a
 * report from before the boot that has ended. So the end of that boot is applied, and the next report brings
 * the new one.
 */
function endOfBoot(report: ObservedMachine, machine: MutableMachine): ObservedMachine {
  const isEnd = sentState(machine) === "running" && report.bootId === null && hasEnded(machine, report);
  return isEnd && isPreparing(report) ? { ...report, state: "stopping", bootId: machine.observedBootId } : report;
}

/** A failure always has a reason. */
const reasonOf = ({ state, reason }: ObservedMachine): string | null =>
  state === "failed" ? (reason ?? "the node gave no reason") : reason;

const isBoot = ({ state, bootId }: ObservedMachine): boolean =>
  bootId !== null && (state === "running" || state === "stopping" || state === "preparing" || state === "booting");

const isPreparing = ({ state }: ObservedMachine): boolean => state === "preparing" || state === "booting";

/** Whether the node could not suspend the machine as requested, for a stop or for a move. */
const isSuspendRefused = (machine: MutableMachine, { state, generation, suspendRefusal }: ObservedMachine): boolean =>
  suspendRefusal !== null &&
  state === "running" &&
  sentState(machine) === "stopped" &&
  machine.keepsMemory &&
  generation === machine.generation;

/**
 * The reported boot, if it is another than the last one seen, of the same generation, or runs after a
 * failure: generations and states do not tell what came first. null: there is no doubt.
 */
export function uncertainBoot(machine: MutableMachine, report: ObservedMachine): string | null {
  const { observedBootId, observedGeneration } = machine;
  const isOther = observedBootId !== null && report.bootId !== observedBootId;
  const isOtherNow = isOther && isBoot(report) && report.generation === observedGeneration;
  return isOtherNow || isRunningAfterFailure(machine, report) ? report.bootId : null;
}

/** The node has the boot that was seen last before a failure. Its run may have ended. */
const hasLastBoot = ({ observedState, observedBootId }: MutableMachine, { bootId }: ObservedMachine): boolean =>
  observedState === "failed" && bootId !== null && bootId === observedBootId;

/** The generation may be older: the node keeps none of what is requested while it cannot use the files. */
const isRunningAfterFailure = (machine: MutableMachine, report: ObservedMachine): boolean =>
  hasLastBoot(machine, report) && report.state === "running" && report.generation <= machine.observedGeneration;

/**
 * Whether the node removes what an ended run has left, such as saved memory. No VMM runs, so the machine
 * takes no place. The report that follows says when it is done.
 */
const isTidiedAtRest = (machine: MutableMachine, { state, bootId }: ObservedMachine): boolean =>
  sentState(machine) === "stopped" &&
  !includes(OBSERVED_ACTIVE, machine.observedState) &&
  state === "stopping" &&
  (bootId === null || bootId === machine.observedBootId);

function isLate(machine: MutableMachine, report: ObservedMachine, endedBoots: ReadonlySet<string>): boolean {
  // A machine that is being moved is stopped, also when it is to run afterwards.
  const sent = sentState(machine);
  // Never started, so it is on no node: the report is about something else.
  if (machine.nodeId === null) return true;
  // Remains must be removed, however old the report is. `absent` counts only for the generation of the
  // removal.
  if (sent === "absent") return report.state === "absent" && report.generation < machine.generation;
  // A boot that has ended does not run again: the report was written before its end.
  if (endedBoots.has(uncertainBoot(machine, report) ?? "")) return true;
  if (report.generation < machine.observedGeneration) return !isRunningAfterFailure(machine, report);
  if (isTidiedAtRest(machine, report)) return true;
  if (report.generation > machine.observedGeneration) return false;
  if (machine.observedState === "stopped" && report.bootId === machine.observedBootId && isBoot(report)) return true;
  // It was reported as stopping while its node tried.
  if (isSuspendRefused(machine, report)) return false;
  if (report.hasPoweredOff) return machine.observedState === "failed";
  // Any other report was sent before the failure, even about an unknown boot.
  if (sent === "running" && machine.observedState === "failed" && isApplied(machine))
    return report.state !== "failed" && !isRunningAfterFailure(machine, report);
  const isOtherBoot = report.bootId !== null && report.bootId !== machine.observedBootId;
  // The end of an earlier boot is reported before the beginning of the next. Once a stop is desired no boot
  // begins: a report of another boot was true before the node's answer.
  if (isOtherBoot && sent === "running") return report.state === "stopping" && machine.observedState !== "stopped";
  const position = POSITION[sent];
  // The stored state may belong to an older generation than the request: then there is no order.
  return isApplied(machine) && position[report.state] < position[machine.observedState];
}

/** No boot of the report is uncertain. */
const NONE: ReadonlySet<string> = new Set();

/**
 * What a report changes. `now`: epoch milliseconds by the server's clock. `endedBoots`: uncertain boots whose
 * runs have ended.
 */
export function applyObservation(
  machine: MutableMachine,
  received: ObservedMachine,
  now: number,
  endedBoots: ReadonlySet<string> = NONE,
): Observation {
  const report = endOfBoot(received, machine);
  if (isForgotten(machine, report)) return observeForgotten(machine, report, now);
  if (isLate(machine, report, endedBoots)) return { outcome: "late" };
  const isRunning = report.state === "running";
  const runsAsDesired = isRunning && machine.desiredState === "running" && report.generation === machine.generation;
  const seen: MutableMachine = {
    ...machine,
    observedState: report.state,
    observedGeneration: report.generation,
    observedBootId: report.bootId ?? machine.observedBootId,
    observedReason: reasonOf(report),
    observedReasonCode: report.state === "failed" ? report.reasonCode : null,
    // The timings of the last start stay until the next one.
    observedDetails: {
      ...detailsOf(report),
      timings: report.timings ?? machine.observedDetails.timings,
      health: healthOf(machine, report, now),
    },
    readyAt: runsAsDesired ? readyAt(machine, report, now) : null,
    hasRun: machine.hasRun || runsAsDesired,
  };
  const desired = withDesired({ ...seen, ...whenBegun(machine, seen, now) }, report, now);
  if (isSame(machine, desired)) return { outcome: "same" };
  const next = { ...desired, reconcileAt: isSuspendRefused(machine, report) ? now : reconcileAt(desired, now) };
  return {
    outcome: "news",
    change: { next, timeline: timelineOf(machine, next, report), runs: reportedRuns(report) },
  };
}

/** The deadline of a start or stop that begins without a request is that of a requested one. */
function whenBegun(before: MutableMachine, after: MutableMachine, now: number): Partial<MutableMachine> {
  return isSettled(before) && !isSettled(after) ? { desiredAt: now } : {};
}

/** Bounds a time of the node's clock: not before the request, and not in the future. */
function instant(machine: MutableMachine, at: number, now: number): number {
  return Math.min(now, Math.max(machine.desiredAt, at));
}

/** The runs in a report: the present one, and the one before it. */
function reportedRuns({ state, bootId, runningSince, lastRun }: ObservedMachine): readonly ReportedRun[] {
  const current = state === "running" && bootId !== null && runningSince !== null;
  return [
    ...(lastRun === null ? [] : [lastRun]),
    ...(current ? [{ bootId, startedAt: runningSince, endedAt: null, cause: null, egressBytes: 0 }] : []),
  ];
}

/** Whether the node reports the end of the boot that was seen last. */
const hasEnded = (machine: MutableMachine, { lastRun }: ObservedMachine): boolean =>
  lastRun !== null && lastRun.bootId === machine.observedBootId;

/** A boot that is ready remains ready: a report without it was written before. */
function readyAt(machine: MutableMachine, report: ObservedMachine, now: number): number | null {
  if (machine.readyAt !== null && machine.observedBootId === report.bootId) return machine.readyAt;
  return report.readySince === null ? null : instant(machine, report.readySince, now);
}

/**
 * What is known of a boot's health stays known: a new agent of its node knows nothing of it before its first
 * checks, and its time begins with them.
 */
function healthOf(machine: MutableMachine, report: ObservedMachine, now: number): ObservedMachine["health"] {
  const { health } = report;
  if (health === null) return null;
  const before = report.bootId === machine.observedBootId ? machine.observedDetails.health : null;
  if (before !== null && health.status === "unknown") return before;
  if (before?.status === health.status) return { ...health, since: before.since };
  return { ...health, since: health.since === null ? null : instant(machine, health.since, now) };
}

/** Whether the node has files of the machine, and has lost the journal with its desired state. */
function isForgotten(machine: MutableMachine, report: ObservedMachine): boolean {
  return report.generation === 0 && report.state !== "absent" && machine.nodeId !== null && machine.generation > 0;
}

/** Sends the desired state again to a machine that can continue; otherwise its owner sees the reason. */
function observeForgotten(machine: MutableMachine, report: ObservedMachine, now: number): Observation {
  if (machine.desiredState === "absent" || report.state !== "failed") return sendAgain(machine, report, now);
  const reason = reasonOf(report) ?? "";
  const isKnown = machine.error === reason || (phaseOf(machine) === "failed" && machine.observedReason === reason);
  if (isKnown) return { outcome: "same" };
  if (machine.desiredState === "running" && machine.moveId === null) return observeUnusable(machine, reason);
  const change = abandon({ ...machine, observedState: "absent" }, reason, now);
  return {
    outcome: "news",
    change: { ...change, timeline: [{ type: "machine.failed", data: { reason } }] },
  };
}

/**
 * The node cannot use the files of a machine that is to run, and may run: its boot is not forgotten, and
 * nothing else is requested, so that it is as before when the node can use them.
 */
function observeUnusable(machine: MutableMachine, reason: string): Observation {
  const next: MutableMachine = {
    ...machine,
    observedState: "failed",
    observedGeneration: machine.generation,
    observedReason: reason,
    observedReasonCode: null,
    readyAt: null,
    reconcileAt: null,
  };
  return { outcome: "news", change: { next, timeline: [{ type: "machine.failed", data: { reason } }] } };
}

/** The node has no trace of the machine, though that was not requested. */
export function applyNoTrace(machine: MutableMachine, now: number): Observation {
  if (hasNoTrace(machine)) return { outcome: "same" };
  return { outcome: "news", change: applyMissing(machine, now) };
}

/** The node does not have the machine, of which it had the disk, and was to start or stop it. */
export const applyMissing = (machine: MutableMachine, now: number): Change =>
  abandon({ ...machine, ...NOTHING_OBSERVED }, diskLostText(machine), now);

const diskLostText = ({ nodeId }: MutableMachine): string =>
  `node ${nodeId} does not have the machine any more, so its disk is lost; start it to begin with a new, empty disk, or delete it`;

function sendAgain(machine: MutableMachine, report: ObservedMachine, now: number): Observation {
  if (hasNoTrace(machine) && !hasLastBoot(machine, report)) return { outcome: "same" };
  // With all of its time: it may have been requested long ago.
  const next: MutableMachine = { ...machine, ...NOTHING_OBSERVED, desiredAt: now, reconcileAt: now };
  return { outcome: "news", change: { next, timeline: [] } };
}

/** Whether the node is expected to have nothing: nothing can be lost, or it gets the desired state anyway. */
const hasNoTrace = (machine: MutableMachine): boolean =>
  includes(WITHOUT_TRACE, phaseOf(machine)) || (machine.observedState === "absent" && machine.observedGeneration === 0);

const WITHOUT_TRACE = ["created", "failed", "deleting", "deleted"] as const satisfies readonly MachinePhase[];

/** The desired state after the report: a guest's power-off is a stop; a newer generation is exceeded. */
function withDesired(machine: MutableMachine, report: ObservedMachine, now: number): MutableMachine {
  // Happens after a restore of an earlier database: the generation must exceed what the node has seen.
  if (report.generation > machine.generation)
    return {
      ...{ ...machine, ...desiredOnNode(machine, report), keepsMemory: report.suspendedAt !== null },
      ...{ generation: report.generation + 1, desiredAt: now },
    };
  if (isSuspendRefused(machine, report)) {
    // One that is being moved is stopped without its memory, and started on the other node if it is to run.
    const desiredState = machine.moveId === null ? "running" : machine.desiredState;
    return { ...machine, desiredState, keepsMemory: false, generation: machine.generation + 1, desiredAt: now };
  }
  const endedItself = report.state === "stopped" && report.hasPoweredOff && machine.desiredState === "running";
  if (!endedItself || report.generation < machine.generation) return machine;
  return { ...machine, desiredState: "stopped", generation: machine.generation + 1, desiredAt: now };
}

/** What the node received last, as far as its report shows it. */
function desiredOnNode(
  machine: MutableMachine,
  report: ObservedMachine,
): Pick<MutableMachine, "desiredState" | "error"> {
  const { desiredState, error } = machine;
  if (desiredState === "absent") return { desiredState, error };
  switch (report.state) {
    case "preparing":
    case "booting":
    case "running":
      return { desiredState: "running", error: null };
    case "failed":
      return { desiredState: "stopped", error: reasonOf(report) };
    case "absent":
      return { desiredState: "stopped", error: diskLostText(machine) };
    default:
      return { desiredState: "stopped", error: null };
  }
}

/**
 * Whether a report changes nothing visible and is not written. The node's events show the progress of a
 * start, so a boot costs the row one write, not four.
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

function timelineOf(before: MutableMachine, after: MutableMachine, report: ObservedMachine): readonly NewEvent[] {
  if (before.desiredState === "absent") return [];
  if (report.generation > before.generation) {
    const state = after.error ?? (after.desiredState === "running" ? "it is running" : "it is stopped");
    return [{ type: "machine.restored", data: { state } }];
  }
  if (isSuspendRefused(before, report)) {
    const reason = report.suspendRefusal?.reason ?? "";
    return [{ type: before.moveId === null ? "machine.suspendRefused" : "machine.memoryLeft", data: { reason } }];
  }
  if (isNewRun(before, after)) return [{ type: "machine.started", data: {} }];
  const reason = after.observedReason ?? "";
  if (after.observedState === "failed" && before.observedState !== "failed" && before.desiredState === "running") {
    return [failure(before, reason)];
  }
  if (report.hasPoweredOff && before.desiredState === "running" && after.desiredState === "stopped")
    return [{ type: "machine.poweredOff", data: {} }];
  const phases: readonly [MachinePhase, MachinePhase] = [phaseOf(before), phaseOf(after)];
  const hasStopped =
    phases[0] === "stopping" && phases[1] === "stopped" && before.observedState !== after.observedState;
  const type = after.observedDetails.suspendedAt === null ? "machine.stopped" : "machine.suspended";
  return hasStopped ? [{ type, data: {} }] : [];
}

/** A boot that ran has crashed; one that did not run could not be started. */
function failure(before: MutableMachine, reason: string): NewEvent {
  if (before.hasRun) return { type: "machine.failed", data: { reason } };
  return { type: "machine.startFailed", data: { reason, isAutomatic: before.isAutoStarted } };
}

const isNewRun = (before: MutableMachine, after: MutableMachine): boolean =>
  after.observedState === "running" &&
  (before.observedState !== "running" || before.observedBootId !== after.observedBootId) &&
  // A boot that is seen stopping and running again never ended.
  !(before.observedState === "stopping" && before.observedBootId === after.observedBootId);
