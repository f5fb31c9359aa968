/**
 * The output of a command as Server-Sent Events or as binary frames: a sink on one side, a stream of bytes on
 * the other.
 *
 * Always:
 * - In events of text a character is never cut in two, wherever the command's chunks end, and bytes that are
 *   not text become U+FFFD. Base64 and binary frames are exact.
 * - `exit` or `error` is the last event, once.
 * - A reader that does not read makes `onOutput` wait, which pauses the command and nothing else: at most
 *   about HELD_BYTES and one chunk are buffered.
 * - A comment or an empty frame every few seconds shows that the connection of a silent command is alive.
 *
 * The form of a carriage return depends on the reader (docs/streams.md). Existing clients end lines only at
 * `\n`, so by default a `\r` remains in the data. Readers that follow the standard end a line there and lose
 * the rest: with output=text, `\r` and `\r\n` are line breaks like `\n`; with output=b64 every reader gets
 * the exact bytes.
 */
import { Readable } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import type { ExecExit } from "@flotilla/contract/link/link";
import type { EndsEarly } from "../../http/answer.ts";
import type { OutputSink } from "../../link/exec-frames.ts";
import {
  base64Frame,
  type EventFraming,
  eventFrame,
  execFrame,
  execFrameHead,
  incompleteAtEnd,
  linesFrame,
} from "./frames.ts";

const HELD_BYTES = 64 * 1024;
/**
 * `yes` writes lines of one character, for which 64 KiB take more than the milliseconds that a round may
 * have.
 */
const TEXT_PIECE_BYTES = 16 * 1024;
/** Up to this size a copy costs less than another buffer to write. */
const COPIED_BYTES_MAX = 4096;
const NOTHING: Buffer = Buffer.alloc(0);
/** Written into a stream of frames; the other framings have a comment. */
const KEEP_ALIVE_FRAME = execFrame("keepAlive");
/** Existing clients time out after 30 s without a byte. */
const KEEP_ALIVE_MS = 5_000;
/**
 * A command that fails within this time is refused with a status. The caller of a silent command gets the
 * head after it.
 */
const HEAD_DELAY_MS = 20;
/** If the machine takes longer to start, the response begins, and a later refusal is an `error` event. */
const HEAD_WAIT_MS = 10_000;

export class CommandEvents extends Readable implements OutputSink, EndsEarly {
  readonly pieceBytes: number;
  readonly #clock: Clock;
  readonly #framing: EventFraming | "frames";
  /** An incomplete character, whose end may follow. */
  readonly #rest = { stdout: NOTHING, stderr: NOTHING };
  /**
   * Whether the last output ended with `\r`: the `\n` of the same line break may follow. Framing `standard`
   * only.
   */
  readonly #held = { stdout: "", stderr: "" };
  readonly #head = Promise.withResolvers<void>();
  readonly #over = new AbortController();
  /** Whether the response has begun, or never will. */
  hasHead = false;
  /** The refusal follows, with a status if the response has not begun. */
  #isFailing = false;
  #room: PromiseWithResolvers<void> | null = null;
  #sentAt = 0;
  /** The last event was sent. */
  #isOver = false;

  constructor(clock: Clock, options: { readonly framing: EventFraming | "frames"; readonly headWaitMs?: number }) {
    super({ highWaterMark: HELD_BYTES });
    this.#clock = clock;
    this.#framing = options.framing;
    const isExact = options.framing === "frames" || options.framing === "b64";
    this.pieceBytes = isExact ? Number.POSITIVE_INFINITY : TEXT_PIECE_BYTES;
    void clock.sleep(options.headWaitMs ?? HEAD_WAIT_MS, this.#over.signal).then(() => this.#beginSilently());
  }

  /** Resolves when the answer may begin; rejects with the reason when the command did not run at all. */
  get head(): Promise<void> {
    return this.#head.promise;
  }

  get isFull(): boolean {
    return this.#room !== null;
  }

  onStarted(): void {
    void this.#clock.sleep(HEAD_DELAY_MS, this.#over.signal).then(() => this.#beginSilently());
  }

  onFailing(): void {
    this.#isFailing = true;
  }

  onOutput(stream: "stdout" | "stderr", chunk: Uint8Array): void | Promise<void> {
    this.#begin();
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    if (this.#framing === "frames" || this.#framing === "b64") return this.#sendExact(stream, bytes);
    const whole = this.#wholeCharacters(stream, bytes);
    const frame = this.#framing === "lines" && whole.byteLength > 0 ? linesFrame(stream, whole) : null;
    return frame === null ? this.#send(stream, this.#textOf(stream, whole)) : this.#sendFrame(frame);
  }

  /** The command has ended. */
  finish({ exitCode, pid }: ExecExit): void {
    this.#begin();
    if (pid !== null) void this.onOutput("stdout", Buffer.from(`pid=${pid}\n`));
    for (const stream of ["stdout", "stderr"] as const)
      void this.#send(stream, this.#held[stream] + this.#rest[stream].toString());
    this.#end(this.#last("exit", JSON.stringify({ exitCode })));
  }

  /** The end of the command is unknown, or it did not run. */
  fail(error: unknown): void {
    if (this.hasHead) this.#end(this.#last("error", this.#errorText(error)));
    else {
      this.hasHead = true;
      this.#head.reject(error);
      this.destroy();
    }
  }

  endEarly(reason?: Refusal): void {
    const stops = "the server stops, and the command was ended; it can be run again in a moment";
    this.fail(reason ?? new Refusal("unavailable", stops));
  }

  override _read(): void {
    this.#room?.resolve();
    this.#room = null;
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#over.abort();
    this.#room?.resolve();
    this.#room = null;
    callback(error);
  }

  #wholeCharacters(stream: "stdout" | "stderr", bytes: Buffer): Buffer {
    const rest = this.#rest[stream];
    const all = rest.byteLength === 0 ? bytes : Buffer.concat([rest, bytes]);
    const end = all.byteLength - incompleteAtEnd(all);
    // A copy, so that the whole chunk is not kept in memory.
    this.#rest[stream] = end === all.byteLength ? NOTHING : Buffer.from(all.subarray(end));
    return all.subarray(0, end);
  }

  #textOf(stream: "stdout" | "stderr", bytes: Buffer): string {
    const text = this.#held[stream] + bytes.toString("utf8");
    this.#held[stream] = this.#framing === "standard" && text.endsWith("\r") ? "\r" : "";
    return this.#held[stream] === "" ? text : text.slice(0, -1);
  }

  #beginSilently(): void {
    if (!this.#isFailing) this.#begin();
  }

  #begin(): void {
    if (this.hasHead || this.destroyed) return;
    this.hasHead = true;
    this.#head.resolve();
    void this.#keepAlive();
  }

  #send(event: string, data: string): void | Promise<void> {
    if (data !== "" && this.#framing !== "frames") return this.#sendFrame(eventFrame(event, data, this.#framing));
  }

  #sendExact(stream: "stdout" | "stderr", bytes: Buffer): void | Promise<void> {
    if (bytes.byteLength === 0) return;
    if (this.#framing !== "frames") return this.#sendFrame(base64Frame(stream, bytes));
    if (bytes.byteLength <= COPIED_BYTES_MAX) return this.#sendFrame(execFrame(stream, bytes));
    return this.#sendFrame(execFrameHead(stream, bytes.byteLength), bytes);
  }

  #sendFrame(frame: string | Buffer, payload?: Buffer): void | Promise<void> {
    if (this.destroyed || this.#isOver) return;
    this.#sentAt = this.#clock.monotonic();
    const hasRoom = this.push(frame);
    if (payload === undefined ? hasRoom : this.push(payload)) return;
    this.#room ??= Promise.withResolvers();
    return this.#room.promise;
  }

  /** The last event. */
  #last(event: "exit" | "error", data: string): string | Buffer {
    if (this.#framing === "frames") return execFrame(event, data);
    return eventFrame(event, data, this.#framing);
  }

  #errorText(error: unknown): string {
    const message = error instanceof Refusal ? error.message : "the server failed";
    if (this.#framing !== "frames") return message;
    return JSON.stringify({ code: error instanceof Refusal ? error.code : "internal", message });
  }

  #end(last: string | Buffer): void {
    void this.#sendFrame(last);
    if (this.#isOver) return;
    this.#isOver = true;
    this.#over.abort();
    if (!this.destroyed) this.push(null);
  }

  async #keepAlive(): Promise<void> {
    const { signal } = this.#over;
    for (;;) {
      await this.#clock.sleep(KEEP_ALIVE_MS, signal);
      if (signal.aborted) return;
      const isSilent = this.#clock.monotonic() - this.#sentAt >= KEEP_ALIVE_MS;
      if (isSilent && !this.isFull) this.push(this.#framing === "frames" ? KEEP_ALIVE_FRAME : ":\n\n");
    }
  }
}
