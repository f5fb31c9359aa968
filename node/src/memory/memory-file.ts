/**
 * The format of a guest's kept memory: the pages that differ from a base, and the state of its devices. A
 * file now; the same records can be sent over a connection.
 *
 *     8 bytes   magic "FLOTMEM\0"
 *     u32       version of the format
 *     u32, …    length of the header, at most HEADER_BYTES_MAX; the header, JSON
 *     u32, …    length of the devices' state, at most STATE_BYTES_MAX; the state, as the VMM wrote it
 *     records   u32 kind, u32 pages, u64 offset in the guest's memory; after that the pages of kind `data`
 *     32 bytes  SHA-256 of everything before
 *
 * Integers are little endian. Kinds of records: 1 `data`; 2 `zero`, pages of zeros; 3 the end, whose offset
 * is the number of pages before it.
 *
 * Always:
 * - Records are ordered by their offset, do not overlap, and are inside the guest's memory.
 * - A reader buffers one record, at most RECORD_PAGES_MAX pages. It refuses a file at the first byte that
 *   does not fit.
 * - A writer writes BATCH_BYTES at a time, since most records have one page.
 * - Pages that were read are trusted only when the reader has ended without an error: only then their hash is
 *   known to fit.
 */
import { createHash } from "node:crypto";

const MEMORY_VERSION = 1;
export const PAGE_BYTES = 4096;
export const RECORD_PAGES_MAX = 256;
const MAGIC = Buffer.from("FLOTMEM\0");
const HEADER_BYTES_MAX = 65_536;
const STATE_BYTES_MAX = 16 * 2 ** 20;
const RECORD_HEAD_BYTES = 16;
const HASH_BYTES = 32;
const BATCH_BYTES = 2 ** 20;
const KINDS = { data: 1, zero: 2, end: 3 } as const;

/** The file is not one of this format, or is damaged. */
export class InvalidMemory extends Error {}

export type PageRecord =
  | { readonly kind: "data"; readonly offset: number; readonly bytes: Buffer }
  | { readonly kind: "zero"; readonly offset: number; readonly pages: number };

/** Writes one file. `write` is called in order, and each call is awaited; its bytes are valid until then. */
export class MemoryWriter {
  readonly #write: (bytes: Buffer) => Promise<void>;
  readonly #hash = createHash("sha256");
  readonly #batch = Buffer.allocUnsafe(BATCH_BYTES);
  #held = 0;
  #pages = 0;

  constructor(write: (bytes: Buffer) => Promise<void>) {
    this.#write = write;
  }

  /** Call it once, before the first record. Throws RangeError when a part is too large. */
  async begin(header: object, state: Buffer): Promise<void> {
    const json = Buffer.from(JSON.stringify(header));
    if (json.byteLength > HEADER_BYTES_MAX) throw new RangeError(`a header of ${json.byteLength} bytes`);
    if (state.byteLength > STATE_BYTES_MAX) throw new RangeError(`a state of ${state.byteLength} bytes`);
    await this.#put(MAGIC, u32(MEMORY_VERSION), u32(json.byteLength), json, u32(state.byteLength), state);
  }

  /** Offsets must grow. `bytes` may be reused when it resolves. */
  async add(record: PageRecord): Promise<void> {
    const pages = record.kind === "data" ? record.bytes.byteLength / PAGE_BYTES : record.pages;
    this.#pages += pages;
    await this.#put(head(KINDS[record.kind], pages, record.offset));
    if (record.kind === "data") await this.#put(record.bytes);
  }

  async end(): Promise<void> {
    await this.#put(head(KINDS.end, 0, this.#pages));
    await this.#flush();
    await this.#write(this.#hash.digest());
  }

  async #put(...parts: readonly Buffer[]): Promise<void> {
    for (const part of parts) {
      for (let done = 0; done < part.byteLength; ) {
        if (this.#held === BATCH_BYTES) await this.#flush();
        const length = part.copy(this.#batch, this.#held, done);
        done += length;
        this.#held += length;
      }
    }
  }

  async #flush(): Promise<void> {
    const bytes = this.#batch.subarray(0, this.#held);
    this.#hash.update(bytes);
    await this.#write(bytes);
    this.#held = 0;
  }
}

const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};

function head(kind: number, pages: number, offset: number): Buffer {
  const bytes = Buffer.alloc(RECORD_HEAD_BYTES);
  bytes.writeUInt32LE(kind, 0);
  bytes.writeUInt32LE(pages, 4);
  bytes.writeBigUInt64LE(BigInt(offset), 8);
  return bytes;
}

/**
 * Reads one file: first `begin`, then `records` to their end. Throws InvalidMemory, or what the source
 * throws.
 */
export class MemoryReader {
  readonly #source: AsyncIterator<Buffer>;
  readonly #hash = createHash("sha256");
  #chunk = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async begin(): Promise<{ readonly header: unknown; readonly state: Buffer }> {
    if (!(await this.#take(MAGIC.byteLength)).equals(MAGIC)) throw new InvalidMemory("it is not a guest's memory");
    const version = await this.#u32();
    if (version !== MEMORY_VERSION)
      throw new InvalidMemory(`its format has version ${version}, and this one reads version ${MEMORY_VERSION}`);
    const json = await this.#sized("header", HEADER_BYTES_MAX);
    let header: unknown;
    try {
      header = JSON.parse(json.toString());
    } catch {
      throw new InvalidMemory("its header is not JSON");
    }
    return { header, state: await this.#sized("state", STATE_BYTES_MAX) };
  }

  /**
   * The records of a guest with `memoryBytes` of memory. The bytes of a record are valid until the next one.
   */
  async *records(memoryBytes: number): AsyncGenerator<PageRecord> {
    let end = 0;
    for (let total = 0; ; ) {
      const bytes = await this.#take(RECORD_HEAD_BYTES);
      const [kind, pages, at] = [bytes.readUInt32LE(0), bytes.readUInt32LE(4), bytes.readBigUInt64LE(8)];
      if (kind === KINDS.end) {
        if (pages !== 0 || at !== BigInt(total)) throw new InvalidMemory("its number of pages is wrong");
        return await this.#verify();
      }
      if (kind !== KINDS.data && kind !== KINDS.zero) throw new InvalidMemory(`a record has the unknown kind ${kind}`);
      if (pages === 0 || pages > RECORD_PAGES_MAX) throw new InvalidMemory(`a record has ${pages} pages`);
      const isInside = at >= BigInt(end) && at + BigInt(pages * PAGE_BYTES) <= BigInt(memoryBytes);
      if (!isInside || at % BigInt(PAGE_BYTES) !== 0n) throw new InvalidMemory(`a record is at the wrong offset ${at}`);
      const offset = Number(at);
      end = offset + pages * PAGE_BYTES;
      total += pages;
      if (kind === KINDS.zero) yield { kind: "zero", offset, pages };
      else yield { kind: "data", offset, bytes: await this.#take(pages * PAGE_BYTES) };
    }
  }

  async #verify(): Promise<void> {
    const expected = this.#hash.digest();
    if (!(await this.#read(HASH_BYTES)).equals(expected)) throw new InvalidMemory("its checksum is wrong");
    if (this.#chunk.byteLength > 0 || (await this.#source.next()).done !== true)
      throw new InvalidMemory("it has bytes after its end");
  }

  async #u32(): Promise<number> {
    return (await this.#take(4)).readUInt32LE();
  }

  async #sized(what: string, max: number): Promise<Buffer> {
    const length = await this.#u32();
    if (length > max) throw new InvalidMemory(`its ${what} has ${length} bytes`);
    return await this.#take(length);
  }

  async #take(length: number): Promise<Buffer> {
    const bytes = await this.#read(length);
    this.#hash.update(bytes);
    return bytes;
  }

  async #read(length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let missing = length; missing > 0; ) {
      if (this.#chunk.byteLength === 0) {
        const next = await this.#source.next();
        if (next.done === true) throw new InvalidMemory("it is truncated");
        this.#chunk = Buffer.from(next.value);
        continue;
      }
      const part = this.#chunk.subarray(0, missing);
      this.#chunk = this.#chunk.subarray(part.byteLength);
      parts.push(part);
      missing -= part.byteLength;
    }
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
  }
}
