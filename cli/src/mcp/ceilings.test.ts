/**
 * How readings of a month's cost become what was spent since the beginning.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { spendingAfter, spentOf } from "./ceilings.ts";

const JULY = "2026-07-01T00:00:00.000Z";
const AUGUST = "2026-08-01T00:00:00.000Z";

function spentAfter(...readings: (readonly [month: string, micros: number])[]): number {
  let known: ReturnType<typeof spendingAfter> | undefined;
  for (const [month, micros] of readings) known = spendingAfter(known, { month, micros });
  return known === undefined ? 0 : spentOf(known);
}

test("what was spent before the first reading does not count", () => {
  assert.equal(spentAfter([JULY, 700]), 0);
  assert.equal(spentAfter([JULY, 700], [JULY, 700], [JULY, 900]), 200);
});

test("a new month begins at nothing, and what the last one had cost is kept", () => {
  assert.equal(spentAfter([JULY, 700], [JULY, 900], [AUGUST, 0]), 200);
  assert.equal(spentAfter([JULY, 700], [JULY, 900], [AUGUST, 50], [AUGUST, 60]), 260);
  assert.equal(spentAfter([JULY, 700], [JULY, 900], [AUGUST, 1000]), 1200);
});

test("readings that arrive in another order, and corrections, count nothing twice", () => {
  assert.equal(spentAfter([JULY, 700], [JULY, 900], [JULY, 890]), 190);
  assert.equal(spentAfter([JULY, 700], [JULY, 900], [JULY, 890], [JULY, 910]), 210);
  assert.equal(spentAfter([JULY, 700], [JULY, 650]), 0);
  assert.equal(spentAfter([JULY, 700], [JULY, 900], [AUGUST, 50], [JULY, 905], [AUGUST, 60]), 260);
});
