/**
 * Full collections while buffers pass through, in this process. Its flags stay changed.
 */
import assert from "node:assert/strict";
import { constants, PerformanceObserver } from "node:perf_hooks";
import { test } from "node:test";
import { countBuffersWithHeap } from "./garbage-collection.ts";

const BUFFERS = 8_000;
const BUFFER_BYTES = 64 * 1024;
const KEPT = 32;
const FULL_MAX = 2;

const round = () => new Promise<void>((resolve) => void setImmediate(resolve));

test("buffers that pass through cause hardly any full collection", async () => {
  countBuffersWithHeap();
  let full = 0;
  const observer = new PerformanceObserver((list) => {
    for (const { detail } of list.getEntries() as { readonly detail?: { readonly kind?: number } }[])
      if (detail?.kind === constants.NODE_PERFORMANCE_GC_MAJOR) full += 1;
  });
  observer.observe({ entryTypes: ["gc"] });
  const kept: Buffer[] = [];
  for (let index = 0; index < BUFFERS; index += 1) {
    kept[index % KEPT] = Buffer.allocUnsafeSlow(BUFFER_BYTES);
    if (index % 100 === 0) await round();
  }
  await round();
  observer.disconnect();
  assert.equal(kept.length, KEPT);
  assert.ok(full <= FULL_MAX, `${full} full collections`);
});
