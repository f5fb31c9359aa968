/**
 * Counts the idempotency keys of each tenant and the bytes of their answers, so that both stay bounded.
 *
 * Always: a tenant is counted in the database at most every READ_AGAIN_MS, and in memory in between. Several
 * servers together may exceed a bound by what they add in that time.
 */
import type { Context } from "../context.ts";
import { type KeyUse, readKeyUse } from "./idempotency-store.ts";

/** Within 24 hours, for which a key is kept. */
export const IDEMPOTENCY_KEYS_MAX = 10_000;
export const IDEMPOTENCY_BYTES_MAX = 64 * 1024 * 1024;
const READ_AGAIN_MS = 10_000;
const TENANTS_MAX = 10_000;

interface Tally {
  readonly readAt: number;
  keys: number;
  bytes: number;
}

export class IdempotencyUse {
  readonly #context: Pick<Context, "db" | "clock">;
  readonly #tallies = new Map<string, Tally>();

  constructor(context: Pick<Context, "db" | "clock">) {
    this.#context = context;
  }

  async of(tenantId: string): Promise<KeyUse> {
    const { db, clock } = this.#context;
    const now = clock.monotonic();
    const known = this.#tallies.get(tenantId);
    if (known !== undefined && now - known.readAt < READ_AGAIN_MS) return known;
    const read = { ...(await readKeyUse(db, tenantId)), readAt: now };
    if (this.#tallies.size >= TENANTS_MAX) this.#tallies.clear();
    this.#tallies.set(tenantId, read);
    return read;
  }

  /** Adds a key or an answer that was written since the last count. */
  add(tenantId: string, { keys = 0, bytes = 0 }: Partial<KeyUse>): void {
    const tally = this.#tallies.get(tenantId);
    if (tally === undefined) return;
    tally.keys += keys;
    tally.bytes += bytes;
  }
}
