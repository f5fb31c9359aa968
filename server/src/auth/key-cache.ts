/**
 * From an API key to its permissions, without a query on most requests.
 *
 * Always:
 * - A session of the console has the facts of its key, under another name and with an earlier expiry.
 * - A revoked key (`forgetKey`), a session that was signed out and a changed tenant or plan take effect on
 *   this server before the change is acknowledged, and within milliseconds on others (channels `keys` and
 *   `tenants`).
 * - Expiry is not checked here: it depends on the clock of each request.
 */
import { grants } from "@flotilla/contract/scopes";
import type { Database } from "../db/database.ts";
import { NotifiedCache } from "../db/notified-cache.ts";
import type { Caller, Guard } from "./caller.ts";
import { findKeyRow, findSessionRow, type KeyRow } from "./key-store.ts";
import { hashedName, hasKeyForm, hasSessionTokenForm } from "./keys.ts";

/** A key that exists and is not revoked, with the facts about its tenant that requests need. */
export interface KnownKey extends Caller {
  readonly isSuspended: boolean;
  readonly requestsPerSecond: number;
  readonly burst: number;
  /** The hash of the session's token, where a browser has called; null: the key itself was sent. */
  readonly sessionHash: string | null;
}

const KEYS_MAX = 10_000;

export class KeyCache {
  readonly #db: Database;
  readonly #known: NotifiedCache<KnownKey>;

  constructor(db: Database) {
    this.#db = db;
    this.#known = new NotifiedCache(db, {
      entriesMax: KEYS_MAX,
      changes: [
        { channel: "keys", concerns: ({ keyId }, payload) => keyId === payload },
        // A change of a plan affects tenants that are not named, so any change empties the cache.
        { channel: "tenants" },
      ],
    });
  }

  /** undefined: no such key, or revoked. A promise only where the database is asked. */
  find(key: string, guard: Guard): KnownKey | undefined | Promise<KnownKey | undefined> {
    return hasKeyForm(key) ? this.findByHash(hashedName(key), guard) : undefined;
  }

  /** The same, by the hash of a key that was checked before. */
  findByHash(name: string, guard: Guard): KnownKey | undefined | Promise<KnownKey | undefined> {
    return this.#known.get(name) ?? guard(name, () => this.#read(name));
  }

  #read(name: string): Promise<KnownKey | undefined> {
    return this.#known.read(name, async () => {
      const row = await findKeyRow(this.#db, Buffer.from(name, "hex"));
      return row && fromRow(row);
    });
  }

  /** The key that the token of a session represents. undefined: it has ended, or its key is revoked. */
  findSession(token: string, guard: Guard): KnownKey | undefined | Promise<KnownKey | undefined> {
    const hash = hashedName(token);
    const name = `session ${hash}`;
    const read = (): Promise<KnownKey | undefined> =>
      this.#known.read(name, async () => {
        const row = await findSessionRow(this.#db, Buffer.from(hash, "hex"));
        return row && { ...fromRow(row), sessionHash: hash };
      });
    return this.#known.get(name) ?? (hasSessionTokenForm(token) ? guard(hash, read) : undefined);
  }

  forgetKey(keyId: string): void {
    this.#known.forget((known) => known.keyId === keyId);
  }
}

export const fromRow = (row: KeyRow): KnownKey => ({
  kind: "key",
  keyId: row.id,
  tenantId: row.tenantId,
  scopes: row.scopes,
  isAdmin: grants(row.scopes, "admin"),
  expiresAt: row.expiresAt,
  isSuspended: row.status === "suspended",
  requestsPerSecond: row.requestsPerSecond,
  burst: row.burst,
  sessionHash: null,
});
