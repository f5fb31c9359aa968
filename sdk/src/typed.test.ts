/**
 * Input of a terminal over lost connections: each byte reaches the machine once.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Typed } from "./typed.ts";

const step = fc.record({ typed: fc.uint8Array({ maxLength: 50 }), arrives: fc.nat(60), isTaken: fc.boolean() });

test("what a lost connection swallowed is sent again, and nothing twice", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), fc.nat(100), (steps, offset) => {
      const typed = new Typed();
      const all: number[] = [];
      const machine: number[] = [];
      typed.attached(offset);
      for (const { typed: bytes, arrives, isTaken } of steps) {
        typed.add(Uint8Array.from(bytes));
        all.push(...bytes);
        // It broke; a part of what is sent when it is back arrives.
        const sent = typed.attached(offset + machine.length).flatMap((piece) => [...piece]);
        machine.push(...sent.slice(0, arrives));
        if (isTaken) typed.taken(offset + machine.length);
      }
      machine.push(...typed.attached(offset + machine.length).flatMap((piece) => [...piece]));
      assert.deepEqual(machine, all);
    }),
  );
});

test("what another client typed meanwhile is not mistaken for one's own", () => {
  const typed = new Typed();
  typed.add(Uint8Array.of(1, 2, 3));
  assert.equal(typed.attached(10).length, 1);
  assert.deepEqual(typed.attached(1_000), []);
  typed.add(Uint8Array.of(4));
  assert.deepEqual(typed.attached(1_000), [Uint8Array.of(4)]);
  typed.taken(1_001);
  assert.deepEqual(typed.attached(1_001), []);
});
