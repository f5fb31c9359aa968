/**
 * How time-outs follow the host's load.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { patientMs } from "./patience.ts";

test("an idle host has the time-outs as they are written", () => {
  assert.equal(patientMs(500, 0, 8), 500);
  assert.equal(patientMs(500, 8, 8), 500);
});

test("a busy host takes longer in proportion, up to a bound", () => {
  assert.equal(patientMs(500, 6, 2), 1_500);
  assert.equal(patientMs(500, 1_000, 2), 2_000);
});

test("every load gives whole milliseconds, which child processes insist on", () => {
  for (let load = 2; load < 8; load += 0.01) {
    const ms = patientMs(5_000, load, 2);
    assert.ok(Number.isInteger(ms), `load ${load}: ${ms}`);
  }
});
