/**
 * The decision on an export, for all facts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type RestFacts, refusalOf } from "./rest.ts";

const NAMES = ["isAtRest", "isSuspended", "isLeaving", "hasDisk"] as const;
const ALL = NAMES.reduce<readonly RestFacts[]>(
  (facts, name) => facts.flatMap((fact) => [false, true].map((value) => ({ ...fact, [name]: value }))),
  [{} as RestFacts],
);

test("only a stopped machine with a disk and without memory is exported", () => {
  const exported = ALL.filter((facts) => refusalOf(facts) === null);
  assert.deepEqual(exported, [{ isAtRest: true, isSuspended: false, isLeaving: false, hasDisk: true }]);
});

test("a refusal says what to do", () => {
  for (const facts of ALL) {
    const { reason, code } = refusalOf(facts) ?? { reason: "", code: null };
    if (code !== null && !facts.isLeaving) assert.match(reason, /: (?:stop|start) it/);
  }
});
