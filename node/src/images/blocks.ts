/**
 * Sparse files as streams of blocks, and the hash of their content: how a disk is copied to another node.
 *
 * contract/src/link/moves.ts describes the stream.
 *
 * Always:
 * - Memory is bounded by one record on each side, whatever the file's size.
 * - Blocks of zeros are neither sent nor hashed, so the hash does not depend on which of them are allocated.
 * - A written file has the same content as the one that was read: its own hash is compared after it was
 *   synced.
 *
 * A writer that is interrupted leaves a file whose content is right up to its size, rounded down to a block.
 */
import { createHash, type Hash } from "node:crypto";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { type FileHandle, open, stat } from "node:fs/promises";
import { createInterface } from "node:readline";
import { BLOCK_BYTES, BLOCKS_END, RECORD_BYTES_MAX } from "@flotilla/contract/link/blocks";
import { TOOL_SCORE } from "../host/out-of-memory.ts";

const HEAD_BYTES = 12;
const HASH_BYTES = 32;
const ZEROS = Buffer.alloc(BLOCK_BYTES);
/** A file with fewer holes than this is read as a whole, which is faster than asking for them. */
const SPARSE_SHARE = 0.9;

/** A part of a file, in bytes. */
export interface Extent {
  readonly start: number;
  readonly end: number;
}

/** A part of a file in which no block is all zeros. */
interface Piece {
  readonly offset: number;
  readonly data: Buffer;
}

/**
 * The SHA-256 of a file's content, in hexadecimal: of each block that is not all zeros after its offset, then
 * of the size.
 */
export async function contentHash(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  await using file = await open(path, "r");
  const { size } = await file.stat();
  for await (const piece of piecesOf(file, path, size)) {
    signal.throwIfAborted();
    addPiece(hash, piece);
  }
  return endOf(hash, size).toString("hex");
}

/**
 * The stream of a file's blocks from byte `from` on, a multiple of BLOCK_BYTES. Reads the whole file, for its
 * hash.
 */
export async function* readBlocks(path: string, from: number): AsyncGenerator<Buffer, void> {
  const hash = createHash("sha256");
  await using file = await open(path, "r");
  const { size } = await file.stat();
  for await (const piece of piecesOf(file, path, size)) {
    addPiece(hash, piece);
    const skipped = Math.max(0, from - piece.offset);
    if (skipped >= piece.data.byteLength) continue;
    const data = piece.data.subarray(skipped);
    yield Buffer.concat([head(piece.offset + skipped, data.byteLength), data]);
  }
  yield Buffer.concat([head(size, BLOCKS_END), endOf(hash, size)]);
}

/**
 * The stream of some parts of a file, also where they are all zeros. The extents are in order and do not
 * overlap. Its hash is that of the blocks in it. The file may be written to meanwhile.
 */
export async function* readExtents(path: string, extents: readonly Extent[]): AsyncGenerator<Buffer, void> {
  const hash = createHash("sha256");
  await using file = await open(path, "r");
  const { size } = await file.stat();
  for await (const piece of piecesIn(file, extents, size)) {
    addPiece(hash, piece);
    yield Buffer.concat([head(piece.offset, piece.data.byteLength), piece.data]);
  }
  yield Buffer.concat([head(size, BLOCKS_END), endOf(hash, size)]);
}

/** The hash of a stream, computed on the file into which it was written. */
export async function writtenHash(
  path: string,
  { size, extents }: Pick<WrittenBlocks, "size" | "extents">,
  signal: AbortSignal,
): Promise<string> {
  const hash = createHash("sha256");
  await using file = await open(path, "r");
  for await (const piece of piecesIn(file, extents, size)) {
    signal.throwIfAborted();
    addPiece(hash, piece);
  }
  return endOf(hash, size).toString("hex");
}

/** Sorted, without overlaps, and to whole blocks. Pure. */
export function mergeExtents(...lists: readonly (readonly Extent[])[]): readonly Extent[] {
  const merged: { start: number; end: number }[] = [];
  for (const { start, end } of lists.flat().toSorted((a, b) => a.start - b.start)) {
    const from = Math.floor(start / BLOCK_BYTES) * BLOCK_BYTES;
    const to = Math.ceil(end / BLOCK_BYTES) * BLOCK_BYTES;
    const last = merged.at(-1);
    if (last !== undefined && from <= last.end) last.end = Math.max(last.end, to);
    else if (to > from) merged.push({ start: from, end: to });
  }
  return merged;
}

export interface WrittenBlocks {
  readonly size: number;
  /** Where its blocks are. */
  readonly extents: readonly Extent[];
  /** The content's hash, as the sender has it. The caller compares it with that of the written file. */
  readonly sha256: string;
}

/**
 * Writes a stream of blocks into an open file, and syncs it. `onBytes`: this many bytes of data were written
 * since the last call; it may throw. `only`: nothing outside of this part of a file of this size is written.
 * Throws when the stream breaks off or is not one.
 */
export async function writeBlocks(
  file: FileHandle,
  stream: AsyncIterable<Buffer>,
  onBytes: (bytes: number) => Promise<void> | void,
  only: (Extent & { readonly size: number }) | null = null,
): Promise<WrittenBlocks> {
  const reader = new BytesReader(stream);
  const extents: { start: number; end: number }[] = [];
  let reached = 0;
  for (;;) {
    const header = await reader.take(HEAD_BYTES);
    const offset = Number(header.readBigUInt64BE(0));
    const length = header.readUInt32BE(8);
    if (!Number.isSafeInteger(offset) || offset < reached) throw new Error("the stream of blocks is out of order");
    if (length === BLOCKS_END) {
      if (only !== null && offset !== only.size) throw new Error("the stream of blocks is of a file of another size");
      const sha256 = (await reader.take(HASH_BYTES)).toString("hex");
      await file.truncate(offset);
      await file.sync();
      return { size: offset, extents, sha256 };
    }
    if (length === 0 || length > RECORD_BYTES_MAX) throw new Error(`a record of blocks has ${length} bytes`);
    if (only !== null && (offset < only.start || offset + length > only.end))
      throw new Error("the stream of blocks is of another part of the file");
    const data = await reader.take(length);
    for (let at = 0; at < length; ) at += (await file.write(data, at, length - at, offset + at)).bytesWritten;
    reached = offset + length;
    const last = extents.at(-1);
    if (last?.end === offset) last.end = reached;
    else extents.push({ start: offset, end: reached });
    await onBytes(length);
  }
}

/** The byte at which the copy in a file continues: everything before it was written. 0: there is none. */
export async function resumeAt(path: string): Promise<number> {
  const size = await stat(path).then(
    (facts) => facts.size,
    () => 0,
  );
  return Math.floor(size / BLOCK_BYTES) * BLOCK_BYTES;
}

function head(offset: number, length: number): Buffer {
  const bytes = Buffer.alloc(HEAD_BYTES);
  bytes.writeBigUInt64BE(BigInt(offset), 0);
  bytes.writeUInt32BE(length, 8);
  return bytes;
}

function addPiece(hash: Hash, { offset, data }: Piece): void {
  for (let at = 0; at < data.byteLength; at += BLOCK_BYTES) {
    hash.update(number(offset + at));
    hash.update(data.subarray(at, at + BLOCK_BYTES));
  }
}

const endOf = (hash: Hash, size: number): Buffer => hash.update(number(size)).digest();

function number(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value), 0);
  return bytes;
}

async function* piecesOf(file: FileHandle, path: string, size: number): AsyncGenerator<Piece, void> {
  for await (const { offset, data } of piecesIn(file, extentsOf(file, path, size), size))
    yield* withoutZeros(data, offset);
}

/** The data is valid until the next piece is requested. */
async function* piecesIn(
  file: FileHandle,
  extents: AsyncIterable<Extent> | Iterable<Extent>,
  size: number,
): AsyncGenerator<Piece, void> {
  const buffer = Buffer.alloc(RECORD_BYTES_MAX);
  for await (const { start, end } of extents) {
    for (let at = start; at < Math.min(end, size); ) {
      const length = await readFully(file, buffer, at, Math.min(RECORD_BYTES_MAX, end - at, size - at));
      if (length === 0) return;
      yield { offset: at, data: buffer.subarray(0, length) };
      at += length;
    }
  }
}

/** Fewer than `length` bytes only at the end of the file. */
async function readFully(file: FileHandle, buffer: Buffer, at: number, length: number): Promise<number> {
  let done = 0;
  while (done < length) {
    const { bytesRead } = await file.read(buffer, done, length - done, at + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return done;
}

function* withoutZeros(data: Buffer, offset: number): Generator<Piece, void> {
  let begun: number | null = null;
  for (let at = 0; at < data.byteLength; at += BLOCK_BYTES) {
    const block = data.subarray(at, at + BLOCK_BYTES);
    const isZero = block.equals(ZEROS.subarray(0, block.byteLength));
    if (!isZero) begun ??= at;
    else if (begun !== null) {
      yield { offset: offset + begun, data: data.subarray(begun, at) };
      begun = null;
    }
  }
  if (begun !== null) yield { offset: offset + begun, data: data.subarray(begun) };
}

/** The parts of a file that may have data, in order, each from the beginning of a block to the end of one. */
export async function* extentsOf(file: FileHandle, path: string, size: number): AsyncGenerator<Extent, void> {
  const { blocks } = await file.stat();
  let done = 0;
  if (blocks * 512 < size * SPARSE_SHARE) {
    for await (const { start, end } of mappedExtents(path)) {
      const from = Math.max(done, Math.floor(start / BLOCK_BYTES) * BLOCK_BYTES);
      const to = Math.min(size, Math.ceil(end / BLOCK_BYTES) * BLOCK_BYTES);
      if (to <= from) continue;
      yield { start: from, end: to };
      done = to;
    }
    return;
  }
  if (size > 0) yield { start: 0, end: size };
}

/**
 * The allocated parts of a file. Node has no SEEK_HOLE, and reading a hole fills the page cache with zeros.
 * `raw`: the content is not looked at, so a disk that a hostile VMM wrote is harmless.
 */
async function* mappedExtents(path: string): AsyncGenerator<Extent, void> {
  const argv = ["-n", String(TOOL_SCORE), "--", "qemu-img", "map", "-U", "-f", "raw", "--output=json", path];
  const child = spawn("choom", argv, { stdio: ["ignore", "pipe", "ignore"] });
  const exited = once(child, "exit") as Promise<[number | null]>;
  exited.catch(() => undefined);
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      const text = line
        .replace(/^\[/, "")
        .replace(/[,\]]+$/, "")
        .trim();
      if (text === "") continue;
      const { start, length, data } = JSON.parse(text) as { start: number; length: number; data: boolean };
      if (data) yield { start, end: start + length };
    }
    const [code] = await exited;
    if (code !== 0) throw new Error(`qemu-img could not list the blocks of ${path}`);
  } finally {
    child.kill();
  }
}

/** Bytes of a stream, in portions that the caller chooses. */
export class BytesReader {
  readonly #chunks: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(stream: AsyncIterable<Buffer>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  async take(length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    let missing = length;
    while (missing > 0) {
      if (this.#held.byteLength === 0) {
        const next = await this.#chunks.next();
        if (next.done === true) throw new Error("the stream broke off");
        this.#held = next.value;
      }
      const part = this.#held.subarray(0, missing);
      this.#held = this.#held.subarray(part.byteLength);
      parts.push(part);
      missing -= part.byteLength;
    }
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
  }
}
