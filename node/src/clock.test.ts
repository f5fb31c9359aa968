/**
 * Waiting that can be given up.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { orAborted } from "@flotilla/base/abort";
import { endOfTurn } from "@flotilla/base/clock";

test("work that is given up before it is waited for may fail later, and nobody else hears of it", async () => {
  const unheard: unknown[] = [];
  const listen = (reason: unknown): void => void unheard.push(reason);
  process.on("unhandledRejection", listen);
  try {
    const work = Promise.withResolvers<void>();
    await assert.rejects(orAborted(work.promise, AbortSignal.abort(new Error("no longer wanted"))), /no longer wanted/);
    work.reject(new Error("it broke"));
    await endOfTurn();
    await endOfTurn();
    assert.deepEqual(unheard, []);
  } finally {
    process.off("unhandledRejection", listen);
  }
});

test("work that ends first gives what it gives, and is not given up afterwards", async () => {
  const controller = new AbortController();
  assert.equal(await orAborted(Promise.resolve("done"), controller.signal), "done");
  await assert.rejects(orAborted(Promise.reject(new Error("it broke")), controller.signal), /it broke/);
  controller.abort();
});
