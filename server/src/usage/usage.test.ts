/**
 * Usage and cost of a machine: integer micros, rounded down once.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineRecord } from "../../test/support/machine.ts";
import { machineUsage, usagePeriod } from "./usage.ts";

const HOUR = 3_600_000;
const JULY = Date.UTC(2026, 6, 1);
const now = JULY + 10 * HOUR;
const facts = {
  runs: [],
  execCount: 0,
  execDurationMs: 0,
  now,
  rates: { cpuHourMicros: 40_000, memoryGbHourMicros: 5_000 },
};
const machine = machineRecord({ cpus: 4, memoryMb: 8192, diskGb: 20, createdAt: JULY - 5 * HOUR });

test("an hour of the default machine costs its processors and its memory", () => {
  const runs = [{ startedAt: now - HOUR, endedAt: null }];
  const { usage, cost } = machineUsage({ ...facts, machine, runs });
  assert.deepEqual([usage.totalUptimeSeconds, usage.cpuHours, usage.memoryGbHours], [3600, 4, 8]);
  const free = { execMicros: 0, diskMicros: 0, egressMicros: 0, baseMicros: 0 };
  const priced = { cpuMicros: 160_000, memoryMicros: 40_000, totalMicros: 200_000, amountDueMicros: 200_000 };
  assert.deepEqual(cost, { ...free, ...priced });
  // Its disk is there whether it runs or not, but counts within the month only.
  assert.equal(usage.diskGbHours, 200);
});

test("only what lies in the month counts", () => {
  const runs = [
    { startedAt: JULY - 3 * HOUR, endedAt: JULY - 2 * HOUR },
    { startedAt: JULY - HOUR, endedAt: JULY + HOUR },
  ];
  assert.equal(machineUsage({ ...facts, machine, runs }).usage.totalUptimeSeconds, 3600);
});

test("a deleted machine's usage stays what it was", () => {
  const deleted = { ...machine, deletedAt: now };
  const runs = [{ startedAt: now - HOUR, endedAt: now }];
  const later = now + 20 * 24 * HOUR;
  assert.deepEqual(
    machineUsage({ ...facts, machine: deleted, runs, now: later }),
    machineUsage({ ...facts, machine: deleted, runs }),
  );
  assert.deepEqual(usagePeriod(deleted, Date.UTC(2026, 7, 3)), { from: JULY, to: now });
});

test("rounding is down, once, and large amounts stay exact", () => {
  const runs = [
    { startedAt: now - 89, endedAt: now },
    { startedAt: now - 200, endedAt: now - 199 },
  ];
  const rates = { cpuHourMicros: 10_000, memoryGbHourMicros: 0 };
  // 90 ms × 4 × 10,000 ÷ 3,600,000 = 1
  assert.equal(machineUsage({ ...facts, machine, runs, rates }).cost.cpuMicros, 1);
  const huge = { cpuHourMicros: 9_007_199_254_740_991, memoryGbHourMicros: 0 };
  const one = machineRecord({ cpus: 1, createdAt: JULY });
  const hour = [{ startedAt: now - HOUR, endedAt: now }];
  assert.equal(machineUsage({ ...facts, machine: one, runs: hour, rates: huge }).cost.cpuMicros, huge.cpuHourMicros);
});
