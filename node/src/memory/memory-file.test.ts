/**
 * The format of kept memory: what is written is read, and nothing else is.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { InvalidMemory, MemoryReader, MemoryWriter, PAGE_BYTES, type PageRecord } from "./memory-file.ts";

const MEMORY_BYTES = 64 * PAGE_BYTES;
const STATE = Buffer.from("devices");
const RECORDS: readonly PageRecord[] = [
  { kind: "data", offset: 0, bytes: Buffer.alloc(2 * PAGE_BYTES, 7) },
  { kind: "zero", offset: 4 * PAGE_BYTES, pages: 3 },
  { kind: "data", offset: 63 * PAGE_BYTES, bytes: Buffer.alloc(PAGE_BYTES, 9) },
];

async function written(records: readonly PageRecord[] = RECORDS): Promise<Buffer> {
  const parts: Buffer[] = [];
  const writer = new MemoryWriter(async (bytes) => void parts.push(Buffer.from(bytes)));
  await writer.begin({ id: "one" }, STATE);
  for (const record of records) await writer.add(record);
  await writer.end();
  return Buffer.concat(parts);
}

async function read(
  file: Buffer,
  chunkBytes = 5000,
): Promise<{ header: unknown; state: Buffer; records: PageRecord[] }> {
  const chunks = async function* (): AsyncGenerator<Buffer> {
    for (let at = 0; at < file.byteLength; at += chunkBytes) yield file.subarray(at, at + chunkBytes);
  };
  const reader = new MemoryReader(chunks());
  const { header, state } = await reader.begin();
  const records: PageRecord[] = [];
  for await (const record of reader.records(MEMORY_BYTES)) records.push(record);
  return { header, state, records };
}

/** The same file with other bytes at a place, and a checksum that fits. */
function patched(file: Buffer, change: (body: Buffer) => Buffer): Buffer {
  const body = change(Buffer.from(file.subarray(0, -32)));
  return Buffer.concat([body, createHash("sha256").update(body).digest()]);
}

test("what was written is read, in chunks of any size", async () => {
  const file = await written();
  for (const chunkBytes of [1_000_000, PAGE_BYTES, 17]) {
    assert.deepEqual(await read(file, chunkBytes), { header: { id: "one" }, state: STATE, records: RECORDS });
  }
});

test("a file that lacks its last bytes, or has one more, is refused", async () => {
  const file = await written();
  const cut = fc.asyncProperty(fc.integer({ min: 0, max: file.byteLength - 1 }), async (length) => {
    await assert.rejects(read(file.subarray(0, length)), InvalidMemory);
  });
  await fc.assert(cut, { numRuns: 200 });
  await assert.rejects(read(Buffer.concat([file, Buffer.from("x")])), /bytes after its end/);
});

test("a file with any other byte is refused", async () => {
  const file = await written();
  const change = fc.asyncProperty(fc.integer({ min: 0, max: file.byteLength - 1 }), async (at) => {
    const changed = Buffer.from(file);
    changed.writeUInt8(changed.readUInt8(at) ^ 0x20, at);
    await assert.rejects(read(changed), InvalidMemory);
  });
  await fc.assert(change, { numRuns: 200 });
});

const VERSION_AT = 8;
const HEADER_AT = 12;
const STATE_AT = HEADER_AT + 4 + JSON.stringify({ id: "one" }).length;
const RECORD_AT = STATE_AT + 4 + STATE.byteLength;

for (const [what, at, value, reason] of [
  ["another version", VERSION_AT, 2, /version 2, and this one reads version 1/],
  ["a header of gigabytes", HEADER_AT, 0xffff_ffff, /header has 4294967295 bytes/],
  ["a state of gigabytes", STATE_AT, 0xffff_ffff, /state has 4294967295 bytes/],
  ["a record of an unknown kind", RECORD_AT, 9, /unknown kind 9/],
  ["a record of gigabytes", RECORD_AT + 4, 0xffff_ffff, /record has 4294967295 pages/],
  ["a record without pages", RECORD_AT + 4, 0, /record has 0 pages/],
  ["a record between two pages", RECORD_AT + 8, 1, /wrong offset 1$/],
  ["a record beyond the memory", RECORD_AT + 8, MEMORY_BYTES - PAGE_BYTES, /wrong offset/],
] as const) {
  test(`${what} is refused, also with a checksum that fits`, async () => {
    const change = (body: Buffer): Buffer => {
      body.writeUInt32LE(value, at);
      return body;
    };
    await assert.rejects(read(patched(await written(), change)), reason);
  });
}

test("records that overlap, or are not in order, are refused", async () => {
  const [first, second] = [RECORDS[0], RECORDS[1]];
  assert.ok(first !== undefined && second !== undefined);
  await assert.rejects(read(await written([second, first])), /wrong offset/);
  await assert.rejects(read(await written([first, { ...second, offset: PAGE_BYTES }])), /wrong offset/);
});
