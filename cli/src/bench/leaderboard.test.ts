/**
 * The form and the score of ComputeSDK's public benchmark.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { leaderboardResult } from "./leaderboard.ts";

const outcome = (ttiMs: number, launchedAtMs = 0) => ({ ttiMs, launchedAtMs, error: null });

test("percentiles leave out the fastest and the slowest twentieth", () => {
  const outcomes = Array.from({ length: 100 }, (_, index) => outcome(index + 1));
  const { summary } = leaderboardResult({ mode: "sequential", staggerMs: 0, outcomes });
  assert.deepEqual(summary.ttiMs, { median: 50.5, p95: 91, p99: 95 });
});

test("a published result of the benchmark has the score that it was given", () => {
  // Median 445.87, 95th percentile 532.51, 99th 539.02: 95.18.
  const times = [...Array.from({ length: 90 }, () => 445.87), 532.51, 532.51, 532.51, 539.02, 539.02];
  const outcomes = [...times.slice(0, 5), ...times, ...Array.from({ length: 5 }, () => 600)].map((ms) => outcome(ms));
  const result = leaderboardResult({ mode: "burst", staggerMs: 0, outcomes });
  assert.deepEqual(result.summary.ttiMs, { median: 445.87, p95: 532.51, p99: 539.02 });
  assert.equal(result.compositeScore, 95.18);
});

test("sandboxes that failed lower the score by their share, and are in no time", () => {
  const outcomes = [outcome(200), { ttiMs: 0, launchedAtMs: 5, error: "no capacity" }];
  const result = leaderboardResult({ mode: "burst", staggerMs: 0, outcomes });
  assert.deepEqual(result, {
    provider: "flotilla",
    mode: "concurrent",
    concurrency: 2,
    wallClockMs: 200,
    timeToFirstReadyMs: 200,
    iterations: [{ ttiMs: 200 }, { ttiMs: 0, error: "no capacity" }],
    summary: { ttiMs: { median: 200, p95: 200, p99: 200 } },
    compositeScore: 49,
    successRate: 0.5,
  });
  const none = leaderboardResult({ mode: "sequential", staggerMs: 0, outcomes: outcomes.slice(1) });
  assert.deepEqual([none.compositeScore, none.successRate, none.summary.ttiMs.median], [0, 0, 0]);
});

test("each mode has the benchmark's keys in its order", () => {
  const keys = (mode: "sequential" | "staggered" | "burst") =>
    Object.keys(leaderboardResult({ mode, staggerMs: 200, outcomes: [outcome(1)] })).slice(2, -4);
  assert.deepEqual(keys("sequential"), []);
  assert.deepEqual(keys("burst"), ["concurrency", "wallClockMs", "timeToFirstReadyMs"]);
  assert.deepEqual(keys("staggered"), [
    "concurrency",
    "staggerDelayMs",
    "wallClockMs",
    "timeToFirstReadyMs",
    "rampProfile",
  ]);
});
