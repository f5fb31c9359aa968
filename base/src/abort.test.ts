/**
 * Work that is given up rejects with the reason, and leaves nothing behind on the signal.
 */
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { deadlineSignal, orAborted, reasonOf } from "./abort.ts";
import { systemClock } from "./clock.ts";

test("work that is given up rejects with the signal's reason, and its own failure is ignored", async () => {
  const giveUp = new AbortController();
  let fail: (error: Error) => void = () => {};
  const work = orAborted(new Promise<never>((_resolve, reject) => (fail = reject)), giveUp.signal);
  giveUp.abort(new Error("no longer wanted"));
  await assert.rejects(work, { message: "no longer wanted" });
  fail(new Error("too late"));
});

test("work that ends leaves nothing on the signal", async () => {
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
