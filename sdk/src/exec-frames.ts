/**
 * Reads the framed stream of a command's output (docs/streams.md), which is binary and has no conversion to
 * text.
 *
 * Always:
 * - Output is handed out as it arrives, in pieces that share the memory of what arrived; a frame may come in
 *   several pieces.
 * - Only the payloads of `exit` and `error` are collected, up to MESSAGE_BYTES_MAX.
 * - Frames of unknown kinds are skipped.
 */

export const EXEC_FRAMES_TYPE = "application/vnd.flotilla.exec-frames";

/** Kinds of frames by their first byte. */
const KINDS = ["keepAlive", "stdout", "stderr", "exit", "error"] as const;
const HEAD_BYTES = 8;
/** Longer messages are not from a server of ours. */
const MESSAGE_BYTES_MAX = 1024 * 1024;

type Bytes = Uint8Array<ArrayBuffer>;

/** A piece of output, or the last message. */
export type FramePiece =
  | { readonly kind: "stdout" | "stderr"; readonly bytes: Bytes }
  | { readonly kind: "exit"; readonly text: string }
  | { readonly kind: "error"; readonly text: string };

/** Turns chunks of any size into pieces. */
export class FrameReader {
  readonly #head = new Uint8Array(HEAD_BYTES);
  #headBytes = 0;
  #kind: (typeof KINDS)[number] | undefined;
  /** Missing bytes of the frame's payload. */
  #missingBytes = 0;
  /** Payload of an `exit` or `error` frame. */
  #message = new Uint8Array(0);

  /** Throws a RangeError for a message that is too long. */
  *push(chunk: Bytes): Generator<FramePiece, void, undefined> {
    let at = 0;
    while (at < chunk.byteLength) {
      if (this.#missingBytes === 0) {
        at = this.#readHead(chunk, at);
        if (this.#headBytes < HEAD_BYTES) return;
        this.#headBytes = 0;
        this.#begin();
        if (this.#missingBytes === 0) continue;
      }
      const bytes = chunk.subarray(at, at + this.#missingBytes);
      at += bytes.byteLength;
      this.#missingBytes -= bytes.byteLength;
      if (this.#kind === "stdout" || this.#kind === "stderr") yield { kind: this.#kind, bytes };
      else if (this.#kind === "exit" || this.#kind === "error") {
        this.#message.set(bytes, this.#message.byteLength - this.#missingBytes - bytes.byteLength);
        if (this.#missingBytes === 0) yield { kind: this.#kind, text: new TextDecoder().decode(this.#message) };
      }
    }
  }

  #readHead(chunk: Bytes, from: number): number {
    const part = chunk.subarray(from, from + HEAD_BYTES - this.#headBytes);
    this.#head.set(part, this.#headBytes);
    this.#headBytes += part.byteLength;
    return from + part.byteLength;
  }

  #begin(): void {
    this.#kind = KINDS[this.#head[0] ?? 0];
    this.#missingBytes = new DataView(this.#head.buffer).getUint32(4);
    if (this.#kind !== "exit" && this.#kind !== "error") return;
    if (this.#missingBytes > MESSAGE_BYTES_MAX) throw new RangeError(`a message of ${this.#missingBytes} bytes`);
    this.#message = new Uint8Array(this.#missingBytes);
  }
}
