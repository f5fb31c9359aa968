/**
 * Limits the queries of callers that are not authenticated: one for each unknown credential and each unknown
 * machine address. Each address has a bucket that is charged for them before the query.
 *
 * Always:
 * - A valid credential costs nothing.
 * - A key that was unknown a moment ago is refused without another query.
 * - An address that is refused again and again gets its refusals later (rate.ts).
 * - A cached key never comes here, so unknown callers at a tenant's address do not slow the tenant down.
 * - Both memories are bounded.
 */
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import type { CallerAddress } from "./caller-address.ts";
import { type Rate, RateLimiter } from "./rate.ts";

/** A program with an old key, or many callers behind one address, are not refused at once. */
const RATE = { perSecond: 20, burst: 200 };
/** Rate of a proxy that does not name its clients, and of programs on this host. */
const PROXY_RATE = { perSecond: 200, burst: 2_000 };
const ADDRESSES_MAX = 20_000;
const UNKNOWN_MAX = 10_000;
/** Keys are random, so one that is unknown stays so; this bounds how wrong an exception can be. */
const UNKNOWN_MS = 5_000;

/** How long a refusal is held back, at most until its caller goes or the server stops. */
export interface Wait {
  readonly waitMs: number;
  readonly presence: {
    /** Aborted when the caller has disconnected. */
    readonly signal: AbortSignal;
    /** Aborted when the server begins to stop. */
    readonly closing: AbortSignal;
  };
}

/** Waits before a refusal. undefined: not at all. */
type HoldBack = (holder: string, wait: Wait) => Promise<void> | undefined;

export class UnauthenticatedCallers {
  readonly #clock: Clock;
  readonly #holdBack: HoldBack;
  readonly #rate = new RateLimiter(ADDRESSES_MAX);
  /** Until when, by the hash of the key. */
  readonly #unknown = new Map<string, number>();

  constructor(clock: Clock, holdBack: HoldBack) {
    this.#clock = clock;
    this.#holdBack = holdBack;
  }

  /** Charges the address for a query. Rejects with a Refusal when the address has asked too often. */
  async charge({ address, isProxy }: CallerAddress, presence: Wait["presence"]): Promise<void> {
    const { isAllowed, waitMs, headers } = this.#rate.take(address, rateOf(isProxy), this.#clock.monotonic());
    if (isAllowed) return;
    await this.#holdBack(address, { waitMs, presence });
    const text = "too many requests from this address with unknown keys or to unknown machines; wait a moment";
    throw new Refusal("rate_limited", text, { headers: { "retry-after": headers.at(-1) ?? "1" } });
  }

  /** Waits before a refusal that needed no query. Rejects when the caller has gone. */
  async refuse({ address, isProxy }: CallerAddress, presence: Wait["presence"]): Promise<void> {
    const waitMs = this.#rate.refuse(address, rateOf(isProxy), this.#clock.monotonic());
    await this.#holdBack(address, { waitMs, presence });
  }

  /** Returns what was charged: the caller was authorized. */
  refund({ address }: CallerAddress): void {
    this.#rate.refund(address);
  }

  /** What `read` returns; undefined without a query if it was that for the name a moment ago. */
  async ask<T>(
    { from, name, presence }: { readonly from: CallerAddress; readonly name: string | null } & Pick<Wait, "presence">,
    read: () => Promise<T | undefined>,
  ): Promise<T | undefined> {
    if (name !== null && this.#isUnknown(name)) {
      await this.refuse(from, presence);
      return undefined;
    }
    await this.charge(from, presence);
    let isKnown = true;
    try {
      const found = await read();
      isKnown = found !== undefined;
      if (!isKnown && name !== null) this.#keepUnknown(name);
      return found;
    } finally {
      if (isKnown) this.refund(from);
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

const rateOf = (isProxy: boolean): Rate => (isProxy ? PROXY_RATE : RATE);
