/**
 * The client of a VMM's NBD server, against one that is not what it should be. test/vm/moves.test.ts has a
 * real one.
 */
import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { readDirtyBitmap } from "./dirty-bitmap.ts";

const bytesOf = (...parts: readonly (readonly [value: number | bigint, bytes: 2 | 4 | 8] | string)[]): Buffer =>
  Buffer.concat(
    parts.map((part) => {
      if (typeof part === "string") return Buffer.from(part);
      const [value, bytes] = part;
      const buffer = Buffer.alloc(8);
      buffer.writeBigUInt64BE(BigInt(value));
      return buffer.subarray(8 - bytes);
    }),
  );
const greeting = bytesOf("NBDMAGICIHAVEOPT", [3, 2]);
const reply = (option: number, kind: number, data = ""): Buffer =>
  bytesOf([0x3_e8_89_04_55_65_a9n, 8], [option, 4], [kind, 4], [data.length, 4], data);
const opened = Buffer.concat([greeting, reply(8, 1), reply(10, 4, "\0\0\0\u0001x"), reply(10, 1), reply(7, 1)]);
const status = (...extents: readonly (readonly [bytes: number, flags: number])[]): Buffer =>
  bytesOf(
    ...([
      [0x66_8e_33_ef, 4],
      [1, 2],
      [5, 2],
      [0, 8],
      [4 + 8 * extents.length, 4],
      [1, 4],
    ] as const),
    ...extents.flatMap(([bytes, flags]) => [[bytes, 4] as const, [flags, 4] as const]),
  );

async function read(answers: Buffer, bytes = 300) {
  const [ours, theirs] = duplexPair();
  theirs.resume();
  theirs.end(answers);
  return await readDirtyBitmap(ours, { exportName: "disk", bitmap: "b", bytes });
}

test("the dirty parts are read, over several answers", async () => {
  const answers = Buffer.concat([opened, status([100, 0], [50, 1]), status([50, 1], [100, 0])]);
  assert.deepEqual(await read(answers), [
    { start: 100, end: 150 },
    { start: 150, end: 200 },
  ]);
});

test("a server that is none, refuses, ends early or sends nonsense is an error", async () => {
  await assert.rejects(read(bytesOf("HTTP/1.1 400 Bad Request")), /is not one of NBD/);
  await assert.rejects(read(Buffer.concat([greeting, reply(8, 0x80_00_00_01, "no")])), /refuses option 8: no/);
  await assert.rejects(read(Buffer.concat([greeting, reply(8, 1), reply(10, 1)])), /does not offer/);
  await assert.rejects(read(opened), /broke off/);
  await assert.rejects(read(Buffer.concat([opened, status()])), /has no end/);
  await assert.rejects(read(Buffer.concat([opened, status([0, 1])])), /has no end/);
  await assert.rejects(read(Buffer.concat([opened, Buffer.alloc(40)])), /did not read/);
  const endless = Buffer.concat(Array.from({ length: 70 }, () => reply(8, 3)));
  await assert.rejects(read(Buffer.concat([greeting, endless])), /has no end/);
});
