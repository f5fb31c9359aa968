/**
 * Token buckets by name, in this process: for tenants and for addresses. Those of tenants are also emptied by what other
 * servers admit (shared-rates.ts); those of addresses are not.
 *
 * Always: a tenant has a bucket only after its key was checked; the number of address buckets is bounded (`max`), and the
 * least recently used one is dropped, so unknown callers cannot fill the memory.
 */
export interface RateVerdict {
  readonly isAllowed: boolean;
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
  filledAt: number;
}

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
    return { isAllowed, headers };
  }

  /** Takes what another server has admitted already. */
  takeFromOther(name: string, tokens: number, { rate, now }: { readonly rate: Rate; readonly now: number }): void {
    const bucket = this.#filled(name, rate, now);
    bucket.tokens = Math.max(-DEBT_BURSTS_MAX * rate.burst, bucket.tokens - tokens);
  }

  /** Returns a token. */
  giveBack(name: string): void {
    const bucket = this.#buckets.get(name);
    if (bucket !== undefined) bucket.tokens += 1;
  }

  /** The bucket with what has flowed in since it was last used. */
  #filled(name: string, { perSecond, burst }: Rate, now: number): Bucket {
    const bucket = this.#bucketOf(name, burst, now);
    bucket.tokens = Math.min(burst, bucket.tokens + ((now - bucket.filledAt) / 1000) * perSecond);
    bucket.filledAt = now;
    return bucket;
  }

  #bucketOf(name: string, burst: number, now: number): Bucket {
    const known = this.#buckets.get(name);
    if (known !== undefined) {
      if (this.#max === Number.POSITIVE_INFINITY) return known;
      // The order of the map is that of last use.
      this.#buckets.delete(name);
    }
    const bucket = known ?? { tokens: burst, filledAt: now };
    this.#buckets.set(name, bucket);
    if (this.#buckets.size > this.#max) {
      const oldest = this.#buckets.keys().next();
      if (!oldest.done) this.#buckets.delete(oldest.value);
    }
    return bucket;
  }
}
