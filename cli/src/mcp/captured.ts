/**
 * One output of a command: what is held of it, and what of that is shown. Pure.
 */

/** More output than this is counted and not held. */
const KEPT_BYTES = 8 * 1024 * 1024;
const HEAD_BYTES = 16 * 1024;
const TAIL_BYTES = 24 * 1024;
const SHOWN_BYTES = HEAD_BYTES + TAIL_BYTES;

/** An output as a result shows it. */
export interface Shown {
  readonly text: string;
  /** How much the command wrote. */
  readonly bytes: number;
  /** The file of the machine that has what is not shown. */
  readonly path?: string;
}

export class Captured {
  readonly #pieces: Uint8Array[] = [];
  #held = 0;
  #bytes = 0;

  add(piece: Uint8Array): void {
    this.#bytes += piece.byteLength;
    const room = KEPT_BYTES - this.#held;
    if (room <= 0) return;
    const part = piece.byteLength <= room ? piece : piece.subarray(0, room);
    // A copy: pieces share the memory of larger ones.
    this.#pieces.push(new Uint8Array(part));
    this.#held += part.byteLength;
  }

  /** How much was written. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether it is too long to be shown whole. */
  get isLong(): boolean {
    return this.#bytes > SHOWN_BYTES;
  }

  /** Whether all of it is held. */
  get isWhole(): boolean {
    return this.#held === this.#bytes;
  }

  kept(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(Buffer.concat(this.#pieces));
  }

  /** `where`: where the rest is. Bytes that are not UTF-8 are shown as replacement characters. */
  show(where: string, path?: string): Shown {
    const kept = this.kept();
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    const facts = { bytes: this.#bytes, ...(path === undefined ? {} : { path }) };
    if (!this.isLong) return { text: decoder.decode(kept), ...facts };
    const head = decoder.decode(kept.subarray(0, HEAD_BYTES));
    const tail = decoder.decode(kept.subarray(-TAIL_BYTES));
    const left = `[${this.#bytes} bytes in all, ${this.#bytes - SHOWN_BYTES} of them left out here: ${where}]`;
    return { text: `${head}\n${left}\n${tail}`, ...facts };
  }
}
