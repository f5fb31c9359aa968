/**
 * Frames of the link: whatever the chunks they come in, the same is said in the same order.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  encodeLinkFrame,
  encodeLinkFrameHead,
  LINK_FRAMES,
  LINK_PAYLOAD_BYTES_MAX,
  LinkDecoder,
  type LinkFrame,
  type LinkFrameType,
} from "./frames.ts";

const isStream = (type: LinkFrameType): boolean => ["stdin", "stdout", "stderr"].includes(type);

/**
 * Frames of one stream that follow each other mean what one with all their bytes means; an empty one means
 * nothing.
 */
function meaning(frames: readonly LinkFrame[]): readonly (readonly [LinkFrameType, string])[] {
  const said: [LinkFrameType, string][] = [];
  for (const { type, payload } of frames) {
    const hex = Buffer.from(payload).toString("hex");
    const last = said.at(-1);
    if (isStream(type) && last?.[0] === type) last[1] += hex;
    else if (!isStream(type) || hex !== "") said.push([type, hex]);
  }
  return said;
}

const frame = fc.record({
  type: fc.constantFrom(...(Object.keys(LINK_FRAMES) as LinkFrameType[])),
  payload: fc.uint8Array({ maxLength: 40 }),
});

test("cut anywhere, frames mean the same", () => {
  fc.assert(
    fc.property(fc.array(frame), fc.array(fc.integer({ min: 1, max: 30 })), (frames, sizes) => {
      const all = Buffer.concat(frames.map(({ type, payload }) => encodeLinkFrame(type, payload)));
      const decoder = new LinkDecoder();
      const found: LinkFrame[] = [];
      let at = 0;
      for (const size of [...sizes, all.byteLength]) {
        found.push(...decoder.push(all.subarray(at, at + size)));
        at += size;
      }
      assert.deepEqual(meaning(found), meaning(frames));
      assert.equal(decoder.hasRest, false);
    }),
  );
});

test("a stream's bytes are handed out before their frame is whole, a message only when it is", () => {
  const decoder = new LinkDecoder();
  const stream = encodeLinkFrame("stdout", "abcdef");
  assert.deepEqual(meaning(decoder.push(stream.subarray(0, 7))), [["stdout", "6162"]]);
  assert.equal(decoder.hasRest, true);
  assert.deepEqual(meaning(decoder.push(stream.subarray(7))), [["stdout", "63646566"]]);
  const message = encodeLinkFrame("exit", "{}");
  assert.deepEqual(decoder.push(message.subarray(0, 6)), []);
  assert.deepEqual(meaning(decoder.push(message.subarray(6))), [["exit", "7b7d"]]);
  assert.equal(decoder.hasRest, false);
});

test("a message that comes byte by byte is not copied for each byte", (t) => {
  let allocatedBytes = 0;
  for (const name of ["concat", "allocUnsafe", "allocUnsafeSlow", "alloc"] as const) {
    const make = Buffer[name] as (...given: unknown[]) => Buffer;
    t.mock.method(Buffer, name, (...given: unknown[]) => {
      const made = make(...given);
      allocatedBytes += made.byteLength;
      return made;
    });
  }
  const message = encodeLinkFrame("exit", "x".repeat(100_000));
  const decoder = new LinkDecoder();
  allocatedBytes = 0;
  const found = Array.from(message, (_, at) => decoder.push(message.subarray(at, at + 1))).flat();
  assert.deepEqual(meaning(found), meaning([{ type: "exit", payload: message.subarray(5) }]));
  assert.ok(allocatedBytes < 10 * message.byteLength, `${allocatedBytes} bytes were allocated`);
});

test("a head and the payload behind it are the frame that both make", () => {
  fc.assert(
    fc.property(frame, ({ type, payload }) => {
      const pieces = Buffer.concat([encodeLinkFrameHead(type, payload.byteLength), payload]);
      assert.deepEqual(pieces, encodeLinkFrame(type, payload));
    }),
  );
  assert.throws(() => encodeLinkFrameHead("stdout", LINK_PAYLOAD_BYTES_MAX + 1), RangeError);
});

test("bytes that are not a frame are refused by their header", () => {
  assert.throws(() => new LinkDecoder().push(Buffer.from([99, 0, 0, 0, 0])), /unknown type 99/);
  const long = Buffer.from([LINK_FRAMES.stdout, 0, 0, 0, 0]);
  long.writeUInt32LE(LINK_PAYLOAD_BYTES_MAX + 1, 1);
  assert.throws(() => new LinkDecoder().push(long), /link frame of 1048577 bytes/);
});
