/**
 * One running command or open connection on the host: its streams, their credit and its end.
 *
 * Always:
 * - At most OUTPUT_WINDOW_BYTES of each output stream are buffered here. The guest gets new credit when the
 *   buffered data has been read; output without credit violates the protocol.
 * - `exit` resolves when the readers have received all output. A stream without a reader does not delay it,
 *   and after `kill` no stream does.
 * - A command of an earlier host sends nothing before the guest has said how much of its input it has.
 */
import { Readable, Writable } from "node:stream";
import {
  FRAME_PAYLOAD_BYTES_MAX,
  GuestProtocolError,
  type HostFrameType,
  OUTPUT_FRAME_COST_BYTES,
  OUTPUT_WINDOW_BYTES,
  STDIN_WINDOW_BYTES,
} from "@flotilla/contract/guest/frame";
import { FieldWriter, GUEST_STREAMS } from "@flotilla/contract/guest/messages";
import type { GuestExec, GuestExit } from "./guest.ts";
import { NO_INPUT } from "./no-input.ts";

type OutputName = keyof typeof GUEST_STREAMS;

/** New credit is given when this share of the window is used, so that small outputs need no credit frame. */
const CREDIT_SHARE = 4;
/** A payload is copied if keeping it would also keep more unused bytes of a larger buffer than this. */
const WASTE_BYTES_MAX = 4096;
const NOTHING = Buffer.alloc(0);

export interface ClientExecOptions {
  readonly hasStdin: boolean;
  /** How much of each output is buffered here. Absent: OUTPUT_WINDOW_BYTES. */
  readonly windowBytes?: number;
  /**
   * New credit is given by `outputTaken`, instead of when the data was read; the first byte has this offset.
   */
  readonly takenFrom?: number;
  /** It began with an earlier host. */
  readonly isResumed: boolean;
  /** Called once, if the guest keeps the command: when it has ended and was released. */
  readonly onReleased: (() => void) | null;
  /** Does nothing once the command's channel is closed. */
  readonly send: (type: HostFrameType, payload: Buffer) => void;
}

/** Output of a command. Reading it gives the guest new credit. */
class OutputStream extends Readable {
  readonly #onRead: (usedBytes: number) => boolean;
  readonly #windowBytes: number;
  #usedBytes = 0;
  /**
   * Credit for the data is given when it was taken; only that for the objects of its frames when they were
   * read.
   */
  readonly #waitsForTaken: boolean;
  #end: number;
  #creditedEnd: number;
  #takenEnd: number;
  #frameCosts = 0;

  /** `onRead` receives the used bytes of the window; it returns true when it gave them back to the guest. */
  constructor(
    { windowBytes = OUTPUT_WINDOW_BYTES, takenFrom }: Pick<ClientExecOptions, "windowBytes" | "takenFrom">,
    onRead: (usedBytes: number) => boolean,
  ) {
    super({ highWaterMark: windowBytes });
    this.#windowBytes = windowBytes;
    this.#waitsForTaken = takenFrom !== undefined;
    this.#end = this.#creditedEnd = this.#takenEnd = takenFrom ?? 0;
    this.#onRead = onRead;
  }

  override _read(): void {}

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    callback(error);
    this.#settle();
  }

  // Every way of reading calls this method, except for data that `push` delivers at once.
  override read(size?: number): unknown {
    const chunk: unknown = super.read(size);
    this.#settle();
    return chunk;
  }

  /** Throws GuestProtocolError when the guest had no credit. */
  accept(payload: Buffer): void {
    this.#usedBytes += payload.byteLength + OUTPUT_FRAME_COST_BYTES;
    if (payload.byteLength === 0 || this.#usedBytes > this.#windowBytes) {
      throw new GuestProtocolError("output without credit");
    }
    this.#end += payload.byteLength;
    this.#frameCosts += OUTPUT_FRAME_COST_BYTES;
    if (!this.destroyed) this.push(owned(payload));
    this.#settle();
  }

  /** Its other end has everything before the offset. */
  taken(offset: number): void {
    this.#takenEnd = Math.max(this.#takenEnd, Math.min(offset, this.#end));
    this.#settle();
  }

  /** Whether the reader, if there is one, has received everything so far. */
  get isDelivered(): boolean {
    return this.#isEmpty || this.readableFlowing === null;
  }

  get #isEmpty(): boolean {
    return this.destroyed || this.readableLength === 0;
  }

  #settle(): void {
    if (this.#waitsForTaken && !this.destroyed) {
      const frameCosts = this.#isEmpty ? this.#frameCosts : 0;
      const bytes = this.#takenEnd - this.#creditedEnd + frameCosts;
      if (!this.#onRead(bytes)) return;
      this.#usedBytes -= bytes;
      this.#frameCosts -= frameCosts;
      this.#creditedEnd = this.#takenEnd;
    } else if (this.#isEmpty && this.#onRead(this.#usedBytes)) this.#usedBytes = 0;
  }
}

function owned(payload: Buffer): Buffer {
  if (payload.buffer.byteLength - payload.byteLength <= WASTE_BYTES_MAX + 3 * payload.byteLength) return payload;
  const copy = Buffer.allocUnsafeSlow(payload.byteLength);
  payload.copy(copy);
  return copy;
}

export class ClientExec implements GuestExec {
  readonly pid: Promise<number>;
  readonly exit: Promise<GuestExit>;
  readonly stdin: Writable;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly #send: ClientExecOptions["send"];
  readonly #pidPromise = Promise.withResolvers<number>();
  readonly #exitPromise = Promise.withResolvers<GuestExit>();
  #hasStarted = false;
  #isKilled = false;
  #exitCode: number | undefined;
  readonly #creditStep: number;
  /** Used bytes of the windows that are returned at the end of this turn. */
  readonly #credits = { stdout: 0, stderr: 0 };
  #stdinCredit: number;
  #stdinTakenBytes = 0;
  #onTaken: (bytes: number) => void = () => undefined;
  readonly #stdinOffset: PromiseWithResolvers<number> | null;
  readonly #onReleased: (() => void) | null;
  #isReleased = false;
  #stdinWaiting: { bytes: Buffer; done: () => void } | undefined;

  constructor(options: ClientExecOptions) {
    this.#send = options.send;
    this.#onReleased = options.onReleased;
    this.#stdinCredit = options.isResumed ? 0 : STDIN_WINDOW_BYTES;
    this.#stdinOffset = options.isResumed ? Promise.withResolvers<number>() : null;
    this.#stdinOffset?.promise.catch(() => {});
    this.pid = this.#pidPromise.promise;
    this.exit = this.#exitPromise.promise;
    // The caller may await only one of them; a rejection of the other must not end this process.
    this.pid.catch(() => {});
    this.exit.catch(() => {});
    const { windowBytes = OUTPUT_WINDOW_BYTES } = options;
    this.#creditStep = windowBytes / CREDIT_SHARE;
    this.stdout = new OutputStream(options, (usedBytes) => this.#onRead("stdout", usedBytes));
    this.stderr = new OutputStream(options, (usedBytes) => this.#onRead("stderr", usedBytes));
    // Readers get the error of a lost channel; without a reader it must not end this process.
    this.stdout.on("error", () => {});
    this.stderr.on("error", () => {});
    this.stdin = options.hasStdin ? this.#makeStdin() : NO_INPUT;
  }

  #makeStdin(): Writable {
    const stdin = new Writable({
      highWaterMark: STDIN_WINDOW_BYTES,
      write: (bytes: Buffer, _encoding, done) => {
        this.#stdinWaiting = { bytes, done };
        this.#sendStdin();
      },
      final: (done) => {
        this.#send("stdinEnd", NOTHING);
        done();
      },
    });
    stdin.on("error", () => {});
    return stdin;
  }

  resize(size: { cols: number; rows: number }): void {
    this.#send("resize", new FieldWriter().u32("cols", size.cols).u32("rows", size.rows).end());
  }

  signal(signal: number): void {
    this.#send("signal", new FieldWriter().u32("signal", signal).end());
  }

  kill(graceMs = 0): void {
    this.#isKilled = true;
    this.#send("kill", graceMs > 0 ? new FieldWriter().u32("graceMs", graceMs).end() : NOTHING);
    this.#endWhenDelivered();
  }

  /** The guest reports that the command runs. */
  start(pid: number): void {
    if (this.#hasStarted || this.#stdinOffset !== null) throw new GuestProtocolError("a command started twice");
    this.#hasStarted = true;
    this.#pidPromise.resolve(pid);
  }

  /** Input that the guest has of a command of an earlier host. */
  get stdinOffset(): Promise<number> {
    if (this.#stdinOffset === null) throw new Error("the command was not resumed");
    return this.#stdinOffset.promise;
  }

  /**
   * The guest continues a command of an earlier host: it has `offset` bytes of its input, and may get
   * `credit` more.
   */
  resumed(offset: number, credit: number): void {
    if (this.#stdinOffset === null || this.#hasStarted) throw new GuestProtocolError("a command that was not resumed");
    // What the guest has and has not written to its command yet is credited later.
    const takenBytes = offset - (STDIN_WINDOW_BYTES - credit);
    if (credit > STDIN_WINDOW_BYTES || takenBytes < 0 || !Number.isSafeInteger(offset))
      throw new GuestProtocolError("wrong input credit");
    this.#hasStarted = true;
    this.#stdinCredit = credit;
    this.#stdinTakenBytes = takenBytes;
    this.#stdinOffset.resolve(offset);
    this.#sendStdin();
  }

  outputTaken(stdoutBytes: number): void {
    this.stdout.taken(stdoutBytes);
  }

  /** Calls back with how much of the input the guest has certainly received, since the beginning. */
  onInputTaken(taken: (bytes: number) => void): void {
    this.#onTaken = taken;
  }

  get isResumable(): boolean {
    return this.#onReleased !== null;
  }

  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    if (this.#exitCode !== undefined) this.#onReleased?.();
  }

  receive(name: OutputName, payload: Buffer): void {
    this.#assertResumed("output");
    this[name].accept(payload);
  }

  /** A command of an earlier host was resumed before the guest sends anything else of it. */
  #assertResumed(what: string): void {
    if (this.#stdinOffset !== null && !this.#hasStarted) throw new GuestProtocolError(`${what} before it was resumed`);
  }

  creditStdin(bytes: number): void {
    this.#assertResumed("credit");
    // It would cost the guest nothing to send these without end.
    if (bytes === 0) throw new GuestProtocolError("credit of no bytes");
    this.#stdinCredit += bytes;
    if (this.#stdinCredit > STDIN_WINDOW_BYTES) throw new GuestProtocolError("credit for input that was not sent");
    this.#stdinTakenBytes += bytes;
    this.#onTaken(this.#stdinTakenBytes);
    this.#sendStdin();
  }

  /** The guest reports that the command has ended. */
  end(exitCode: number): void {
    this.#exitCode = exitCode;
    if (!this.#hasStarted) this.#pidPromise.reject(new Error("the command could not be run"));
    if (!this.#hasStarted) this.#stdinOffset?.reject(new Error("the command ended before it was resumed"));
    this.#dropStdin();
    for (const output of [this.stdout, this.stderr]) if (!output.destroyed) output.push(null);
    this.#endWhenDelivered();
    if (this.#isReleased) this.#onReleased?.();
  }

  /** The channel is lost, or the guest refused the command. */
  lose(error: Error): void {
    this.#dropStdin();
    this.#pidPromise.reject(error);
    this.#stdinOffset?.reject(error);
    this.#exitPromise.reject(error);
    this.stdout.destroy(error);
    this.stderr.destroy(error);
  }

  #onRead(name: OutputName, usedBytes: number): boolean {
    if (this.#exitCode !== undefined) this.#endWhenDelivered();
    if (usedBytes < this.#creditStep) return false;
    if (this.#credits.stdout + this.#credits.stderr === 0) process.nextTick(() => this.#sendCredits());
    this.#credits[name] += usedBytes;
    return true;
  }

  /**
   * One message for all frames that came with one read: the guest needs as long for a message as for some KiB
   * of output.
   */
  #sendCredits(): void {
    for (const name of ["stdout", "stderr"] as const) {
      const bytes = this.#credits[name];
      this.#credits[name] = 0;
      if (bytes > 0)
        this.#send("credit", new FieldWriter().u32("stream", GUEST_STREAMS[name]).u32("bytes", bytes).end());
    }
  }

  #endWhenDelivered(): void {
    if (this.#exitCode === undefined) return;
    if (this.#isKilled || (this.stdout.isDelivered && this.stderr.isDelivered)) {
      this.#exitPromise.resolve({ exitCode: this.#exitCode });
    }
  }

  /** Sends as much of the pending input as the credit allows. */
  #sendStdin(): void {
    const waiting = this.#stdinWaiting;
    if (waiting === undefined) return;
    while (this.#stdinCredit > 0 && waiting.bytes.byteLength > 0) {
      const size = Math.min(this.#stdinCredit, waiting.bytes.byteLength, FRAME_PAYLOAD_BYTES_MAX);
      this.#send("stdin", waiting.bytes.subarray(0, size));
      this.#stdinCredit -= size;
      waiting.bytes = waiting.bytes.subarray(size);
    }
    if (waiting.bytes.byteLength > 0) return;
    this.#stdinWaiting = undefined;
    waiting.done();
  }

  /** The command reads no more input: releases the writer. */
  #dropStdin(): void {
    const waiting = this.#stdinWaiting;
    this.#stdinWaiting = undefined;
    waiting?.done();
    this.stdin.destroy();
  }
}
