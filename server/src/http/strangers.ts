/**
 * What callers without a right may cost: each credential that is not known, and each address of a machine that does not
 * exist, is a query. A bucket for each address pays for them, before the database is asked.
 *
 * Always: a credential that turns out good costs nothing; a key that was unknown a moment ago is unknown without another
 * query; a key in memory is not asked for here at all, so a tenant that calls is not touched by what strangers do from
 * the same address. Both memories are bounded.
 */
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import type { CallerAddress } from "./caller-address.ts";
import { RateLimiter } from "./rate.ts";

/** So that a program with an old key, or many behind one address, are not refused at once. */
const RATE = { perSecond: 20, burst: 200 };
/** Of a proxy that does not say for whom it asks, and of this host's own programs. */
const PROXY_RATE = { perSecond: 200, burst: 2_000 };
const ADDRESSES_MAX = 20_000;
const UNKNOWN_MAX = 10_000;
/** Keys are random, so one that is unknown stays so; this bounds how wrong an exception can be. */
const UNKNOWN_MS = 5_000;

export class Strangers {
  readonly #clock: Clock;
  readonly #rate = new RateLimiter(ADDRESSES_MAX);
  /** Until when, by the hash of the key. */
  readonly #unknown = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Pays for a query. Throws a Refusal when the address has asked too often. */
  pay({ address, isProxy }: CallerAddress): void {
    const rate = isProxy ? PROXY_RATE : RATE;
    const { isAllowed, headers } = this.#rate.take(address, rate, this.#clock.monotonic());
    if (isAllowed) return;
    const text = "too many requests from this address with keys or to machines that are not known; wait a moment";
    throw new Refusal("rate_limited", text, { "retry-after": headers.at(-1) ?? "1" });
  }

  /** The caller had a right after all. */
  repay({ address }: CallerAddress): void {
    this.#rate.giveBack(address);
  }

  /** What `read` gives; undefined without asking when it gave that for the name a moment ago. */
  async ask<T>(from: CallerAddress, name: string | null, read: () => Promise<T | undefined>): Promise<T | undefined> {
    if (name !== null && this.#isUnknown(name)) return undefined;
    this.pay(from);
    let isKnown = true;
    try {
      const found = await read();
      isKnown = found !== undefined;
      if (!isKnown && name !== null) this.#keepUnknown(name);
      return found;
    } finally {
      if (isKnown) this.repay(from);
    }
  }

  #isUnknown(name: string): boolean {
    const until = this.#unknown.get(name);
    if (until === undefined) return false;
    if (until > this.#clock.monotonic()) return true;
    this.#unknown.delete(name);
    return false;
  }

  #keepUnknown(name: string): void {
    this.#unknown.set(name, this.#clock.monotonic() + UNKNOWN_MS);
    if (this.#unknown.size <= UNKNOWN_MAX) return;
    const oldest = this.#unknown.keys().next();
    if (!oldest.done) this.#unknown.delete(oldest.value);
  }
}
