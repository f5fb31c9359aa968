/**
 * The end of a terminal's output: what its client does not have, and a little that it has, for readers.
 *
 * Pure. Always: a byte has one offset, counted since the program began. Nothing after `acknowledged` is
 * discarded, so it is for its owner to stop adding when `isFull`.
 */

/**
 * How much is kept for readers, and how much the client may lack before the program is paused. With a window
 * of the guest's channel it is less than the guest keeps, so a terminal is continued also after the loss of
 * this process.
 */
export const RING_BYTES = 128 * 1024;
/** Small pieces, such as the echo of keys, are copied into blocks: each has a cost besides its bytes. */
const SMALL_BYTES = 2 * 1024;
const BLOCK_BYTES = 8 * 1024;

export class OutputRing {
  #pieces: Buffer[] = [];
  /** Begins with the last piece, and has room for more. */
  #block: Buffer | null = null;
  #start: number;
  #end: number;
  #acknowledged: number;

  /** Empty; its first byte will have this offset. */
  constructor(offset = 0) {
    this.#start = this.#end = this.#acknowledged = offset;
  }

  /** Offset of the first byte that is kept. */
  get start(): number {
    return this.#start;
  }

  /** Offset of the next byte. */
  get end(): number {
    return this.#end;
  }

  /** Whether the client lacks as much as it may. */
  get isFull(): boolean {
    return this.#end - this.#acknowledged >= RING_BYTES;
  }

  add(piece: Buffer): void {
    if (piece.byteLength > SMALL_BYTES) {
      this.#block = null;
      this.#pieces.push(piece);
    } else this.#addSmall(piece);
    this.#end += piece.byteLength;
    this.#discard();
  }

  /** The client has everything before the offset. */
  acknowledge(offset: number): void {
    this.#acknowledged = Math.max(this.#acknowledged, Math.min(offset, this.#end));
    this.#discard();
  }

  /** Another client begins at the offset, or at the nearest that is kept; returns it. */
  begin(offset: number): number {
    this.#acknowledged = this.nearest(offset);
    return this.#acknowledged;
  }

  nearest(offset: number): number {
    return Math.min(Math.max(offset, this.#start), this.#end);
  }

  /** What is kept from the offset on; the offset is one that is kept. */
  from(offset: number): Buffer[] {
    const rest: Buffer[] = [];
    let at = this.#start;
    for (const piece of this.#pieces) {
      const skipped = Math.max(0, offset - at);
      if (skipped < piece.byteLength) rest.push(piece.subarray(skipped));
      at += piece.byteLength;
    }
    return rest;
  }

  #addSmall(piece: Buffer): void {
    const usedBytes = this.#block === null ? 0 : (this.#pieces.at(-1)?.byteLength ?? 0);
    if (this.#block !== null && usedBytes + piece.byteLength <= BLOCK_BYTES) this.#pieces.pop();
    else this.#block = null;
    const at = this.#block === null ? 0 : usedBytes;
    this.#block ??= Buffer.allocUnsafeSlow(BLOCK_BYTES);
    this.#block.set(piece, at);
    this.#pieces.push(this.#block.subarray(0, at + piece.byteLength));
  }

  /** Whole pieces, which are at most 64 KiB. */
  #discard(): void {
    const needed = Math.min(this.#acknowledged, this.#end - RING_BYTES);
    for (let [first] = this.#pieces; first !== undefined; [first] = this.#pieces) {
      if (this.#start + first.byteLength > needed) return;
      this.#pieces.shift();
      if (this.#pieces.length === 0) this.#block = null;
      this.#start += first.byteLength;
    }
  }
}
