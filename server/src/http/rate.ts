/**
 * A token bucket per tenant, in this process. With several servers a tenant has as many buckets as servers.
 *
 * Always: buckets exist only for tenants whose key was checked, so strangers cannot fill the memory.
 */
export interface RateVerdict {
  readonly isAllowed: boolean;
  /** The headers that tell callers where they stand: names and values in turns. */
  readonly headers: string[];
}

interface Bucket {
  tokens: number;
  filledAt: number;
}

export class RateLimiter {
  readonly #buckets = new Map<string, Bucket>();

  /** Takes one token. `burst` is the bucket's size, `perSecond` its refill, `now` by the monotonic clock. */
  take(
    tenantId: string,
    { perSecond, burst }: { readonly perSecond: number; readonly burst: number },
    now: number,
  ): RateVerdict {
    let bucket = this.#buckets.get(tenantId);
    if (bucket === undefined) {
      bucket = { tokens: burst, filledAt: now };
      this.#buckets.set(tenantId, bucket);
    }
    bucket.tokens = Math.min(burst, bucket.tokens + ((now - bucket.filledAt) / 1000) * perSecond);
    bucket.filledAt = now;
    const isAllowed = bucket.tokens >= 1;
    if (isAllowed) bucket.tokens -= 1;
    const remaining = String(Math.floor(bucket.tokens));
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
}
