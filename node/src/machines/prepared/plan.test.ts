/**
 * How many VMs wait: follows how many were needed at once, shared between kinds, bounded by work and memory.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DEMAND_MS, PREPARED_MAX, PREPARED_MB, type PreparedFacts, type Start, targetCounts } from "./plan.ts";

const MINIMUM = 2;
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const kind = (starts: readonly Start[] = [], minimum = 0, waiting = 0) => {
  return { starts, minimum, memoryMb: 0, usedAt: starts.at(-1)?.at ?? 0, waiting: { length: waiting } };
};
/** That many begin at this distance, the last one at DEMAND_MS; each takes so long. null: it does not end. */
const starts = (count: number, { everyMs = 0, tookMs }: { everyMs?: number; tookMs: number | null }) =>
  Array.from({ length: count }, (_, index): Start => {
    const at = DEMAND_MS - (count - 1 - index) * everyMs;
    return { at, endedAt: tookMs === null ? null : at + tookMs };
  });
const burst = (count: number): readonly Start[] => starts(count, { tookMs: 5 * SECOND });
const longAgo = (count: number): readonly Start[] => burst(count).map(() => ({ at: 0, endedAt: SECOND }));
const roomy = {
  now: DEMAND_MS,
  totalMemoryMb: 24_000,
  availableMemoryMb: 20_000,
  prepareMs: 500,
  processorPressure: 10,
};

const CASES: readonly (readonly [what: string, facts: Partial<PreparedFacts>, targets: readonly number[]])[] = [
  ["the minimum without demand", { demands: [kind([], MINIMUM), kind()] }, [MINIMUM, 0]],
  ["as many as a burst took", { demands: [kind(burst(20), MINIMUM), kind(burst(3))] }, [20, 3]],
  [
    "the minimum for one machine at a time, however often",
    { demands: [kind(starts(96, { everyMs: 6 * SECOND, tookMs: 5 * SECOND }), MINIMUM)] },
    [MINIMUM],
  ],
  ["one of them without a minimum", { demands: [kind(starts(96, { everyMs: SECOND, tookMs: SECOND }))] }, [1]],
  [
    "as many as overlap on a host where a start takes long",
    { demands: [kind(starts(96, { everyMs: 6 * SECOND, tookMs: 30 * SECOND }))] },
    [5],
  ],
  [
    "as many as a burst whose starts end at once, and arrive within a second",
    { demands: [kind(starts(20, { everyMs: 50, tookMs: 100 }))] },
    [20],
  ],
  ["what is under way", { demands: [kind(starts(9, { everyMs: 10 * SECOND, tookMs: null }))] }, [9]],
  ["not what was abandoned", { demands: [kind(starts(9, { everyMs: 2 * MINUTE, tookMs: null }))] }, [1]],
  ["the largest burst of the last ten minutes", { demands: [kind([...longAgo(1), ...burst(7)])] }, [7]],
  ["nothing for what was taken long ago", { demands: [kind(longAgo(20), MINIMUM)] }, [MINIMUM]],
  [
    "the minimum, and one of what is needed, while the processors are under pressure",
    { processorPressure: 51, demands: [kind(burst(20), MINIMUM), kind(burst(3)), kind()] },
    [MINIMUM, 1, 0],
  ],
  [
    "what waits then",
    { processorPressure: 100, demands: [kind(burst(20), MINIMUM, 15), kind(burst(3), 0, 4)] },
    [15, 3],
  ],
  ["the same where the host does not say", { processorPressure: null, demands: [kind(burst(20))] }, [20]],
  ["no more than the most", { demands: [kind(burst(96)), kind(burst(9), MINIMUM)] }, [87, 9]],
  ["a minimum beside a burst of another kind", { demands: [kind(burst(96)), kind([], MINIMUM)] }, [94, MINIMUM]],
  [
    "the same of each kind that needs much",
    { demands: [kind(burst(90)), kind(burst(90)), kind(burst(6))] },
    [45, 45, 6],
  ],
  ["a minute's work", { prepareMs: 3 * SECOND, demands: [kind(burst(96)), kind([], MINIMUM)] }, [18, MINIMUM]],
  [
    "a minimum on a slow host, and one of what is needed",
    { prepareMs: 5 * MINUTE, demands: [kind(burst(9)), kind([], MINIMUM)] },
    [1, MINIMUM],
  ],
  [
    "what waits on a host that became slow",
    { prepareMs: MINUTE, demands: [kind(burst(9), 0, 7), kind(burst(9))] },
    [7, 1],
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
        assert.ok(made <= taken.length || made * prepareMs <= MINUTE);
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
