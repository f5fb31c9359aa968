/**
 * How readings of a month's cost become what was spent since the beginning.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { spendingAfter } from "./ceilings.ts";

const spentAfter = (...readings: number[]): number => {
  let known: ReturnType<typeof spendingAfter> | undefined;
  for (const reading of readings) known = spendingAfter(known, reading, 0);
  return known === undefined ? 0 : known.before + known.last - known.from;
};

test("what was spent before the first reading does not count", () => {
  assert.equal(spentAfter(700), 0);
  assert.equal(spentAfter(700, 700, 900), 200);
});

test("a new month begins at nothing, and what the last one had cost is kept", () => {
  assert.equal(spentAfter(700, 900, 0), 200);
  assert.equal(spentAfter(700, 900, 50, 60, 10, 15), 200 + 60 + 15);
});
