/**
 * When a boot is retried, and when not.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { orAborted } from "@flotilla/base/abort";
import { systemClock } from "@flotilla/base/clock";
import { ATTEMPT_MS, FIRST_BOOT_MS, retryBoot } from "./boot-retry.ts";

/** Thirty seconds pass in three milliseconds. */
const clock = {
  ...systemClock,
  timer: (ms: number, callback: () => void) => systemClock.timer(ms / 10_000, callback),
};
const never = new Promise<string>(() => {});
const options = { clock, signal: new AbortController().signal, firstMs: FIRST_BOOT_MS };

test("a boot that hangs is cancelled and retried once", async () => {
  let attempts = 0;
  const vm = await retryBoot((signal) => {
    attempts += 1;
    return attempts === 1 ? orAborted(never, signal) : Promise.resolve("vm");
  }, options);
  assert.deepEqual([vm, attempts], ["vm", 2]);
});

test("each attempt has its own limit, also the last of several boots", async () => {
  const limits: number[] = [];
  const slow = {
    ...options,
    clock: {
      ...clock,
      timer: (ms: number, callback: () => void) => {
        limits.push(ms);
        return clock.timer(ms, callback);
      },
    },
  };
  for (let boot = 0; boot < 3; boot += 1)
    await assert.rejects(
      retryBoot((signal) => orAborted(never, signal), slow),
      /no answer within 120 s/,
    );
  assert.deepEqual(limits, Array.from({ length: 3 }, () => [FIRST_BOOT_MS, ATTEMPT_MS]).flat());
});

test("a boot that fails is not retried", async () => {
  let attempts = 0;
  const attempt = (): Promise<string> => {
    attempts += 1;
    return Promise.reject(new Error("no disk"));
  };
  await assert.rejects(retryBoot(attempt, options), /no disk/);
  assert.equal(attempts, 1);
});

test("a cancelled boot is not retried", async () => {
  const caller = new AbortController();
  let attempts = 0;
  const attempt = (signal: AbortSignal): Promise<string> => {
    attempts += 1;
    caller.abort(new Error("not wanted"));
    return orAborted(never, signal);
  };
  await assert.rejects(retryBoot(attempt, { ...options, signal: caller.signal }), /not wanted/);
  assert.equal(attempts, 1);
});
