/**
 * How long an image that failed is not tried again.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FailedBuilds } from "./failed-builds.ts";

test("an image that failed is refused with its reason, for twice as long after each failure", () => {
  let now = 0;
  const failed = new FailedBuilds({ monotonic: () => now });
  failed.check("a");
  failed.record("a", "it is broken");
  assert.throws(() => failed.check("a"), /^Error: it is broken \(the next attempt is possible in 30 s/);
  failed.check("b");
  now = 30_000;
  failed.check("a");
  failed.record("a", "it is broken");
  now += 59_999;
  assert.throws(() => failed.check("a"), /in 1 s/);
  now += 1;
  failed.check("a");
  for (let count = 0; count < 20; count += 1) failed.record("a", "still");
  now += 60 * 60_000;
  failed.check("a");
});
