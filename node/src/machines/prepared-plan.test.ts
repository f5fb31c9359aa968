/**
 * How many VMs wait: follows demand, bounded by memory.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DEMAND_MS, PREPARED_MB, READY_MAX, wantedPrepared } from "./prepared-plan.ts";

const LEAST = 2;
const kind = (takenAt: readonly number[] = [], least = 0) => {
  return { takenAt, least, memoryMb: 0, usedAt: takenAt.at(-1) ?? 0 };
};
const MINUTE_MS = 60_000;
const roomy = { now: DEMAND_MS, totalMemoryMb: 24_000, availableMemoryMb: 20_000, waiting: 0 };

test("without demand the least of each kind waits", () => {
  assert.deepEqual(wantedPrepared({ ...roomy, demands: [kind([], LEAST), kind()] }), [LEAST, 0]);
});

test("as many wait as were taken recently", () => {
  const recent = Array.from({ length: 20 }, () => DEMAND_MS - 1000);
  assert.deepEqual(wantedPrepared({ ...roomy, demands: [kind(recent, LEAST), kind([1, 2, 3])] }), [20, 1]);
});

test("what waits comes down when none is taken any more, and one of the first kinds stays", () => {
  const burst = Array.from({ length: 21 }, () => 0);
  const wantedAfter = (minutes: number): readonly number[] =>
    wantedPrepared({ ...roomy, now: minutes * MINUTE_MS, demands: [kind(burst, LEAST), kind(burst)] });
  assert.deepEqual(
    [0, 4, 6, 9].map((minutes) => wantedAfter(minutes)[1]),
    [21, 21, 10, 10],
  );
  assert.deepEqual(wantedAfter(11), [LEAST, 0]);
  assert.deepEqual(wantedAfter(31), [1, 0]);
});

test("what was taken long ago is no demand", () => {
  const old = Array.from({ length: 20 }, () => 0);
  assert.deepEqual(wantedPrepared({ ...roomy, demands: [kind(old, LEAST)] }), [LEAST]);
});

test("with little memory free those that wait are given up", () => {
  const facts = { ...roomy, availableMemoryMb: 4_000, waiting: 10, demands: [kind([], LEAST)] };
  assert.deepEqual(wantedPrepared(facts), [0]);
});

test("a kind that is larger than the host does not wait", () => {
  const large = { ...kind([], LEAST), memoryMb: roomy.totalMemoryMb + 1 };
  assert.deepEqual(wantedPrepared({ ...roomy, demands: [large, kind([], LEAST)] }), [0, LEAST]);
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
        const wanted = wantedPrepared({
          now: DEMAND_MS,
          demands,
          totalMemoryMb: total,
          availableMemoryMb: available,
          waiting,
        });
        const sum = wanted.reduce((one, two) => one + two, 0);
        assert.ok(wanted.every((count) => count >= 0));
        assert.ok(sum <= READY_MAX && sum * PREPARED_MB <= total * 0.25);
      },
    ),
  );
});
