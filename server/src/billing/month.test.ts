/**
 * Which months have an invoice, and how their ids are read.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { finalFrom, monthAt, monthsOf, parseMonth, statusAt } from "./month.ts";

test("a tenant has an invoice for each month since it was made, across the end of a year", () => {
  const months = monthsOf(Date.UTC(2025, 10, 30, 23), Date.UTC(2026, 1, 1));
  assert.deepEqual(
    months.map(({ id }) => id),
    ["2025-11", "2025-12", "2026-01", "2026-02"],
  );
  assert.deepEqual(monthsOf(Date.UTC(2026, 5, 1), Date.UTC(2026, 4, 31)), []);
});

test("an id is a month that exists", () => {
  const february = { id: "2028-02", from: Date.UTC(2028, 1, 1), to: Date.UTC(2028, 2, 1) };
  assert.deepEqual(parseMonth("2028-02"), february);
  for (const id of ["2026-13", "2026-00", "2026-7", "26-07", "2026-07-01", "", "9".repeat(10_000), "0001-01"])
    assert.throws(() => parseMonth(id), /its id is a month/, id.slice(0, 20));
});

test("an invoice is a draft up to the end of its month, and can become final when its grace period is over", () => {
  const july = monthAt(Date.UTC(2026, 6, 31, 23, 59, 59, 999));
  assert.equal(statusAt(july, july.to - 1), "draft");
  assert.equal(statusAt(july, july.to), "grace");
  assert.equal(finalFrom(july, 72), Date.UTC(2026, 7, 4));
});
