/**
 * What users see: examples of every arm, and what must hold for any facts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DESIRED_STATES, OBSERVED_STATES } from "@flotilla/contract/link/link";
import { NODE_STATUSES } from "@flotilla/contract/nodes";
import fc from "fast-check";
import { machineRecord, NOW } from "../../test/support/machine.ts";
import { requestStart } from "./change.ts";
import { MachineAddresses } from "./addresses.ts";
import type { MachineRecord } from "./record.ts";
import { includes, isActive, UNREACHABLE_STATUSES } from "./state.ts";
import { NOTHING_OBSERVED } from "./observed.ts";
import { NO_CEILINGS } from "../placement/place.ts";
import { machineInfo, shownState } from "./view.ts";

const ADDRESSES = new MachineAddresses({ machinesUrl: "https://apps.example", publicUrl: null });

const records: fc.Arbitrary<MachineRecord> = fc
  .record({
    desiredState: fc.constantFrom(...DESIRED_STATES),
    generation: fc.integer({ min: 1, max: 3 }),
    nodeId: fc.constantFrom(null, "node-a"),
    error: fc.constantFrom(null, "it took too long"),
    observedState: fc.constantFrom(...OBSERVED_STATES),
    observedGeneration: fc.integer({ min: 0, max: 3 }),
    observedReason: fc.constantFrom(null, "it crashed"),
    readyAt: fc.constantFrom(null, NOW),
    nodeStatus: fc.constantFrom(null, ...NODE_STATUSES),
  })
  .map((facts) => machineRecord(facts));

test("every combination of facts is shown, and consistently", () => {
  fc.assert(
    fc.property(records, (machine) => {
      const info = machineInfo(machine, ADDRESSES);
      assert.equal(info.error !== null, info.state === "error");
      if (info.ready) assert.equal(info.state, "started");
      assert.equal(info.readyAt !== null, info.ready);
    }),
  );
});

test("after an accepted start no reader sees `stopped`, whatever was observed before", () => {
  fc.assert(
    fc.property(records, (machine) => {
      if (machine.desiredState === "absent") return;
      const { next } = requestStart(machine, {
        tenantId: "tenant-a",
        nodeId: "node-a",
        overcommit: NO_CEILINGS,
        activeMax: 1,
        isBudgeted: false,
        isAutomatic: false,
        keyId: "key-a",
        now: NOW,
      });
      const { state } = shownState({ ...machine, ...next });
      assert.notEqual(state, "stopped");
    }),
  );
});

test("what is shown as creating or started takes a place, and what is stopped takes none", () => {
  fc.assert(
    fc.property(records, (machine) => {
      if (machine.desiredState === "absent" || machine.nodeId === null) return;
      if (machine.nodeStatus !== null && includes(UNREACHABLE_STATUSES, machine.nodeStatus)) return;
      if (machine.error !== null) return;
      const { state } = shownState(machine);
      if (state === "creating" || state === "started") assert.ok(isActive(machine));
      if (state === "stopped") assert.ok(!isActive(machine));
    }),
  );
});

test("a machine that may run on a node that is away is an error with the node's name", () => {
  const running = machineRecord({
    nodeId: "node-a",
    nodeStatus: "unreachable",
    desiredState: "running",
    observedState: "running",
    observedGeneration: 1,
    readyAt: NOW,
  });
  assert.deepEqual(shownState(running), {
    state: "error",
    isReady: false,
    error: "node node-a does not report; the machine on it is shown again when the node is back",
  });
  const stopped = machineRecord({ ...running, desiredState: "stopped", observedState: "stopped", readyAt: null });
  assert.equal(shownState(stopped).state, "stopped");
});

test("a machine that is being stopped shows what it was until it has stopped", () => {
  const stopping = machineRecord({ nodeId: "node-a", generation: 3, observedGeneration: 2, observedState: "running" });
  assert.deepEqual(shownState(stopping), { state: "started", isReady: false, error: null });
  assert.equal(shownState({ ...stopping, observedState: "booting" }).state, "creating");
  assert.equal(shownState({ ...stopping, observedState: "failed" }).state, "stopped");
});

test("published ports show the host's port only while the machine is started", () => {
  const ports = {
    ports: [{ port: 80 }],
    observedDetails: { ...NOTHING_OBSERVED.observedDetails, hostPorts: [{ port: 80, hostPort: 31_080 }] },
    nodeId: "node-a",
  };
  const running = machineRecord({ ...ports, desiredState: "running", observedState: "running", observedGeneration: 1 });
  assert.deepEqual(machineInfo(running, ADDRESSES).ports, [{ port: 80, hostPort: 31_080 }]);
  assert.deepEqual(machineInfo({ ...running, desiredState: "stopped", observedState: "stopped" }, ADDRESSES).ports, [
    { port: 80, hostPort: null },
  ]);
});
