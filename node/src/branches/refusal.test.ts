/**
 * The decision on a point, for all facts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { LAYERS_MAX, type PointFacts, refusalOf } from "./refusal.ts";

const BOOLEANS = [false, true] as const;
const NAMES = [
  "isAtRest",
  "isSuspended",
  "isRunning",
  "isToRun",
  "isMoving",
  "isReplacing",
  "isHostStopping",
  "hasMemory",
  "canBranch",
] as const;

const ALL = NAMES.reduce<readonly PointFacts[]>(
  (facts, name) => facts.flatMap((fact) => BOOLEANS.map((value) => ({ ...fact, [name]: value }))),
  [0, LAYERS_MAX].map((layers) => ({ layers }) as PointFacts),
);

test("a point is made exactly of a machine that runs or rests, which nothing else is about to change", () => {
  assert.equal(ALL.length, 1_024);
  for (const facts of ALL) {
    const {
      isAtRest,
      isSuspended,
      isRunning,
      isToRun,
      isMoving,
      isReplacing,
      isHostStopping,
      hasMemory,
      canBranch,
      layers,
    } = facts;
    const ofRest = isAtRest && !hasMemory;
    const ofRunning = !isAtRest && isRunning && isToRun && canBranch && !isReplacing && !isHostStopping;
    const isMade = !isMoving && !isSuspended && layers < LAYERS_MAX && (ofRest || ofRunning);
    assert.equal(refusalOf(facts) === null, isMade, JSON.stringify(facts));
  }
});

test("the reason is the one that lasts longest", () => {
  const facts: PointFacts = {
    ...{ isAtRest: false, isSuspended: true, isRunning: false, isToRun: false, isMoving: true },
    ...{ isReplacing: true, isHostStopping: true, hasMemory: true, canBranch: false, layers: LAYERS_MAX },
  };
  const reasons: string[] = [];
  const changes = [
    {},
    { isMoving: false },
    { layers: 0 },
    { isSuspended: false },
    { isHostStopping: false },
    { isToRun: true },
    { isReplacing: false },
    { isRunning: true },
    { canBranch: true },
  ];
  const seen = { ...facts };
  for (const change of changes) {
    Object.assign(seen, change);
    reasons.push(refusalOf(seen)?.reason ?? "made");
  }
  assert.deepEqual(reasons, [
    "the machine moves to another node",
    `its disk is on top of ${LAYERS_MAX} others: they become one while the machine runs`,
    "the machine is suspended: start it, or stop it without its memory",
    "its host is about to go down",
    "the machine is being stopped",
    "the machine gets another VMM",
    "the machine does not run yet",
    "this node cannot branch machines while they run",
    "made",
  ]);
});
