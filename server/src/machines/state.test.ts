/**
 * The table of phases against the functions that change facts: every pair of phase and event, and random
 * histories.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ObservedMachine } from "@flotilla/contract/link/link";
import fc from "fast-check";
import { machineRecord, NOW, report } from "../../test/support/machine.ts";
import { requestStart, requestStop, abandon } from "./change.ts";
import { applyObservation, applyNoTrace } from "./observe.ts";
import type { MachineRecord } from "./record.ts";
import { NO_CEILINGS } from "../placement/place.ts";
import {
  isActive,
  MACHINE_EVENTS,
  MACHINE_PHASES,
  type MachineEvent,
  type MachinePhase,
  nextPhase,
  phaseOf,
} from "./state.ts";

const START = {
  tenantId: "tenant-a",
  nodeId: "node-a",
  overcommit: NO_CEILINGS,
  activeMax: 10,
  isBudgeted: false,
  isAutomatic: false,
  keyId: "key-a",
  now: NOW,
};
const onNode = { nodeId: "node-a", generation: 5, observedGeneration: 5, observedBootId: "boot-1" };

/** Facts that are in each phase: the ordinary ones first. */
const IN_PHASE: Readonly<Record<MachinePhase, readonly MachineRecord[]>> = {
  created: [machineRecord()],
  stopped: [
    machineRecord({ ...onNode, observedState: "stopped" }),
    machineRecord({ ...onNode, observedState: "failed", observedReason: "it crashed" }),
  ],
  starting: [
    machineRecord({ ...onNode, desiredState: "running", observedGeneration: 4, observedState: "stopped" }),
    machineRecord({ ...onNode, desiredState: "running", observedState: "booting" }),
    machineRecord({ ...onNode, desiredState: "running", observedGeneration: 4, observedState: "stopping" }),
  ],
  running: [
    machineRecord({ ...onNode, desiredState: "running", observedState: "running", readyAt: NOW, hasRun: true }),
  ],
  stopping: [
    machineRecord({ ...onNode, keepsMemory: true, observedGeneration: 4, observedState: "running" }),
    machineRecord({ ...onNode, keepsMemory: true, observedState: "stopping" }),
  ],
  failed: [
    machineRecord({ ...onNode, desiredState: "running", observedState: "failed", observedReason: "it crashed" }),
  ],
  deleting: [machineRecord({ ...onNode, desiredState: "absent", deletedAt: NOW, observedState: "running" })],
  deleted: [machineRecord({ ...onNode, desiredState: "absent", deletedAt: NOW, observedState: "absent" })],
};

function reportOf(machine: MachineRecord, event: MachineEvent): ObservedMachine {
  const { generation, observedBootId: bootId } = machine;
  switch (event) {
    case "working":
      return report({ generation, bootId, state: phaseOf(machine) === "starting" ? "booting" : "stopping" });
    case "ran":
      return report({ generation, bootId: bootId ?? "boot-2", state: "running", runningSince: NOW });
    case "failed":
      return report({ generation, bootId, state: "failed", reason: "it crashed" });
    case "poweredOff":
      return report({ generation, bootId, state: "stopped", hasPoweredOff: true });
    case "stopped":
      return report({ generation, bootId, state: "stopped" });
    case "suspendRefused": {
      const suspendRefusal = { code: "no_space" as const, reason: "the disk is full" };
      return report({ generation, bootId: bootId ?? "boot-2", state: "running", runningSince: NOW, suspendRefusal });
    }
    default:
      return report({ generation, state: "absent" });
  }
}

/** What the code makes of an event, whatever the table says. */
function after(machine: MachineRecord, event: MachineEvent): MachineRecord {
  const asked = (next: object): MachineRecord => ({ ...machine, ...next });
  switch (event) {
    case "startRequested":
      return asked(requestStart(machine, START).next);
    case "stopRequested":
      return asked(requestStop(machine, NOW).next);
    case "deleteRequested":
      return { ...machine, desiredState: "absent", deletedAt: NOW, generation: machine.generation + 1, error: null };
    case "abandoned":
      return asked(abandon(machine, "it took too long", NOW).next);
    case "removed": {
      const isRequested = machine.desiredState === "absent";
      const seen = isRequested ? applyObservation(machine, reportOf(machine, event), NOW) : applyNoTrace(machine, NOW);
      return seen.outcome === "news" ? asked(seen.change.next) : machine;
    }
    default: {
      const seen = applyObservation(machine, reportOf(machine, event), NOW);
      return seen.outcome === "news" ? asked(seen.change.next) : machine;
    }
  }
}

const isRequest = (event: MachineEvent): boolean => event.endsWith("Requested") || event === "abandoned";

test("the examples of each phase are in it", () => {
  for (const phase of MACHINE_PHASES) for (const machine of IN_PHASE[phase]) assert.equal(phaseOf(machine), phase);
});

for (const phase of MACHINE_PHASES) {
  for (const event of MACHINE_EVENTS) {
    const expected = nextPhase(phase, event);
    // What was asked in a phase that refuses it never reaches the functions that change facts.
    if (expected === undefined && isRequest(event)) continue;
    // And where asking changes nothing, nothing is written.
    if (expected === phase && isRequest(event)) continue;
    test(`${phase} and ${event} lead to ${expected ?? "no change"}`, () => {
      for (const machine of IN_PHASE[phase]) {
        assert.equal(phaseOf(after(machine, event)), expected ?? phase, JSON.stringify(machine));
      }
    });
  }
}

test("delete leads out of every phase a user can see, and nothing leads back", () => {
  for (const phase of MACHINE_PHASES) {
    const next = nextPhase(phase, "deleteRequested");
    if (phase !== "deleted") assert.ok(next === "deleting" || next === "deleted");
    const leadsBack = MACHINE_EVENTS.map((event) => nextPhase("deleting", event)).filter((each) => each !== undefined);
    assert.deepEqual([...new Set(leadsBack)].sort(), ["deleted", "deleting"]);
  }
});

test("every change of the desired state raises the generation, whatever happens in whatever order", () => {
  const events = fc.array(fc.constantFrom(...MACHINE_EVENTS), { maxLength: 30 });
  fc.assert(
    fc.property(fc.constantFrom(...Object.values(IN_PHASE).flat()), events, (start, happened) => {
      let machine = start;
      for (const event of happened) {
        const phase = phaseOf(machine);
        const next = nextPhase(phase, event);
        if (isRequest(event) && (next === undefined || next === phase)) continue;
        const changed = after(machine, event);
        if (changed.desiredState !== machine.desiredState) assert.ok(changed.generation > machine.generation);
        if (isActive(changed)) assert.notEqual(changed.nodeId, null);
        machine = changed;
      }
    }),
  );
});
