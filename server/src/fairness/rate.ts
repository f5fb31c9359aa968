/**
 * Token buckets by name, in this process: for tenants and for addresses. Those of tenants are also emptied by
 * what other servers admit (shared-rates.ts); those of addresses are not.
 *
 * Always:
 * - A tenant has a bucket only after its key was checked; the number of address buckets is bounded (`max`),
 *   and the least recently used one is dropped, so unknown callers cannot fill the memory.
 * - A caller that is refused again and again gets its refusals later (`waitMs`), at most a second. A program
 *   sends its next request on a connection after the answer to the last one, so this slows a flood down where
 *   it begins.
 */
export interface RateVerdict {
  readonly isAllowed: boolean;
  /** How long the refusal is held back. */
  readonly waitMs: number;
  /** The headers that describe the bucket: names and values alternating. */
  readonly headers: string[];
}

/** `burst` is the bucket's size, `perSecond` its refill. */
export interface Rate {
  readonly perSecond: number;
  readonly burst: number;
}

interface Bucket {
  /** Below 0 after other servers have admitted more than was left. */
  tokens: number;
  /** Refusals that are not held back; below 0: how many of them are. */
  refusals: number;
  filledAt: number;
}

/** Refusals that a caller gets at once, and the longest that one is held back. */
const REFUSALS = { perSecond: 20, burst: 100 };
const REFUSAL_WAIT_MS_MAX = 1_000;
/** A caller that uses many servers at once waits no longer for its rate than this many bursts take. */
const DEBT_BURSTS_MAX = 10;

export class RateLimiter {
  readonly #buckets = new Map<string, Bucket>();
  readonly #max: number;

  constructor(max: number = Number.POSITIVE_INFINITY) {
    this.#max = max;
  }

  /** Takes one token. `now` by the monotonic clock. */
  take(name: string, rate: Rate, now: number): RateVerdict {
    const { perSecond, burst } = rate;
    const bucket = this.#filled(name, rate, now);
    const isAllowed = bucket.tokens >= 1;
    if (isAllowed) bucket.tokens -= 1;
    const remaining = String(Math.max(0, Math.floor(bucket.tokens)));
    const headers = [
      "ratelimit-limit",
      String(burst),
      "ratelimit-remaining",
      remaining,
      "ratelimit-reset",
      String(Math.ceil((burst - bucket.tokens) / perSecond)),
      "x-ratelimit-remaining",
      remaining,
    ];
    if (!isAllowed) headers.push("retry-after", String(Math.max(1, Math.ceil((1 - bucket.tokens) / perSecond))));
    return { isAllowed, waitMs: isAllowed ? 0 : refusalWaitMs(bucket), headers };
  }

  /** A refusal for another reason, which takes no token. Returns the milliseconds that it is held back. */
  refuse(name: string, rate: Rate, now: number): number {
    return refusalWaitMs(this.#filled(name, rate, now));
  }

  /** Takes what another server has admitted already, or what a request costs besides. */
  takeFromOther(name: string, tokens: number, { rate, now }: { readonly rate: Rate; readonly now: number }): void {
    const bucket = this.#filled(name, rate, now);
    bucket.tokens = Math.max(-DEBT_BURSTS_MAX * rate.burst, bucket.tokens - tokens);
  }

  /** Returns a token. */
  refund(name: string): void {
    const bucket = this.#buckets.get(name);
    if (bucket !== undefined) bucket.tokens += 1;
  }

  /**
   * The bucket with what has flowed in since it was last used. `now` may be earlier: of a request that waited
   * for its turn.
   */
  #filled(name: string, { perSecond, burst }: Rate, now: number): Bucket {
    const bucket = this.#bucketOf(name, burst, now);
    const seconds = Math.max(0, now - bucket.filledAt) / 1000;
    bucket.tokens = Math.min(burst, bucket.tokens + seconds * perSecond);
    bucket.refusals = Math.min(REFUSALS.burst, bucket.refusals + seconds * REFUSALS.perSecond);
    bucket.filledAt = Math.max(bucket.filledAt, now);
    return bucket;
  }

  #bucketOf(name: string, burst: number, now: number): Bucket {
    const known = this.#buckets.get(name);
    if (known !== undefined) {
      if (this.#max === Number.POSITIVE_INFINITY) return known;
      // The order of the map is that of last use.
      this.#buckets.delete(name);
    }
    const bucket = known ?? { tokens: burst, refusals: REFUSALS.burst, filledAt: now };
    this.#buckets.set(name, bucket);
    if (this.#buckets.size > this.#max) {
      const oldest = this.#buckets.keys().next();
      if (!oldest.done) this.#buckets.delete(oldest.value);
    }
    return bucket;
  }
}

/** Counts a refusal. */
function refusalWaitMs(bucket: Bucket): number {
  bucket.refusals = Math.max(-REFUSALS.perSecond * (REFUSAL_WAIT_MS_MAX / 1000), bucket.refusals - 1);
  return Math.max(0, -bucket.refusals / REFUSALS.perSecond) * 1000;
}
