/**
 * Durations as people read them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { renderSpan } from "./span.ts";

test("durations are shown in the largest unit that leaves at least two", () => {
  const seconds = [0, 1, 119, 120, 7199, 7200, 172_799, 172_800];
  assert.deepEqual(
    seconds.map((value) => renderSpan(value * 1000)),
    ["0 s", "1 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"],
  );
  assert.equal(renderSpan(-5000), "0 s");
});
