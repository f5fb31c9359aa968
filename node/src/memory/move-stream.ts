/**
 * The stream in which a machine that runs goes to another node: pages of its memory, blocks of its disk, its
 * log and the state of its devices.
 *
 *     u32 kind, u32 length, u64 offset; after that `length` bytes, but for `zero`
 *
 * Integers are little endian. Kinds: 1 `page`, the content of whole pages; 2 `zero`, `length` bytes of pages
 * of zeros; 3 `block`, of the disk's file; 4 `disk`, whose offset is the size of the disk's file; 5 `log`,
 * whose offset is the file's number times 2^32 plus the byte in it; 6 `facts`, JSON; 7 `state`, of the
 * devices; 8 the end, with the SHA-256 of everything before.
 *
 * Always:
 * - A reader buffers one record, at most RECORD_BYTES_MAX. It refuses a stream at the first byte that does
 *   not fit.
 * - Records may come in any order and repeat: later ones replace earlier ones.
 * - What was read is complete and unchanged only when the reader has ended without an error.
 */
import { createHash } from "node:crypto";
import { BytesReader } from "../images/blocks.ts";
import { PAGE_BYTES } from "./memory-file.ts";

const RECORD_BYTES_MAX = 2 ** 20;
const ZERO_BYTES_MAX = 2 ** 20;
const STATE_BYTES_MAX = 16 * 2 ** 20;
const FACTS_BYTES_MAX = 256 * 1024;
const HEAD_BYTES = 16;
const HASH_BYTES = 32;
const BATCH_BYTES = 2 ** 20;
const LOG_FILE_BYTES_MAX = 2 ** 32;
const KINDS = ["page", "zero", "block", "disk", "log", "facts", "state"] as const;
const END = 8;

type Kind = (typeof KINDS)[number];

export type MoveRecord =
  | { readonly kind: "page" | "block"; readonly offset: number; readonly bytes: Buffer }
  | { readonly kind: "zero"; readonly offset: number; readonly length: number }
  | { readonly kind: "disk"; readonly size: number }
  | { readonly kind: "log"; readonly file: number; readonly offset: number; readonly bytes: Buffer }
  | { readonly kind: "facts" | "state"; readonly bytes: Buffer };

/** The stream is not one, or was damaged. */
export class InvalidMoveStream extends Error {}

/** The bytes of a stream. The bytes of a record may be reused when the next one is requested. */
export async function* writeMove(records: AsyncIterable<MoveRecord>): AsyncGenerator<Buffer, void> {
  const hash = createHash("sha256");
  let parts: Buffer[] = [];
  let held = 0;
  const flush = (): Buffer => {
    const bytes = Buffer.concat(parts);
    hash.update(bytes);
    parts = [];
    held = 0;
    return bytes;
  };
  for await (const record of records) {
    const { head, data } = encoded(record);
    // Copied, because the sender reuses its buffer.
    parts.push(head, Buffer.from(data));
    held += head.byteLength + data.byteLength;
    if (held >= BATCH_BYTES) yield flush();
  }
  parts.push(headOf(END, HASH_BYTES, 0));
  yield flush();
  yield hash.digest();
}

function encoded(record: MoveRecord): { readonly head: Buffer; readonly data: Buffer } {
  const none = Buffer.alloc(0);
  const kind = KINDS.indexOf(record.kind) + 1;
  switch (record.kind) {
    case "zero":
      return { head: headOf(kind, record.length, record.offset), data: none };
    case "disk":
      return { head: headOf(kind, 0, record.size), data: none };
    case "log": {
      const offset = record.file * LOG_FILE_BYTES_MAX + record.offset;
      return { head: headOf(kind, record.bytes.byteLength, offset), data: record.bytes };
    }
    case "page":
    case "block":
      return { head: headOf(kind, record.bytes.byteLength, record.offset), data: record.bytes };
    default:
      return { head: headOf(kind, record.bytes.byteLength, 0), data: record.bytes };
  }
}

function headOf(kind: number, length: number, offset: number): Buffer {
  const bytes = Buffer.alloc(HEAD_BYTES);
  bytes.writeUInt32LE(kind, 0);
  bytes.writeUInt32LE(length, 4);
  bytes.writeBigUInt64LE(BigInt(offset), 8);
  return bytes;
}

const LENGTHS: Readonly<Record<Kind, number>> = {
  page: RECORD_BYTES_MAX,
  zero: ZERO_BYTES_MAX,
  block: RECORD_BYTES_MAX,
  disk: 0,
  log: RECORD_BYTES_MAX,
  facts: FACTS_BYTES_MAX,
  state: STATE_BYTES_MAX,
};

/** The records of a stream. Throws InvalidMoveStream, or what the source throws. */
export async function* readMove(source: AsyncIterable<Buffer>): AsyncGenerator<MoveRecord, void> {
  const reader = new BytesReader(source);
  const hash = createHash("sha256");
  for (;;) {
    const head = await reader.take(HEAD_BYTES);
    hash.update(head);
    const [code, length, at] = [head.readUInt32LE(0), head.readUInt32LE(4), Number(head.readBigUInt64LE(8))];
    if (code === END) {
      if (length !== HASH_BYTES || at !== 0) throw new InvalidMoveStream("the end of the stream is wrong");
      if (!(await reader.take(HASH_BYTES)).equals(hash.digest()))
        throw new InvalidMoveStream("the checksum of the stream is wrong");
      return;
    }
    const kind = KINDS[code - 1];
    if (kind === undefined) throw new InvalidMoveStream(`a record has the unknown kind ${code}`);
    if (!Number.isSafeInteger(at) || length > LENGTHS[kind])
      throw new InvalidMoveStream(`a record of kind ${kind} has ${length} bytes at ${at}`);
    const bytes = kind === "zero" ? Buffer.alloc(0) : await reader.take(length);
    hash.update(bytes);
    yield decoded(kind, { length, at, bytes });
  }
}

function decoded(
  kind: Kind,
  { length, at, bytes }: { readonly length: number; readonly at: number; readonly bytes: Buffer },
): MoveRecord {
  const isPages = kind === "page" || kind === "zero";
  if (isPages && (length === 0 || length % PAGE_BYTES !== 0 || at % PAGE_BYTES !== 0))
    throw new InvalidMoveStream("a record has half a page");
  switch (kind) {
    case "zero":
      return { kind, offset: at, length };
    case "disk":
      return { kind, size: at };
    case "log":
      return { kind, file: Math.floor(at / LOG_FILE_BYTES_MAX), offset: at % LOG_FILE_BYTES_MAX, bytes };
    case "page":
    case "block":
      return { kind, offset: at, bytes };
    default:
      return { kind, bytes };
  }
}
