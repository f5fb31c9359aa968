/**
 * When an ingress may serve apps: renewals in time and late, lost answers, and tables read before and after.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isServing, LEASE_MS, NO_LEASE, renewedLease } from "./lease.ts";

const first = renewedLease(NO_LEASE, { sentAt: 1_000, answeredAt: 1_010 });

test("without a lease, or without a table that was read in it, nothing is served", () => {
  for (const [lease, readAt, now, serves] of [
    [NO_LEASE, 0, 0, false],
    [NO_LEASE, null, 0, false],
    [first, null, 1_020, false],
    [first, 900, 1_020, false],
    [first, 1_009, 1_020, false],
    [first, 1_010, 1_020, true],
    [first, 1_500, 1_600, true],
  ] as const)
    assert.equal(isServing(lease, readAt, now), serves, `${readAt} ${now}`);
});

test("a lease is over LEASE_MS after its renewal was sent, however late the answer came", () => {
  assert.equal(isServing(first, 1_010, 1_000 + LEASE_MS - 1), true);
  assert.equal(isServing(first, 1_010, 1_000 + LEASE_MS), false);
  const slow = renewedLease(NO_LEASE, { sentAt: 1_000, answeredAt: 1_000 + LEASE_MS });
  assert.equal(isServing(slow, 1_000 + LEASE_MS, 1_000 + LEASE_MS), false);
});

test("a lease that is renewed in time continues, so the table that was read in it still counts", () => {
  const second = renewedLease(first, { sentAt: 2_000, answeredAt: 1_000 + LEASE_MS - 1 });
  assert.deepEqual(second, { until: 2_000 + LEASE_MS, since: 1_010 });
  assert.equal(isServing(second, 1_010, 2_000 + LEASE_MS - 1), true);
});

test("a renewal whose answer came after the lease was over begins another, which needs a newer table", () => {
  const answeredAt = 1_000 + LEASE_MS;
  const second = renewedLease(first, { sentAt: 5_000, answeredAt });
  assert.deepEqual(second, { until: 5_000 + LEASE_MS, since: answeredAt });
  for (const [readAt, serves] of [
    [1_010, false],
    [answeredAt - 1, false],
    [answeredAt, true],
  ] as const)
    assert.equal(isServing(second, readAt, answeredAt + 1), serves, `${readAt}`);
});

test("an ingress serves only while its lease in the database runs, whatever is late", () => {
  // The database dates each lease by its own clock, at some time between sending and answer.
  for (let seed = 1; seed <= 2_000; seed += 1) {
    const random = randomOf(seed);
    let lease = NO_LEASE;
    let now = 0;
    let recordedUntil = Number.NEGATIVE_INFINITY;
    /** The end of the last time in which servers did not wait for this ingress. */
    let unheldUntil = 0;
    for (let renewal = 0; renewal < 8; renewal += 1) {
      const sentAt = now + random(0.6 * LEASE_MS);
      const writtenAt = sentAt + random(1.4 * LEASE_MS);
      const answeredAt = writtenAt + random(1.4 * LEASE_MS);
      // Between two renewals the lease may run out in the database.
      if (recordedUntil <= writtenAt) unheldUntil = writtenAt;
      recordedUntil = writtenAt + LEASE_MS;
      const hasAnswer = random(4) > 0;
      now = hasAnswer ? answeredAt : writtenAt + random(1.8 * LEASE_MS);
      if (hasAnswer) lease = renewedLease(lease, { sentAt, answeredAt });
      for (const readAt of [now - random(1.8 * LEASE_MS), now]) {
        if (!isServing(lease, readAt, now)) continue;
        assert.ok(now < recordedUntil, `seed ${seed}: it serves after its lease in the database`);
        assert.ok(readAt >= unheldUntil, `seed ${seed}: it serves a table from before its lease`);
      }
    }
  }
});

/** Whole numbers from 0 to below a bound; the same for a seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return state % below;
  };
}
