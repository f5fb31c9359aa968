/**
 * How many operations of each tenant a server works on, beside those of others.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { claimRoom, FLEET, ownerOf, WORKED_ON_MAX } from "./shares.ts";

/** The owners of operations that are worked on. */
const worked = (counts: Readonly<Record<string, number>>): readonly string[] =>
  Object.entries(counts).flatMap(([owner, count]) => Array.from({ length: count }, () => owner));

test("a tenant alone has half, and each further one half of what is left", () => {
  assert.deepEqual(claimRoom([]), { all: 64, ofOwners: new Map(), ofOthers: 32 });
  assert.deepEqual(claimRoom(worked({ a: 32 })), { all: 32, ofOwners: new Map([["a", 0]]), ofOthers: 16 });
  assert.deepEqual([...claimRoom(worked({ a: 32, b: 15 })).ofOwners.values()], [0, 1]);
});

test("tenants that want all come to equal shares, and as much is left", () => {
  for (const tenants of [1, 2, 3, 5, 12]) {
    const counts: Record<string, number> = {};
    // One after the other ends its operations one by one and claims what it may.
    for (let turn = 0; turn < 2_000; turn += 1) {
      const name = `tenant ${turn % tenants}`;
      const left = Math.max(0, (counts[name] ?? 0) - 1);
      counts[name] = left;
      const { all, ofOwners, ofOthers } = claimRoom(worked(counts));
      counts[name] = left + Math.min(all, ofOwners.get(name) ?? ofOthers);
    }
    const share = WORKED_ON_MAX / (tenants + 1);
    assert.ok(
      Object.values(counts).every((count) => Math.abs(count - share) <= 1.5),
      `${tenants}: ${JSON.stringify(counts)}`,
    );
    const { all, ofOthers } = claimRoom(worked(counts));
    assert.ok(all >= share / 2 && ofOthers >= 1, `${tenants}: ${all}`);
  }
});

test("a tenant without operations gets the last place, and none when all are taken", () => {
  const last = claimRoom(worked({ a: 63 }));
  assert.deepEqual([last.all, last.ofOthers], [1, 1]);
  assert.deepEqual(claimRoom(worked({ a: 64 })), { all: 0, ofOwners: new Map([["a", 0]]), ofOthers: 0 });
});

test("drains and upgrades count for the fleet, so that they keep no place of the moves that they wait for", () => {
  assert.equal(ownerOf({ tenantId: "a", kind: "node drain" }), FLEET);
  assert.equal(ownerOf({ tenantId: "a", kind: "machine move" }), "a");
  const drains = claimRoom(worked({ [FLEET]: 32 }));
  assert.deepEqual([drains.ofOwners.get(FLEET), drains.ofOthers], [0, 16]);
});
