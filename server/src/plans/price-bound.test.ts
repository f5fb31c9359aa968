/**
 * Which prices are refused for the totals of a plan.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MEMORY_MB_MAX } from "@flotilla/contract/limits";
import { RATE_MICROS_MAX } from "@flotilla/contract/plans";
import { refuseUnsummable } from "./price-bound.ts";

const free = { maxTotalCpus: 256, maxTotalMemoryMb: 256 * 1024, rateCpuHourMicros: 0, rateMemoryGbHourMicros: 0 };

test("a tenth of the highest prices is accepted for the totals of the default plan, and not for two of the largest machines", () => {
  const tenth = { rateCpuHourMicros: RATE_MICROS_MAX / 10, rateMemoryGbHourMicros: RATE_MICROS_MAX / 10 };
  refuseUnsummable({ ...free, ...tenth });
  assert.throws(
    () => refuseUnsummable({ ...free, ...tenth, maxTotalMemoryMb: 2 * MEMORY_MB_MAX }),
    /prices are too high/,
  );
});

test("totals of any size are accepted without a price, and the last price below the bound is accepted", () => {
  refuseUnsummable({ ...free, maxTotalCpus: Number.MAX_SAFE_INTEGER, maxTotalMemoryMb: Number.MAX_SAFE_INTEGER });
  const large = { ...free, maxTotalCpus: 10_000 };
  const most = Math.floor((5 * 10 ** 13) / (31 * 24 * 10_000));
  refuseUnsummable({ ...large, rateCpuHourMicros: most });
  assert.throws(
    () => refuseUnsummable({ ...large, rateCpuHourMicros: most + 1 }),
    /10000.*lower the prices or the totals/,
  );
  const fifteenYears = 15 * 12 * 31 * 24 * 10_000 * most;
  assert.ok(fifteenYears <= Number.MAX_SAFE_INTEGER && fifteenYears > 0.99 * Number.MAX_SAFE_INTEGER);
});
