/**
 * What reports of nodes change, and what late, repeated and forged ones do not.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ObservedMachine } from "@flotilla/contract/link/link";
import { machineRecord, NOW, report } from "../../test/support/machine.ts";
import type { Change } from "./change.ts";
import { applyNoTrace, applyObservation, uncertainBoot } from "./observe.ts";
import { planMachine } from "./plan.ts";
import type { MachineRecord } from "./record.ts";
import { isActive, phaseOf } from "./state.ts";
import { shownState } from "./view.ts";

const DAY_MS = 86_400_000;

const starting = machineRecord({
  nodeId: "node-a",
  desiredState: "running",
  generation: 2,
  desiredAt: NOW - 1000,
  observedState: "stopped",
  observedGeneration: 1,
});
const running = machineRecord({
  ...starting,
  observedState: "running",
  observedGeneration: 2,
  observedBootId: "boot-1",
  readyAt: NOW - 500,
  hasRun: true,
});

function news(machine: MachineRecord, seen: Partial<ObservedMachine>): Change {
  const observation = applyObservation(machine, report({ generation: machine.generation, ...seen }), NOW);
  assert.equal(observation.outcome, "news");
  return (observation as { change: Change }).change;
}

const reportOf = (machine: MachineRecord, seen: Partial<ObservedMachine>): ObservedMachine =>
  report({ generation: machine.generation, ...seen });

const outcome = (machine: MachineRecord, seen: Partial<ObservedMachine>): string =>
  applyObservation(machine, report({ generation: machine.generation, ...seen }), NOW).outcome;

test("a boot that ran opens a run, is ready and has an event on the timeline", () => {
  const change = news(starting, { state: "running", bootId: "boot-1", runningSince: NOW - 10, readySince: NOW - 9 });
  assert.equal(phaseOf(change.next), "running");
  assert.equal(change.next.readyAt, NOW - 9);
  assert.equal(change.next.reconcileAt, null);
  assert.deepEqual(change.runs, [
    { bootId: "boot-1", startedAt: NOW - 10, endedAt: null, cause: null, egressBytes: 0 },
  ]);
  assert.deepEqual(change.timeline, [{ type: "machine.started", data: {} }]);
});

test("a node's clock makes no machine ready before it was asked for, nor in the future", () => {
  const at = (time: number) => ({ state: "running", bootId: "b", runningSince: time, readySince: time }) as const;
  const [early, late] = [news(starting, at(5)), news(starting, at(NOW * 2))];
  assert.deepEqual([early.next.readyAt, late.next.readyAt], [starting.desiredAt, NOW]);
});

test("a machine that runs is ready when its node says so, once, and stays so while it runs", () => {
  const runs = { state: "running", bootId: "boot-1", runningSince: NOW - 10 } as const;
  const started = news(starting, runs);
  assert.deepEqual([phaseOf(started.next), started.next.readyAt], ["running", null]);
  const running = started.next as MachineRecord;
  assert.equal(outcome(running, runs), "same");
  const ready = news(running, { ...runs, readySince: NOW - 5 });
  assert.deepEqual([ready.next.readyAt, ready.timeline], [NOW - 5, []]);
  // A report from before it was ready, and one that says it again.
  assert.equal(outcome(ready.next as MachineRecord, runs), "same");
  assert.equal(outcome(ready.next as MachineRecord, { ...runs, readySince: NOW }), "same");
  assert.equal(news(ready.next as MachineRecord, { state: "failed", reason: "it broke" }).next.readyAt, null);
});

const HEALTHY = { status: "healthy", since: NOW - 9, reason: null } as const;
const UNHEALTHY = { status: "unhealthy", since: NOW - 5, reason: "nothing listens on port 80" } as const;
const UNKNOWN = { status: "unknown", since: null, reason: null } as const;

/** The running machine, whose boot has this health. */
const withHealth = (health: ObservedMachine["health"]): MachineRecord =>
  news(starting, { state: "running", bootId: "boot-1", runningSince: NOW - 10, health }).next as MachineRecord;

test("the health of a boot is written when it changes, and what was known of it stays known", () => {
  const after = (before: MachineRecord, health: ObservedMachine["health"], bootId = "boot-1") => {
    const observation = applyObservation(before, reportOf(before, { state: "running", bootId, health }), NOW);
    return observation.outcome === "news" ? observation.change.next.observedDetails.health : observation.outcome;
  };
  assert.deepEqual(after(withHealth(UNKNOWN), HEALTHY), HEALTHY);
  assert.deepEqual(after(withHealth(HEALTHY), UNHEALTHY), UNHEALTHY);
  assert.deepEqual(after(withHealth(UNHEALTHY), HEALTHY), HEALTHY);
  // A new agent: it has had no result, and then its first one.
  assert.equal(after(withHealth(HEALTHY), UNKNOWN), "same");
  assert.equal(after(withHealth(HEALTHY), { ...HEALTHY, since: NOW - 1 }), "same");
  assert.deepEqual(after(withHealth(UNHEALTHY), { ...UNHEALTHY, since: NOW, reason: "it answered 500" }), {
    ...UNHEALTHY,
    reason: "it answered 500",
  });
  assert.deepEqual(after(withHealth(HEALTHY), UNKNOWN, "boot-2"), UNKNOWN, "another boot has had no success");
});

test("a node's clock makes no machine healthy before it was asked for, nor in the future", () => {
  const since = (at: number) => withHealth({ ...HEALTHY, since: at }).observedDetails.health?.since;
  assert.deepEqual([since(5), since(NOW * 2)], [starting.desiredAt, NOW]);
});

test("a machine that does not run has no health", () => {
  const stopped = news({ ...withHealth(HEALTHY), desiredState: "stopped", generation: 3 }, { state: "stopped" }).next;
  assert.equal(stopped.observedDetails.health, null);
});

test("how far a start has come is not written", () => {
  assert.equal(outcome(starting, { state: "preparing", progress: "pulling layer 2 of 3, 41 %" }), "same");
  assert.equal(outcome(starting, { state: "booting", bootId: "boot-1" }), "same");
});

test("a heartbeat from before a start failed does not undo the failure, whatever boot it is about", () => {
  const failed = news(starting, { state: "failed", reason: "no luck" }).next as MachineRecord;
  for (const state of ["preparing", "booting", "running", "stopping"] as const)
    assert.equal(outcome(failed, { state, bootId: "boot-1" }), "late");
  assert.equal(outcome(failed, { state: "failed", bootId: "boot-1", reason: "no luck" }), "same");
});

test("a failed machine whose boot has not ended is shown again when it runs, and one whose run has ended is not", () => {
  const reason = "its journal has version 99";
  const unusable = news(running, { generation: 0, state: "failed", bootId: null, reason });
  const failed = unusable.next as MachineRecord;
  assert.deepEqual(
    [phaseOf(failed), failed.desiredState, failed.generation],
    ["failed", "running", running.generation],
  );
  assert.deepEqual([failed.observedReason, failed.reconcileAt], [reason, null]);
  const report = { state: "running", bootId: "boot-1", runningSince: NOW - 900, readySince: NOW - 800 } as const;
  const back = news(failed, report);
  assert.deepEqual([phaseOf(back.next), back.next.readyAt !== null], ["running", true]);
  assert.deepEqual(back.timeline, [{ type: "machine.started", data: {} }]);
  assert.equal(outcome(failed, { ...report, bootId: "boot-0" }), "late");
  assert.equal(uncertainBoot(failed, reportOf(failed, report)), "boot-1");
  assert.equal(applyObservation(failed, reportOf(failed, report), NOW, new Set(["boot-1"])).outcome, "late");
  // Its node has recovered it from its disk and its VMM, and needs its specification.
  const recovered = news(failed, { generation: 0, state: "booting", bootId: "boot-1" });
  assert.deepEqual([phaseOf(recovered.next), recovered.next.reconcileAt], ["starting", NOW]);
  assert.equal(outcome(failed, { generation: 0, state: "stopped", bootId: null }), "same");
});

test("a boot that runs on is shown again, and gets what was requested while its node could not use its files", () => {
  const seen = { generation: 2, state: "running", bootId: "boot-1", runningSince: NOW - 900 } as const;
  for (const [desiredState, phase] of [
    ["running", "starting"],
    ["stopped", "stopping"],
  ] as const) {
    // Its node has answered the request with the failure.
    const facts = {
      desiredState,
      generation: 3,
      observedGeneration: 3,
      observedState: "failed",
      readyAt: null,
    } as const;
    const failed = machineRecord({ ...running, ...facts, observedReason: "its journal has version 99" });
    assert.equal(uncertainBoot(failed, report(seen)), "boot-1");
    const { next } = news(failed, seen);
    assert.deepEqual([phaseOf(next), isActive(next), next.generation], [phase, true, 3]);
    assert.deepEqual([next.desiredAt, next.reconcileAt === null], [NOW, false], "it has all of its time");
    assert.equal(applyObservation(failed, report(seen), NOW, new Set(["boot-1"])).outcome, "late");
    assert.equal(outcome(failed, { ...seen, bootId: "boot-0" }), "late");
    assert.equal(outcome(failed, { ...seen, state: "booting" }), "late");
  }
  // Its node was restarted between the stop and the end of its trouble.
  const stopped = machineRecord({ ...running, desiredState: "stopped", observedState: "failed", readyAt: null });
  const again = news(stopped, { generation: 0, state: "failed", reason: "its journal has version 99" }).next;
  const told = news(again as MachineRecord, { generation: again.generation, state: "failed", reason: "the same" }).next;
  assert.deepEqual([phaseOf(told), isActive(told)], ["failed", false]);
  const back = news(told as MachineRecord, seen).next;
  assert.deepEqual([phaseOf(back), isActive(back), back.reconcileAt === null], ["failed", true, false]);
});

test("a repeated report changes nothing", () => {
  assert.equal(outcome(running, { state: "running", bootId: "boot-1" }), "same");
});

test("a report of an older generation is late", () => {
  assert.equal(outcome(running, { generation: 1, state: "stopped" }), "late");
});

test("a heartbeat that was written before the answer and comes after it is late", () => {
  assert.equal(outcome(running, { state: "preparing" }), "late");
  assert.equal(outcome(running, { state: "booting", bootId: "boot-1" }), "late");
  assert.equal(outcome(running, { state: "stopping", bootId: "boot-0" }), "late");
});

test("a boot that could not be made is a failed start, an automatic one says so", () => {
  const failed = news(starting, { state: "failed", reason: "image x does not exist" });
  assert.deepEqual(failed.timeline, [
    { type: "machine.startFailed", data: { reason: "image x does not exist", isAutomatic: false } },
  ]);
  const auto = news({ ...starting, isAutoStarted: true }, { state: "failed", reason: "no room" });
  assert.deepEqual(auto.timeline, [{ type: "machine.startFailed", data: { reason: "no room", isAutomatic: true } }]);
});

test("a boot that ran and crashed is a failure of the machine, and its run ends", () => {
  const crashed = news(running, { state: "failed", bootId: "boot-1", reason: "the VMM was killed" });
  assert.equal(phaseOf(crashed.next), "failed");
  assert.deepEqual(crashed.runs, []);
  assert.deepEqual(crashed.timeline, [{ type: "machine.failed", data: { reason: "the VMM was killed" } }]);
});

test("a boot that ended unexpectedly with a reason is a failure", () => {
  assert.equal(phaseOf(news(running, { state: "failed", bootId: "boot-1", reason: "it vanished" }).next), "failed");
});

test("a guest that powered itself off is stopped, and stopped is the desired state", () => {
  const { next } = news(running, { state: "stopped", bootId: "boot-1", hasPoweredOff: true });
  assert.equal(next.desiredState, "stopped");
  assert.equal(next.generation, running.generation + 1);
});

test("a report from before a guest powered itself off does not give it room again that others may have by now", () => {
  const change = news(running, { state: "stopped", bootId: null, hasPoweredOff: true });
  const off = change.next as MachineRecord;
  assert.deepEqual([phaseOf(off), isActive(off)], ["stopping", false]);
  for (const state of ["preparing", "booting", "running", "stopping"] as const)
    assert.equal(outcome(off, { state, bootId: "boot-1", generation: running.generation }), "late", state);
});

test("a machine at rest takes no place again while its node removes the memory that a suspend saved", () => {
  const atRest = { ...running, desiredState: "stopped", generation: 3, readyAt: null } as const;
  for (const observedState of ["stopped", "failed"] as const) {
    const machine = machineRecord({ ...atRest, observedState });
    assert.deepEqual([phaseOf(machine), isActive(machine)], ["stopping", false]);
    for (const bootId of ["boot-1", null]) assert.equal(outcome(machine, { state: "stopping", bootId }), "late");
    // A VM of a start that was never reported.
    assert.equal(isActive(news(machine, { state: "stopping", bootId: "boot-2" }).next), true);
    assert.equal(phaseOf(news(machine, { state: "stopped", bootId: "boot-1" }).next), "stopped");
  }
});

test("a guest's end that is reported late does not undo a newer start", () => {
  const again: MachineRecord = { ...running, generation: 4, observedGeneration: 2 };
  const observation = applyObservation(again, report({ generation: 2, state: "stopped", hasPoweredOff: true }), NOW);
  assert.equal(observation.outcome, "news");
  assert.equal((observation as { change: Change }).change.next.desiredState, "running");
});

test("a node that is ahead of a restored database keeps what it received last, and accepts requests again", () => {
  const stopped = machineRecord({ ...running, desiredState: "stopped", observedState: "stopped", readyAt: null });
  for (const [machine, state, phase] of [
    [running, "stopped", "stopping"],
    [stopped, "running", "starting"],
    [running, "running", "starting"],
    [stopped, "preparing", "starting"],
    [running, "failed", "failed"],
    [running, "absent", "failed"],
  ] as const) {
    const { next, timeline } = news(machine, { generation: 9, state, reason: "it crashed", bootId: "boot-9" });
    assert.deepEqual([next.generation, phaseOf(next)], [10, phase], `${machine.desiredState} and ${state}`);
    assert.equal(timeline[0]?.type, "machine.restored");
  }
  const { next } = news(running, { generation: 9, state: "absent" });
  assert.match(next.error ?? "", /its disk is lost/);
});

test("a machine that its node had and does not have any more is in error, and no new disk is made", () => {
  const lost = applyNoTrace(running, NOW);
  assert.equal(lost.outcome, "news");
  const { next, timeline } = (lost as { change: Change }).change;
  assert.deepEqual([phaseOf(next), next.desiredState, timeline.length], ["failed", "stopped", 1]);
  assert.match(next.error ?? "", /so its disk is lost; start it to begin with a new, empty disk, or delete it/);
  assert.equal(applyNoTrace(next as MachineRecord, NOW).outcome, "same");
});

test("a machine that is to be absent and is not, has to go, however old the report", () => {
  const gone = machineRecord({
    ...running,
    desiredState: "absent",
    deletedAt: NOW,
    generation: 3,
    observedState: "absent",
  });
  const { next } = news(gone, { generation: 2, state: "running", bootId: "boot-1" });
  assert.equal(phaseOf(next), "deleting");
  assert.notEqual(next.reconcileAt, null);
});

test("an ephemeral machine that has stopped is looked at again at once", () => {
  const stopping = machineRecord({
    ...running,
    isEphemeral: true,
    desiredState: "stopped",
    generation: 3,
    readyAt: null,
  });
  const { next } = news(stopping, { state: "stopped" });
  assert.equal(next.reconcileAt, NOW);
});

test("a node that has lost its journal of a machine gets the desired state again, and the machine is not abandoned", () => {
  for (const state of ["stopped", "booting", "running"] as const) {
    const told = news(running, { generation: 0, state, bootId: null });
    assert.deepEqual([phaseOf(told.next), told.next.reconcileAt, told.next.desiredState], ["starting", NOW, "running"]);
    assert.deepEqual([told.next.generation, told.timeline], [running.generation, []]);
    const old = news({ ...running, desiredAt: NOW - 7 * DAY_MS }, { generation: 0, state, bootId: null }).next;
    assert.equal(planMachine(old as MachineRecord, NOW).action, "send", "however long ago it was started");
    assert.equal(outcome(told.next as MachineRecord, { generation: 0, state }), "same");
  }
});

test("a machine that its node has and cannot run is in error with the reason, whatever its desired state", () => {
  const stopped = machineRecord({ ...running, desiredState: "stopped", observedState: "stopped", readyAt: null });
  for (const machine of [running, stopped]) {
    const reason = "its journal has version 9";
    const { next, timeline } = news(machine, { generation: 0, state: "failed", reason });
    assert.deepEqual([phaseOf(next), shownState(next as MachineRecord).error], ["failed", reason]);
    assert.deepEqual(timeline, [{ type: "machine.failed", data: { reason } }]);
    assert.equal(outcome(next as MachineRecord, { generation: 0, state: "failed", reason }), "same");
    if (machine === running) continue;
    const told = news(next as MachineRecord, { generation: next.generation, state: "failed", reason });
    assert.deepEqual([phaseOf(told.next), told.next.reconcileAt, told.timeline], ["failed", null, []]);
    assert.equal(outcome(told.next as MachineRecord, { generation: 0, state: "failed", reason }), "same");
  }
});

test("a machine that ended and is started again is starting, and the run that ended is written as its node says", () => {
  const lastRun = {
    bootId: "boot-1",
    startedAt: NOW - 900,
    endedAt: NOW - 100,
    cause: "stop",
    egressBytes: 5,
  } as const;
  for (const seen of [
    { state: "stopping", bootId: "boot-1", lastRun: null },
    { state: "preparing", bootId: null, lastRun },
    { state: "booting", bootId: "boot-2", lastRun },
  ] as const) {
    const { next, runs, timeline } = news(running, seen);
    assert.deepEqual([phaseOf(next), next.desiredAt, timeline], ["starting", NOW, []]);
    assert.deepEqual(runs, seen.lastRun === null ? [] : [lastRun]);
    const again = news(next as MachineRecord, { state: "running", bootId: "boot-2", runningSince: NOW, lastRun });
    assert.deepEqual(again.runs?.[1], { bootId: "boot-2", startedAt: NOW, endedAt: null, cause: null, egressBytes: 0 });
    assert.deepEqual(again.timeline, [{ type: "machine.started", data: {} }]);
    // What was written before the end, or while the machine was being started the first time.
    assert.equal(outcome(again.next as MachineRecord, { state: "preparing", bootId: null }), "late");
  }
});

test("a report from before a machine ran does not take it for one that is started again", () => {
  const lastRun = {
    bootId: "boot-0",
    startedAt: NOW - 9_000,
    endedAt: NOW - 8_000,
    cause: "stop",
    egressBytes: 5,
  } as const;
  assert.equal(outcome(running, { state: "preparing", bootId: null, lastRun }), "late");
  assert.equal(outcome(running, { state: "booting", bootId: "boot-1", lastRun }), "late");
});

test("once a machine has stopped as desired, a late report of the boot that its node had begun after a crash changes nothing", () => {
  const stopped = machineRecord({ ...running, desiredState: "stopped", generation: 3 });
  const settled = news(stopped, { state: "stopped", bootId: null }).next as MachineRecord;
  assert.equal(phaseOf(settled), "stopped");
  for (const state of ["preparing", "booting", "running", "stopping"] as const)
    assert.equal(outcome(settled, { state, bootId: "boot-2" }), "late", state);
});

test("a boot other than the one that was seen last is news in its generation, unless its run has ended", () => {
  const seen = report({ generation: 2, state: "running", bootId: "boot-2", runningSince: NOW - 10 });
  assert.equal(uncertainBoot(running, seen), "boot-2");
  assert.equal(applyObservation(running, seen, NOW).outcome, "news");
  assert.equal(applyObservation(running, seen, NOW, new Set(["boot-2"])).outcome, "late");
  // The order says enough of the boot that was seen last, of another generation, and of no boot.
  for (const other of [{ bootId: "boot-1" }, { generation: 1 }, { generation: 3 }, { bootId: null }] as const)
    assert.equal(uncertainBoot(running, { ...seen, ...other }), null);
});
