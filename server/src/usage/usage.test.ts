/**
 * Usage and cost from lines: integer micros, rounded down once per line.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { costBreakdown, lineMicros, type Meter, monthUpTo, type UsageLine, usageResponse } from "./usage.ts";

const HOUR = 3_600_000;
const JULY = Date.UTC(2026, 6, 1);
const rate = {
  id: "rate-1",
  cpuHourMicros: 40_000,
  memoryGbHourMicros: 5_000,
  egressGbMicros: 2_000,
  registryGbHourMicros: 1_024,
};
const line = (meter: Meter, amount: number | bigint, of = rate): UsageLine => ({
  meter,
  rate: of,
  amount: BigInt(amount),
});

test("an hour of the default machine costs its processors and its memory", () => {
  const lines = [
    line("uptime", HOUR),
    line("cpu", 4 * HOUR),
    line("memory", 8192 * HOUR),
    line("disk", 20 * 10 * HOUR),
    line("egress", 3 * 2 ** 29),
    line("registry", 512 * 10 * HOUR),
  ];
  const counts = { machineCount: 1, execCount: 3, execDurationMs: 50 };
  const usage = usageResponse({ tenantId: "tenant-1", from: JULY, to: JULY + 10 * HOUR, lines, ...counts });
  assert.deepEqual(usage, {
    ...{ tenantId: "tenant-1", from: "2026-07-01T00:00:00.000Z", to: "2026-07-01T10:00:00.000Z", ...counts },
    ...{ totalUptimeSeconds: 3600, cpuHours: 4, memoryGbHours: 8, diskGbHours: 200, egressGb: 1.5, registryGbHours: 5 },
  });
  const free = { execMicros: 0, diskMicros: 0, baseMicros: 0, creditAppliedMicros: 0 };
  const plans = { freeCreditMicros: 0, volumeDiscountMicros: 0, monthlyFeeMicros: 0 };
  const lineSums = { cpuMicros: 160_000, memoryMicros: 40_000, egressMicros: 3_000, registryMicros: 5_120 };
  const priced = { ...lineSums, totalMicros: 208_120, amountDueMicros: 208_120 };
  assert.deepEqual(costBreakdown(lines), { ...free, ...plans, ...priced });
});

test("each line is rounded down by itself, and large amounts stay exact", () => {
  const cheap = { ...rate, cpuHourMicros: 10_000 };
  // 90 ms × 4 × 10,000 ÷ 3,600,000 = 1
  assert.equal(lineMicros(line("cpu", 90 * 4, cheap)), 1);
  assert.equal(lineMicros(line("cpu", 90 * 4 - 1, cheap)), 0);
  const other = { ...cheap, id: "rate-2" };
  assert.equal(costBreakdown([line("cpu", 359, cheap), line("cpu", 359, other)]).cpuMicros, 0);
  const huge = { ...rate, cpuHourMicros: Number.MAX_SAFE_INTEGER };
  assert.equal(lineMicros(line("cpu", HOUR, huge)), Number.MAX_SAFE_INTEGER);
});

test("a machine's period is the month, and of a deleted one the month up to its end", () => {
  const now = JULY + 10 * HOUR;
  assert.deepEqual(monthUpTo(now), { from: JULY, to: now });
  assert.deepEqual(monthUpTo(JULY), { from: JULY, to: JULY });
});
