/**
 * Tests of the plan: every pair of facts has an answer, the invariants at its head hold, and applying it
 * converges.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DESIRED_STATES, type DesiredState } from "@flotilla/contract/link/link";
import fc from "fast-check";
import { observedState, plan } from "./plan.ts";
import { type Action, isAttempt, type Situation, VM_STATES } from "./state.ts";

const situations: fc.Arbitrary<Situation> = fc.record({
  desired: fc.constantFrom(...DESIRED_STATES),
  generation: fc.integer({ min: 1, max: 3 }),
  hasImage: fc.boolean(),
  hasDisk: fc.boolean(),
  vm: fc.constantFrom(null, ...VM_STATES),
  keepsMemory: fc.boolean(),
  isLeaving: fc.boolean(),
  hasMemory: fc.boolean(),
  isSuspendRefused: fc.boolean(),
  hostStop: fc.constantFrom(null, "suspend" as const, "shutDown" as const),
  isCutOff: fc.boolean(),
  replacing: fc.constantFrom(null, "live" as const, "restart" as const),
  ending: fc.option(
    fc.record({
      generation: fc.integer({ min: 1, max: 3 }),
      kind: fc.constantFrom("failed" as const, "poweredOff" as const),
      reason: fc.constant("because"),
    }),
  ),
});

test("every situation has exactly one answer", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan(situation);
      assert.ok(observedState(next));
    }),
  );
});

test("while a machine's memory is saved its VM is only killed, and nothing boots without the memory", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan({ ...situation, hasMemory: true });
      if (situation.vm !== null) assert.ok(next.kind === "act" && ["kill", "cleanBoot"].includes(next.action));
      else assert.ok(next.kind === "settled" || !["boot", "makeDisk", "ensureImage"].includes(next.action));
    }),
  );
});

test("memory is saved and kept only as long as that is desired", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan({ ...situation, desired: "stopped", keepsMemory: false });
      if (next.kind === "act") assert.notEqual(next.action, "suspend");
      else assert.ok(!situation.hasMemory, JSON.stringify(situation));
    }),
  );
});

test("while the host goes down nothing starts, and only what may be suspended is", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan({ ...situation, desired: "running" });
      if (situation.hostStop === null || next.kind !== "act") return;
      assert.ok(!["boot", "resume", "ensureImage", "makeDisk", "awaitRestart"].includes(next.action), next.action);
      if (next.action === "suspend") assert.equal(situation.hostStop, "suspend");
    }),
  );
});

test("a fenced machine is not started while no server answers, and one that runs is left alone", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan({ ...situation, isCutOff: true });
      assert.ok(
        next.kind !== "act" ||
          !["boot", "resume", "unpause", "ensureImage", "makeDisk", "awaitRestart"].includes(next.action),
      );
      if (situation.vm !== null && situation.vm !== "paused")
        assert.deepEqual(next, plan({ ...situation, isCutOff: false }));
    }),
  );
});

test("nothing boots and nothing is removed while a VMM may exist", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan(situation);
      if (next.kind === "act" && ["boot", "resume", "removeFiles"].includes(next.action)) {
        assert.equal(situation.vm, null);
      }
    }),
  );
});

test("a machine that ended by itself is not started again in the same generation", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      if (situation.ending?.generation !== situation.generation) return;
      const next = plan({ ...situation, desired: "running", vm: null });
      assert.equal(next.kind, "settled");
    }),
  );
});

test("absent never waits for an agent's answer", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan({ ...situation, desired: "absent" });
      assert.ok(next.kind === "act" && ["kill", "cleanBoot", "removeFiles"].includes(next.action));
    }),
  );
});

test("a machine that is paused for a move runs again only when it is to run here", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan({ ...situation, vm: "paused" });
      assert.equal(next.kind, "act");
      if (situation.desired === "running") return;
      assert.ok(next.kind === "act" && ["awaitMove", "suspend", "kill"].includes(next.action), JSON.stringify(next));
    }),
  );
});

test("the VMM of a machine is replaced only while it runs and is to run", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan(situation);
      if (next.kind !== "act" || next.action !== "replaceVmm") return;
      const { desired, vm, hasMemory, hostStop, replacing } = situation;
      assert.deepEqual([desired, vm, hasMemory, hostStop, replacing], ["running", "configured", false, null, "live"]);
    }),
  );
});

test("a machine is reported as stopped only when that is desired or the guest powered off", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      if (observedState(plan(situation)) !== "stopped") return;
      const { desired, ending, generation } = situation;
      const hasPoweredOff = ending?.kind === "poweredOff" && ending.generation === generation;
      assert.ok(desired === "stopped" || hasPoweredOff, JSON.stringify(situation));
    }),
  );
});

test("a machine that has something to do never looks settled, unless it runs on meanwhile", () => {
  fc.assert(
    fc.property(situations, (situation) => {
      const next = plan(situation);
      const looksSettled = ["stopped", "running", "failed", "absent"].includes(observedState(next));
      const runsOn = next.kind === "act" && next.action === "replaceVmm";
      assert.equal(looksSettled, next.kind === "settled" || runsOn);
    }),
  );
});

/** The world's answer to an action: what is true afterwards, when it worked and when it did not. */
function outcome(situation: Situation, action: Action, works: boolean): Situation | "removed" {
  if (!works) {
    if (isAttempt(action)) {
      const ending = { generation: situation.generation, kind: "failed" as const, reason: "because" };
      return { ...situation, ending, vm: action === "boot" || action === "resume" ? "ended" : situation.vm };
    }
    if (action === "suspend") return { ...situation, isSuspendRefused: true };
    // It runs on.
    if (action === "replaceVmm") return { ...situation, replacing: null };
    return action === "adopt" ? { ...situation, vm: "unreachable" } : situation;
  }
  const after: Record<Exclude<Action, "removeFiles">, Partial<Situation>> = {
    adopt: { vm: "up" },
    awaitRestart: { ending: null },
    // The host did not go down.
    awaitHost: { hostStop: null },
    awaitLease: { isCutOff: false },
    ensureImage: { hasImage: true },
    makeDisk: { hasDisk: true },
    boot: { vm: "up" },
    resume: { vm: "up", hasMemory: false },
    suspend: { vm: "ended", hasMemory: true },
    discardMemory: { hasMemory: false },
    configure: { vm: "configured" },
    replaceVmm: { replacing: null },
    unpause: { vm: "configured" },
    // The server asks for its memory to be saved, or that is tried again.
    awaitMove: { isLeaving: false, isSuspendRefused: false },
    shutDown: { vm: "ended" },
    kill: { vm: "ended" },
    cleanBoot: { vm: null, replacing: null },
  };
  return action === "removeFiles" ? "removed" : { ...situation, ...after[action] };
}

test("applying the plan settles within a dozen steps, whatever fails on the way and whatever is requested next", () => {
  const requests = fc.array(
    fc.record({ desired: fc.constantFrom<DesiredState[]>("running", "stopped", "absent"), works: fc.boolean() }),
    { maxLength: 12 },
  );
  fc.assert(
    fc.property(situations, requests, (start, changes) => {
      let situation = start;
      for (const change of changes) {
        situation = Object.assign({}, situation, {
          ...{ desired: change.desired, generation: situation.generation + 1, isSuspendRefused: false },
        });
        const next = plan(situation);
        if (next.kind === "settled") continue;
        const result = outcome(situation, next.action, change.works);
        if (result === "removed") return;
        situation = result;
      }
      for (let step = 0; step < 12; step += 1) {
        const next = plan(situation);
        if (next.kind === "settled") return;
        const result = outcome(situation, next.action, true);
        if (result === "removed") return;
        situation = result;
      }
      assert.fail(`not settled: ${JSON.stringify(situation)}`);
    }),
  );
});

test("the whole life of a machine", () => {
  const facts: Situation = {
    desired: "running",
    generation: 1,
    hasImage: false,
    hasDisk: false,
    vm: null,
    ending: null,
    keepsMemory: false,
    isLeaving: false,
    hasMemory: false,
    isSuspendRefused: false,
    hostStop: null,
    isCutOff: false,
    replacing: null,
  };
  const steps: [Partial<Situation>, string][] = [
    [{}, "ensureImage"],
    [{ hasImage: true }, "makeDisk"],
    [{ hasDisk: true }, "boot"],
    [{ vm: "up" }, "configure"],
    [{ vm: "configured" }, "running"],
    [{ vm: "lost" }, "adopt"],
    [{ vm: "configured", desired: "stopped", generation: 2 }, "shutDown"],
    [{ vm: "ended" }, "cleanBoot"],
    [{ vm: null }, "stopped"],
    [{ desired: "running", generation: 3 }, "boot"],
    [{ vm: "ended", ending: { generation: 3, kind: "failed", reason: "x" } }, "cleanBoot"],
    [{ vm: null }, "failed"],
    [{ generation: 4 }, "boot"],
    [{ vm: "up", ending: { generation: 4, kind: "crashed", reason: "x", restartAt: 0 } }, "kill"],
    [{ vm: null }, "awaitRestart"],
    [{ ending: { generation: 4, kind: "poweredOff", reason: "x" } }, "stopped"],
    [{ desired: "running", generation: 5, ending: null }, "boot"],
    [{ vm: "configured", desired: "stopped", keepsMemory: true, generation: 6 }, "suspend"],
    [{ isSuspendRefused: true }, "running"],
    [{ isSuspendRefused: false, hasMemory: true, vm: "ended" }, "cleanBoot"],
    [{ vm: null }, "stopped"],
    [{ desired: "running", keepsMemory: false, generation: 7 }, "resume"],
    [{ vm: "lost" }, "kill"],
    [{ vm: null, desired: "stopped", generation: 8 }, "discardMemory"],
    [{ hasMemory: false }, "stopped"],
    [{ vm: "configured", keepsMemory: true, isLeaving: true }, "awaitMove"],
    [{ vm: "paused" }, "awaitMove"],
    [{ desired: "running", isLeaving: false, generation: 9, isCutOff: true }, "awaitLease"],
    [{ isCutOff: false }, "unpause"],
    [{ desired: "stopped", generation: 10 }, "suspend"],
    [{ keepsMemory: false, generation: 11 }, "kill"],
    [{ vm: null }, "stopped"],
    [{ desired: "absent", generation: 12, vm: "configured" }, "kill"],
    [{ vm: null }, "removeFiles"],
  ];
  let situation = facts;
  for (const [change, expected] of steps) {
    situation = Object.assign({}, situation, change);
    const next = plan(situation);
    assert.equal(next.kind === "act" ? next.action : next.state, expected);
  }
});
