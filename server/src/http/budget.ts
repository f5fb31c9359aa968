/**
 * An amount of something that many share, such as bytes of memory or open requests: how much each holder has of it, and
 * all of them together. Pure.
 *
 * Always: nobody holds more than `perHolder`, and all of them no more than `all`; a holder that gave everything back is
 * forgotten, so the memory is bounded by those who hold something now.
 */

/** Who has no room left: the holder, or everybody. */
export type Shortage = "holder" | "all";

export class Budget {
  readonly perHolder: number;
  readonly all: number;
  readonly #held = new Map<string, number>();
  #total = 0;

  constructor({ perHolder, all }: { readonly perHolder: number; readonly all: number }) {
    this.perHolder = perHolder;
    this.all = all;
  }

  /** Takes the whole amount and returns null, or takes nothing. */
  take(holder: string, amount: number): Shortage | null {
    const held = this.heldBy(holder) + amount;
    if (held > this.perHolder) return "holder";
    if (this.#total + amount > this.all) return "all";
    this.#held.set(holder, held);
    this.#total += amount;
    return null;
  }

  /** Of what was taken before; each amount once. */
  giveBack(holder: string, amount: number): void {
    const left = this.heldBy(holder) - amount;
    this.#total -= amount;
    if (left > 0) this.#held.set(holder, left);
    else this.#held.delete(holder);
  }

  heldBy(holder: string): number {
    return this.#held.get(holder) ?? 0;
  }

  get total(): number {
    return this.#total;
  }
}
