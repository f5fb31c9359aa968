/**
 * The end of rounds.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesOf, isLastRound } from "./rounds.ts";

const MIB = 2 ** 20;

test("rounds end when little is left, or when they do not shrink", () => {
  assert.equal(isLastRound(100 * MIB, Number.POSITIVE_INFINITY), false);
  assert.equal(isLastRound(4 * MIB, 100 * MIB), true);
  assert.equal(isLastRound(79 * MIB, 100 * MIB), false);
  assert.equal(isLastRound(81 * MIB, 100 * MIB), true);
});

test("the bytes of parts are added up", () => {
  assert.equal(
    bytesOf([
      { start: 4096, end: 8192 },
      { start: 16_384, end: 16_385 },
    ]),
    4097,
  );
});
