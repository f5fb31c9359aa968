/**
 * When images that change are due, by a clock that the test sets.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { Outbox } from "./outbox.ts";

/** A clock that moves only with `advance`. */
function makeClock() {
  let now = 0;
  const timers = new Map<() => void, number>();
  const clock: Clock = {
    ...systemClock,
    monotonic: () => now,
    timer: (ms, callback) => {
      timers.set(callback, now + ms);
      return { cancel: () => void timers.delete(callback) };
    },
  };
  const advance = (ms: number): void => {
    now += ms;
    for (const [callback, at] of timers) if (at <= now && timers.delete(callback)) callback();
  };
  return { clock, advance };
}

const ofChanges = { isComplete: false };

test("images that change are due together when they may be listed again, whatever is reported before", () => {
  const { clock, advance } = makeClock();
  const outbox = new Outbox(clock);
  assert.equal(outbox.takeImages(ofChanges), false, "none has changed");
  const first = outbox.watch();
  outbox.changeImages();
  advance(0);
  assert.ok(first.aborted, "the first one is due at once");
  assert.ok(outbox.takeImages(ofChanges));
  outbox.keepImagesUntil(1_000);

  const second = outbox.watch();
  for (let ms = 0; ms < 990; ms += 10) {
    outbox.changeImages();
    advance(10);
  }
  assert.ok(!second.aborted && outbox.isEmpty, "no report is needed in the pause");
  outbox.change("m-1");
  assert.ok(second.aborted, "a machine does not wait");
  assert.equal(outbox.takeImages(ofChanges), false);
  const third = outbox.watch();
  advance(10);
  assert.ok(third.aborted && outbox.takeImages(ofChanges));
  assert.equal(outbox.takeImages(ofChanges), false, "they were taken");
});

test("an image that changes while images are listed waits for the pause after it", () => {
  const { clock, advance } = makeClock();
  const outbox = new Outbox(clock);
  outbox.changeImages();
  advance(0);
  assert.ok(outbox.takeImages(ofChanges));
  outbox.changeImages();
  advance(50);
  outbox.keepImagesUntil(1_000);
  assert.equal(outbox.takeImages(ofChanges), false);
  const added = outbox.watch();
  advance(950);
  assert.ok(added.aborted && outbox.takeImages(ofChanges));
});

test("a complete report takes all images, and what had changed is not due again", () => {
  const { clock, advance } = makeClock();
  const outbox = new Outbox(clock);
  assert.ok(outbox.takeImages({ isComplete: true }), "also when none has changed");
  outbox.keepImagesUntil(1_000);
  outbox.changeImages();
  assert.ok(outbox.takeImages({ isComplete: true }));
  const added = outbox.watch();
  advance(2_000);
  assert.ok(!added.aborted && !outbox.takeImages(ofChanges));
});
