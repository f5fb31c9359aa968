/**
 * Downloads blobs from a registry to the disk, and decompresses layers.
 *
 * Owns `<images>/blobs`. A finished blob is named `sha256-…-<source>`, an unfinished one `….partial`;
 * `<source>` is a hash of registry and repository. Blobs of two sources are never shared, even with equal
 * digests: a tenant could otherwise delay everyone's pull of a well-known layer by serving it slowly from its
 * own registry.
 *
 * Always:
 * - a blob gets its final name only after its size and digest were verified;
 * - a blob or partial blob left by an earlier process is hashed again before use.
 *
 * After a crash, and after a pull that failed, blobs and partial blobs stay: the next pull uses them, or
 * resumes them with a Range request. They are leftovers until then, which are removed after a day, or when
 * room is needed (store.ts).
 */
import { createHash } from "node:crypto";
import { createReadStream, type Stats } from "node:fs";
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { createGunzip, createZstdDecompress } from "node:zlib";
import type { Clock } from "@flotilla/base/clock";
import type { Reference } from "@flotilla/contract/reference";
import { CorruptData } from "./corrupt-data.ts";
import type { Descriptor } from "./manifest.ts";
import { type BlobAnswer, transferDeadline } from "./registry.ts";
import { RegistryError } from "./registry-transport.ts";
import { SharedWork } from "./share.ts";

const LEFTOVER_AGE_MS_MAX = 24 * 60 * 60 * 1000;
/** Consecutive attempts that may bring no byte. */
const TRIES_WITHOUT_PROGRESS_MAX = 5;
/** Attempts in total, against a registry that closes the connection after every few bytes. */
const TRIES_MAX = 40;
const RETRY_DELAY_MS_MAX = 10_000;
const READ_BYTES = 256 * 1024;
const FRAMES_MAX = 500_000;
/** Images of programs are packed 2 to 10 times smaller. */
const PLAIN_RATIO_MAX = 200;
const PLAIN_BYTES_FREE = 64 * 1024 ** 2;

export interface BlobSource {
  blob(reference: Reference, digest: string, offset: number, signal: AbortSignal): Promise<BlobAnswer>;
}

export interface BlobRequest {
  readonly reference: Reference;
  readonly descriptor: Descriptor;
  readonly source: BlobSource;
  readonly signal: AbortSignal;
  /** Bytes of this blob on the disk. The count decreases when a corrupt part is thrown away. */
  readonly onBytes: (bytes: number) => void;
}

/** A blob or a partial blob that no pull uses. */
export interface Leftover {
  readonly path: string;
  /** Bytes that it takes on the disk. */
  readonly sizeBytes: number;
  /** When it was last written, in epoch milliseconds. */
  readonly lastUsedAt: number;
}

export class BlobStore {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #retryDelayMs: number;
  readonly #fetches = new SharedWork<string, number>();
  /**
   * How many pulls use each blob: two tags share their common layers, which must outlast the pull that ends
   * first.
   */
  readonly #users = new Map<string, number>();
  /** Removals of blobs without users. */
  readonly #removals = new Map<string, Promise<void>>();

  constructor(options: { readonly directory: string; readonly clock: Clock; readonly retryDelayMs: number }) {
    this.#directory = options.directory;
    this.#clock = options.clock;
    this.#retryDelayMs = options.retryDelayMs;
  }

  /** Creates the directory. */
  async open(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
  }

  async leftovers(): Promise<readonly Leftover[]> {
    const found: Leftover[] = [];
    for (const name of await readdir(this.#directory)) {
      const path = join(this.#directory, name);
      const facts = this.#users.has(blobPathOf(path)) ? undefined : await statIfExists(path);
      if (facts !== undefined) found.push({ path, sizeBytes: facts.blocks * 512, lastUsedAt: facts.mtimeMs });
    }
    return found;
  }

  async removeOld(): Promise<void> {
    for (const { path, lastUsedAt } of await this.leftovers())
      if (this.#clock.now() - lastUsedAt > LEFTOVER_AGE_MS_MAX) await this.removeLeftover(path);
  }

  /** false: a pull uses it by now. */
  async removeLeftover(path: string): Promise<boolean> {
    const blob = blobPathOf(path);
    if (this.#users.has(blob)) return false;
    await this.#remove(blob);
    return true;
  }

  /** Returns the path of the blob, complete and verified; it exists until `release`. Throws RegistryError. */
  async fetch(request: BlobRequest): Promise<string> {
    const path = this.#pathOf(request.reference, request.descriptor.digest);
    const options = { signal: request.signal, onProgress: request.onBytes };
    this.#users.set(path, (this.#users.get(path) ?? 0) + 1);
    try {
      await this.#removals.get(path);
      return await this.#fetches.run(path, options, (signal, report) =>
        this.#fetch({ ...request, signal, onBytes: report }, path),
      );
    } catch (error) {
      await this.release(path, { isNeeded: true });
      throw error;
    }
  }

  /** Ends a pull's use of a blob. `isNeeded`: it was not unpacked, so the next attempt needs it. */
  async release(path: string, { isNeeded }: { readonly isNeeded: boolean }): Promise<void> {
    const users = (this.#users.get(path) ?? 1) - 1;
    if (users > 0) this.#users.set(path, users);
    else this.#users.delete(path);
    if (users === 0 && !isNeeded) await this.#remove(path);
  }

  /** How many bytes of these blobs are on the disk, also of partial ones. */
  async bytesOf(reference: Reference, digests: readonly string[]): Promise<number> {
    const paths = [...new Set(digests)].map((digest) => this.#pathOf(reference, digest));
    const found = await Promise.all(paths.flatMap((path) => [path, partialOf(path)]).map(statIfExists));
    return found.reduce((sum, facts) => sum + (facts?.blocks ?? 0) * 512, 0);
  }

  /** Frees the space of a failed pull: its blobs and partial blobs that no other pull uses. */
  async discard(reference: Reference, digests: readonly string[]): Promise<void> {
    await Promise.all(digests.map((digest) => this.removeLeftover(this.#pathOf(reference, digest))));
  }

  /**
   * Removes a blob that has no users, whole or partial. A pull that begins to use it waits until it is gone.
   */
  async #remove(path: string): Promise<void> {
    const removal =
      this.#removals.get(path) ??
      Promise.all([path, partialOf(path)].map((each) => rm(each, { force: true })))
        .then(() => undefined)
        .finally(() => this.#removals.delete(path));
    this.#removals.set(path, removal);
    await removal;
  }

  #pathOf(reference: Reference, digest: string): string {
    const source = createHash("sha256").update(`${reference.registry}/${reference.repository}`).digest("hex");
    return join(this.#directory, `${digest.replace(":", "-")}-${source.slice(0, 16)}`);
  }

  async #fetch(request: BlobRequest, path: string): Promise<string> {
    const { digest, size } = request.descriptor;
    const whole = await statIfExists(path);
    if (whole !== undefined) {
      if (whole.size === size && (await digestOfFile(path, request.signal)) === digest) {
        request.onBytes(size);
        return path;
      }
      await rm(path);
    }
    const partial = partialOf(path);
    // The second attempt starts from zero, because the part on the disk may be the corrupt one.
    for (const isLast of [false, true]) {
      await this.#complete(request, partial);
      if ((await digestOfFile(partial, request.signal)) === digest) {
        await rename(partial, path);
        return path;
      }
      await rm(partial, { force: true });
      request.onBytes(0);
      if (isLast) break;
    }
    throw new RegistryError("refused", "the registry sent corrupt data: its digest does not match");
  }

  /** Fills the partial file up to the blob's size, over several connections if necessary. */
  async #complete({ reference, descriptor, source, signal, onBytes }: BlobRequest, partial: string): Promise<void> {
    await using file = await open(partial, "a+", 0o600);
    let bytes = (await file.stat()).size;
    if (bytes > descriptor.size) {
      await file.truncate(0);
      bytes = 0;
    }
    let triesWithoutProgress = 0;
    for (let tries = 1; bytes < descriptor.size; tries += 1) {
      onBytes(bytes);
      const before = bytes;
      const deadline = transferDeadline(this.#clock, descriptor.size, signal);
      try {
        const answer = await source.blob(reference, descriptor.digest, bytes, deadline.signal);
        bytes = await appendAnswer(file, { answer, bytes, bytesMax: descriptor.size, onBytes });
        if (bytes < descriptor.size)
          throw new RegistryError("failed", "the registry closed the transfer before its end");
      } catch (error) {
        signal.throwIfAborted();
        const failure = deadline.signal.aborted ? new RegistryError("failed", "the registry sends too slowly") : error;
        bytes = (await file.stat()).size;
        triesWithoutProgress = bytes > before ? 0 : triesWithoutProgress + 1;
        const isFinal = !(failure instanceof RegistryError) || failure.kind !== "failed";
        if (isFinal || triesWithoutProgress === TRIES_WITHOUT_PROGRESS_MAX || tries === TRIES_MAX) throw failure;
        const delayMs = Math.min(this.#retryDelayMs * 2 ** triesWithoutProgress, RETRY_DELAY_MS_MAX);
        await this.#clock.sleep(delayMs, signal);
        signal.throwIfAborted();
      } finally {
        deadline.dispose();
      }
    }
    onBytes(bytes);
  }
}

const partialOf = (path: string): string => `${path}.partial`;

/** Path of the blob, also of a partial one. */
const blobPathOf = (path: string): string => path.replace(/\.partial$/, "");

interface Append {
  readonly answer: BlobAnswer;
  /** The size of the file now. */
  readonly bytes: number;
  readonly bytesMax: number;
  readonly onBytes: (bytes: number) => void;
}

async function appendAnswer(file: FileHandle, { answer, bytes, bytesMax, onBytes }: Append): Promise<number> {
  let written = bytes;
  if (answer.offset !== bytes) {
    // The registry ignored the range and starts from zero. Any other offset fails the digest check later.
    await file.truncate(0);
    written = 0;
  }
  for await (const chunk of answer.chunks) {
    if (written + chunk.length > bytesMax) {
      await file.truncate(0);
      throw new RegistryError("refused", "the registry sent corrupt data: it is longer than announced");
    }
    await file.appendFile(chunk);
    written += chunk.length;
    onBytes(written);
  }
  return written;
}

async function digestOfFile(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path, { highWaterMark: READ_BYTES, signal })) hash.update(chunk as Buffer);
  return `sha256:${hash.digest("hex")}`;
}

async function statIfExists(path: string): Promise<Stats | undefined> {
  return stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
}

export type Compression = "gzip" | "zstd" | "none";

/** Detected from the first bytes: registries and archives often state the wrong type. */
export function compressionOf(head: Buffer): Compression {
  if (head.length >= 2 && head[0] === 0x1f && head[1] === 0x8b) return "gzip";
  if (head.length < 4) return "none";
  const magic = head.readUInt32LE(0);
  return magic === ZSTD_MAGIC || isSkippable(magic) ? "zstd" : "none";
}

export interface DecompressOptions {
  readonly source: string;
  /** Overwritten; null: the plain bytes are only inspected. */
  readonly target: string | null;
  /** Exceeding it is an error: a tiny file can decompress to a huge one. */
  readonly bytesMax: number;
  readonly signal: AbortSignal;
  /** Receives the plain bytes while they are written; may throw. */
  readonly inspect?: (chunk: Buffer) => Promise<void> | void;
  /** Counts all files that have the same budget; default: one for this file. */
  readonly budget?: UnpackBudget;
}

/** What a few bytes may cost: all files of an image together. */
export class UnpackBudget {
  /**
   * How many frames of zstd may still come. Each takes as much time as a small file, also when it has no
   * content. As many as an image may have files, because layers for lazy pulling have a frame for each.
   */
  framesLeft = FRAMES_MAX;
  /** Files that count; a layer that an image repeats was fetched once. */
  readonly #sources = new Set<string>();
  #packedBytes = 0;
  #plainBytes = 0;

  /** Call before a file is decompressed. */
  begin(source: string, packedBytes: number): void {
    if (!this.#sources.has(source)) this.#packedBytes += packedBytes;
    this.#sources.add(source);
  }

  /** Throws an Error with a user-facing message when so many more bytes are out of proportion. */
  add(plainBytes: number): void {
    this.#plainBytes += plainBytes;
    if (this.#plainBytes > PLAIN_BYTES_FREE + PLAIN_RATIO_MAX * this.#packedBytes)
      throw new Error(
        `it unpacks to more than ${PLAIN_RATIO_MAX} times its compressed size (${PLAIN_BYTES_FREE / 1024 ** 2} MB are always possible)`,
      );
  }
}

/**
 * Writes what a layer has unpacked. Throws CorruptData, or an Error with a user-facing message when it is too
 * large.
 */
export async function decompress(
  options: DecompressOptions,
): Promise<{ readonly digest: string; readonly bytes: number }> {
  const compression = compressionOf(await readHead(options.source, 0, 4));
  const budget = options.budget ?? new UnpackBudget();
  budget.begin(options.source, (await stat(options.source)).size);
  await using target = options.target === null ? null : await open(options.target, "w", 0o600);
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const chunk of plainChunks(options, compression, budget)) {
    bytes += chunk.length;
    if (bytes > options.bytesMax) throw new Error(`it unpacks to more than ${options.bytesMax} bytes`);
    budget.add(chunk.length);
    await options.inspect?.(chunk);
    hash.update(chunk);
    await target?.appendFile(chunk);
  }
  return { digest: `sha256:${hash.digest("hex")}`, bytes };
}

async function* plainChunks(
  options: DecompressOptions,
  compression: Compression,
  budget: UnpackBudget,
): AsyncGenerator<Buffer> {
  const { source, signal } = options;
  if (compression === "zstd") {
    yield* zstdChunks(source, budget, signal);
    return;
  }
  const raw = createReadStream(source, { highWaterMark: READ_BYTES, signal });
  yield* streamChunks(compression === "gzip" ? pipeInto(raw, createGunzip({ chunkSize: READ_BYTES })) : raw, signal);
}

async function* streamChunks(stream: AsyncIterable<unknown>, signal: AbortSignal): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of stream) {
      signal.throwIfAborted();
      yield chunk as Buffer;
    }
  } catch (error) {
    signal.throwIfAborted();
    throw asCorruptData(error);
  }
}

const ZSTD_MAGIC = 0xfd2fb528;
/**
 * Such a frame is read and decompressed whole: streams of the usual size would take several times as long.
 */
const SMALL_FRAME_BYTES = 16 * 1024;
const HEAD_BYTES = 4096;
const isSkippable = (magic: number): boolean => magic >= 0x184d2a50 && magic <= 0x184d2a5f;

/**
 * Decompresses frame by frame, because Node's stream silently stops after the first frame. Layers made for
 * lazy pulling have many frames, with skippable ones between and after them. The end of a frame follows from
 * its block headers (RFC 8878).
 */
async function* zstdChunks(source: string, budget: UnpackBudget, signal: AbortSignal): AsyncGenerator<Buffer> {
  await using file = await open(source, "r");
  const { size } = await file.stat();
  const heads = new HeadReader(file);
  for (let start = 0; start < size; ) {
    if (budget.framesLeft === 0) throw new Error(`it has more than ${FRAMES_MAX} frames of zstd`);
    budget.framesLeft -= 1;
    const { end, isData } = await findZstdFrame(heads, start, signal);
    if (end > size) throw new CorruptData();
    if (isData && end - start <= SMALL_FRAME_BYTES) {
      const plain = createZstdDecompress({ chunkSize: SMALL_FRAME_BYTES });
      plain.end((await file.read(Buffer.alloc(end - start), 0, end - start, start)).buffer);
      yield* streamChunks(plain, signal);
    } else if (isData) {
      const raw = createReadStream(source, { start, end: end - 1, highWaterMark: READ_BYTES, signal });
      yield* streamChunks(pipeInto(raw, createZstdDecompress({ chunkSize: READ_BYTES })), signal);
    }
    start = end;
  }
}

/**
 * Reads the short headers of a file in order, many at once: there may be millions without any content between
 * them.
 */
class HeadReader {
  readonly #file: FileHandle;
  #bytes = Buffer.alloc(0);
  #start = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  /** Fewer bytes only at the end of the file. */
  async read(offset: number, length: number): Promise<Buffer> {
    if (offset < this.#start || offset + length > this.#start + this.#bytes.length) {
      const { buffer, bytesRead } = await this.#file.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, offset);
      this.#bytes = buffer.subarray(0, bytesRead);
      this.#start = offset;
    }
    return this.#bytes.subarray(offset - this.#start, offset - this.#start + length);
  }
}

/** `end` is the offset of the first byte after the frame that starts at `start`. */
async function findZstdFrame(
  heads: HeadReader,
  start: number,
  signal: AbortSignal,
): Promise<{ end: number; isData: boolean }> {
  signal.throwIfAborted();
  const head = await heads.read(start, 8);
  // A skippable frame without its length, or the beginning of another one.
  if (head.length < 8) throw new CorruptData();
  const magic = head.readUInt32LE(0);
  if (isSkippable(magic)) return { end: start + 8 + head.readUInt32LE(4), isData: false };
  if (magic !== ZSTD_MAGIC) throw new CorruptData();
  const flags = head.readUInt8(4);
  const isSingleSegment = (flags & 0x20) !== 0;
  const dictionaryBytes = [0, 1, 2, 4][flags & 3] ?? 0;
  const contentSizeBytes = [isSingleSegment ? 1 : 0, 2, 4, 8][flags >> 6] ?? 0;
  let at = start + 5 + (isSingleSegment ? 0 : 1) + dictionaryBytes + contentSizeBytes;
  for (;;) {
    const header = await heads.read(at, 3);
    // A file may have a thousand million of them, without any content.
    signal.throwIfAborted();
    if (header.length < 3) throw new CorruptData();
    const block = header.readUIntLE(0, 3);
    // A block of type 1 stores one byte, which is repeated.
    at += 3 + (((block >> 1) & 3) === 1 ? 1 : block >> 3);
    if ((block & 1) === 1) return { end: at + ((flags & 4) === 0 ? 0 : 4), isData: true };
  }
}

/** Up to `length` bytes from `offset`. */
export async function readHead(path: string, offset: number, length: number): Promise<Buffer> {
  await using file = await open(path, "r");
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, offset);
  return buffer.subarray(0, bytesRead);
}

/**
 * Like `pipe`, but an error of the source destroys the target, and closing the target destroys the source.
 */
function pipeInto<T extends NodeJS.ReadWriteStream & { destroy(error?: Error): void }>(
  source: NodeJS.ReadableStream & { destroy(): void },
  target: T,
): T {
  source.on("error", (error: Error) => target.destroy(error));
  target.on("close", () => source.destroy());
  return source.pipe(target);
}

/** Errors of zlib become CorruptData; all others (a full disk, a cancellation) pass unchanged. */
function asCorruptData(error: unknown): unknown {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^(Z_|ZSTD_)/.test(code) ? new CorruptData() : error;
}
