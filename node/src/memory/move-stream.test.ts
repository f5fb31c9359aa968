/**
 * The stream of a machine that runs: what is written is read, and what is not exactly that is refused.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidMoveStream, type MoveRecord, readMove, writeMove } from "./move-stream.ts";

const RECORDS: readonly MoveRecord[] = [
  { kind: "facts", bytes: Buffer.from("{}") },
  { kind: "page", offset: 8192, bytes: Buffer.alloc(8192, 7) },
  { kind: "zero", offset: 0, length: 4096 },
  { kind: "block", offset: 65_536, bytes: Buffer.alloc(100, 1) },
  { kind: "log", file: 3, offset: 12, bytes: Buffer.from("line\n") },
  { kind: "disk", size: 2 ** 40 },
  { kind: "state", bytes: Buffer.alloc(20_000, 3) },
];

async function* each<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}

async function bytesOf(records: readonly MoveRecord[]): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of writeMove(each(records))) parts.push(part);
  return Buffer.concat(parts);
}

async function read(bytes: Buffer): Promise<readonly MoveRecord[]> {
  const found: MoveRecord[] = [];
  for await (const record of readMove(each([bytes.subarray(0, 30), bytes.subarray(30)]))) found.push(record);
  return found;
}

test("every record is read as it was written", async () => {
  assert.deepEqual(await read(await bytesOf(RECORDS)), RECORDS);
});

test("a stream that is changed at any byte or ends early is refused", async () => {
  const bytes = await bytesOf(RECORDS.slice(2, 6));
  for (let at = 0; at < bytes.byteLength; at += 7) {
    const changed = Buffer.from(bytes);
    changed.writeUInt8(changed.readUInt8(at) ^ 1, at);
    await assert.rejects(read(changed));
    await assert.rejects(read(bytes.subarray(0, at)), /broke off/);
  }
});

test("half a page, and a record that is too long, are refused before they are read", async () => {
  const half = await bytesOf([{ kind: "page", offset: 4096, bytes: Buffer.alloc(100) }]);
  await assert.rejects(read(half), InvalidMoveStream);
  const long = await bytesOf([{ kind: "block", offset: 0, bytes: Buffer.alloc(2 ** 20 + 1) }]);
  await assert.rejects(read(long), InvalidMoveStream);
});
