/**
 * What pieces of any size become.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Pieces, joinSmall } from "./pieces.ts";

const MIB = 1024 * 1024;

test("pieces of any size are given back as one sequence of bytes", () => {
  const sizes = fc.array(fc.oneof(fc.nat(20), fc.nat(10_000)), { maxLength: 60 });
  fc.assert(
    fc.property(sizes, (lengths) => {
      const given = lengths.map((length, index) => Buffer.alloc(length, index));
      const pieces = new Pieces(MIB);
      for (const piece of given) pieces.add(piece);
      assert.ok(Buffer.concat(pieces.all()).equals(Buffer.concat(given)));
    }),
  );
});

test("a million single bytes are few objects, with at most half of their memory empty", () => {
  let grown = 0;
  const pieces = new Pieces(16 * MIB, (bytes) => {
    grown += bytes;
    return null;
  });
  const read = Buffer.alloc(4096, "a");
  for (let count = 0; count < MIB; count += 1) pieces.add(read.subarray(count % 4096, (count % 4096) + 1));
  const all = pieces.all();
  assert.equal(Buffer.concat(all).byteLength, MIB);
  assert.ok(all.length < 64, `${all.length} objects`);
  assert.ok(grown < 2 * MIB, `${grown} bytes`);
});

test("a piece for which there is no room is refused, and not kept", () => {
  const refusal = new Error("no room");
  const pieces = new Pieces(MIB, () => refusal);
  assert.equal(pieces.add(Buffer.alloc(10_000)), refusal);
  assert.equal(pieces.add(Buffer.alloc(1)), refusal);
  assert.deepEqual(pieces.all(), []);
});

test("small pieces that follow each other become one, and large ones stay as they are", () => {
  const large = Buffer.alloc(10_000, "l");
  const bytes = Buffer.from("many single bytes");
  const single = [...bytes].map((byte) => Buffer.of(byte));
  const pieces = joinSmall([...single, large, ...single, "te", "xt", large]);
  assert.deepEqual(pieces, [bytes, large, bytes, "text", large]);
  assert.equal(pieces[1], large);
  assert.deepEqual(joinSmall([]), []);
});
