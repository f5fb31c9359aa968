/**
 * Random numbers that follow from a seed: xoshiro128**, seeded by splitmix32.
 */
export class Random {
  readonly #state: Uint32Array;

  constructor(seed: number) {
    this.#state = new Uint32Array(4);
    let mixed = seed >>> 0;
    for (let at = 0; at < 4; at += 1) {
      mixed = (mixed + 0x9e3779b9) >>> 0;
      let value = mixed;
      value = Math.imul(value ^ (value >>> 16), 0x21f0aaad);
      value = Math.imul(value ^ (value >>> 15), 0x735a2d97);
      this.#state[at] = (value ^ (value >>> 15)) >>> 0;
    }
  }

  uint32(): number {
    const [a, b, c, d] = this.#state as unknown as [number, number, number, number];
    const turned = Math.imul(b, 5);
    const result = Math.imul((turned << 7) | (turned >>> 25), 9) >>> 0;
    const [c2, d2] = [c ^ a, d ^ b];
    this.#state[1] = b ^ c2;
    this.#state[0] = a ^ d2;
    this.#state[2] = c2 ^ (b << 9);
    this.#state[3] = (d2 << 11) | (d2 >>> 21);
    return result;
  }

  /** From 0 to below 1. */
  fraction(): number {
    return this.uint32() / 2 ** 32;
  }

  between(from: number, to: number): number {
    return from + this.fraction() * (to - from);
  }

  /** A whole number from 0 to below `count`. */
  below(count: number): number {
    return Math.floor(this.fraction() * count);
  }

  happens(probability: number): boolean {
    return this.fraction() < probability;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  bytes(size: number): Buffer {
    const bytes = Buffer.alloc(size);
    for (let at = 0; at < size; at += 4) {
      const value = this.uint32();
      for (let part = 0; part < 4 && at + part < size; part += 1) bytes[at + part] = (value >>> (part * 8)) & 0xff;
    }
    return bytes;
  }
}
