/**
 * What was typed into a kept terminal and its machine may not have: it is sent again after a lost connection.
 *
 * Pure. Always: bytes are counted since the terminal's program began. At most TYPED_BYTES_MAX wait; a writer
 * waits while `hasRoom` is false.
 */

/** How much may be sent before the machine has taken it. */
export const TYPED_BYTES_MAX = 256 * 1024;
/** In one message. */
export const PIECE_BYTES = 64 * 1024;

export class Typed {
  #pieces: Uint8Array<ArrayBuffer>[] = [];
  #bytes = 0;
  /** Offset of the first byte that waits; null: the terminal was not reached yet. */
  #start: number | null = null;

  /** Whether a piece fits. */
  get hasRoom(): boolean {
    return this.#bytes + PIECE_BYTES <= TYPED_BYTES_MAX;
  }

  add(piece: Uint8Array<ArrayBuffer>): void {
    this.#pieces.push(piece);
    this.#bytes += piece.byteLength;
  }

  /** The terminal has got so much of the input: returns what is to be sent. */
  attached(offset: number): readonly Uint8Array<ArrayBuffer>[] {
    this.#start ??= offset;
    const skipped = Math.max(0, offset - this.#start);
    // Another client has typed meanwhile.
    if (skipped > this.#bytes) this.#forgetAll(offset);
    return this.#from(Math.min(skipped, this.#bytes));
  }

  /** The machine has everything before the offset. */
  taken(offset: number): void {
    if (this.#start === null) return;
    if (offset - this.#start > this.#bytes) return this.#forgetAll(offset);
    const rest = this.#from(Math.max(0, offset - this.#start));
    this.#pieces = rest;
    this.#bytes = rest.reduce((sum, { byteLength }) => sum + byteLength, 0);
    this.#start = Math.max(this.#start, offset);
  }

  #forgetAll(offset: number): void {
    this.#pieces = [];
    this.#bytes = 0;
    this.#start = offset;
  }

  #from(skipped: number): Uint8Array<ArrayBuffer>[] {
    let left = skipped;
    return this.#pieces.flatMap((piece) => {
      const part = piece.subarray(Math.min(left, piece.byteLength));
      left -= piece.byteLength - part.byteLength;
      return part.byteLength === 0 ? [] : [part];
    });
  }
}
