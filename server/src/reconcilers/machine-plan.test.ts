/**
 * What the machine reconciler decides.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineRecord, NOW } from "../../test/support/machine.ts";
import { giveUpText, planMachine } from "./machine-plan.ts";

const onNode = { nodeId: "node-a", generation: 3, observedGeneration: 3 };
const starting = machineRecord({ ...onNode, desiredState: "running", observedGeneration: 2, desiredAt: NOW });
const stopping = machineRecord({ ...onNode, observedState: "stopping", desiredAt: NOW });
const MINUTES = 60_000;
const action = (machine: Parameters<typeof planMachine>[0], afterMs = 0): string =>
  planMachine(machine, NOW + afterMs).action;

test("what is not reached is told to the node, and what is reached is left alone", () => {
  assert.equal(action(starting), "tell");
  assert.equal(action(stopping), "tell");
  assert.equal(action(machineRecord({ ...onNode, desiredState: "running", observedState: "running" })), "settle");
  assert.equal(action(machineRecord({ ...onNode, desiredState: "absent", deletedAt: NOW })), "settle");
  assert.equal(
    action(machineRecord({ ...onNode, desiredState: "absent", deletedAt: NOW, observedGeneration: 2 })),
    "tell",
  );
});

test("a node that is away is waited for, but a start only until its deadline", () => {
  assert.equal(action({ ...starting, nodeStatus: "unreachable" }), "wait");
  assert.equal(action({ ...starting, nodeStatus: "unreachable" }, 31 * MINUTES), "giveUp");
  assert.equal(action({ ...stopping, nodeStatus: "unreachable" }, 31 * MINUTES), "wait");
});

test("a transitional state has a deadline, given up on once", () => {
  assert.equal(action(starting, 29 * MINUTES), "tell");
  assert.equal(action(starting, 31 * MINUTES), "giveUp");
  assert.equal(action(stopping, 6 * MINUTES), "giveUp");
  assert.equal(action({ ...stopping, error: "it did not stop" }, 6 * MINUTES), "tell");
  assert.match(giveUpText(starting), /^start failed: not running after 30 minutes on node node-a/);
  assert.match(giveUpText(stopping), /has not stopped after 5 minutes/);
});

test("an ephemeral machine is deleted when it has run and stopped, and not before", () => {
  const stopped = machineRecord({ ...onNode, isEphemeral: true, observedState: "stopped" });
  assert.equal(action(stopped), "remove");
  assert.equal(action(machineRecord({ isEphemeral: true })), "settle");
  assert.equal(action({ ...stopped, observedGeneration: 2 }), "tell");
});
