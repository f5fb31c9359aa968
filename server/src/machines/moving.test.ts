/**
 * A machine that a move holds: what its node receives, and what users see, in every state.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DESIRED_STATES, OBSERVED_STATES } from "@flotilla/contract/link/link";
import { machineRecord, NOW, report } from "../../test/support/machine.ts";
import { planMachine } from "./plan.ts";
import { abandonedState, type MutableMachine, requestStart, requestStop } from "./change.ts";
import { applyObservation } from "./observe.ts";
import { isActive, isSettled, phaseOf, sentState } from "./state.ts";
import { shownState } from "./view.ts";

const onNode = { nodeId: "node-a", generation: 5, observedGeneration: 5, observedBootId: "boot-1" };
const held = { ...onNode, moveId: `op-${"1".repeat(32)}`, moveNodeId: "node-b" };
const all = DESIRED_STATES.flatMap((desiredState) =>
  OBSERVED_STATES.flatMap((observedState) =>
    [4, 5].map((observedGeneration) => machineRecord({ ...held, desiredState, observedState, observedGeneration })),
  ),
);

test("no node receives a request to run a machine that is being moved, and a delete is sent as always", () => {
  for (const machine of all) assert.equal(sentState(machine), machine.desiredState === "absent" ? "absent" : "stopped");
  assert.equal(sentState(machineRecord({ ...onNode, desiredState: "running" })), "running");
});

test("its files are at rest only when its node has confirmed that nothing of it runs", () => {
  for (const machine of all.filter(({ desiredState }) => desiredState !== "absent")) {
    const isAtRest =
      ["absent", "stopped", "failed"].includes(machine.observedState) && machine.observedGeneration === 5;
    assert.equal(isSettled(machine), isAtRest, JSON.stringify(machine));
  }
});

test("a machine that is to run keeps its place under the ceiling, is shown as creating, and is never abandoned", () => {
  const machine = machineRecord({ ...held, desiredState: "running", observedState: "stopped" });
  assert.deepEqual([phaseOf(machine), isActive(machine)], ["starting", true]);
  assert.equal(shownState(machine).state, "creating");
  assert.equal(planMachine(machine, NOW + 7 * 24 * 3600_000).action, "settle");
  const stopping = { ...machine, observedState: "stopping" as const };
  assert.equal(planMachine(stopping, NOW + 7 * 24 * 3600_000).action, "send");
});

test("a machine that its move stops is shown as stopping, until a start or a stop decides otherwise", () => {
  const stops = machineRecord({ ...held, desiredState: "running", observedState: "running", moveStops: true });
  assert.deepEqual([phaseOf(stops), sentState(stops), isActive(stops)], ["stopping", "stopped", true]);
  assert.equal(phaseOf({ ...stops, moveId: null }), "running", "the mark means nothing without a move");
  const request = {
    tenantId: "tenant-a",
    nodeId: "node-a",
    overcommit: { cpus: null, memory: null },
    activeMax: 10,
    isBudgeted: false,
  } as const;
  const { next, start: added } = requestStart(stops, {
    ...request,
    isAutomatic: false,
    keyId: "key-a",
    now: NOW,
  });
  assert.deepEqual([phaseOf(next), next.moveStops], ["starting", false]);
  assert.deepEqual(
    [added?.reservation?.isNew, added?.activeMax],
    [false, null],
    "the node where it was to be stopped has kept no room for it",
  );
  const stopped = requestStop(stops, NOW).next;
  assert.deepEqual([stopped.desiredState, stopped.moveStops], ["stopped", false]);
});

test("reports of its stop are applied in their order, however many arrive before the last one", () => {
  const running = { ...held, desiredState: "running", observedState: "running", observedGeneration: 4 } as const;
  let machine: MutableMachine = machineRecord(running);
  for (const state of ["running", "stopping", "stopped"] as const) {
    const observed = applyObservation(machine, report({ generation: 5, state, bootId: "boot-1" }), NOW);
    assert.equal(observed.outcome, "news", state);
    if (observed.outcome === "news") machine = observed.change.next;
  }
  assert.ok(isSettled(machine), "its files are at rest");
  assert.equal(applyObservation(machine, report({ generation: 5, state: "stopping" }), NOW).outcome, "late");
});

test("a start and a stop meanwhile change what is desired, and not the move", () => {
  const stopped = machineRecord({ ...held, observedState: "stopped" });
  const start = {
    tenantId: "tenant-a",
    nodeId: "node-a",
    overcommit: { cpus: null, memory: null },
    activeMax: 10,
    isBudgeted: false,
    isAutomatic: false,
    keyId: "key-a",
    now: NOW,
  };
  const started = { ...stopped, ...requestStart(stopped, start).next };
  assert.deepEqual([phaseOf(started), sentState(started), started.generation], ["starting", "stopped", 6]);
  assert.equal(requestStart(stopped, start).start?.reservation?.isNew, false, "it takes its share of both nodes");
  const again = { ...started, ...requestStop(started, NOW).next };
  assert.deepEqual([again.desiredState, again.moveId, again.generation], ["stopped", held.moveId, 7]);
});

test("a failed machine stays failed, with its reason, while and after it moves", () => {
  const failed = machineRecord({
    ...onNode,
    desiredState: "running",
    observedState: "failed",
    observedReason: "it crashed",
  });
  assert.deepEqual(abandonedState(failed), { desiredState: "stopped", error: "it crashed" });
  const running = machineRecord({ ...onNode, desiredState: "running", observedState: "running" });
  assert.deepEqual(abandonedState(running), { desiredState: "running", error: null });
});
