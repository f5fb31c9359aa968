/**
 * Waiting that can be cancelled.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { orAborted } from "@flotilla/base/abort";
import { endOfTurn } from "@flotilla/base/clock";

test("work whose wait was already cancelled may fail later without an unhandled rejection", async () => {
  const unhandled: unknown[] = [];
  const listen = (reason: unknown): void => void unhandled.push(reason);
  process.on("unhandledRejection", listen);
  try {
    const work = Promise.withResolvers<void>();
    await assert.rejects(orAborted(work.promise, AbortSignal.abort(new Error("no longer wanted"))), /no longer wanted/);
    work.reject(new Error("it broke"));
    await endOfTurn();
    await endOfTurn();
    assert.deepEqual(unhandled, []);
  } finally {
    process.off("unhandledRejection", listen);
  }
});

test("work that ends before the cancellation gives its result", async () => {
  const controller = new AbortController();
  assert.equal(await orAborted(Promise.resolve("done"), controller.signal), "done");
  await assert.rejects(orAborted(Promise.reject(new Error("it broke")), controller.signal), /it broke/);
  controller.abort();
});
