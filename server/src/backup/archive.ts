/**
 * The file of a backup: a tar archive, compressed with gzip, whose last entry has the SHA-256 of everything
 * before it.
 *
 * Always:
 * - Reading and writing hold one entry in memory; entries have at most ENTRY_BYTES_MAX.
 * - A file that is cut off, changed or continued is refused: by gzip, by tar's checksums, or by the last
 *   entry.
 *
 * Standard programs read it: `tar tzf FILE`.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip, createGzip, type Gzip } from "node:zlib";
import { ownMessageOf } from "@flotilla/base/errors";

export interface Entry {
  readonly name: string;
  readonly content: Buffer;
}

/** The file is not a whole backup. */
export class DamagedBackup extends Error {}

/** More than the largest row of a table, which PostgreSQL sends as one piece. */
const ENTRY_BYTES_MAX = 64 * 2 ** 20;
const END_NAME = "end.json";
const BLOCK = 512;
const NAME_BYTES_MAX = 100;
/** Fast, because the database waits with an open snapshot. */
const LEVEL = 3;

export class ArchiveWriter {
  readonly #gzip: Gzip = createGzip({ level: LEVEL });
  readonly #hash = createHash("sha256");
  readonly #written: Promise<void>;
  readonly #mtime: number;
  #bytes = 0;

  /** `at`: epoch milliseconds. */
  constructor(sink: Writable, at: number) {
    this.#written = pipeline(this.#gzip, sink);
    this.#written.catch(() => undefined);
    this.#mtime = Math.floor(at / 1000);
  }

  /** Size of the archive before compression. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Rejects when the file cannot be written. */
  async add(name: string, content: Buffer): Promise<void> {
    if (content.byteLength > ENTRY_BYTES_MAX) throw new Error(`${name} has ${content.byteLength} bytes, too many`);
    const padding = Buffer.alloc((BLOCK - (content.byteLength % BLOCK)) % BLOCK);
    for (const piece of [headerOf(name, content.byteLength, this.#mtime), content, padding]) {
      this.#hash.update(piece);
      this.#bytes += piece.byteLength;
      await this.#write(piece);
    }
  }

  /** Adds the last entry. Resolves with its hash when the sink has everything. */
  async end(): Promise<string> {
    const sha256 = this.#hash.copy().digest("hex");
    await this.add(END_NAME, Buffer.from(`${JSON.stringify({ sha256 })}\n`));
    this.#gzip.end(Buffer.alloc(2 * BLOCK));
    await this.#written;
    return sha256;
  }

  async #write(piece: Buffer): Promise<void> {
    if (this.#gzip.write(piece)) return;
    // The pipeline's failure destroys the stream, which then never drains.
    await Promise.race([once(this.#gzip, "drain"), this.#written.then(() => undefined)]);
  }
}

/** The entries of a backup but the last, whose hash is returned. Throws DamagedBackup. */
export async function* readArchive(source: Readable): AsyncGenerator<Entry, string> {
  const gunzip = createGunzip();
  pipeline(source, gunzip).catch(() => undefined);
  const bytes = new Bytes(gunzip[Symbol.asyncIterator]() as AsyncIterator<Buffer>);
  const hash = createHash("sha256");
  for (;;) {
    const header = await bytes.take(BLOCK);
    const { name, size } = parseHeader(header);
    const content = await bytes.take(size);
    const padding = await bytes.take((BLOCK - (size % BLOCK)) % BLOCK);
    if (name === END_NAME) {
      const sha256 = hash.digest("hex");
      if (endOf(content) !== sha256) throw new DamagedBackup("its content does not have the hash that it ends with");
      const rest = await bytes.take(2 * BLOCK);
      if (!rest.every((byte) => byte === 0) || !(await bytes.isEnded()))
        throw new DamagedBackup("something follows its end");
      return sha256;
    }
    for (const piece of [header, content, padding]) hash.update(piece);
    yield { name, content };
  }
}

function endOf(content: Buffer): unknown {
  try {
    return (JSON.parse(content.toString()) as { sha256?: unknown }).sha256;
  } catch {
    return undefined;
  }
}

/** Takes pieces of a known size from a stream. */
class Bytes {
  readonly #source: AsyncIterator<Buffer>;
  #held: Buffer[] = [];
  #size = 0;

  constructor(source: AsyncIterator<Buffer>) {
    this.#source = source;
  }

  async take(size: number): Promise<Buffer> {
    while (this.#size < size) if (!(await this.#more())) throw new DamagedBackup("it is cut off");
    const all = this.#held.length === 1 ? (this.#held[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#held);
    const rest = all.subarray(size);
    this.#held = rest.byteLength === 0 ? [] : [rest];
    this.#size = rest.byteLength;
    return all.subarray(0, size);
  }

  async isEnded(): Promise<boolean> {
    return this.#size === 0 && !(await this.#more());
  }

  async #more(): Promise<boolean> {
    let next: IteratorResult<Buffer>;
    try {
      next = await this.#source.next();
    } catch (error) {
      // The text of zlib says nothing to operators.
      if ((error as NodeJS.ErrnoException).code?.startsWith("Z_") === true)
        throw new DamagedBackup("it is not a file that `flotilla backup` wrote, or it is damaged", { cause: error });
      throw new DamagedBackup(`it cannot be read: ${ownMessageOf(error)}`, { cause: error });
    }
    if (next.done === true) return false;
    this.#held.push(next.value);
    this.#size += next.value.byteLength;
    return true;
  }
}

const octal = (value: number, width: number): string => `${value.toString(8).padStart(width - 1, "0")}\0`;

/** A header in the form ustar: a plain file that its owner alone may read. */
function headerOf(name: string, size: number, mtime: number): Buffer {
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new Error(`the name ${name} is too long for tar`);
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0);
  header.write(octal(0o600, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  header.write(octal(size, 12), 124);
  header.write(octal(mtime, 12), 136);
  header.write("        ", 148);
  header.write("0", 156);
  header.write("ustar\x0000", 257);
  header.write(`${checksumOf(header).toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}

const checksumOf = (header: Buffer): number => header.reduce((sum, byte) => sum + byte, 0);

function parseHeader(header: Buffer): { readonly name: string; readonly size: number } {
  const blank = Buffer.from(header);
  blank.fill(" ", 148, 156);
  const field = (from: number, to: number): string => header.toString("utf8", from, to).replace(/\0[^]*$/, "");
  const isSound = Number.parseInt(field(148, 156), 8) === checksumOf(blank) && field(257, 263) === "ustar";
  const size = Number.parseInt(field(124, 136), 8);
  if (!isSound || !(size >= 0 && size <= ENTRY_BYTES_MAX)) throw new DamagedBackup("it is not a backup of Flotilla");
  return { name: field(0, NAME_BYTES_MAX), size };
}
