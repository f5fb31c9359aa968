/**
 * Sleeps and repeated calls end when they should, and not before.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Clock, every, isBoottimeOfKernel, systemClock } from "./clock.ts";

/** A clock whose timers run when the test says so. */
function handDriven(): { clock: Clock; run: () => void; waiting: () => number } {
  const timers = new Set<() => void>();
  const clock: Clock = {
    ...systemClock,
    timer: (_ms, callback) => {
      timers.add(callback);
      return { cancel: () => void timers.delete(callback) };
    },
  };
  const run = (): void => {
    for (const callback of [...timers]) {
      timers.delete(callback);
      callback();
    }
  };
  return { clock, run, waiting: () => timers.size };
}

test("a repeated callback is called once per period, until it is stopped", () => {
  const { clock, run, waiting } = handDriven();
  let calls = 0;
  const stop = every(clock, 10, () => {
    calls += 1;
  });
  run();
  run();
  assert.equal(calls, 2);
  stop();
  run();
  assert.deepEqual([calls, waiting()], [2, 0]);
});

test("a repeated callback that stops itself is not called again", () => {
  const { clock, run, waiting } = handDriven();
  let calls = 0;
  const stop = every(clock, 10, () => {
    calls += 1;
    stop();
  });
  run();
  run();
  assert.deepEqual([calls, waiting()], [1, 0]);
});

test("a sleep ends with its signal, and immediately when that is aborted already", async () => {
  const ending = new AbortController();
  const slept = systemClock.sleep(2 ** 40, ending.signal);
  ending.abort();
  await slept;
  const sleptAgain = systemClock.sleep(2 ** 40, ending.signal);
  await sleptAgain;
});

test("the time since the host booted is refused where a container shows the time since it began", () => {
  assert.equal(isBoottimeOfKernel(500.1, 500), true);
  assert.equal(isBoottimeOfKernel(90_000, 500), true, "the host was suspended");
  assert.equal(isBoottimeOfKernel(499.99, 500), true, "it has steps");
  assert.equal(isBoottimeOfKernel(20, 500), false);
});
