/**
 * Tests of the bound on boots: never more than the limit, fair between tenants, nothing lost when a waiter
 * leaves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BootSlots } from "./boot-slots.ts";

const never = new AbortController().signal;

test("tenants take turns while slots are scarce", async () => {
  const slots = new BootSlots(1);
  const first = await slots.take("greedy", never);
  const order: string[] = [];
  const wait = async (tenant: string, name: string): Promise<void> => {
    const release = await slots.take(tenant, never);
    order.push(name);
    release();
  };
  const all = [wait("greedy", "g1"), wait("greedy", "g2"), wait("greedy", "g3"), wait("modest", "m1")];
  first();
  await Promise.all(all);
  assert.deepEqual(order, ["g1", "m1", "g2", "g3"]);
  assert.equal(slots.taken, 0);
});

test("a cancelled waiter leaves the queue", async () => {
  const slots = new BootSlots(1);
  const held = await slots.take("a", never);
  const leaving = new AbortController();
  const left = slots.take("b", leaving.signal);
  leaving.abort(new Error("no longer wanted"));
  await assert.rejects(left, /no longer wanted/);
  assert.equal(slots.waiting, 0);
  held();
  assert.equal(slots.taken, 0);
});

test("a slot that is released twice counts once, and the limit holds in any order", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 4 }),
      fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 20 }),
      async (limit, tenants) => {
        const slots = new BootSlots(limit);
        let running = 0;
        await Promise.all(
          tenants.map(async (tenant) => {
            const release = await slots.take(tenant, never);
            running += 1;
            assert.ok(running <= limit);
            await Promise.resolve();
            running -= 1;
            release();
            release();
          }),
        );
        assert.equal(slots.taken, 0);
      },
    ),
  );
});
