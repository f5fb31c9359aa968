/**
 * A file transfer whose content goes over the bulk disk. It has the same interface as one over the channel.
 *
 *     write: caller → BulkInput  → pieces in the window's slots, records on the worker's stdin
 *     read:  worker's stdout → records → BulkOutput → pieces from the slots → caller
 *
 * Always:
 * - at most FLUSH_BYTES of a write are buffered here before they are on the disk, and at most one buffer of a
 *   read beyond what its reader consumed;
 * - a slot is reused only after the reader acknowledges it;
 * - the window is released when the guest's worker has ended and no read or write is pending: a late one
 *   would be in the next transfer's content;
 * - a guest that violates the protocol ends the transfer.
 */
import { Readable, Writable } from "node:stream";
import { errorOf } from "@flotilla/base/errors";
import { Pieces } from "@flotilla/base/pieces";
import {
  BULK_INLINE,
  BULK_INLINE_BYTES_MAX,
  BULK_PIECE_BYTES,
  BULK_RECORD_BYTES,
  BULK_ACKNOWLEDGED,
  decodeBulkRecord,
  encodeBulkRecord,
} from "@flotilla/contract/guest/bulk";
import { GuestProtocolError } from "@flotilla/contract/guest/frame";
import type { BulkWindow } from "./bulk-disk.ts";
import { NO_INPUT } from "./no-input.ts";
import type { GuestExec, GuestExit } from "./guest.ts";

/** Size of one write to or read from the disk. */
const FLUSH_BYTES = 256 * 1024;
const LINE_BYTES_MAX = 256;
const NEWLINE = 0x0a;

/** `inner` is the agent's worker, which got the window in its request. */
export function overBulkDisk(inner: GuestExec, window: BulkWindow, isWrite: boolean): GuestExec {
  const killed = Promise.withResolvers<void>();
  const input = isWrite ? new BulkInput(inner.stdin, window) : null;
  const output = new BulkOutput(inner, window, input);
  const ended = inner.exit.then(
    () => undefined,
    () => undefined,
  );
  void Promise.all([ended, output.finished])
    .then(() => input?.stop())
    .then(() => window.release());
  const exit = inner.exit.then(async (found): Promise<GuestExit> => {
    await Promise.race([output.finished, killed.promise]);
    if (output.fault !== null) throw output.fault;
    return found;
  });
  exit.catch(() => undefined);
  return {
    pid: inner.pid,
    stdin: input ?? NO_INPUT,
    stdout: output,
    stderr: inner.stderr,
    exit,
    resize: (size) => inner.resize(size),
    signal: (signal) => inner.signal(signal),
    kill: (graceMs) => {
      output.isUnwanted = true;
      killed.resolve();
      inner.kill(graceMs);
    },
  };
}

type Done = (error?: Error | null) => void;

/** Calls a stream's callback when the work has ended. */
async function settle(work: Promise<void>, done: Done): Promise<void> {
  const error = await work.then(() => null, errorOf);
  done(error);
}

/** The content to write: stores it in slots and sends a record per slot. */
class BulkInput extends Writable {
  readonly #records: Writable;
  readonly #window: BulkWindow;
  readonly #waiting = new Pieces(2 * FLUSH_BYTES);
  #waitingBytes = 0;
  #slot = 0;
  #slotBytes = 0;
  #freeSlots: number;
  #lastWrite: Promise<void> = Promise.resolve();
  #onFree: () => void = () => undefined;

  constructor(records: Writable, window: BulkWindow) {
    super({ highWaterMark: FLUSH_BYTES });
    this.#records = records;
    this.#window = window;
    this.#freeSlots = window.slots;
    this.on("error", () => undefined);
    // The worker reads no more, so writers are released.
    records.on("close", () => this.destroy());
  }

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#waiting.add(chunk);
    this.#waitingBytes += chunk.byteLength;
    if (this.#waitingBytes < FLUSH_BYTES) done();
    else void settle(this.#flush(), done);
  }

  override _final(done: Done): void {
    void settle(this.#end(), done);
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#onFree();
    this.#records.destroy();
    done(error);
  }

  /** Resolves when nothing is being written, and nothing will be. Never rejects. */
  async stop(): Promise<void> {
    this.destroy();
    await this.#lastWrite.catch(() => undefined);
  }

  /** The worker has acknowledged `count` pieces. */
  acknowledge(count: number): void {
    this.#freeSlots += count;
    if (this.#freeSlots > this.#window.slots) throw new GuestProtocolError("acknowledged pieces that were not sent");
    this.#onFree();
  }

  async #end(): Promise<void> {
    if (this.#slotBytes === 0 && this.#waitingBytes <= BULK_INLINE_BYTES_MAX) {
      if (this.#waitingBytes > 0) {
        this.#records.write(encodeBulkRecord({ length: this.#waitingBytes, slot: BULK_INLINE }));
        for (const part of this.#waiting.all()) this.#records.write(part);
      }
    } else {
      await this.#flush();
      if (this.#slotBytes > 0) this.#send();
    }
    this.#waiting.clear();
    // The stream is destroyed after its end, and the records with it: wait until they are sent.
    await new Promise<void>((resolve) => {
      this.#records.end(() => resolve());
    });
  }

  async #flush(): Promise<void> {
    const waiting = [...this.#waiting.all()];
    this.#waiting.clear();
    this.#waitingBytes = 0;
    while (waiting.length > 0 && !this.destroyed) {
      while (this.#freeSlots === 0 && !this.destroyed) {
        await new Promise<void>((resolve) => {
          this.#onFree = resolve;
        });
      }
      if (this.destroyed) return;
      const parts = cut(waiting, BULK_PIECE_BYTES - this.#slotBytes);
      const bytes = parts.reduce((sum, part) => sum + part.byteLength, 0);
      this.#lastWrite = this.#window.write(this.#slot, this.#slotBytes, parts);
      await this.#lastWrite;
      this.#slotBytes += bytes;
      if (this.#slotBytes === BULK_PIECE_BYTES) this.#send();
    }
  }

  #send(): void {
    this.#records.write(encodeBulkRecord({ length: this.#slotBytes, slot: this.#slot }));
    this.#slot = (this.#slot + 1) % this.#window.slots;
    this.#slotBytes = 0;
    this.#freeSlots -= 1;
  }
}

/** Removes up to `bytesMax` bytes from the beginning. */
function cut(waiting: Buffer[], bytesMax: number): readonly Buffer[] {
  const parts: Buffer[] = [];
  for (let left = bytesMax; left > 0; ) {
    const first = waiting.shift();
    if (first === undefined) break;
    if (first.byteLength > left) waiting.unshift(first.subarray(left));
    parts.push(first.subarray(0, left));
    left -= first.byteLength;
  }
  return parts;
}

/** The worker's output: a first line, then the content of a read, or the acknowledgements of a write. */
class BulkOutput extends Readable {
  /** Resolves when all processing has ended. */
  readonly finished: Promise<void>;
  /** Why it ended early. */
  fault: Error | null = null;
  /** The worker was killed: what its guest still announces is not read from the disk. */
  isUnwanted = false;
  readonly #inner: GuestExec;
  readonly #window: BulkWindow;
  readonly #input: BulkInput | null;
  #rest: Buffer = Buffer.alloc(0);
  #hasLine = false;
  /** Bytes still to come of a piece that follows its record. */
  #inlineBytes = 0;
  #onRead: () => void = () => undefined;

  constructor(inner: GuestExec, window: BulkWindow, input: BulkInput | null) {
    super({ highWaterMark: FLUSH_BYTES });
    this.#inner = inner;
    this.#window = window;
    this.#input = input;
    this.on("error", () => undefined);
    this.finished = this.#run();
  }

  override _read(): void {
    this.#onRead();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#onRead();
    done(error);
  }

  async #run(): Promise<void> {
    try {
      for await (const chunk of this.#inner.stdout as AsyncIterable<Buffer>) {
        this.#rest = this.#rest.byteLength === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
        while (await this.#step());
      }
      this.push(null);
    } catch (error) {
      this.fault = errorOf(error);
      this.#inner.kill();
      this.destroy(this.fault);
    }
  }

  /** Processes one element of the data received; false when more data is needed. */
  async #step(): Promise<boolean> {
    if (this.#rest.byteLength === 0) return false;
    if (!this.#hasLine) return await this.#line();
    if (this.#input !== null) {
      this.#input.acknowledge(this.#rest.byteLength);
      this.#rest = this.#rest.subarray(this.#rest.byteLength);
      return false;
    }
    if (this.#inlineBytes > 0) {
      const part = this.#rest.subarray(0, this.#inlineBytes);
      this.#rest = this.#rest.subarray(part.byteLength);
      this.#inlineBytes -= part.byteLength;
      await this.#deliver(part);
      return true;
    }
    if (this.#rest.byteLength < BULK_RECORD_BYTES) return false;
    const { length, slot } = decodeBulkRecord(this.#rest, this.#window.slots);
    this.#rest = this.#rest.subarray(BULK_RECORD_BYTES);
    if (slot === BULK_INLINE) this.#inlineBytes = length;
    else await this.#readPiece(slot, length);
    return true;
  }

  async #line(): Promise<boolean> {
    const end = this.#rest.indexOf(NEWLINE);
    if (end < 0 && this.#rest.byteLength <= LINE_BYTES_MAX) return false;
    if (end < 0) throw new GuestProtocolError("a first line that is too long");
    this.#hasLine = true;
    const line = this.#rest.subarray(0, end + 1);
    this.#rest = this.#rest.subarray(end + 1);
    await this.#deliver(line);
    return true;
  }

  async #readPiece(slot: number, length: number): Promise<void> {
    for (let at = 0; at < length && !this.destroyed && !this.isUnwanted; at += FLUSH_BYTES) {
      const bytes = Buffer.allocUnsafeSlow(Math.min(FLUSH_BYTES, length - at));
      await this.#window.read(slot, at, bytes);
      if (at + FLUSH_BYTES >= length) this.#acknowledge();
      await this.#deliver(bytes);
    }
  }

  /**
   * A worker waits for acknowledgements before it sends more than its slots, so only few can be on their way.
   */
  #acknowledge(): void {
    const { stdin } = this.#inner;
    if (stdin.writableLength >= this.#window.slots) throw new GuestProtocolError("pieces before slots were free");
    stdin.write(BULK_ACKNOWLEDGED);
  }

  /** Passes bytes to the reader. Resolves when it accepts more. */
  async #deliver(bytes: Buffer): Promise<void> {
    if (this.destroyed || this.push(bytes)) return;
    await new Promise<void>((resolve) => {
      this.#onRead = resolve;
    });
  }
}
