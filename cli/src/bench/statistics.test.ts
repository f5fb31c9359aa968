/**
 * The arithmetic of `flotilla bench`, and its results for single machines.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { resultOf } from "./create-modes.ts";
import { percentilesOf, roundMs } from "./statistics.ts";

const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);

test("percentiles are samples by nearest rank, whatever the order they came in", () => {
  assert.deepEqual(percentilesOf(hundred), { median: 50, p95: 95, p99: 99 });
  assert.deepEqual(percentilesOf([3, 1, 2]), { median: 2, p95: 3, p99: 3 });
  assert.deepEqual(percentilesOf([7.123_456]), { median: 7.12, p95: 7.12, p99: 7.12 });
});

test("no samples give zeros, as public leaderboards report a run without success", () => {
  assert.deepEqual(percentilesOf([]), { median: 0, p95: 0, p99: 0 });
  assert.equal(roundMs(0.005), 0.01);
});

test("a machine that failed counts in the success rate and in no percentile", () => {
  const outcomes = [
    { launchedAtMs: 0, ttiMs: 100, error: null },
    { launchedAtMs: 50, ttiMs: 300, error: null },
    { launchedAtMs: 100, ttiMs: 0, error: "no capacity" },
  ];
  assert.deepEqual(resultOf({ mode: "staggered", staggerMs: 50, outcomes, wallClockMs: 350 }), {
    provider: "flotilla",
    mode: "staggered",
    iterations: [{ ttiMs: 100 }, { ttiMs: 300 }, { ttiMs: 0, error: "no capacity" }],
    summary: { ttiMs: { median: 100, p95: 300, p99: 300 } },
    successCount: 2,
    successRate: 0.6667,
    concurrency: 3,
    wallClockMs: 350,
    timeToFirstReadyMs: 100,
    staggerDelayMs: 50,
    rampProfile: [
      { launchedAt: 0, readyAt: 100, ttiMs: 100 },
      { launchedAt: 50, readyAt: 350, ttiMs: 300 },
    ],
  });
});

test("a sequential run reports no concurrency, and a burst no stagger", () => {
  const outcomes = [{ launchedAtMs: 0, ttiMs: 100, error: null }];
  const keys = (mode: "sequential" | "burst") =>
    Object.keys(resultOf({ mode, staggerMs: 200, outcomes, wallClockMs: 100 }));
  assert.deepEqual(keys("sequential"), ["provider", "mode", "iterations", "summary", "successCount", "successRate"]);
  assert.deepEqual(keys("burst").slice(6), ["concurrency", "wallClockMs", "timeToFirstReadyMs"]);
});
