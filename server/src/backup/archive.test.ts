/**
 * What is read from the file of a backup: what was written, or an error.
 */
import assert from "node:assert/strict";
import { Readable, Writable } from "node:stream";
import { test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { ArchiveWriter, DamagedBackup, type Entry, readArchive } from "./archive.ts";

const ENTRIES: readonly Entry[] = [
  { name: "backup.json", content: Buffer.from("{}") },
  { name: "tables/none/00000001", content: Buffer.alloc(0) },
  { name: "tables/rows/00000001", content: Buffer.alloc(3 * 512, "row\n") },
];

async function written(entries: readonly Entry[]): Promise<Buffer> {
  const pieces: Buffer[] = [];
  const sink = new Writable({
    write(piece: Buffer, _encoding, done) {
      pieces.push(piece);
      done();
    },
  });
  const archive = new ArchiveWriter(sink, 0);
  for (const { name, content } of entries) await archive.add(name, content);
  await archive.end();
  return Buffer.concat(pieces);
}

async function read(file: Buffer): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  for await (const entry of readArchive(Readable.from([file]))) entries.push(entry);
  return entries;
}

test("a backup is read as it was written", async () => {
  assert.deepEqual(await read(await written(ENTRIES)), ENTRIES);
});

test("a backup that is cut off anywhere, or has one other bit, or continues after its end, is refused", async () => {
  const file = await written(ENTRIES);
  const content = gunzipSync(file);
  const damaged = [
    ...[0, 1, 9, file.length - 1].map((bytes) => file.subarray(0, bytes)),
    ...Array.from({ length: content.length / 512 }, (_, block) => gzipSync(content.subarray(0, block * 512))),
    ...Array.from({ length: content.length / 512 - 3 }, (_, block) => {
      const other = Buffer.from(content);
      other[block * 512] = (other[block * 512] ?? 0) ^ 1;
      return gzipSync(other);
    }),
    gzipSync(Buffer.concat([content, Buffer.alloc(512)])),
    Buffer.from("no archive at all"),
  ];
  for (const [index, other] of damaged.entries())
    await assert.rejects(read(other), DamagedBackup, `damage ${index} of ${damaged.length}`);
});

test("another file is refused with a text that says so", async () => {
  await assert.rejects(read(Buffer.from("no archive at all")), /is not a file that `flotilla backup` wrote/);
});
