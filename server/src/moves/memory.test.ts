/**
 * What a move does to a machine's memory, by its state and by what its nodes report.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineRecord } from "../../test/support/machine.ts";
import { effectOf, preferredFormat } from "./memory.ts";

const target = (memoryFormat?: string) => ({
  id: "node-b",
  labels: memoryFormat === undefined ? {} : { memoryFormat },
});
const onNode = { nodeId: "node-a", observedBootId: "boot-1" };
const running = machineRecord({ ...onNode, desiredState: "running", observedState: "running" });
const stopped = machineRecord({ ...onNode, desiredState: "stopped", observedState: "stopped" });
const suspended = { ...stopped, observedDetails: { ...stopped.observedDetails, suspendedAt: 1 } };

test("memory moves to a node that reports its format, and to no other", () => {
  for (const machine of [running, suspended]) {
    const effect = (format: string | null, of = target("one")) =>
      effectOf({ machine, memoryFormat: format, target: of });
    assert.deepEqual(effect("one"), { effect: "migrate", reason: null });
    assert.match(effect("two").reason ?? "", /^node node-b cannot load it: /);
    assert.equal(effect("one", target()).effect, "restart");
    assert.equal(effect(null, target()).effect, "restart");
  }
});

test("a running machine moves as its owner says, and a suspended one keeps its memory in any case", () => {
  for (const disruption of ["restart", "stop"] as const) {
    const facts = { memoryFormat: "one", target: target("one") };
    assert.deepEqual(effectOf({ ...facts, machine: { ...running, disruption } }), { effect: disruption, reason: null });
    assert.equal(preferredFormat({ ...running, disruption }, "one"), null);
    assert.equal(effectOf({ ...facts, machine: { ...suspended, disruption } }).effect, "migrate");
    assert.equal(preferredFormat({ ...suspended, disruption }, "one"), "one");
  }
});

test("a stopped machine has no memory to lose", () => {
  assert.deepEqual(effectOf({ machine: stopped, memoryFormat: null, target: target() }), {
    effect: "none",
    reason: null,
  });
});
