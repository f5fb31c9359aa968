/**
 * The decisions of the machine reconciler.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineRecord, NOW } from "../../test/support/machine.ts";
import { abandonText, planMachine } from "./plan.ts";

const onNode = { nodeId: "node-a", generation: 3, observedGeneration: 3 };
const starting = machineRecord({ ...onNode, desiredState: "running", observedGeneration: 2, desiredAt: NOW });
const stopping = machineRecord({ ...onNode, observedState: "stopping", desiredAt: NOW });
const MINUTES = 60_000;
const action = (machine: Parameters<typeof planMachine>[0], afterMs = 0): string =>
  planMachine(machine, NOW + afterMs).action;

test("an unreached desired state is sent to the node, and a reached one is left alone", () => {
  assert.equal(action(starting), "send");
  assert.equal(action(stopping), "send");
  assert.equal(action(machineRecord({ ...onNode, desiredState: "running", observedState: "running" })), "settle");
  assert.equal(action(machineRecord({ ...onNode, desiredState: "absent", deletedAt: NOW })), "settle");
  assert.equal(
    action(machineRecord({ ...onNode, desiredState: "absent", deletedAt: NOW, observedGeneration: 2 })),
    "send",
  );
});

test("an unreachable node is waited for, but a start only until its deadline", () => {
  assert.equal(action({ ...starting, nodeStatus: "unreachable" }), "wait");
  assert.equal(action({ ...starting, nodeStatus: "unreachable" }, 31 * MINUTES), "abandon");
  assert.equal(action({ ...stopping, nodeStatus: "unreachable" }, 31 * MINUTES), "wait");
});

test("a transitional state has a deadline, and is abandoned once", () => {
  assert.equal(action(starting, 29 * MINUTES), "send");
  assert.equal(action(starting, 31 * MINUTES), "abandon");
  assert.equal(action(stopping, 6 * MINUTES), "abandon");
  assert.equal(action({ ...stopping, error: "it did not stop" }, 6 * MINUTES), "send");
  assert.match(abandonText(starting), /^start failed: not running after 30 minutes on node node-a/);
  assert.match(abandonText(stopping), /has not stopped after 5 minutes/);
});

test("an ephemeral machine is deleted when it has run and stopped, and not before", () => {
  const stopped = machineRecord({ ...onNode, isEphemeral: true, observedState: "stopped" });
  assert.equal(action(stopped), "remove");
  assert.equal(action(machineRecord({ isEphemeral: true })), "settle");
  assert.equal(action({ ...stopped, observedGeneration: 2 }), "send");
});
