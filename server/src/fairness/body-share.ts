/**
 * What the body of a request holds of this server's memory.
 *
 * Always: what was taken is released once.
 */
import type { Refusal } from "@flotilla/contract/errors";
import { type Budget, refusalOf, type Shortage } from "./budget.ts";

/** Bytes of a body that one holder has in this server's memory, until `release`. */
export class BodyShare {
  readonly #budget: Budget;
  readonly holder: string;
  #bytes = 0;

  constructor(budget: Budget, holder: string) {
    this.#budget = budget;
    this.holder = holder;
  }

  /** null when there is room. */
  grow(bytes: number): Refusal | null {
    const shortage = this.#budget.take(this.holder, bytes);
    if (shortage !== null) return noRoom(shortage, this.#budget);
    this.#bytes += bytes;
    return null;
  }

  release(): void {
    this.#budget.release(this.holder, this.#bytes);
    this.#bytes = 0;
  }
}

const noRoom = (shortage: Shortage, { perHolder }: Budget): Refusal =>
  refusalOf(shortage, {
    all: "the server holds as many request bodies as it has room for; send the request again in a moment",
    holder:
      `the requests of this tenant that run now hold ${perHolder} bytes of bodies, which is all it may; ` +
      "send fewer at once, or upload large input as a file",
  });
