/**
 * What a drain does next: the order of machines, what is tried again, what stays and why.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  blockedText,
  type DrainedMachine,
  type DrainMove,
  emptiedText,
  inTurns,
  progressText,
  restText,
  viewDrain,
} from "./drain-plan.ts";

const NOW = Date.UTC(2026, 6, 22);
const machine = (id: string, facts: Partial<DrainedMachine> = {}): DrainedMachine => ({
  ...{ id, name: null, tenantId: "tenant-1", isActive: false, isMoving: false, ...facts },
});
const move = (machineId: string, facts: Partial<DrainMove>): DrainMove => ({
  ...{ machineId, status: "failed", error: "no room", updatedAt: NOW - 60_000, hasMoved: false, ...facts },
});
const view = (machines: readonly DrainedMachine[], moves: readonly DrainMove[] = [], reasons = {}) =>
  viewDrain({
    machines,
    moves,
    placements: new Map(
      machines.map(({ id }) => {
        const reason = (reasons as Record<string, string>)[id];
        return [id, reason === undefined ? { nodeId: "node-b" } : { nodeId: null, canNever: false, reason }];
      }),
    ),
    refusals: new Map(),
    now: NOW,
  });
const ids = (machines: readonly DrainedMachine[]): readonly string[] => machines.map(({ id }) => id);

test("tenants take turns, and running machines of a tenant leave before its stopped ones", () => {
  const machines = [
    machine("a1"),
    machine("a2"),
    machine("a3", { isActive: true }),
    machine("b1", { tenantId: "tenant-2" }),
  ];
  assert.deepEqual(ids(inTurns(machines)), ["a3", "b1", "a1", "a2"]);
});

test("a machine whose move failed is tried again after a pause, three times in all", () => {
  const one = [machine("m")];
  const failures = (count: number, updatedAt: number) => Array.from({ length: count }, () => move("m", { updatedAt }));
  assert.deepEqual(ids(view(one).next), ["m"]);
  assert.deepEqual(ids(view(one, failures(1, NOW - 1_000)).waiting), ["m"]);
  assert.deepEqual(ids(view(one, failures(2, NOW - 20_000)).next), ["m"]);
  assert.equal(view(one, failures(3, NOW - 20_000)).blocked[0]?.reason, "its move failed 3 times: no room");
});

test("a machine whose move was canceled stays, and one that another operation moves is waited for", () => {
  const canceled = view([machine("m")], [move("m", { status: "canceled", error: null })]);
  assert.equal(canceled.blocked[0]?.reason, "its move was canceled");
  assert.deepEqual(ids(view([machine("m", { isMoving: true })]).moving), ["m"]);
  assert.deepEqual(ids(view([machine("m")], [move("m", { status: "running", error: null })]).moving), ["m"]);
});

test("machines that moved are counted once, and one that does not run there is named", () => {
  const moves = [move("m", {}), move("m", { status: "succeeded", error: null, hasMoved: true })];
  assert.equal(view([], moves).movedCount, 1);
  const starting = view([], [move("m", { status: "running", error: null, hasMoved: true })]);
  assert.deepEqual([starting.startingCount, starting.movedCount], [1, 1]);
  assert.equal(
    progressText(starting, { stopAt: NOW, now: NOW, deleting: 0 }),
    "1 of 1 machine moved; 1 machine starting on another node",
  );
  const notRunning = view([], [move("n", { hasMoved: true, error: "it does not boot" })]);
  assert.equal(
    emptiedText(notRunning, 0),
    "1 of 1 machine moved; moved, but not running: n (it does not boot); none runs there",
  );
});

test("the progress names what is moved, what stays and why, and when it is stopped", () => {
  const machines = [machine("m", { isMoving: true }), machine("n", { isActive: true }), machine("o")];
  const found = view(machines, [move("p", { status: "succeeded", hasMoved: true })], { n: "no node", o: "no node" });
  const at = { stopAt: NOW + 1_000, now: NOW, deleting: 1 };
  assert.equal(
    progressText(found, at),
    "1 of 4 machines moved; moving m; 1 machine runs and cannot be moved; at 2026-07-22T00:00:01.000Z it is stopped; " +
      "1 machine being deleted; cannot be moved: n, o: no node",
  );
  assert.match(progressText(found, { ...at, stopAt: NOW }), /cannot be moved; it is being stopped;/);
});

test("texts about many machines stay short", () => {
  const blocked = Array.from({ length: 1_000 }, (_, index) => ({
    machine: machine(`m${index}`),
    reason: `reason ${index}`,
  }));
  assert.match(blockedText(blocked), /; and 995 other reasons$/);
  const alike = blocked.map(({ machine: each }) => ({ machine: each, reason: "no node" }));
  assert.equal(blockedText(alike), "m0, m1, m2, m3, m4 and 995 more: no node");
  assert.match(
    restText("node-a", alike),
    /^node node-a still has the disks of 1000 machines: m0, .* move or delete them first$/,
  );
  assert.match(restText("node-a", []), /no machine is lost$/);
});
