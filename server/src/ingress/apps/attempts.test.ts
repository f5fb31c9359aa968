/**
 * What is sent to another instance: every end of an attempt, with and without others.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Attempts, ENDS, type End, isSentAgain } from "./attempts.ts";

const first: Attempts = { made: 1, unanswered: 0, isAnyLeft: true };

test("a request is sent again where nothing was connected, and once where it was not answered", () => {
  const rows: readonly (readonly [End, Attempts, boolean])[] = [
    ["unconnected", first, true],
    ["unconnected", { ...first, made: 4 }, true],
    ["unconnected", { ...first, made: 5 }, false],
    ["unconnected", { ...first, made: 2, unanswered: 1 }, true],
    ["unanswered", { ...first, unanswered: 1 }, true],
    ["unanswered", { ...first, made: 2, unanswered: 2 }, false],
    ["failed", first, false],
    ["left", first, false],
  ];
  for (const [end, attempts, isAgain] of rows) assert.equal(isSentAgain(end, attempts), isAgain, end);
  assert.deepEqual(new Set(rows.map(([end]) => end)), new Set(ENDS));
});

test("nothing is sent again when all instances were tried", () => {
  for (const end of ENDS) assert.equal(isSentAgain(end, { ...first, isAnyLeft: false }), false, end);
});
