/**
 * When a branch may take the place of its source: every rule, of both machines where it is about each, and
 * which rule wins.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineRecord, NOW } from "../../test/support/machine.ts";
import type { MachineRecord } from "../machines/record.ts";
import { type AdoptionFacts, adoptionRefusal, keptName, type Ties } from "./adoption.ts";

const FREE: Ties = { owner: null, leaseId: null, operation: null };
const RUNNING: Partial<MachineRecord> = {
  ...{ desiredState: "running", observedState: "running", nodeId: "node-a", hasRun: true },
  ...{ generation: 5, observedGeneration: 5, observedBootId: "boot-1", readyAt: NOW },
};
const STOPPED: Partial<MachineRecord> = {
  ...RUNNING,
  desiredState: "stopped",
  observedState: "stopped",
  readyAt: null,
};
const SOURCE = machineRecord({ ...RUNNING, id: "mach-source", name: "web" });
const ORIGIN = { machineId: SOURCE.id, pointId: "point-1", nodeId: "node-a", hasMemory: true };
const BRANCH = machineRecord({ ...RUNNING, id: "mach-branch", name: "web-1", origin: ORIGIN });
const GOOD: AdoptionFacts = { branch: BRANCH, branchTies: FREE, source: SOURCE, sourceTies: FREE, adopter: null };

/** A change of one of the two, and the sentence after its id. First match wins, in this order. */
const OF_EACH: readonly (readonly [what: string, ties: Partial<Ties>, facts: Partial<MachineRecord>, text: string])[] =
  [
    ["an instance", { owner: { kind: "app", id: "app-1" } }, {}, "is an instance of app app-1, which replaces it"],
    ["a pool's", { owner: { kind: "pool", id: "pool-1" } }, {}, "waits in pool pool-1; claim it first"],
    ["a lease's", { leaseId: "job" }, {}, "is the branch of lease job, and ends with it"],
    ["moving", {}, { moveId: "op-1", moveNodeId: "node-b" }, "is being moved by operation op-1; try again"],
    [
      "in an operation",
      { operation: { id: "op-2", kind: "machine branch" } },
      {},
      "is used by operation op-2 (machine",
    ],
  ];

function withTies(which: "branch" | "source", ties: Partial<Ties>, facts: Partial<MachineRecord>): AdoptionFacts {
  return which === "branch"
    ? { ...GOOD, branch: { ...BRANCH, ...facts }, branchTies: { ...FREE, ...ties } }
    : { ...GOOD, source: { ...SOURCE, ...facts }, sourceTies: { ...FREE, ...ties } };
}

test("a running branch may take the place of its source, in any state of that", () => {
  assert.equal(adoptionRefusal(GOOD), null);
  const states: readonly Partial<MachineRecord>[] = [
    STOPPED,
    { ...STOPPED, keepsMemory: true },
    { ...RUNNING, observedState: "failed" },
    { ...RUNNING, nodeStatus: "unreachable" },
    { ...RUNNING, desiredState: "stopped", observedState: "stopping" },
  ];
  for (const facts of states)
    assert.equal(adoptionRefusal({ ...GOOD, source: { ...SOURCE, ...facts } }), null, JSON.stringify(facts));
});

test("a machine that decides otherwise, or that something works on, is not replaced and replaces none", () => {
  for (const which of ["branch", "source"] as const)
    for (const [at, [what, ties, facts, text]] of OF_EACH.entries()) {
      const refusal = adoptionRefusal(withTies(which, ties, facts)) ?? "";
      assert.ok(refusal.startsWith(`machine mach-${which} ${text}`), `${which}, ${what}: ${refusal}`);
      for (const [, laterTies, laterFacts] of OF_EACH.slice(at + 1)) {
        const both = withTies(which, { ...laterTies, ...ties }, { ...laterFacts, ...facts });
        assert.equal(adoptionRefusal(both), refusal, `${which}, ${what}, with another reason`);
      }
    }
});

test("a machine without a source that exists, or whose source was replaced, takes no place", () => {
  const refused = (facts: Partial<AdoptionFacts>, text: RegExp): void =>
    assert.match(adoptionRefusal({ ...GOOD, ...facts }) ?? "", text);
  refused({ branch: { ...BRANCH, origin: null }, source: null }, /^machine mach-branch is not a branch of another/);
  refused({ source: null }, /^the source of machine mach-branch, machine mach-source, was deleted/);
  refused({ source: { ...SOURCE, deletedAt: NOW, desiredState: "absent" } }, /was deleted; there is no place to take$/);
  refused({ source: { ...SOURCE, tenantId: "tenant-other" } }, /was deleted; there is no place to take$/);
  refused({ adopter: "mach-other" }, /^machine mach-other has taken the place of machine mach-source already$/);
});

test("a branch that does not run takes no place", () => {
  const states: readonly (readonly [Partial<MachineRecord>, string])[] = [
    [STOPPED, "stopped"],
    [{ ...RUNNING, observedState: "booting", readyAt: null }, "creating"],
    [{ ...RUNNING, observedState: "failed", readyAt: null }, "error"],
    [{ ...RUNNING, nodeStatus: "unreachable" }, "error"],
  ];
  for (const [facts, state] of states)
    assert.equal(
      adoptionRefusal({ ...GOOD, branch: { ...BRANCH, ...facts } }),
      `machine mach-branch does not run, it is in state ${state}; start it first`,
    );
});

test("a source that is kept has its name with an end, as long as a name may be", () => {
  assert.equal(keptName(SOURCE), "web-was");
  assert.equal(keptName({ ...SOURCE, name: "w".repeat(63) }), `${"w".repeat(59)}-was`);
  assert.equal(keptName({ ...SOURCE, name: null }), "mach-source-was");
});
