/**
 * A client of QMP, the VMM's control channel: JSON lines over a Unix socket.
 *
 * Owns the socket. A VMM accepts one client at a time, so this one is kept for as long as the node agent
 * holds the VM. When the connection closes, the VMM has ended or is about to.
 *
 * Always: the VMM may have been taken over by its guest, so lines are limited in length and anything
 * unexpected ends the connection. Every command is settled: by its result, its error, or the end of the
 * connection.
 */
import type { Duplex } from "node:stream";
import { messageOf } from "@flotilla/base/errors";

/** The longest legitimate line is the console's ring buffer as JSON escapes. */
const LINE_BYTES_MAX = 1_048_576;
/** More chunks of a line are put together: a buffer costs some hundred bytes, however few it holds. */
const CHUNKS_MAX = 1_000;

export interface QmpEvent {
  readonly name: string;
  readonly data: Readonly<Record<string, unknown>>;
}

interface Pending {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

export class Qmp {
  readonly #stream: Duplex;
  readonly #pending = new Map<number, Pending>();
  readonly #onEvent: (event: QmpEvent) => void;
  #lastId = 0;
  /** Chunks of the unfinished line, and their size in bytes. */
  #partial: Buffer[] = [];
  #partialBytes = 0;
  /** Resolves with the reason when the connection has ended. Never rejects. */
  readonly closed: Promise<string>;

  private constructor(stream: Duplex, onEvent: (event: QmpEvent) => void, onGreeting: () => void) {
    this.#stream = stream;
    this.#onEvent = onEvent;
    this.#pending.set(GREETING_ID, { resolve: onGreeting, reject: () => {} });
    this.closed = new Promise((resolve) => {
      let reason = "the VMM closed its control channel";
      stream.on("error", (error) => {
        reason = messageOf(error);
      });
      stream.on("close", () => {
        this.#rejectAll(reason);
        resolve(reason);
      });
    });
    stream.on("data", (chunk: Buffer) => this.#receive(chunk));
    stream.on("end", () => stream.destroy());
  }

  /** Takes ownership of the stream; resolves when commands may be sent. Aborting destroys the stream. */
  static async connect(stream: Duplex, onEvent: (event: QmpEvent) => void, signal: AbortSignal): Promise<Qmp> {
    const abort = (): void => void stream.destroy();
    signal.addEventListener("abort", abort, { once: true });
    try {
      signal.throwIfAborted();
      if (stream.destroyed) throw stream.errored ?? new Error("the VMM closed its control channel");
      const greeting = Promise.withResolvers<void>();
      const qmp = new Qmp(stream, onEvent, greeting.resolve);
      const reason = await Promise.race([greeting.promise, qmp.closed]);
      if (reason !== undefined) throw new Error(reason);
      await qmp.execute("qmp_capabilities");
      return qmp;
    } catch (error) {
      stream.destroy();
      throw error;
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  /**
   * Resolves with the command's return value. Rejects with QEMU's description, or when the connection ends.
   */
  execute(command: string, parameters?: object): Promise<unknown> {
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      if (this.#stream.destroyed) return reject(new Error(`cannot send ${command} to the VMM: it has ended`));
      this.#pending.set(id, { resolve, reject: (error) => reject(new Error(`${command}: ${error.message}`)) });
      this.#stream.write(`${JSON.stringify({ execute: command, ...(parameters && { arguments: parameters }), id })}\n`);
    });
  }

  close(): void {
    this.#stream.destroy();
  }

  #receive(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1 && !this.#stream.destroyed; end = chunk.indexOf(10, start)) {
      const line = Buffer.concat([...this.#partial, chunk.subarray(start, end)]);
      this.#partial = [];
      this.#partialBytes = 0;
      start = end + 1;
      this.#receiveLine(line);
    }
    if (start === chunk.length) return;
    this.#partial.push(chunk.subarray(start));
    this.#partialBytes += chunk.length - start;
    if (this.#partial.length > CHUNKS_MAX) this.#partial = [Buffer.concat(this.#partial)];
    if (this.#partialBytes > LINE_BYTES_MAX) this.#fail("a line is too long");
  }

  #receiveLine(line: Buffer): void {
    let message: unknown;
    try {
      message = JSON.parse(line.toString());
    } catch {
      return this.#fail("a line is not JSON");
    }
    if (!isRecord(message)) return this.#fail("a message is not an object");
    if ("QMP" in message) return this.#settle(GREETING_ID, (pending) => pending.resolve(undefined));
    if (typeof message["event"] === "string") {
      const data = isRecord(message["data"]) ? message["data"] : {};
      return this.#onEvent({ name: message["event"], data });
    }
    const { error } = message;
    if (isRecord(error)) {
      const text = textOf(error["desc"]) ?? "an error without a description";
      return this.#settle(message["id"], (pending) => pending.reject(new Error(text)));
    }
    this.#settle(message["id"], (pending) => pending.resolve(message["return"]));
  }

  #settle(id: unknown, act: (pending: Pending) => void): void {
    const pending = typeof id === "number" ? this.#pending.get(id) : undefined;
    if (pending === undefined) return this.#fail("a response matches no command");
    this.#pending.delete(id as number);
    act(pending);
  }

  #fail(reason: string): void {
    this.#stream.destroy(new Error(`the VMM's control channel broke: ${reason}`));
  }

  #rejectAll(reason: string): void {
    for (const pending of this.#pending.values()) pending.reject(new Error(reason));
    this.#pending.clear();
  }
}

/** The id under which the greeting, which has no request, is awaited. */
const GREETING_ID = 0;

/** A text of the VMM; null: it is none. String() would throw for an object that has no text. */
export const textOf = (value: unknown): string | null => (typeof value === "string" ? value : null);

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
