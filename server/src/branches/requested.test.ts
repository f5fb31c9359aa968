/**
 * What a request for branches asks for: the names, and every pair of a state of the source and its
 * refusal.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineRecord, NOW } from "../../test/support/machine.ts";
import type { MachineRecord } from "../machines/record.ts";
import { namesOf, refuseUnbranchable, refuseUnkept } from "./requested.ts";

const RUNNING: Partial<MachineRecord> = {
  ...{ isBranchable: true, desiredState: "running", observedState: "running", nodeId: "node-a", hasRun: true },
  ...{ generation: 5, observedGeneration: 5, observedBootId: "boot-1", readyAt: NOW },
};
const STOPPED: Partial<MachineRecord> = { ...RUNNING, desiredState: "stopped", observedState: "stopped" };
const CREATED: Partial<MachineRecord> = { ...STOPPED, nodeId: null, observedState: "absent" };

/** null: it is branched. First match wins, in this order. */
const REFUSALS: readonly (readonly [what: string, facts: Partial<MachineRecord>, refusal: RegExp | null])[] = [
  ["running", RUNNING, null],
  ["not branchable", { ...RUNNING, isBranchable: false }, /create it with branchable: true/],
  ["not branchable and stopped", { ...STOPPED, isBranchable: false }, /create it with branchable: true/],
  ["moving while it runs", { ...RUNNING, moveId: "op-1" }, /is being moved by operation op-1; try again/],
  ["moving, suspended for it", { ...RUNNING, moveId: "op-1", observedState: "stopped" }, /is being moved/],
  ["starting", { ...RUNNING, observedState: "booting" }, /is not running; start it/],
  ["stopped", STOPPED, /is not running; start it/],
  ["suspended", { ...STOPPED, keepsMemory: true }, /is not running; start it/],
  ["failed", { ...RUNNING, observedState: "failed" }, /is not running; start it/],
  ["with secret variables", { ...RUNNING, secretNames: ["A", "B"] }, /secret variables \(A, B\), .*"inherit"/],
];

test("names are those of the request, or the prefix with numbers from 1", () => {
  const source = { id: "mach-1", name: "web" };
  assert.deepEqual(namesOf({ count: 2 }, source), ["web-1", "web-2"]);
  assert.deepEqual(namesOf({ count: 1, names: [] }, { id: "mach-1", name: null }), ["mach-1-1"]);
  assert.deepEqual(namesOf({ count: 1, namePrefix: "try" }, source), ["try-1"]);
  assert.deepEqual(namesOf({ count: 5, names: ["b", "a"] }, source), ["b", "a"]);
  assert.throws(() => namesOf({}, source), /either count or names/);
  assert.throws(() => namesOf({ names: ["a", "b", "a"] }, source), /"a" is in names twice/);
  const longest = "x".repeat(63);
  assert.throws(() => namesOf({ count: 1 }, { id: "mach-1", name: longest }), /give a shorter namePrefix/);
  assert.throws(() => namesOf({ count: 10, namePrefix: "x".repeat(61) }, source), /is too long/);
});

test("a machine is branched while it runs and nothing moves it, and a refusal says what to do", () => {
  for (const [what, facts, refusal] of REFUSALS) {
    const refuse = (): void => refuseUnbranchable(machineRecord(facts), "refuse");
    if (refusal === null) assert.doesNotThrow(refuse, what);
    else assert.throws(refuse, { code: "conflict", message: refusal }, what);
  }
  assert.doesNotThrow(() => refuseUnbranchable(machineRecord({ ...RUNNING, secretNames: ["A"] }), "inherit"));
});

/** What is refused of a checkpoint with memory, and of one of the disk alone. null: it is made. */
const UNKEPT: readonly (readonly [
  what: string,
  facts: Partial<MachineRecord>,
  memory: RegExp | null,
  disk: RegExp | null,
])[] = [
  ["running", RUNNING, null, null],
  ["not branchable", { ...RUNNING, isBranchable: false }, /keep its disk alone with memory: false/, null],
  ["moving", { ...RUNNING, moveId: "op-1" }, /is being moved/, /is being moved/],
  ["starting", { ...RUNNING, observedState: "booting" }, /is not running, and has no memory/, null],
  ["stopped", STOPPED, /is not running, and has no memory/, null],
  ["stopped, not branchable", { ...STOPPED, isBranchable: false }, /is not running, and has no memory/, null],
  ["never started", CREATED, /never started, and has no disk yet/, /never started, and has no disk yet/],
  ["with secret variables", { ...RUNNING, secretNames: ["A"] }, /\(A\), .*"inherit"/, /\(A\), .*"inherit"/],
  ["stopped, with secret variables", { ...STOPPED, secretNames: ["A"] }, /has no memory/, /\(A\), .*"inherit"/],
];

test("a machine is kept with its memory while it runs, its disk also when it does not", () => {
  for (const [what, facts, ...refusals] of UNKEPT)
    for (const [at, refusal] of refusals.entries()) {
      const hasMemory = at === 0;
      const refuse = (): void => refuseUnkept(machineRecord(facts), { hasMemory, secrets: "refuse" });
      if (refusal === null) assert.doesNotThrow(refuse, what);
      else assert.throws(refuse, { code: "conflict", message: refusal }, `${what}, memory: ${hasMemory}`);
    }
  const inherits = { hasMemory: true, secrets: "inherit" } as const;
  assert.doesNotThrow(() => refuseUnkept(machineRecord({ ...RUNNING, secretNames: ["A"] }), inherits));
});
