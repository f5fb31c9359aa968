/**
 * One running command, as the host sees it: its streams, their credit and its end.
 *
 * Always:
 * - Of each output stream at most OUTPUT_WINDOW_BYTES wait here for a reader. The guest gets credit back when what
 *   waits has been read; one that sends without credit has broken the protocol.
 * - `exit` resolves when those who read have got all output. A stream that nobody has begun to read does not hold it back,
 *   and after `kill` none does.
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

type OutputName = keyof typeof GUEST_STREAMS;

/** Credit is given back when this much of the window is used: small outputs need no frame for it. */
const CREDIT_STEP_BYTES = OUTPUT_WINDOW_BYTES / 4;
/** A piece of a larger buffer is copied when it would keep more than this alive for nothing. */
const WASTE_BYTES_MAX = 4096;
const NOTHING = Buffer.alloc(0);

export interface ClientExecOptions {
  readonly hasStdin: boolean;
  /** Does nothing once the channel of the command is closed. */
  readonly send: (type: HostFrameType, payload: Buffer) => void;
}

/** Output of a command. Reading it gives the guest credit for more. */
class OutputStream extends Readable {
  readonly #onRead: (usedBytes: number) => boolean;
  #usedBytes = 0;

  /** `onRead` is told what of the window has been read; true when it gave that back to the guest. */
  constructor(onRead: (usedBytes: number) => boolean) {
    super({ highWaterMark: OUTPUT_WINDOW_BYTES });
    this.#onRead = onRead;
  }

  override _read(): void {}

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    callback(error);
    this.#settle();
  }

  // Every way of reading comes through here, but for the data that `push` hands on at once.
  override read(size?: number): unknown {
    const chunk: unknown = super.read(size);
    this.#settle();
    return chunk;
  }

  /** Throws GuestProtocolError when the guest had no credit for it. */
  accept(payload: Buffer): void {
    this.#usedBytes += payload.byteLength + OUTPUT_FRAME_COST_BYTES;
    if (payload.byteLength === 0 || this.#usedBytes > OUTPUT_WINDOW_BYTES) {
      throw new GuestProtocolError("output without credit");
    }
    if (!this.destroyed) this.push(owned(payload));
    this.#settle();
  }

  /** Whether whoever reads has got everything that came. Nobody may read it at all. */
  get isDelivered(): boolean {
    return this.#isEmpty || this.readableFlowing === null;
  }

  get #isEmpty(): boolean {
    return this.destroyed || this.readableLength === 0;
  }

  #settle(): void {
    if (this.#isEmpty && this.#onRead(this.#usedBytes)) this.#usedBytes = 0;
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
  #stdinCredit = STDIN_WINDOW_BYTES;
  #stdinWaiting: { bytes: Buffer; done: () => void } | undefined;

  constructor(options: ClientExecOptions) {
    this.#send = options.send;
    this.pid = this.#pidPromise.promise;
    this.exit = this.#exitPromise.promise;
    // Whoever looks only at one of them must not be ended by the other.
    this.pid.catch(() => {});
    this.exit.catch(() => {});
    this.stdout = new OutputStream((usedBytes) => this.#onRead("stdout", usedBytes));
    this.stderr = new OutputStream((usedBytes) => this.#onRead("stderr", usedBytes));
    // The error of a lost channel reaches readers; one that nobody reads must not end this process.
    this.stdout.on("error", () => {});
    this.stderr.on("error", () => {});
    this.stdin = this.#makeStdin(options.hasStdin);
  }

  #makeStdin(hasStdin: boolean): Writable {
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
    if (!hasStdin) stdin.destroy();
    return stdin;
  }

  resize(size: { cols: number; rows: number }): void {
    this.#send("resize", new FieldWriter().number("cols", size.cols).number("rows", size.rows).end());
  }

  signal(signal: number): void {
    this.#send("signal", new FieldWriter().number("signal", signal).end());
  }

  kill(graceMs = 0): void {
    this.#isKilled = true;
    this.#send("kill", graceMs > 0 ? new FieldWriter().number("graceMs", graceMs).end() : NOTHING);
    this.#endWhenDelivered();
  }

  /** The guest says that the command runs. */
  start(pid: number): void {
    if (this.#hasStarted) throw new GuestProtocolError("a command started twice");
    this.#hasStarted = true;
    this.#pidPromise.resolve(pid);
  }

  take(name: OutputName, payload: Buffer): void {
    this[name].accept(payload);
  }

  creditStdin(bytes: number): void {
    this.#stdinCredit += bytes;
    if (this.#stdinCredit > STDIN_WINDOW_BYTES) throw new GuestProtocolError("credit for input that was not sent");
    this.#sendStdin();
  }

  /** The guest says that the command has ended. */
  end(exitCode: number): void {
    this.#exitCode = exitCode;
    if (!this.#hasStarted) this.#pidPromise.reject(new Error("the command could not be run"));
    this.#dropStdin();
    for (const output of [this.stdout, this.stderr]) if (!output.destroyed) output.push(null);
    this.#endWhenDelivered();
  }

  /** The channel is lost, or the guest refused the command. */
  lose(error: Error): void {
    this.#dropStdin();
    this.#pidPromise.reject(error);
    this.#exitPromise.reject(error);
    this.stdout.destroy(error);
    this.stderr.destroy(error);
  }

  #onRead(name: OutputName, usedBytes: number): boolean {
    if (this.#exitCode !== undefined) this.#endWhenDelivered();
    if (usedBytes < CREDIT_STEP_BYTES) return false;
    this.#send("credit", new FieldWriter().number("stream", GUEST_STREAMS[name]).number("bytes", usedBytes).end());
    return true;
  }

  #endWhenDelivered(): void {
    if (this.#exitCode === undefined) return;
    if (this.#isKilled || (this.stdout.isDelivered && this.stderr.isDelivered)) {
      this.#exitPromise.resolve({ exitCode: this.#exitCode });
    }
  }

  /** Sends as much of the waiting input as there is credit for. */
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

  /** Nobody reads the input any more: whoever still writes is let go. */
  #dropStdin(): void {
    const waiting = this.#stdinWaiting;
    this.#stdinWaiting = undefined;
    waiting?.done();
    this.stdin.destroy();
  }
}
