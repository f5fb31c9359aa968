/**
 * What is kept of the input that was sent to a command.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { SentInput } from "./sent-input.ts";

const MIB = 1024 * 1024;

test("what was sent is given again from any offset that is kept, in order, also after more was added", () => {
  const chunk = fc.oneof(fc.uint8Array({ maxLength: 20 }), fc.uint8Array({ minLength: 900, maxLength: 5_000 }));
  const chunks = fc.array(chunk, { maxLength: 40 });
  fc.assert(
    fc.property(chunks, chunks, fc.nat(), (first, later, number) => {
      const sent = new SentInput();
      for (const each of first) sent.add(each);
      const all = Buffer.concat(first);
      const offset = number % (all.byteLength + 1);
      const rest = sent.from(offset);
      for (const each of later) sent.add(each);
      assert.ok(rest !== null && Buffer.concat(rest).equals(all.subarray(offset)));
      const both = Buffer.concat([all, ...later]);
      assert.ok(Buffer.concat(sent.from(offset) ?? []).equals(both.subarray(offset)));
      assert.equal(sent.from(both.byteLength + 1), null);
    }),
  );
});

test("a MiB is kept, or one chunk of any size, and what is older is refused", () => {
  const sent = new SentInput();
  sent.add(new Uint8Array(3 * MIB));
  assert.equal(sent.from(0)?.[0]?.byteLength, 3 * MIB);
  for (let at = 0; at < 40; at += 1) sent.add(new Uint8Array(64 * 1024).fill(at));
  assert.equal(sent.from(3 * MIB), null);
  const kept = Buffer.concat(sent.from(3 * MIB + 40 * 64 * 1024 - MIB) ?? []);
  assert.equal(kept.byteLength, MIB);
  assert.equal(kept[0], 24);
});
