/**
 * Bytes that arrive in pieces of any size and are held: large pieces as they are, small ones copied together.
 * Pure.
 *
 * Always: a million pieces are not a million objects, and at most half of the memory is empty. Without that,
 * a byte that comes alone would be an object.
 */

/** A larger piece is kept as it is: a copy would cost more than another object. */
const PIECE_BYTES_MIN = 4 * 1024;
const SLAB_BYTES_MAX = 64 * 1024;
const NOTHING = Buffer.alloc(0);

/** `Refusal`: how `grow` says that there is no room. */
export class Pieces<Refusal extends object = never> {
  readonly #max: number;
  readonly #grow: (bytes: number) => Refusal | null;
  readonly #pieces: Buffer[] = [];
  #slab: Buffer = NOTHING;
  #slabBytes = 0;
  #size = 0;

  /**
   * `max`: how many bytes come at most. `grow`: says whether there is memory for that many more; null: there
   * is.
   */
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

/** A piece of a stream of bytes or of text. */
export type Piece = Buffer | string;

/** The same bytes in order, with small pieces that follow each other in one. Pure. */
export function joinSmall(pieces: readonly Piece[]): readonly Piece[] {
  if (pieces.length <= 1) return pieces;
  const result: Piece[] = [];
  for (let at = 0; at < pieces.length; ) {
    const first = pieces[at] ?? "";
    let end = at + 1;
    if (isSmall(first)) while (end < pieces.length && isAlike(first, pieces[end])) end += 1;
    const alike = pieces.slice(at, end);
    if (alike.length === 1) result.push(first);
    else result.push(typeof first === "string" ? alike.join("") : Buffer.concat(alike as Buffer[]));
    at = end;
  }
  return result;
}

const isSmall = (piece: Piece): boolean => piece.length < PIECE_BYTES_MIN;
const isAlike = (first: Piece, next: Piece | undefined): boolean =>
  next !== undefined && typeof next === typeof first && isSmall(next);
