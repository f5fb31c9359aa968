/**
 * What a terminal's client may send, and what it means; what fits into a close frame.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { closeReason, readKeptMessage, readMessage } from "./frames.ts";

const text = (value: string) => readMessage(Buffer.from(value), false);
const typed = (value: string) => ({ kind: "typed", bytes: Buffer.from(value) });

test("binary is typed as it is, even when it looks like a command", () => {
  const bytes = Buffer.from('{"type":"resize","cols":1,"rows":1}');
  assert.deepEqual(readMessage(bytes, true), { kind: "typed", bytes });
  assert.deepEqual(readMessage(Buffer.from([0, 255, 3]), true), { kind: "typed", bytes: Buffer.from([0, 255, 3]) });
});

test("resize and stdin are understood with fields in any order and more of them", () => {
  assert.deepEqual(text('{"rows":30,"x":1,"type":"resize","cols":120}'), { kind: "resize", cols: 120, rows: 30 });
  assert.deepEqual(text('{"type":"stdin","data":"ls\\n"}'), typed("ls\n"));
  assert.deepEqual(text('{"type":"stdin","data":""}'), typed(""));
});

test("sizes are kept within what a terminal can have", () => {
  assert.deepEqual(text('{"type":"resize","cols":99999,"rows":2}'), { kind: "resize", cols: 10_000, rows: 2 });
});

test("a resize without a possible size is ignored, and never typed", () => {
  const impossible = ["0", "-1", "80.5", '"80"', "null", "true", "[80]", "1e999"];
  const sizes = ["", ',"cols":80', ',"rows":24'];
  for (const side of impossible) sizes.push(`,"cols":${side},"rows":24`, `,"cols":80,"rows":${side}`);
  for (const size of sizes) assert.deepEqual(text(`{"type":"resize"${size}}`), { kind: "nothing" }, size);
});

test("a kept terminal's client acknowledges and asks besides; an acknowledgement without a possible offset is ignored", () => {
  const kept = (value: string) => readKeptMessage(Buffer.from(value), false);
  assert.deepEqual(kept('{"offset":7,"type":"received"}'), { kind: "received", offset: 7 });
  assert.deepEqual(kept('{"type":"ping"}'), { kind: "ping" });
  for (const offset of ["-1", "1.5", "1e300", '"1"', "null"])
    assert.deepEqual(kept(`{"type":"received","offset":${offset}}`), { kind: "nothing" }, offset);
  for (const one of ['{"type":"resize","cols":3,"rows":2}', "{", '{"type":"stdin","data":"a"}', "ls\n"])
    assert.deepEqual(kept(one), text(one));
  assert.equal(readKeptMessage(Buffer.from('{"type":"ping"}'), true).kind, "typed");
});

test("any other text is typed", () => {
  const others = [
    "ls\n",
    "{",
    "{}",
    "null",
    "[1]",
    '{"type":"resized","cols":80,"rows":24}',
    '{"type":"resize","cols":80,"rows":24',
    '{"type":"stdin","data":7}',
    '{"type":"exit","code":0}',
  ];
  for (const other of others) assert.deepEqual(text(other), typed(other), other);
});

test("whatever comes is understood as something", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: "binary" }), fc.json()), fc.boolean(), (data, isBinary) => {
      assert.match(readMessage(Buffer.from(data), isBinary).kind, /^(typed|resize|nothing)$/);
    }),
  );
});

test("a reason fits into a close frame, in any script", () => {
  assert.equal(closeReason("the server stops"), "the server stops");
  assert.equal(closeReason("ü".repeat(100)), "ü".repeat(61));
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 200 }), (reason) => {
      const cut = closeReason(reason);
      assert.ok(Buffer.byteLength(cut) <= 123 && reason.startsWith(cut));
      assert.ok(cut === reason || Buffer.byteLength(cut) > 119, cut);
    }),
  );
});
