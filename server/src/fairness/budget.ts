/**
 * A shared amount, such as bytes of memory or open requests: what each holder has of it, and all of them
 * together. Pure.
 *
 * Always:
 * - No holder has more than `perHolder`, and all holders together no more than `all`.
 * - A holder that returned everything is forgotten, so memory is bounded by the current holders.
 */

import { Refusal } from "@flotilla/contract/errors";

/** What is exhausted: the holder's share, or the total. */
export type Shortage = "holder" | "all";

/**
 * The answer to a caller for whom there is no room now: 429 when it is the caller's share, otherwise 503. The
 * texts say what to do.
 */
export function refusalOf(shortage: Shortage, text: Readonly<Record<Shortage, string>>): Refusal {
  return new Refusal(shortage === "all" ? "unavailable" : "rate_limited", text[shortage], {
    headers: { "retry-after": "1" },
  });
}

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

  /** Returns an amount that was taken before; each amount once. */
  release(holder: string, amount: number): void {
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
