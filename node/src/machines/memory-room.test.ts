/**
 * When there is too little memory for another VM, and what is discarded before a start is refused.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ensureMemoryRoom, memoryRefusal } from "./memory-room.ts";

test("a VM boots while more is left than is kept free", () => {
  assert.equal(memoryRefusal({ totalMemoryMb: 24_000, availableMemoryMb: 960 }), null);
  assert.equal(memoryRefusal({ totalMemoryMb: 2_000, availableMemoryMb: 256 }), null);
});

test("a refusal says what is left and what to do", () => {
  assert.equal(
    memoryRefusal({ totalMemoryMb: 24_000, availableMemoryMb: 959 }),
    "the node has 959 MB of memory left and keeps 960 MB free; stop machines that are not needed, or add a node",
  );
  assert.match(memoryRefusal({ totalMemoryMb: 2_000, availableMemoryMb: 255 }) ?? "", /keeps 256 MB/);
});

test("prepared VMs are discarded before a start is refused", async () => {
  let availableMemoryMb = 100;
  let discards = 0;
  const observe = () => Promise.resolve({ totalMemoryMb: 24_000, availableMemoryMb });
  const discarding = (freedMb: number) => () => {
    discards += 1;
    availableMemoryMb += freedMb;
    return Promise.resolve();
  };
  await assert.rejects(ensureMemoryRoom({ observe, discardPrepared: discarding(200) }), /the node has 300 MB/);
  await ensureMemoryRoom({ observe, discardPrepared: discarding(1_000) });
  await ensureMemoryRoom({ observe, discardPrepared: discarding(1_000) });
  assert.equal(discards, 2);
});
