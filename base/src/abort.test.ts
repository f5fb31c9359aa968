/**
 * Cancelled work rejects with the reason, and leaves nothing on the signal.
 */
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { deadlineSignal, orAborted, reasonOf } from "./abort.ts";
import { systemClock } from "./clock.ts";

test("cancelled work rejects with the signal's reason, and its own failure is ignored", async () => {
  const controller = new AbortController();
  let fail: (error: Error) => void = () => {};
  const work = orAborted(new Promise<never>((_resolve, reject) => (fail = reject)), controller.signal);
  controller.abort(new Error("not needed any more"));
  await assert.rejects(work, { message: "not needed any more" });
  fail(new Error("too late"));
});

test("finished work leaves nothing on the signal", async () => {
  const { signal } = new AbortController();
  assert.equal(await orAborted(Promise.resolve(1), signal), 1);
  assert.deepEqual(getEventListeners(signal, "abort"), []);
});

test("a deadline ends with its parent and leaves nothing on it", () => {
  const parent = new AbortController();
  const deadline = deadlineSignal(systemClock, 60_000, parent.signal);
  parent.abort("stopped");
  assert.equal(reasonOf(deadline.signal).message, "stopped");
  deadline.dispose();

  const { signal } = new AbortController();
  deadlineSignal(systemClock, 60_000, signal).dispose();
  assert.deepEqual(getEventListeners(signal, "abort"), []);
});
