/**
 * How timeouts scale with the host's load.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { loadAdjustedMs } from "./load-adjusted-timeout.ts";

test("an idle host does not change timeouts", () => {
  assert.equal(loadAdjustedMs(500, 0, 8), 500);
  assert.equal(loadAdjustedMs(500, 8, 8), 500);
});

test("a busy host has proportionally longer timeouts, up to a limit", () => {
  assert.equal(loadAdjustedMs(500, 6, 2), 1_500);
  assert.equal(loadAdjustedMs(500, 1_000, 2), 2_000);
});

test("every load gives whole milliseconds, which child processes require", () => {
  for (let load = 2; load < 8; load += 0.01) {
    const ms = loadAdjustedMs(5_000, load, 2);
    assert.ok(Number.isInteger(ms), `load ${load}: ${ms}`);
  }
});
