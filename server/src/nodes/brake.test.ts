/**
 * When machines of nodes that do not report are replaced, and when nothing is.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HEARTBEAT_LOST_MS } from "@flotilla/contract/link/link";
import { NODE_STATUSES } from "@flotilla/contract/nodes";
import { type JudgedNode, judgeLoss, LOSS_WINDOW_MS, OVERDUE_MS } from "./brake.ts";

const NOW = 1_000_000_000;
const LONG = 3_600_000;

type Facts = Partial<Omit<JudgedNode, "id">>;
const gone: Facts = { status: "unreachable", seenAt: NOW - HEARTBEAT_LOST_MS };
/** It was cut off as well, and is not unreachable yet. */
const overdue: Facts = { seenAt: NOW - OVERDUE_MS };

const nodes = (...groups: readonly (readonly [number, Facts])[]): readonly JudgedNode[] =>
  groups.flatMap(([count, facts], group) =>
    Array.from({ length: count }, (_, n) => {
      const well = { status: "ready", seenAt: NOW, isInMaintenance: false, lostAt: null } as const;
      return { id: `node-${group}-${n}`, ...well, ...facts };
    }),
  );

const judge = (all: readonly JudgedNode[], sinceMs = LONG) => judgeLoss(all, { now: NOW, sinceMs });

const CASES: readonly (readonly [string, readonly JudgedNode[], "replace" | "hold" | undefined])[] = [
  ["every node reports", nodes([10, {}]), undefined],
  ["one of ten", nodes([9, {}], [1, gone]), "replace"],
  ["5 % of a thousand", nodes([950, {}], [50, gone]), "replace"],
  ["60 % of a thousand", nodes([400, {}], [600, gone]), "hold"],
  [
    "one of which it is known, and 59 % that were cut at the same time",
    nodes([400, {}], [599, overdue], [1, gone]),
    "hold",
  ],
  ["a third exactly", nodes([6, {}], [3, gone]), "hold"],
  ["just below a third", nodes([7, {}], [3, gone]), "replace"],
  ["one of three", nodes([2, {}], [1, gone]), "replace"],
  ["two of three", nodes([1, {}], [2, gone]), "hold"],
  ["one of two", nodes([1, {}], [1, gone]), "replace"],
  ["both of two", nodes([2, gone]), "hold"],
  ["the only one", nodes([1, gone]), "hold"],
  [
    "one that was drained and two that are revoked do not count",
    nodes([2, { status: "drained" }], [2, { status: "revoked" }], [1, gone]),
    "hold",
  ],
  ["a node under maintenance is left alone", nodes([5, {}], [1, { ...gone, isInMaintenance: true }]), undefined],
  [
    "nodes under maintenance do not count as silent",
    nodes([6, {}], [4, { ...gone, isInMaintenance: true }], [1, gone]),
    "replace",
  ],
  ["a draining node that is silent counts", nodes([4, {}], [1, { ...overdue, status: "draining" }], [1, gone]), "hold"],
  [
    "nodes of which it was decided count for a while",
    nodes([6, {}], [3, { ...gone, lostAt: NOW - 1_000 }], [1, gone]),
    "hold",
  ],
  ["and then they do not", nodes([6, {}], [3, { ...gone, lostAt: NOW - LOSS_WINDOW_MS }], [1, gone]), "replace"],
  ["nothing is left to decide", nodes([6, {}], [3, { ...gone, lostAt: NOW - 1_000 }]), undefined],
];

for (const [name, all, verdict] of CASES)
  test(`${name}: ${verdict ?? "nothing to decide"}`, () => {
    const judgement = judge(all);
    assert.equal(judgement?.verdict, verdict, judgement?.reason);
    const open = all.filter(
      ({ status, lostAt, isInMaintenance }) => status === "unreachable" && lostAt === null && !isInMaintenance,
    );
    if (judgement !== null)
      assert.deepEqual(
        judgement.nodeIds,
        open.map(({ id }) => id),
      );
  });

test("a server that has just begun to listen replaces nothing, and says why", () => {
  const judgement = judge(nodes([99, {}], [1, gone]), HEARTBEAT_LOST_MS - 1);
  assert.equal(judgement?.verdict, "hold");
  assert.match(judgement.reason, /was away until less than 30 s ago/);
});

test("whatever the fleet: with a third of at least two silent nodes, or none that reports, nothing is replaced", () => {
  const node = fc.record({
    id: fc.uuid(),
    status: fc.constantFrom(...NODE_STATUSES),
    seenAt: fc.integer({ min: NOW - 60_000, max: NOW }),
    isInMaintenance: fc.boolean(),
    lostAt: fc.option(fc.integer({ min: NOW - 2 * LOSS_WINDOW_MS, max: NOW }), { nil: null }),
  });
  fc.assert(
    fc.property(fc.array(node, { maxLength: 40 }), fc.constantFrom(0, LONG), (all, sinceMs) => {
      const judgement = judge(all, sinceMs);
      if (judgement === null) return;
      const { verdict, silent, expected } = judgement;
      const mustHold = sinceMs === 0 || silent >= expected || (silent > 1 && silent / expected >= 1 / 3);
      assert.equal(verdict, mustHold ? "hold" : "replace");
    }),
  );
});
