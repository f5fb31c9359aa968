/**
 * What a pool does with each of its machines.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MACHINE_PHASES } from "../machines/state.ts";
import { isFull, type Member, nextAction, retryMs, statusOf } from "./state.ts";

const RUNNING: Member = {
  machineId: "m",
  phase: "running",
  isUsed: false,
  isDiscarded: false,
  isLost: false,
  readyAt: 1_000,
};
const POOL = { isDeleted: false, maxIdleSeconds: 60 };
const actionOf = (member: Partial<Member>, pool: Partial<typeof POOL> = {}, now = 2_000) =>
  nextAction({ ...RUNNING, ...member }, { ...POOL, ...pool }, now);

test("a machine that was used or claimed is never deleted by its pool", () => {
  for (const phase of [null, ...MACHINE_PHASES])
    for (const isDeleted of [false, true]) {
      const action = actionOf({ phase, isUsed: true }, { isDeleted }, 1e9);
      assert.ok(["release", "forget"].includes(action), `${phase}: ${action}`);
    }
});

test("machines are made, kept while they are young, replaced when they end or age, and deleted with their pool", () => {
  assert.equal(actionOf({ phase: null, readyAt: null }), "make");
  assert.equal(actionOf({ phase: "created", readyAt: null }), "make");
  assert.equal(actionOf({ phase: "starting", readyAt: null }), "wait");
  assert.equal(actionOf({}), "wait");
  assert.equal(actionOf({}, {}, 61_001), "discard");
  assert.equal(nextAction(RUNNING, { isDeleted: false, maxIdleSeconds: null }, 1e12), "wait");
  assert.equal(actionOf({ phase: "failed" }), "discard");
  assert.equal(actionOf({ phase: "stopped" }), "discard");
  assert.equal(actionOf({ isLost: true }), "discard");
  assert.equal(actionOf({ phase: "starting", isLost: true }), "discard");
  assert.equal(actionOf({ phase: null }, { isDeleted: true }), "discard");
  assert.equal(actionOf({ phase: null, isDiscarded: true }), "forget");
  assert.equal(actionOf({ phase: "deleting", isDiscarded: true }), "forget");
  assert.equal(actionOf({ isDiscarded: true }), "discard");
});

test("a pool that fails again and again is tried less and less, but for ever", () => {
  assert.deepEqual([0, 1, 2, 3, 1_000].map(retryMs), [30_000, 60_000, 120_000, 240_000, 240_000]);
});

test("an error of a pool is over when the pool is full, not while machines run that are older than it", () => {
  assert.equal(isFull([RUNNING], 2), false);
  assert.equal(isFull([RUNNING, { ...RUNNING, phase: "starting" }], 2), false);
  assert.equal(isFull([RUNNING, { ...RUNNING, isDiscarded: true }], 2), false);
  assert.equal(isFull([RUNNING, RUNNING], 2), true);
});

test("a pool is ready when enough machines wait, whatever failed before", () => {
  assert.equal(statusOf({ error: "no node", idleCount: 2, targetSize: 2 }), "ready");
  assert.equal(statusOf({ error: "no node", idleCount: 1, targetSize: 2 }), "degraded");
  assert.equal(statusOf({ error: null, idleCount: 1, targetSize: 2 }), "filling");
});
