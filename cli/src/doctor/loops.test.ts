/**
 * What `doctor --fleet` says of loops that work, fail and do not end.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LoopStatus } from "@flotilla/sdk";
import { loopChecks } from "./loops.ts";

const NOW = Date.UTC(2026, 10, 29);
const LOOP: LoopStatus = {
  name: "pools",
  purpose: "keeps pools full",
  periodMs: 2000,
  runningSince: null,
  lastEndedAt: "2026-11-28T23:59:59.000Z",
  lastMs: 5,
  runs: 9,
  errors: 0,
  counts: [],
  failures: 0,
  lastError: null,
};
const checksOf = (...loops: readonly Partial<LoopStatus>[]) =>
  loopChecks({ serverId: "server-1", host: "one", loops: loops.map((loop) => ({ ...LOOP, ...loop })) }, NOW).map(
    ({ name, status, value }) => `${status} ${name}: ${value}`,
  );

test("loops that work are one check, also when one had an error earlier or runs now", () => {
  assert.deepEqual(checksOf({ errors: 2, lastError: "away" }, { runningSince: "2026-11-28T23:59:58.000Z" }), [
    "ok loops of one: 2 work",
  ]);
});

test("a loop that fails is a warning, and from the third run in a row it needs action", () => {
  assert.deepEqual(checksOf({}, { failures: 1, lastError: "away" }, { name: "nodes", failures: 3, lastError: "no" }), [
    "warn loop pools of one: 1 run had errors: away",
    "bad loop nodes of one: 3 runs in a row had errors: no",
  ]);
});

test("a loop that does not end is a warning", () => {
  assert.deepEqual(checksOf({ runningSince: "2026-11-28T23:50:00.000Z" }), [
    "warn loop pools of one: has been running for 10 min",
  ]);
});
