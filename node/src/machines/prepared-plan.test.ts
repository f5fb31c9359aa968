/**
 * How many VMs wait: follows demand, bounded by memory.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DEMAND_MS, PREPARED_MB, PREPARED_MAX, targetCounts } from "./prepared-plan.ts";

const MINIMUM = 2;
const kind = (takenAt: readonly number[] = [], minimum = 0) => {
  return { takenAt, minimum, memoryMb: 0, usedAt: takenAt.at(-1) ?? 0 };
};
const MINUTE_MS = 60_000;
const roomy = { now: DEMAND_MS, totalMemoryMb: 24_000, availableMemoryMb: 20_000, waiting: 0 };

test("without demand the minimum of each kind is kept", () => {
  assert.deepEqual(targetCounts({ ...roomy, demands: [kind([], MINIMUM), kind()] }), [MINIMUM, 0]);
});

test("as many are kept as were taken recently", () => {
  const recent = Array.from({ length: 20 }, () => DEMAND_MS - 1000);
  assert.deepEqual(targetCounts({ ...roomy, demands: [kind(recent, MINIMUM), kind([1, 2, 3])] }), [20, 1]);
});

test("the number falls when none is taken any more, and one of each kind with a minimum stays", () => {
  const burst = Array.from({ length: 21 }, () => 0);
  const wantedAfter = (minutes: number): readonly number[] =>
    targetCounts({ ...roomy, now: minutes * MINUTE_MS, demands: [kind(burst, MINIMUM), kind(burst)] });
  assert.deepEqual(
    [0, 4, 6, 9].map((minutes) => wantedAfter(minutes)[1]),
    [21, 21, 10, 10],
  );
  assert.deepEqual(wantedAfter(11), [MINIMUM, 0]);
  assert.deepEqual(wantedAfter(31), [1, 0]);
});

test("what was taken long ago does not count as demand", () => {
  const old = Array.from({ length: 20 }, () => 0);
  assert.deepEqual(targetCounts({ ...roomy, demands: [kind(old, MINIMUM)] }), [MINIMUM]);
});

test("with little free memory prepared VMs are discarded", () => {
  const facts = { ...roomy, availableMemoryMb: 4_000, waiting: 10, demands: [kind([], MINIMUM)] };
  assert.deepEqual(targetCounts(facts), [0]);
});

test("a kind that is larger than the host is not prepared", () => {
  const large = { ...kind([], MINIMUM), memoryMb: roomy.totalMemoryMb + 1 };
  assert.deepEqual(targetCounts({ ...roomy, demands: [large, kind([], MINIMUM)] }), [0, MINIMUM]);
});

test("together they never exceed the limits", () => {
  const number = fc.nat(200);
  fc.assert(
    fc.property(
      fc.array(number, { minLength: 1, maxLength: 5 }),
      fc.nat(300_000),
      fc.nat(300_000),
      number,
      (taken, total, available, waiting) => {
        const demands = taken.map((count) => kind(Array.from({ length: count }, () => DEMAND_MS)));
        const targets = targetCounts({
          now: DEMAND_MS,
          demands,
          totalMemoryMb: total,
          availableMemoryMb: available,
          waiting,
        });
        const sum = targets.reduce((one, two) => one + two, 0);
        assert.ok(targets.every((count) => count >= 0));
        assert.ok(sum <= PREPARED_MAX && sum * PREPARED_MB <= total * 0.25);
      },
    ),
  );
});
