/**
 * Frames that wait for their delivery.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LinkFrame } from "@flotilla/contract/link/frames";
import { FrameQueue } from "./frame-queue.ts";

const frame = (text: string): LinkFrame => ({ type: "stdout", payload: Buffer.from(text) });

test("frames are taken in their order, also those that come while others wait", () => {
  const queue = new FrameQueue();
  const taken = (): string => Buffer.from(queue.take()?.payload ?? []).toString();
  assert.deepEqual([queue.isEmpty, queue.first, queue.take()], [true, undefined, undefined]);
  queue.add(["a", "b", "c"].map(frame));
  assert.equal(taken(), "a");
  queue.add(["d"].map(frame));
  assert.equal(Buffer.from(queue.first?.payload ?? []).toString(), "b");
  queue.replaceFirst(frame("rest of b"));
  assert.deepEqual([taken(), taken(), queue.isEmpty, taken(), queue.isEmpty], ["rest of b", "c", false, "d", true]);
  queue.add(["e", "f"].map(frame));
  assert.equal(taken(), "e");
  queue.clear();
  assert.equal(queue.isEmpty, true);
});
