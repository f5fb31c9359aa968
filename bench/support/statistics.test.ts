/**
 * The arithmetic of benchmarks.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { compare, summarize } from "./statistics.ts";

const oneTo = (n: number) => Array.from({ length: n }, (_, index) => n - index);

test("percentiles are samples by nearest rank, whatever the order they came in", () => {
  assert.deepEqual(summarize(oneTo(100)), { n: 100, p50Ms: 50, p99Ms: 99, minMs: 1, maxMs: 100 });
  assert.deepEqual(summarize([7]), { n: 1, p50Ms: 7, p99Ms: 7, minMs: 7, maxMs: 7 });
  assert.deepEqual(summarize([3, 1, 2]), { n: 3, p50Ms: 2, p99Ms: 3, minMs: 1, maxMs: 3 });
});

test("no samples have no summary", () => {
  assert.throws(() => summarize([]), /no samples/);
});

test("a ratio says how many times the bare figure ours is", () => {
  const { ratioP50, ratioP99 } = compare([2, 4, 6], [1, 2, 2]);
  assert.equal(ratioP50, 2);
  assert.equal(ratioP99, 3);
});
