/**
 * The arithmetic of benchmarks.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { atLeast, atMost, isReached, summarize } from "./statistics.ts";

const oneTo = (n: number) => Array.from({ length: n }, (_, index) => n - index);

test("percentiles are samples by nearest rank, whatever the order they came in", () => {
  assert.deepEqual(summarize(oneTo(100)), { n: 100, p50Ms: 50, p95Ms: 95, p99Ms: 99, minMs: 1, maxMs: 100 });
  assert.deepEqual(summarize([7]), { n: 1, p50Ms: 7, p95Ms: 7, p99Ms: 7, minMs: 7, maxMs: 7 });
  assert.deepEqual(summarize([3, 1, 2]), { n: 3, p50Ms: 2, p95Ms: 3, p99Ms: 3, minMs: 1, maxMs: 3 });
});

test("no samples have no summary", () => {
  assert.throws(() => summarize([]), /no samples/);
});

test("a limit is reached from its own side, and by the figure that equals it", () => {
  assert.deepEqual(
    [99, 100, 101].map((found) => isReached(atMost("p50", found, 100))),
    [true, true, false],
  );
  assert.deepEqual(
    [19, 20, 21].map((found) => isReached(atLeast("ratio", found, 20))),
    [false, true, true],
  );
  assert.equal(isReached(atMost("nothing was measured", Number.NaN, 100)), false);
});
