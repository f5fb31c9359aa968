/**
 * Only an unavailable database is retried, and not forever.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createLog } from "../log.ts";
import { DatabaseUnavailable } from "./database.ts";
import { whileUnavailable } from "./retry.ts";

function parts() {
  let now = 0;
  const clock = {
    now: () => now,
    monotonic: () => now,
    boottime: () => now,
    sleep: (ms: number) => Promise.resolve(void (now += ms)),
    timer: () => ({ cancel: () => {} }),
  };
  return { clock, log: createLog("silent"), now: () => now };
}

const away = () => new DatabaseUnavailable(new Error("the database system is starting up"));

test("work is repeated until the database answers", async () => {
  let tries = 0;
  const work = () => (++tries < 4 ? Promise.reject(away()) : Promise.resolve("done"));
  assert.equal(await whileUnavailable(work, parts()), "done");
  assert.equal(tries, 4);
});

test("another error is thrown at once, and an absence that lasts after a minute", async () => {
  const other = parts();
  await assert.rejects(
    whileUnavailable(() => Promise.reject(new Error("no such table")), other),
    /no such table/,
  );
  assert.equal(other.now(), 0);
  const long = parts();
  await assert.rejects(
    whileUnavailable(() => Promise.reject(away()), long),
    DatabaseUnavailable,
  );
  assert.ok(long.now() >= 60_000 && long.now() < 61_000);
});

test("a server that is stopped ends the wait", async () => {
  const stopped = parts();
  const work = () => Promise.reject(away());
  await assert.rejects(whileUnavailable(work, { ...stopped, signal: AbortSignal.abort() }), DatabaseUnavailable);
  assert.equal(stopped.now(), 0);
});
