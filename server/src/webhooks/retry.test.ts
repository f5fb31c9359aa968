/**
 * The schedule of retries, and when a receiver counts as down or hopeless.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ATTEMPTS_MAX,
  DISABLE_AFTER_MS,
  RETRY_MS,
  disableReason,
  isDown,
  probeDelayMs,
  retryDelayMs,
} from "./retry.ts";

const HOUR_MS = 60 * 60_000;

test("delays double from the base to an hour, and at most half of a delay is jitter", () => {
  const full = [1, 2, 3, 12, 13, 84, 5000].map((attempts) => retryDelayMs(attempts, { random: 0, baseMs: 1000 }));
  assert.deepEqual(full, [1000, 2000, 4000, 2_048_000, HOUR_MS, HOUR_MS, HOUR_MS]);
  assert.equal(retryDelayMs(3, { random: 1, baseMs: 1000 }), 2000);
});

test("all attempts of a delivery together take about three days", () => {
  let total = 0;
  for (let attempts = 1; attempts < ATTEMPTS_MAX; attempts += 1)
    total += retryDelayMs(attempts, { random: 0.5, baseMs: 1000 });
  assert.ok(total > 2 * 24 * HOUR_MS && total < 3.5 * 24 * HOUR_MS, `${total / HOUR_MS} h`);
});

test("a receiver is down after eight failures in a row, and then probed less and less often", () => {
  assert.equal(isDown(7), false);
  assert.equal(probeDelayMs(7, { random: 0, baseMs: 1000 }), 0);
  assert.deepEqual(
    [8, 9, 40].map((failures) => probeDelayMs(failures, { random: 0, baseMs: 1000 })),
    [1000, 2000, HOUR_MS],
  );
});

test("a webhook is disabled by 410, or when nothing has succeeded for three days", () => {
  const since = Date.UTC(2026, 6, 1);
  const failing = { failingSince: since, failures: 80, lastStatus: 500 };
  assert.match(disableReason({ ...failing, failures: 1, lastStatus: 410 }, since) ?? "", /410 Gone/);
  assert.equal(disableReason(failing, since + DISABLE_AFTER_MS - 1), null);
  assert.match(
    disableReason({ ...failing, lastStatus: null }, since + DISABLE_AFTER_MS) ?? "",
    /since 2026-07-01T00:00:00.000Z/,
  );
  assert.equal(disableReason({ failingSince: null, failures: 0, lastStatus: 200 }, since), null);
});

test("a webhook is not disabled by the first failure after a pause of weeks, and by those of three days", () => {
  const since = Date.UTC(2026, 6, 1);
  const after = (failures: number) =>
    disableReason({ failingSince: since, failures, lastStatus: 500 }, since + 7 * DISABLE_AFTER_MS);
  assert.equal(after(9), null);
  let failures = 0;
  // Without jitter attempts are rarest.
  for (let ms = 0; ms < DISABLE_AFTER_MS; ms += retryDelayMs(failures, { random: 0, baseMs: RETRY_MS })) failures += 1;
  assert.notEqual(after(failures), null);
});
