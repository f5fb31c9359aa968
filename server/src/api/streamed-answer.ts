/**
 * The response to a reader of a log or of events: text for the caller, and an empty line from time to time
 * while there is none.
 *
 * Always:
 * - `gone` is aborted as soon as the caller has disconnected.
 * - A slow caller makes `write` wait. About HELD_BYTES and one text are buffered for it.
 */
import { Readable } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { errorOf } from "@flotilla/base/errors";
import type { Refusal } from "@flotilla/contract/errors";
import type { EndsEarly } from "../http/answer.ts";

const HELD_BYTES = 64 * 1024;
/** Existing clients time out after 30 s without a byte. */
const KEEP_ALIVE_MS = 5_000;

/** A last message; the reason is null when the server stops. */
export type LastMessage = (reason: string | null) => string;

export class StreamedAnswer extends Readable implements EndsEarly {
  readonly gone: AbortSignal;
  readonly #clock: Clock;
  readonly #lastMessage: LastMessage | null;
  readonly #going = new AbortController();
  #room: PromiseWithResolvers<void> | null = null;
  #sentAt: number;

  /**
   * `lastMessage`: null: this response ends soon by itself, without a last message. `isSilent`: an empty line
   * would be a part of the content.
   */
  constructor(
    clock: Clock,
    lastMessage: LastMessage | null,
    { isSilent = false }: { readonly isSilent?: boolean } = {},
  ) {
    super({ highWaterMark: HELD_BYTES, encoding: "utf8" });
    this.#clock = clock;
    this.#lastMessage = lastMessage;
    this.gone = this.#going.signal;
    this.#sentAt = clock.monotonic();
    if (!isSilent) void this.#keepAlive();
  }

  /** Resolves when there is room for more, or the caller has disconnected. */
  async write(text: string): Promise<void> {
    if (text === "" || this.gone.aborted) return;
    this.#sentAt = this.#clock.monotonic();
    if (this.push(text)) return;
    this.#room ??= Promise.withResolvers();
    await this.#room.promise;
  }

  wait(ms: number): Promise<void> {
    return this.#clock.sleep(ms, this.gone);
  }

  finish(): void {
    if (!this.destroyed) this.push(null);
    this.#going.abort();
  }

  endEarly(reason?: Refusal): void {
    if (this.gone.aborted) return;
    if (this.#lastMessage !== null) {
      this.push(this.#lastMessage(reason?.message ?? null));
      this.finish();
    } else if (reason !== undefined) this.destroy(reason);
  }

  fail(error: unknown): void {
    this.destroy(errorOf(error));
  }

  override _read(): void {
    this.#room?.resolve();
    this.#room = null;
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#going.abort();
    this._read();
    callback(error);
  }

  async #keepAlive(): Promise<void> {
    for (;;) {
      await this.wait(KEEP_ALIVE_MS);
      if (this.gone.aborted) return;
      const isSilent = this.#clock.monotonic() - this.#sentAt >= KEEP_ALIVE_MS;
      if (isSilent && this.#room === null) this.push("\n");
    }
  }
}
