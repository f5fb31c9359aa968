/**
 * From an API key to what it may do, without a query on most requests.
 *
 * Always:
 * - a revoked key and a changed tenant or plan take effect at once on this server (`forget…`) and within
 *   milliseconds on others (channels `keys` and `tenants`); while notifications do not arrive nothing is cached;
 * - an answer that was read while a change came in is used once and not kept (the epoch);
 * - keys that do not exist are never kept, so strangers cannot fill the memory;
 * - expiry is not decided here: it depends on the clock of each request.
 */
import { grants } from "@flotilla/contract/scopes";
import type { Database } from "../db/database.ts";
import type { Caller, Guard } from "./caller.ts";
import { findKeyRow, type KeyRow } from "./key-store.ts";
import { hashedName, hasKeyForm } from "./keys.ts";

/** A key that exists and is not revoked, with what a request needs to know of its tenant. */
export interface KnownKey extends Caller {
  readonly isSuspended: boolean;
  readonly requestsPerSecond: number;
  readonly burst: number;
}

const KEYS_MAX = 10_000;

export class KeyCache {
  readonly #db: Database;
  readonly #known = new Map<string, KnownKey>();
  readonly #unlisten: readonly (() => void)[];
  #epoch = 0;

  constructor(db: Database) {
    this.#db = db;
    const onGap = () => this.forgetAll();
    this.#unlisten = [
      db.listen("keys", { onPayload: (keyId) => this.forgetKey(keyId), onGap }),
      // A change of a plan concerns tenants that are not named, so any change empties it.
      db.listen("tenants", { onPayload: onGap, onGap }),
    ];
  }

  /** undefined: no such key, or revoked. A promise only where the database is asked. */
  find(key: string, guard: Guard): KnownKey | undefined | Promise<KnownKey | undefined> {
    const name = hashedName(key);
    return this.#known.get(name) ?? (hasKeyForm(key) ? guard(name, () => this.#read(name)) : undefined);
  }

  async #read(name: string): Promise<KnownKey | undefined> {
    const epoch = this.#epoch;
    const row = await findKeyRow(this.#db, Buffer.from(name, "hex"));
    if (row === undefined) return undefined;
    const known = fromRow(row);
    if (epoch === this.#epoch && this.#db.isListening()) this.#keep(name, known);
    return known;
  }

  forgetKey(keyId: string): void {
    this.#epoch++;
    for (const [name, known] of this.#known) if (known.keyId === keyId) this.#known.delete(name);
  }

  /** After a change of a tenant or a plan. */
  forgetAll(): void {
    this.#epoch++;
    this.#known.clear();
  }

  close(): void {
    for (const unlisten of this.#unlisten) unlisten();
  }

  #keep(name: string, known: KnownKey): void {
    this.#known.set(name, known);
    if (this.#known.size <= KEYS_MAX) return;
    for (const oldest of this.#known.keys()) {
      this.#known.delete(oldest);
      return;
    }
  }
}

export const fromRow = (row: KeyRow): KnownKey => ({
  kind: "key",
  keyId: row.id,
  tenantId: row.tenant_id,
  scopes: row.scopes,
  isAdmin: grants(row.scopes, "admin"),
  expiresAt: row.expires_at?.getTime() ?? null,
  isSuspended: row.status === "suspended",
  requestsPerSecond: row.rate_requests_per_second,
  burst: row.rate_burst,
});
