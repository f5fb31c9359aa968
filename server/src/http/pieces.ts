/**
 * Bytes that arrive in pieces of any size and are held: large pieces as they are, small ones copied together. Pure.
 *
 * Always: a million pieces are not a million objects, and at most half of the memory is empty. Without that, a byte that comes alone
 * takes 150 to 300.
 */
import type { Refusal } from "@flotilla/contract/errors";

/** A smaller piece is copied into a slab with others. */
const PIECE_BYTES_MIN = 4 * 1024;
const SLAB_BYTES_MAX = 64 * 1024;
const NOTHING = Buffer.alloc(0);

export class Pieces {
  readonly #max: number;
  readonly #grow: (bytes: number) => Refusal | null;
  readonly #pieces: Buffer[] = [];
  #slab: Buffer = NOTHING;
  #slabBytes = 0;
  #size = 0;

  /** `max`: how many bytes come at most. `grow`: says whether there is memory for so many more; null: there is. */
  constructor(max: number, grow: (bytes: number) => Refusal | null = () => null) {
    this.#max = max;
    this.#grow = grow;
  }

  /** null when there was room. */
  add(piece: Uint8Array): Refusal | null {
    const isKept = piece.byteLength >= PIECE_BYTES_MIN || piece.byteLength === this.#max;
    const refusal = isKept ? this.#keep(piece) : this.#copy(piece);
    if (refusal === null) this.#size += piece.byteLength;
    return refusal;
  }

  /** What has come so far, in order. */
  all(): readonly Buffer[] {
    this.#endSlab();
    return this.#pieces;
  }

  clear(): void {
    this.#pieces.length = 0;
    this.#slab = NOTHING;
    this.#slabBytes = 0;
    this.#size = 0;
  }

  #keep(piece: Uint8Array): Refusal | null {
    const refusal = this.#grow(piece.byteLength);
    if (refusal !== null) return refusal;
    this.#endSlab();
    this.#pieces.push(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    return null;
  }

  #copy(piece: Uint8Array): Refusal | null {
    if (this.#slab.byteLength - this.#slabBytes < piece.byteLength) {
      // As large as what came so far, so that at most half of the memory is empty.
      const wanted = Math.min(SLAB_BYTES_MAX, Math.max(PIECE_BYTES_MIN, this.#size), this.#max - this.#size);
      const capacity = Math.max(piece.byteLength, wanted);
      const refusal = this.#grow(capacity);
      if (refusal !== null) return refusal;
      this.#endSlab();
      this.#slab = Buffer.allocUnsafeSlow(capacity);
    }
    this.#slab.set(piece, this.#slabBytes);
    this.#slabBytes += piece.byteLength;
    return null;
  }

  #endSlab(): void {
    if (this.#slabBytes > 0) this.#pieces.push(this.#slab.subarray(0, this.#slabBytes));
    this.#slab = NOTHING;
    this.#slabBytes = 0;
  }
}
