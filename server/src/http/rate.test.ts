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

test("a bucket that was full does not keep what flows over, and no debt grows without end", () => {
  const limiter = new RateLimiter();
  assert.equal(admitted(limiter, 0), 20);
  limiter.takeFromOther("a", 20, { rate, now: 60_000 });
  assert.equal(admitted(limiter, 60_000), 0);
  for (let n = 0; n < 100; n += 1) limiter.takeFromOther("a", 1_000, { rate, now: 60_000 });
  assert.equal(admitted(limiter, 60_000 + 19_000), 0);
  assert.equal(admitted(limiter, 60_000 + 22_000), 20);
});
