/**
 * The body of a request to a node, into which pieces are pushed while the answer is read.
 *
 * Always: `push` accepts any piece; its writer waits for `room` when it returned false, and no longer once
 * the stream was destroyed.
 */
import { Readable } from "node:stream";

const HELD_BYTES_MAX = 256 * 1024;

export class Input extends Readable {
  #room = Promise.withResolvers<void>();

  /** `heldBytesMax`: of a node that does not read. */
  constructor(heldBytesMax = HELD_BYTES_MAX) {
    super({ highWaterMark: heldBytesMax });
    // A broken connection is reported by the answer; this event has no other listener.
    this.on("error", () => undefined);
    this.on("close", () => this.#room.resolve());
  }

  override _read(): void {
    this.#room.resolve();
    this.#room = Promise.withResolvers();
  }

  /** Resolves when there is room for more, or the stream was destroyed. */
  get room(): Promise<void> {
    // Room may have come since `push` said that there is none.
    return this.destroyed || this.readableLength < this.readableHighWaterMark ? Promise.resolve() : this.#room.promise;
  }
}
