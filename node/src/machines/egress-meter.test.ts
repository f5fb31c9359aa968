/**
 * When what a run has sent is recorded.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isDue } from "./egress-meter.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;

test("much is recorded at once, little after a while, and nothing never", () => {
  const cases: readonly [bytes: number, ms: number, due: boolean][] = [
    [GIB, 0, true],
    [GIB - 1, 59_999, false],
    [64 * MIB, 60_000, true],
    [64 * MIB - 1, 599_999, false],
    [1, 600_000, true],
    [0, 3_600_000, false],
    [-1, 3_600_000, false],
  ];
  for (const [bytes, ms, due] of cases) assert.equal(isDue(bytes, ms), due, `${bytes} bytes after ${ms} ms`);
});
