/**
 * The end of the input that was sent to a command, until it is known that its guest has it.
 *
 * Pure. Always: the last KEPT_BYTES are kept, or all if there is less, or the last chunk if it is larger.
 */

/** More than is on its way between server and guest. */
const KEPT_BYTES = 1024 * 1024;
/** What may be added while there is no connection before a caller has to wait. */
const SMALL_BYTES = 256 * 1024;
/** Small chunks, such as keys that are typed, are copied together. */
const BLOCK_BYTES = 4096;

export class SentInput {
  #chunks: Uint8Array[] = [];
  #end = 0;
  #keptBytes = 0;
  /** How much of the last chunk, which is then a block of ours, is used. */
  #used = 0;
  #askedFrom = 0;

  add(chunk: Uint8Array): void {
    this.#end += chunk.byteLength;
    this.#keptBytes += chunk.byteLength;
    if (!this.#appended(chunk)) this.#chunks.push(chunk);
    for (let first = this.#lengthOf(0); this.#chunks.length > 1; first = this.#lengthOf(0)) {
      if (this.#keptBytes - first < KEPT_BYTES) break;
      this.#chunks.shift();
      this.#keptBytes -= first;
    }
  }

  /** The guest has received everything before the offset. */
  forget(offset: number): void {
    for (let first = this.#lengthOf(0); first > 0; first = this.#lengthOf(0)) {
      if (this.#end - this.#keptBytes + first > offset) return;
      if (this.#isBlock(0)) this.#used = 0;
      this.#chunks.shift();
      this.#keptBytes -= first;
    }
  }

  /** How much is kept. */
  get keptBytes(): number {
    return this.#keptBytes;
  }

  /** Whether little was added since `from` was called. */
  get isSmall(): boolean {
    return this.#end - this.#askedFrom < SMALL_BYTES;
  }

  /** What was sent from this offset on; null when it is not kept, or was never sent. */
  from(offset: number): Uint8Array[] | null {
    let skipped = offset - (this.#end - this.#keptBytes);
    if (skipped < 0 || offset > this.#end) return null;
    this.#askedFrom = this.#end;
    const rest: Uint8Array[] = [];
    for (const [at, chunk] of this.#chunks.entries()) {
      const part = chunk.subarray(Math.min(skipped, this.#lengthOf(at)), this.#lengthOf(at));
      skipped = Math.max(0, skipped - this.#lengthOf(at));
      // A block changes when more is added.
      if (part.byteLength > 0) rest.push(this.#isBlock(at) ? Uint8Array.from(part) : part);
    }
    return rest;
  }

  #isBlock(at: number): boolean {
    return at === this.#chunks.length - 1 && this.#used > 0;
  }

  #lengthOf(at: number): number {
    return this.#isBlock(at) ? this.#used : (this.#chunks[at]?.byteLength ?? 0);
  }

  /** Copies a small chunk into the last block, or into a new one. */
  #appended(chunk: Uint8Array): boolean {
    const last = this.#used > 0 ? this.#chunks.at(-1) : undefined;
    if (last !== undefined && this.#used + chunk.byteLength <= last.byteLength) {
      last.set(chunk, this.#used);
      this.#used += chunk.byteLength;
      return true;
    }
    // The full block keeps only what it contains.
    if (last !== undefined) this.#chunks[this.#chunks.length - 1] = last.subarray(0, this.#used);
    this.#used = 0;
    if (chunk.byteLength === 0 || chunk.byteLength > BLOCK_BYTES / 4) return false;
    const block = new Uint8Array(BLOCK_BYTES);
    block.set(chunk);
    this.#chunks.push(block);
    this.#used = chunk.byteLength;
    return true;
  }
}
