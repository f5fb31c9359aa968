/**
 * The periods of usage queries.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePeriod } from "./period.ts";

const NOW = Date.UTC(2026, 6, 15, 12);
const startOf = (end: number): number => Date.UTC(new Date(end).getUTCFullYear(), new Date(end).getUTCMonth(), 1);
const byDefault = { end: NOW, startOf };

test("without an end a period lasts until now, and without a start it begins with the month of its end", () => {
  assert.deepEqual(parsePeriod({}, byDefault), { from: Date.UTC(2026, 6, 1), to: NOW });
  assert.deepEqual(parsePeriod({ to: "2026-03-31T23:00:00-02:00" }, byDefault), {
    from: Date.UTC(2026, 3, 1),
    to: Date.UTC(2026, 3, 1, 1),
  });
  assert.deepEqual(parsePeriod({ from: "2026-06-01T00:00:00.000Z" }, byDefault), {
    from: Date.UTC(2026, 5, 1),
    to: NOW,
  });
});

test("text that is not an instant, and an end before its start, are refused", () => {
  for (const from of ["", "yesterday", "2026-07-01", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "1751328000000"])
    assert.throws(() => parsePeriod({ from }, byDefault), /from is not an instant/, from);
  assert.throws(() => parsePeriod({ from: "2026-07-16T00:00:00Z" }, byDefault), /is later than to/);
});
