/**
 * The content of a disk as layers of a package: which blocks of it are in which layer, and their form.
 *
 * Pure. A disk is cut into cells of 1 MiB. A layer has the records of 2^n cells: `offset u64 LE | length
 * u32 LE | data`. Always, of what is written here:
 * - Blocks of zeros are in no record; a record is as long as it can be without leaving its cell.
 * - The same content gives the same records, and so the same layers, whatever the file was that had it.
 *
 * What is read here is hostile. Always: the records of all layers together are in ascending order, do not
 * overlap, and are multiples of blocks inside the disk; so there are fewer of them than the disk has
 * blocks.
 */

export const DISK_BLOCK_BYTES = 4096;
export const CELL_BYTES = 2 ** 20;
/** With more layers than this many clients fail, and a manifest would not stay below 1 MiB. */
export const PACKS_MAX = 512;
const HEAD_BYTES = 12;
const ZEROS = Buffer.alloc(DISK_BLOCK_BYTES);

/** A part of a disk in which no block is all zeros. */
export interface DiskRecord {
  readonly offset: number;
  readonly data: Buffer;
}

/** The records of a cell. `offset`: where its content is on the disk. The data is part of `cell`. */
export function* recordsOf(cell: Buffer, offset: number): Generator<DiskRecord, void> {
  let begun: number | null = null;
  for (let at = 0; at < cell.byteLength; at += DISK_BLOCK_BYTES) {
    const block = cell.subarray(at, at + DISK_BLOCK_BYTES);
    if (!block.equals(ZEROS)) begun ??= at;
    else if (begun !== null) {
      yield { offset: offset + begun, data: cell.subarray(begun, at) };
      begun = null;
    }
  }
  if (begun !== null) yield { offset: offset + begun, data: cell.subarray(begun) };
}

/** The bytes before the data of a record. */
export function recordHead({ offset, data }: DiskRecord): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeBigUInt64LE(BigInt(offset), 0);
  head.writeUInt32LE(data.byteLength, 8);
  return head;
}

/**
 * How many cells make one layer, as a power of two: the fewest with which at most PACKS_MAX layers have
 * content. `cells`: those that have any, in ascending order.
 */
export function cellsPerPack(cells: readonly number[]): number {
  let size = 1;
  while (packsOf(cells, size).length > PACKS_MAX) size *= 2;
  return size;
}

/** The layers that have content, by number: layer n has the cells from n × size on. */
export function packsOf(cells: readonly number[], size: number): readonly number[] {
  return [...new Set(cells.map((cell) => Math.floor(cell / size)))];
}

/** Why a layer is not one of this disk: its text is for the package's owner. */
export class DamagedRecords extends Error {}

/** Reads the records of a package's layers, one layer after the other. */
export class RecordReader {
  readonly #diskBytes: number;
  readonly #head = Buffer.alloc(HEAD_BYTES);
  #headBytes = 0;
  /** Where the next byte of data is on the disk. */
  #at = 0;
  #missing = 0;

  constructor(diskBytes: number) {
    this.#diskBytes = diskBytes;
  }

  /** What a part of a layer writes to the disk, in order. Throws DamagedRecords. */
  *read(chunk: Buffer): Generator<DiskRecord, void> {
    for (let at = 0; at < chunk.byteLength; ) {
      if (this.#missing === 0) {
        at += this.#readHead(chunk.subarray(at));
        continue;
      }
      const data = chunk.subarray(at, at + this.#missing);
      const offset = this.#at;
      at += data.byteLength;
      this.#at += data.byteLength;
      this.#missing -= data.byteLength;
      yield { offset, data };
    }
  }

  /** A layer is complete. Throws DamagedRecords when it ends in the middle of a record. */
  endLayer(): void {
    if (this.#headBytes > 0 || this.#missing > 0) throw new DamagedRecords("it ends in the middle of a record");
  }

  #readHead(bytes: Buffer): number {
    const taken = bytes.copy(this.#head, this.#headBytes, 0, HEAD_BYTES - this.#headBytes);
    this.#headBytes += taken;
    if (this.#headBytes < HEAD_BYTES) return taken;
    const offset = this.#head.readBigUInt64LE(0);
    const length = this.#head.readUInt32LE(8);
    if (length === 0) throw new DamagedRecords("it has a record without content");
    if (offset % BigInt(DISK_BLOCK_BYTES) !== 0n || length % DISK_BLOCK_BYTES !== 0)
      throw new DamagedRecords("it has a record that is not of whole blocks");
    if (offset + BigInt(length) > BigInt(this.#diskBytes))
      throw new DamagedRecords("it has a record outside of the disk");
    if (offset < BigInt(this.#at)) throw new DamagedRecords("its records overlap, or are not in order");
    this.#headBytes = 0;
    this.#at = Number(offset);
    this.#missing = length;
    return taken;
  }
}
