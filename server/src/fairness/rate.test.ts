/**
 * Token buckets, with what other servers take from them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RateLimiter } from "./rate.ts";

const rate = { perSecond: 10, burst: 20 };

function admitted(limiter: RateLimiter, now: number): number {
  let count = 0;
  while (limiter.take("a", rate, now).isAllowed) count += 1;
  return count;
}

test("what other servers admit is taken from the bucket, and what they admit beyond it is paid for later", () => {
  const limiter = new RateLimiter();
  limiter.takeFromOther("a", 5, { rate, now: 0 });
  assert.equal(admitted(limiter, 0), 15);
  limiter.takeFromOther("a", 10, { rate, now: 0 });
  const { isAllowed, headers } = limiter.take("a", rate, 0);
  assert.equal(isAllowed, false);
  assert.equal(headers[headers.indexOf("ratelimit-remaining") + 1], "0");
  assert.equal(headers[headers.indexOf("retry-after") + 1], "2");
  assert.equal(admitted(limiter, 1_000), 0);
  assert.equal(admitted(limiter, 2_000), 10);
});

test("a hundred refusals are given at once, further ones later, up to a second, until the caller pauses", () => {
  const limiter = new RateLimiter();
  const slow = { perSecond: 1, burst: 5 };
  const waits = (count: number, now: number) =>
    Array.from({ length: count }, () => limiter.take("a", slow, now)).map(({ isAllowed, waitMs }) =>
      isAllowed ? null : waitMs,
    );
  assert.deepEqual(waits(5, 0), Array(5).fill(null));
  assert.deepEqual(waits(100, 0), Array(100).fill(0));
  assert.deepEqual(waits(3, 0), [50, 100, 150]);
  assert.deepEqual(waits(30, 0).slice(-2), [1000, 1000]);
  assert.equal(limiter.take("b", slow, 0).waitMs, 0);
  assert.deepEqual(waits(3, 2_000), [null, null, 0]);
});

test("a token that is refunded can be taken again, and one of a caller that is not known gives nothing", () => {
  const limiter = new RateLimiter();
  limiter.refund("a");
  assert.equal(admitted(limiter, 0), 20);
  limiter.refund("a");
  assert.equal(admitted(limiter, 0), 1);
});

test("of more callers than are kept, the one that has not called for the longest time starts again", () => {
  const limiter = new RateLimiter(2);
  const slow = { perSecond: 1, burst: 1 };
  const isAllowed = (name: string): boolean => limiter.take(name, slow, 0).isAllowed;
  assert.deepEqual(["a", "b"].map(isAllowed), [true, true]);
  assert.deepEqual(["a", "b", "a"].map(isAllowed), [false, false, false], "both are kept");
  assert.ok(isAllowed("c"));
  assert.deepEqual([isAllowed("a"), isAllowed("c"), isAllowed("b")], [false, false, true]);
});

test("refusals that take no token are held back with those that do", () => {
  const limiter = new RateLimiter();
  const slow = { perSecond: 1, burst: 1 };
  for (let count = 0; count < 100; count += 1) assert.equal(limiter.refuse("a", slow, 0), 0);
  assert.equal(limiter.refuse("a", slow, 0), 50);
  assert.ok(limiter.take("a", slow, 0).isAllowed);
  assert.equal(limiter.take("a", slow, 0).waitMs, 100);
});

test("a bucket that was full does not keep what flows over, and no debt grows without end", () => {
  const limiter = new RateLimiter();
  assert.equal(admitted(limiter, 0), 20);
  limiter.takeFromOther("a", 20, { rate, now: 60_000 });
  assert.equal(admitted(limiter, 60_000), 0);
  for (let n = 0; n < 100; n += 1) limiter.takeFromOther("a", 1_000, { rate, now: 60_000 });
  assert.equal(admitted(limiter, 60_000 + 19_000), 0);
  assert.equal(admitted(limiter, 60_000 + 22_000), 20);
});

test("a request that is counted after later ones takes one token, not those of the time between", () => {
  const limiter = new RateLimiter();
  assert.ok(limiter.take("a", rate, 5_000).isAllowed);
  assert.equal(admitted(limiter, 0), 19);
  assert.equal(admitted(limiter, 5_000), 0);
  assert.equal(admitted(limiter, 6_000), 10);
});
