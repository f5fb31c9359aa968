/**
 * Which prices are refused for the totals of a plan.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MEMORY_MB_MAX } from "@flotilla/contract/limits";
import { RATE_MICROS_MAX } from "@flotilla/contract/plans";
import { refuseUnsummable } from "./price-bound.ts";

const free = { maxTotalCpus: 256, maxTotalMemoryMb: 256 * 1024, rateCpuHourMicros: 0, rateMemoryGbHourMicros: 0 };
const highest = { rateCpuHourMicros: RATE_MICROS_MAX, rateMemoryGbHourMicros: RATE_MICROS_MAX };

test("the highest prices are accepted for the totals of the default plan, and refused for two of the largest machines", () => {
  refuseUnsummable({ ...free, ...highest });
  assert.throws(
    () => refuseUnsummable({ ...free, ...highest, maxTotalMemoryMb: 2 * MEMORY_MB_MAX }),
    /prices are too high/,
  );
});

test("totals of any size are accepted without a price, and the last price below the bound is accepted", () => {
  refuseUnsummable({ ...free, maxTotalCpus: Number.MAX_SAFE_INTEGER, maxTotalMemoryMb: Number.MAX_SAFE_INTEGER });
  const large = { ...free, maxTotalCpus: 10_000 };
  const most = Math.floor(10 ** 15 / (31 * 24 * 10_000));
  refuseUnsummable({ ...large, rateCpuHourMicros: most });
  assert.throws(
    () => refuseUnsummable({ ...large, rateCpuHourMicros: most + 1 }),
    /10000.*lower the prices or the totals/,
  );
});
