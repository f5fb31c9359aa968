/**
 * The kept output, for any pieces and any acknowledgements.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { OutputRing, RING_BYTES } from "./output-ring.ts";

const PIECE_BYTES_MAX = 64 * 1024;
const content = (from: number, bytes: number): Buffer =>
  Buffer.from(Uint8Array.from({ length: bytes }, (_, at) => ((from + at) * 31 + ((from + at) >> 8)) & 0xff));

const step = fc.oneof(
  fc.record({ add: fc.integer({ min: 1, max: PIECE_BYTES_MAX }) }),
  fc.record({ add: fc.integer({ min: 1, max: 3_000 }) }),
  fc.record({ acknowledge: fc.double({ min: 0, max: 1.2, noNaN: true }) }),
  fc.record({ begin: fc.double({ min: 0, max: 1.2, noNaN: true }) }),
);

test("what the client lacks is kept to the byte, a bounded part in all, and it begins again at any offset", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.nat(1_000), (steps, offset) => {
      const ring = new OutputRing(offset);
      let had = offset;
      for (const one of steps) {
        if ("add" in one) {
          // Its owner pauses the program then.
          if (!ring.isFull) ring.add(content(ring.end, one.add));
        } else if ("acknowledge" in one) {
          const to = Math.floor(had + (ring.end - had) * one.acknowledge);
          ring.acknowledge(to);
          had = Math.min(to, ring.end);
        } else had = ring.begin(Math.floor(ring.end * one.begin));
        assert.ok(ring.start <= had && had <= ring.end);
        assert.ok(ring.end - ring.start < RING_BYTES + 2 * PIECE_BYTES_MAX, `${ring.end - ring.start} are kept`);
        assert.ok(Buffer.concat(ring.from(had)).equals(content(had, ring.end - had)));
      }
      assert.ok(Buffer.concat(ring.from(ring.start)).equals(content(ring.start, ring.end - ring.start)));
    }),
    { numRuns: 60 },
  );
});

test("many small pieces are few blocks, and what was handed out does not change with the next ones", () => {
  const ring = new OutputRing();
  for (let at = 0; at < 100_000; at += 1) ring.add(content(at, 1));
  const before = ring.from(99_000);
  ring.add(content(100_000, 7));
  assert.ok(ring.from(0).length <= 13, `${ring.from(0).length} blocks`);
  assert.ok(Buffer.concat(before).equals(content(99_000, 1_000)));
});

test("a late acknowledgement and one of bytes that were never sent change nothing", () => {
  const ring = new OutputRing();
  ring.add(content(0, 100));
  ring.acknowledge(60);
  ring.acknowledge(20);
  ring.acknowledge(1_000);
  assert.deepEqual([ring.start, ring.end, ring.isFull], [0, 100, false]);
  assert.equal(ring.nearest(5_000), 100);
});
