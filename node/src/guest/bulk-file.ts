/**
 * A file's transfer whose content goes over the bulk disk: looks like one whose content goes over the channel.
 *
 * Always: at most FLUSH_BYTES of what is written wait here before they lie on the disk, and at most one buffer of what is read
 * beyond what its reader takes. A place is filled again only when the other side has said that it is free. The window goes
 * back when the guest's worker has ended and nothing is read any more.
 *
 * What a guest says that fits no window ends the transfer.
 */
import { Readable, Writable } from "node:stream";
import { errorOf } from "@flotilla/base/errors";
import {
  BULK_INLINE,
  BULK_INLINE_BYTES_MAX,
  BULK_PIECE_BYTES,
  BULK_RECORD_BYTES,
  BULK_TAKEN,
  decodeBulkRecord,
  encodeBulkRecord,
} from "@flotilla/contract/guest/bulk";
import { GuestProtocolError } from "@flotilla/contract/guest/frame";
import type { BulkWindow } from "./bulk-disk.ts";
import type { GuestExec, GuestExit } from "./guest.ts";

/** So much is written to the disk, and read from it, in one call. */
const FLUSH_BYTES = 256 * 1024;
const LINE_BYTES_MAX = 256;
const NEWLINE = 0x0a;

/** `inner` is the agent's worker, which was told of the window. */
export function overBulkDisk(inner: GuestExec, window: BulkWindow, isWrite: boolean): GuestExec {
  const killed = Promise.withResolvers<void>();
  const input = isWrite ? new BulkInput(inner.stdin, window) : null;
  const output = new BulkOutput(inner, window, input);
  const ended = inner.exit.then(
    () => undefined,
    () => undefined,
  );
  void Promise.all([ended, output.finished]).then(() => window.release());
  const exit = inner.exit.then(async (found): Promise<GuestExit> => {
    await Promise.race([output.finished, killed.promise]);
    if (output.fault !== null) throw output.fault;
    return found;
  });
  exit.catch(() => undefined);
  return {
    pid: inner.pid,
    stdin: input ?? noInput(),
    stdout: output,
    stderr: inner.stderr,
    exit,
    resize: (size) => inner.resize(size),
    signal: (signal) => inner.signal(signal),
    kill: (graceMs) => {
      killed.resolve();
      inner.kill(graceMs);
    },
  };
}

function noInput(): Writable {
  const none = new Writable();
  none.destroy();
  return none;
}

type Done = (error?: Error | null) => void;

/** Tells a stream how the work ended. */
async function tell(work: Promise<void>, done: Done): Promise<void> {
  const error = await work.then(() => null, errorOf);
  done(error);
}

/** Content for a file. */
class BulkInput extends Writable {
  readonly #records: Writable;
  readonly #window: BulkWindow;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #place = 0;
  #placeBytes = 0;
  #freePlaces: number;
  #onFree: () => void = () => undefined;

  constructor(records: Writable, window: BulkWindow) {
    super({ highWaterMark: FLUSH_BYTES });
    this.#records = records;
    this.#window = window;
    this.#freePlaces = window.places;
    this.on("error", () => undefined);
    // The worker reads no more: whoever still writes is let go.
    records.on("close", () => this.destroy());
  }

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#waiting.push(chunk);
    this.#waitingBytes += chunk.byteLength;
    if (this.#waitingBytes < FLUSH_BYTES) done();
    else void tell(this.#flush(), done);
  }

  override _final(done: Done): void {
    void tell(this.#end(), done);
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#onFree();
    this.#records.destroy();
    done(error);
  }

  /** The worker has taken so many pieces. */
  taken(count: number): void {
    this.#freePlaces += count;
    if (this.#freePlaces > this.#window.places) throw new GuestProtocolError("pieces taken that were not sent");
    this.#onFree();
  }

  async #end(): Promise<void> {
    if (this.#placeBytes === 0 && this.#waitingBytes <= BULK_INLINE_BYTES_MAX) {
      if (this.#waitingBytes > 0) {
        this.#records.write(encodeBulkRecord({ length: this.#waitingBytes, place: BULK_INLINE }));
        for (const part of this.#waiting) this.#records.write(part);
      }
    } else {
      await this.#flush();
      if (this.#placeBytes > 0) this.#send();
    }
    this.#waiting = [];
    // Whoever has ended is destroyed, and the records with it: not before they have left.
    await new Promise<void>((resolve) => {
      this.#records.end(() => resolve());
    });
  }

  async #flush(): Promise<void> {
    while (this.#waitingBytes > 0 && !this.destroyed) {
      while (this.#freePlaces === 0 && !this.destroyed) {
        await new Promise<void>((resolve) => {
          this.#onFree = resolve;
        });
      }
      if (this.destroyed) return;
      const parts = this.#cut(BULK_PIECE_BYTES - this.#placeBytes);
      const bytes = parts.reduce((sum, part) => sum + part.byteLength, 0);
      await this.#window.write(this.#place, this.#placeBytes, parts);
      this.#placeBytes += bytes;
      if (this.#placeBytes === BULK_PIECE_BYTES) this.#send();
    }
  }

  /** Takes at most so much out of what waits. */
  #cut(bytesMax: number): readonly Buffer[] {
    const parts: Buffer[] = [];
    for (let left = bytesMax; left > 0; ) {
      const first = this.#waiting.shift();
      if (first === undefined) break;
      if (first.byteLength > left) this.#waiting.unshift(first.subarray(left));
      parts.push(first.subarray(0, left));
      this.#waitingBytes -= Math.min(first.byteLength, left);
      left -= first.byteLength;
    }
    return parts;
  }

  #send(): void {
    this.#records.write(encodeBulkRecord({ length: this.#placeBytes, place: this.#place }));
    this.#place = (this.#place + 1) % this.#window.places;
    this.#placeBytes = 0;
    this.#freePlaces -= 1;
  }
}

/** What the worker says: a first line, then content, or what it has taken of the input. */
class BulkOutput extends Readable {
  /** Resolves when nothing more is done for it. */
  readonly finished: Promise<void>;
  /** Why it ended before its time. */
  fault: Error | null = null;
  readonly #inner: GuestExec;
  readonly #window: BulkWindow;
  readonly #input: BulkInput | null;
  #rest: Buffer = Buffer.alloc(0);
  #hasLine = false;
  /** Of the piece that follows its record. */
  #inlineBytes = 0;
  #onWanted: () => void = () => undefined;

  constructor(inner: GuestExec, window: BulkWindow, input: BulkInput | null) {
    super({ highWaterMark: FLUSH_BYTES });
    this.#inner = inner;
    this.#window = window;
    this.#input = input;
    this.on("error", () => undefined);
    this.finished = this.#run();
  }

  override _read(): void {
    this.#onWanted();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#onWanted();
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

  /** Does one thing with what has come; false when that takes more. */
  async #step(): Promise<boolean> {
    if (this.#rest.byteLength === 0) return false;
    if (!this.#hasLine) return await this.#line();
    if (this.#input !== null) {
      this.#input.taken(this.#rest.byteLength);
      this.#rest = this.#rest.subarray(this.#rest.byteLength);
      return false;
    }
    if (this.#inlineBytes > 0) {
      const part = this.#rest.subarray(0, this.#inlineBytes);
      this.#rest = this.#rest.subarray(part.byteLength);
      this.#inlineBytes -= part.byteLength;
      await this.#give(part);
      return true;
    }
    if (this.#rest.byteLength < BULK_RECORD_BYTES) return false;
    const { length, place } = decodeBulkRecord(this.#rest, this.#window.places);
    this.#rest = this.#rest.subarray(BULK_RECORD_BYTES);
    if (place === BULK_INLINE) this.#inlineBytes = length;
    else await this.#piece(place, length);
    return true;
  }

  async #line(): Promise<boolean> {
    const end = this.#rest.indexOf(NEWLINE);
    if (end < 0 && this.#rest.byteLength <= LINE_BYTES_MAX) return false;
    if (end < 0) throw new GuestProtocolError("a first line without an end");
    this.#hasLine = true;
    const line = this.#rest.subarray(0, end + 1);
    this.#rest = this.#rest.subarray(end + 1);
    await this.#give(line);
    return true;
  }

  async #piece(place: number, length: number): Promise<void> {
    for (let at = 0; at < length && !this.destroyed; at += FLUSH_BYTES) {
      const bytes = Buffer.allocUnsafeSlow(Math.min(FLUSH_BYTES, length - at));
      await this.#window.read(place, at, bytes);
      if (at + FLUSH_BYTES >= length) this.#inner.stdin.write(BULK_TAKEN);
      await this.#give(bytes);
    }
  }

  /** Resolves when there is room for more. */
  async #give(bytes: Buffer): Promise<void> {
    if (this.destroyed || this.push(bytes)) return;
    await new Promise<void>((resolve) => {
      this.#onWanted = resolve;
    });
  }
}
