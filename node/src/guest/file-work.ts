/**
 * One operation on a file in a guest: its first line, its content and its end, with failures as FileFailure.
 *
 * Always:
 * - A failure of any kind rejects `ended`; `firstLine` rejects with the same error, a FileFailure if the
 *   guest caused it.
 * - Content is not read before `onContent` is called, and then no faster than it is consumed.
 * - Bounded: a first line has LINE_BYTES_MAX bytes at most; of an error text ERROR_CHARACTERS_MAX characters
 *   are kept.
 */
import type { Writable } from "node:stream";
import { errorOf, messageOf } from "@flotilla/base/errors";
import { FileFailure, garbage, parseFailure } from "./file-answer.ts";
import { type Guest, GuestBusy, type GuestExec, type GuestFileRequest } from "./guest.ts";

const NEWLINE = 0x0a;
const LINE_BYTES_MAX = 256;
const ERROR_CHARACTERS_MAX = 8 * 1024;

export class FileWork {
  /** The agent's first line without its line break. Pending until it arrives. */
  readonly firstLine: Promise<string>;
  /** Resolves when the operation has succeeded and its content was consumed. */
  readonly ended: Promise<void>;
  readonly #exec: GuestExec;
  readonly #line = Promise.withResolvers<string>();
  readonly #failed = Promise.withResolvers<never>();
  readonly #outputEnded = Promise.withResolvers<void>();
  #head: Buffer = Buffer.alloc(0);
  #rest: Buffer = Buffer.alloc(0);
  #error = "";

  constructor(exec: GuestExec) {
    this.#exec = exec;
    exec.stdout.on("data", this.#onHead);
    exec.stdout.once("end", this.#outputEnded.resolve);
    exec.stdout.once("close", this.#outputEnded.resolve);
    exec.stderr.on("data", (chunk: Buffer) => {
      if (this.#error.length < ERROR_CHARACTERS_MAX) this.#error += chunk.toString("utf8");
    });
    this.ended = Promise.race([this.#end(), this.#failed.promise]);
    this.firstLine = Promise.race([this.#line.promise, this.ended.then(() => Promise.reject(garbage()))]);
    // The caller may wait for only one of them.
    for (const promise of [this.ended, this.firstLine]) promise.catch(() => undefined);
  }

  /** Where the content of a write goes. */
  get input(): Writable {
    return this.#exec.stdin;
  }

  /**
   * Begins to read the content that follows the first line. An error that `take` throws ends the operation
   * with it.
   */
  onContent(take: (chunk: Buffer) => void): void {
    const { stdout } = this.#exec;
    const takeOrFail = (chunk: Buffer): void => {
      try {
        take(chunk);
      } catch (error) {
        this.fail(errorOf(error));
      }
    };
    stdout.on("data", takeOrFail);
    stdout.resume();
    if (this.#rest.byteLength > 0) takeOrFail(this.#rest);
    this.#rest = Buffer.alloc(0);
  }

  /** Stops reading content, until `resume`. */
  pause(): void {
    this.#exec.stdout.pause();
  }

  resume(): void {
    this.#exec.stdout.resume();
  }

  /**
   * Ends the operation with this error. What the guest still sends is discarded; a file being written stays
   * as it was.
   */
  fail(error: Error): void {
    this.#failed.reject(error);
    const { stdout } = this.#exec;
    stdout.removeAllListeners("data");
    this.#exec.kill();
    // The channel's credit must flow.
    stdout.resume();
  }

  readonly #onHead = (chunk: Buffer): void => {
    const head = this.#head.byteLength === 0 ? chunk : Buffer.concat([this.#head, chunk]);
    const end = head.indexOf(NEWLINE);
    if ((end < 0 ? head.byteLength : end) > LINE_BYTES_MAX) return this.fail(garbage());
    this.#head = head;
    if (end < 0) return;
    const { stdout } = this.#exec;
    stdout.off("data", this.#onHead);
    stdout.pause();
    this.#rest = head.subarray(end + 1);
    this.#line.resolve(head.toString("latin1", 0, end));
  };

  async #end(): Promise<void> {
    const { exitCode } = await this.#exec.exit.catch((error: unknown) => {
      throw new FileFailure("guest_unreachable", messageOf(error));
    });
    if (exitCode !== 0) throw parseFailure(this.#error);
    // Over the bulk disk, content can still be buffered for a slow reader.
    if (!this.#exec.stdout.readableEnded) await this.#outputEnded.promise;
  }
}

/** Begins the operation. Throws FileFailure when the guest cannot accept it now. */
export function beginFileWork(guest: Guest, request: GuestFileRequest): FileWork {
  try {
    return new FileWork(guest.file(request));
  } catch (error) {
    if (error instanceof RangeError) throw new FileFailure("invalid", messageOf(error));
    throw new FileFailure(error instanceof GuestBusy ? "busy" : "guest_unreachable", messageOf(error));
  }
}
