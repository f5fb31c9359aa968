/**
 * Records of disks: what is read is what was written, in whatever pieces it arrives; anything else is
 * refused.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  CELL_BYTES,
  cellsPerPack,
  DISK_BLOCK_BYTES,
  DamagedRecords,
  PACKS_MAX,
  packsOf,
  recordHead,
  RecordReader,
  recordsOf,
} from "./disk-records.ts";

const BLOCKS = 24;
const DISK_BYTES = BLOCKS * DISK_BLOCK_BYTES;

/** A small disk: zeros, or a block of one byte. */
const disk = fc
  .array(fc.integer({ min: 0, max: 3 }), { minLength: BLOCKS, maxLength: BLOCKS })
  .map((fills) => Buffer.concat(fills.map((fill) => Buffer.alloc(DISK_BLOCK_BYTES, fill))));

/** The layers of a disk whose cells have this many blocks. */
function layersOf(content: Buffer, blocksPerCell: number): readonly Buffer[] {
  const bytes = blocksPerCell * DISK_BLOCK_BYTES;
  const layers: Buffer[] = [];
  for (let at = 0; at < content.byteLength; at += bytes) {
    const records = [...recordsOf(content.subarray(at, at + bytes), at)];
    if (records.length > 0) layers.push(Buffer.concat(records.flatMap((record) => [recordHead(record), record.data])));
  }
  return layers;
}

function readAll(layers: readonly Buffer[], pieceBytes: number, diskBytes = DISK_BYTES): Buffer {
  const written = Buffer.alloc(diskBytes);
  const reader = new RecordReader(diskBytes);
  for (const layer of layers) {
    for (let at = 0; at < layer.byteLength; at += pieceBytes)
      for (const { offset, data } of reader.read(layer.subarray(at, at + pieceBytes))) data.copy(written, offset);
    reader.endLayer();
  }
  return written;
}

test("what is read is the disk, however it is cut and in whatever pieces it arrives", () => {
  fc.assert(
    fc.property(
      disk,
      fc.integer({ min: 1, max: BLOCKS }),
      fc.integer({ min: 1, max: 9_000 }),
      (content, cell, piece) => {
        const layers = layersOf(content, cell);
        assert.deepEqual(readAll(layers, piece), content);
        for (const layer of layers) assert.ok(layer.byteLength > 0);
      },
    ),
    { numRuns: 200 },
  );
});

test("no record has a block of zeros, and two records of a cell have one between them", () => {
  fc.assert(
    fc.property(disk, (content) => {
      let end = -1;
      for (const { offset, data } of recordsOf(content, 0)) {
        assert.ok(offset > end);
        for (let at = 0; at < data.byteLength; at += DISK_BLOCK_BYTES)
          assert.ok(data.subarray(at, at + DISK_BLOCK_BYTES).some((byte) => byte !== 0));
        end = offset + data.byteLength;
      }
    }),
  );
});

test("packs are the smallest that are few enough, and each used cell is in one of them", () => {
  const cells = fc.uniqueArray(fc.integer({ min: 0, max: 2 ** 24 }), { maxLength: 3_000 });
  fc.assert(
    fc.property(cells, (drawnCells) => {
      const used = drawnCells.toSorted((a, b) => a - b);
      const size = cellsPerPack(used);
      const packs = packsOf(used, size);
      assert.ok(packs.length <= PACKS_MAX);
      assert.ok(size === 1 || packsOf(used, size / 2).length > PACKS_MAX);
      for (const cell of used) assert.ok(packs.includes(Math.floor(cell / size)));
    }),
    { numRuns: 50 },
  );
  const full = Array.from({ length: 513 }, (_, cell) => cell);
  assert.equal(cellsPerPack(full.slice(1)), 1);
  assert.equal(cellsPerPack(full), 2);
  assert.equal(CELL_BYTES % DISK_BLOCK_BYTES, 0);
});

const record = (offset: bigint, length: number, bytes = length): Buffer => {
  const head = Buffer.alloc(12);
  head.writeBigUInt64LE(offset, 0);
  head.writeUInt32LE(length, 8);
  return Buffer.concat([head, Buffer.alloc(bytes, 1)]);
};

const BLOCK = BigInt(DISK_BLOCK_BYTES);
const REFUSED: readonly (readonly [string, readonly Buffer[], RegExp])[] = [
  ["outside", [record(BigInt(DISK_BYTES), DISK_BLOCK_BYTES)], /outside of the disk/],
  ["half outside", [record(BigInt(DISK_BYTES) - BLOCK, 2 * DISK_BLOCK_BYTES)], /outside of the disk/],
  ["at the end of all numbers", [record(2n ** 64n - BLOCK, DISK_BLOCK_BYTES)], /outside of the disk/],
  ["overlapping", [record(0n, 2 * DISK_BLOCK_BYTES), record(BLOCK, DISK_BLOCK_BYTES)], /overlap/],
  ["out of order", [record(BLOCK, DISK_BLOCK_BYTES), record(0n, DISK_BLOCK_BYTES)], /not in order/],
  ["twice", [record(0n, DISK_BLOCK_BYTES), record(0n, DISK_BLOCK_BYTES)], /overlap/],
  ["without content", [record(0n, 0)], /without content/],
  ["of half a block", [record(0n, DISK_BLOCK_BYTES / 2)], /whole blocks/],
  ["at half a block", [record(BLOCK / 2n, DISK_BLOCK_BYTES)], /whole blocks/],
  ["that breaks off", [record(0n, DISK_BLOCK_BYTES, 100)], /middle of a record/],
  ["that breaks off in its head", [record(0n, DISK_BLOCK_BYTES).subarray(0, 5)], /middle of a record/],
];

for (const [what, layers, message] of REFUSED)
  test(`a record ${what} is refused, in one layer and in several`, () => {
    const isRefusal = (error: Error): boolean => error instanceof DamagedRecords && message.test(error.message);
    assert.throws(() => readAll(layers, 1 << 20), isRefusal);
    assert.throws(() => readAll([Buffer.concat(layers)], 7), isRefusal);
  });

test("no bytes at all make the reader write outside of the disk or go back", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), disk, fc.nat(200), (noise, content, at) => {
      const [layer = Buffer.alloc(0)] = layersOf(content, BLOCKS);
      const damaged = Buffer.concat([layer.subarray(0, at), noise, layer.subarray(at)]);
      const reader = new RecordReader(DISK_BYTES);
      let reached = 0;
      try {
        for (const { offset, data } of reader.read(damaged)) {
          assert.ok(offset >= reached && offset + data.byteLength <= DISK_BYTES);
          reached = offset + data.byteLength;
        }
      } catch (error) {
        if (!(error instanceof DamagedRecords)) throw error;
      }
    }),
  );
});
