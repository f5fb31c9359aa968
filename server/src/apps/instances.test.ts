/**
 * What a plan knows of an instance, for each state of its machine, its check and the ingresses.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type InstanceMachine, type InstanceRow, instanceOf, type Lease } from "./instances.ts";

const MACHINE: InstanceMachine = {
  desiredState: "running",
  generation: 2,
  nodeId: "node-a",
  moveId: null,
  moveStops: false,
  error: null,
  observedState: "running",
  observedGeneration: 2,
  observedBootId: "boot-1",
  observedReason: null,
  revision: 5,
  observedReasonCode: null,
  readyAt: 100,
  deletedAt: null,
  health: null,
  unresponsiveSince: null,
  hostPorts: [],
};
const ROW: InstanceRow = {
  machineId: "mach-1",
  release: 1,
  madeAt: 1,
  error: null,
  isHopeless: false,
  retiredAt: null,
  retiredWhy: null,
  removedAt: null,
  isRouted: false,
  routeVersion: 7,
  unroutedAt: null,
  wasUnhealthy: false,
  machine: MACHINE,
  isNodeLost: false,
  isNodeSilent: false,
  isNodeDrained: false,
  seen: "5",
};

const of = (row: Partial<InstanceRow>, machine: Partial<InstanceMachine> | null = {}, checks = false) =>
  instanceOf({ ...ROW, ...row, machine: machine === null ? null : { ...MACHINE, ...machine } }, [], checks);

test("its state follows from its row and its machine", () => {
  const created = {
    desiredState: "stopped",
    generation: 1,
    nodeId: null,
    observedState: "absent",
    observedGeneration: 0,
    observedBootId: null,
  } as const;
  const starting = { observedState: "booting" } as const;
  const failed = { observedState: "failed", observedReason: "no disk" } as const;
  const deleted = { desiredState: "absent", deletedAt: 9 } as const;
  const rows: readonly (readonly [ReturnType<typeof of>, string, string | null, boolean])[] = [
    [of({}, null), "unmade", null, false],
    [of({ error: "no room" }, null), "failed", "no room", false],
    [of({ error: "no image", isHopeless: true }, null), "failed", "no image", true],
    [of({ removedAt: 3, retiredAt: 2 }, null), "gone", null, false],
    [of({}, created), "unmade", null, false],
    [of({ error: "no room" }, created), "failed", "no room", false],
    [of({}, starting), "starting", null, false],
    [of({}), "running", null, false],
    [of({}, failed), "failed", "no disk", false],
    [of({}, { ...failed, observedReasonCode: "image_not_found" }), "failed", "no disk", true],
    [of({}, { desiredState: "stopped", observedState: "stopped" }), "failed", "its machine was stopped", false],
    [of({}, deleted), "running", null, false],
    [of({}, { ...deleted, observedState: "absent" }), "gone", null, false],
    [of({ isNodeLost: true, isNodeSilent: true }), "lost", "its node does not report", false],
    [of({ isNodeSilent: true }, deleted), "lost", "its node does not report", false],
    [of({ isNodeSilent: true }), "running", "its node does not report", false],
    [of({ isNodeSilent: true }, { ...deleted, observedState: "absent" }), "gone", "its node does not report", false],
  ];
  for (const [at, [instance, state, reason, isHopeless]] of rows.entries())
    assert.deepEqual(
      [instance.state, instance.state === "starting" ? null : instance.reason, instance.isHopeless],
      [state, reason, isHopeless],
      `row ${at}`,
    );
});

test("a machine that was asked to stop still runs where its removal asked for it, and has failed otherwise", () => {
  const stopping = { desiredState: "stopped", generation: 3 } as const;
  assert.equal(of({ retiredAt: 1, removedAt: 2 }, stopping).state, "running");
  assert.equal(of({}, stopping).state, "failed");
});

test("without a check it is healthy since it is ready; with one, since the check says so", () => {
  const unhealthy = { status: "unhealthy", since: 50, reason: "503" } as const;
  const healthOf = ({ health, healthSince }: ReturnType<typeof of>) => [health, healthSince];
  assert.deepEqual(healthOf(of({})), ["healthy", 100]);
  assert.deepEqual(healthOf(of({}, { readyAt: null })), ["unknown", null]);
  assert.deepEqual(healthOf(of({}, { health: unhealthy })), ["healthy", 100], "the check does not decide yet");
  assert.deepEqual(healthOf(of({}, {}, true)), ["unknown", null]);
  assert.deepEqual(healthOf(of({}, { health: unhealthy }, true)), ["unhealthy", 50]);
  assert.equal(of({}, { health: unhealthy }, true).reason, "503");
  const silent = of({}, { unresponsiveSince: 70, health: { status: "healthy", since: 1, reason: null } }, true);
  assert.deepEqual(healthOf(silent), ["unhealthy", 70]);
  const away = of({ isNodeSilent: true }, { health: { status: "healthy", since: 1, reason: null } }, true);
  assert.deepEqual(healthOf(away), ["unhealthy", null], "its node cannot be asked, so it is not replaced for it");
});

test("it is confirmed once every ingress with a lease serves its version, and its open requests are all of theirs", () => {
  const with_ = (leases: readonly Lease[]) => {
    const { isConfirmed, openRequests } = instanceOf(ROW, leases, false);
    return [isConfirmed, openRequests];
  };
  assert.deepEqual(with_([]), [true, 0], "no ingress serves anything");
  assert.deepEqual(with_([{ version: 7, open: {} }]), [true, 0]);
  assert.deepEqual(
    with_([
      { version: 8, open: { "mach-1": 2, "mach-2": 9 } },
      { version: 7, open: { "mach-1": 1 } },
    ]),
    [true, 3],
  );
  assert.deepEqual(
    with_([
      { version: 8, open: {} },
      { version: 6, open: {} },
    ]),
    [false, 0],
  );
});
