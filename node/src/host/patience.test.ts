/**
 * How time-outs follow the host's load.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { patience } from "./patience.ts";

test("an idle host has the time-outs as they are written", () => {
  assert.equal(patience(0, 8), 1);
  assert.equal(patience(8, 8), 1);
});

test("a busy host takes longer in proportion, up to a bound", () => {
  assert.equal(patience(6, 2), 3);
  assert.equal(patience(1_000, 2), 4);
});
