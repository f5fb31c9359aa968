/**
 * How amounts of money are written.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { renderMicros } from "./money.ts";

test("micros are written exactly, with two to six decimals", () => {
  const written: readonly (readonly [number, string])[] = [
    [0, "0.00"],
    [1, "0.000001"],
    [1_500_000, "1.50"],
    [12_345_678, "12.345678"],
    [12_345_600, "12.3456"],
    [-20_000, "-0.02"],
    [Number.MAX_SAFE_INTEGER, "9007199254.740991"],
  ];
  for (const [micros, text] of written) assert.equal(renderMicros(micros), text);
});
