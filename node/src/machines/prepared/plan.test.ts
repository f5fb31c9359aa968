/**
 * How many VMs wait: follows how many were needed at once, shared between kinds, bounded by work and memory.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DEMAND_MS, PREPARED_MB, PREPARED_MAX, type PreparedFacts, targetCounts } from "./plan.ts";

const MINIMUM = 2;
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const kind = (takenAt: readonly number[] = [], minimum = 0, waiting = 0) => {
  return { takenAt, minimum, memoryMb: 0, usedAt: takenAt.at(-1) ?? 0, waiting: { length: waiting } };
};
/** Takes that many one after another, at this distance; the last one at DEMAND_MS. */
const loop = (count: number, everyMs: number): readonly number[] =>
  Array.from({ length: count }, (_, at) => DEMAND_MS - (count - 1 - at) * everyMs);
const burst = (count: number): readonly number[] => loop(count, 0);
const roomy = { now: DEMAND_MS, totalMemoryMb: 24_000, availableMemoryMb: 20_000, prepareMs: 500 };

const CASES: readonly (readonly [what: string, facts: Partial<PreparedFacts>, targets: readonly number[]])[] = [
  ["the minimum without demand", { demands: [kind([], MINIMUM), kind()] }, [MINIMUM, 0]],
  ["as many as a burst took", { demands: [kind(burst(20), MINIMUM), kind(burst(3))] }, [20, 3]],
  ["few for a loop, however long it runs", { demands: [kind(loop(96, 6 * SECOND))] }, [5]],
  ["the largest burst of the last ten minutes", { demands: [kind([...burst(1).map(() => 1), ...burst(7)])] }, [7]],
  [
    "nothing for what was taken long ago",
    {
      demands: [
        kind(
          burst(20).map(() => 0),
          MINIMUM,
        ),
      ],
    },
    [MINIMUM],
  ],
  ["no more than the most", { demands: [kind(burst(96)), kind(burst(9), MINIMUM)] }, [87, 9]],
  ["a minimum beside a burst of another kind", { demands: [kind(burst(96)), kind([], MINIMUM)] }, [94, MINIMUM]],
  [
    "the same of each kind that needs much",
    { demands: [kind(burst(90)), kind(burst(90)), kind(burst(6))] },
    [45, 45, 6],
  ],
  ["a minute's work", { prepareMs: 3 * SECOND, demands: [kind(burst(96)), kind([], MINIMUM)] }, [18, MINIMUM]],
  ["a minimum on a slow host", { prepareMs: 5 * MINUTE, demands: [kind(burst(9)), kind([], MINIMUM)] }, [0, MINIMUM]],
  [
    "what waits on a host that became slow",
    { prepareMs: MINUTE, demands: [kind(burst(9), 0, 7), kind(burst(9))] },
    [7, 0],
  ],
  ["no more of them than are needed", { prepareMs: MINUTE, demands: [kind(burst(4), 0, 7), kind([], 1)] }, [4, 1]],
  ["none with little free memory", { availableMemoryMb: 4_000, demands: [kind([], MINIMUM, 10)] }, [0]],
  [
    "none of a kind that is larger than the host",
    { demands: [{ ...kind(burst(9), MINIMUM), memoryMb: roomy.totalMemoryMb + 1 }, kind([], MINIMUM)] },
    [0, MINIMUM],
  ],
];

for (const [what, facts, targets] of CASES)
  test(`kept are: ${what}`, () => assert.deepEqual(targetCounts({ ...roomy, demands: [], ...facts }), targets));

test("the number falls when none is taken any more, and one of each kind with a minimum stays", () => {
  const taken = burst(21);
  const neededAfter = (minutes: number): readonly number[] =>
    targetCounts({ ...roomy, now: DEMAND_MS + minutes * MINUTE, demands: [kind(taken, MINIMUM), kind(taken)] });
  assert.deepEqual(
    [0, 4, 6, 9].map((minutes) => neededAfter(minutes)[1]),
    [21, 21, 10, 10],
  );
  assert.deepEqual(neededAfter(11), [MINIMUM, 0]);
  assert.deepEqual(neededAfter(31), [1, 0]);
});

const counts = fc.array(fc.tuple(fc.nat(200), fc.nat(100)), { minLength: 1, maxLength: 5 });

test("together they never exceed the limits of memory and of work", () => {
  fc.assert(
    fc.property(
      counts,
      fc.nat(300_000),
      fc.nat(300_000),
      fc.nat(10 * SECOND),
      (taken, totalMemoryMb, availableMemoryMb, prepareMs) => {
        const demands = taken.map(([count, waiting]) => kind(burst(count), 0, waiting));
        const targets = targetCounts({ ...roomy, demands, totalMemoryMb, availableMemoryMb, prepareMs });
        const sum = targets.reduce((one, two) => one + two, 0);
        const made = taken.reduce((all, [, waiting], at) => all + Math.max(0, (targets[at] ?? 0) - waiting), 0);
        assert.ok(taken.every(([count], at) => (targets[at] ?? -1) >= 0 && (targets[at] ?? 0) <= count));
        assert.ok(sum <= PREPARED_MAX && sum * PREPARED_MB <= totalMemoryMb * 0.25);
        assert.ok(made * prepareMs <= MINUTE);
      },
    ),
  );
});

test("no kind has fewer than another, unless it needs fewer", () => {
  fc.assert(
    fc.property(counts, (taken) => {
      const targets = targetCounts({ ...roomy, demands: taken.map(([count]) => kind(burst(count))) });
      const most = Math.max(...targets);
      for (const [at, [count]] of taken.entries()) assert.ok((targets[at] ?? 0) >= Math.min(count, most - 1));
    }),
  );
});
