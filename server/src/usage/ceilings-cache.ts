/**
 * The ceilings of tenants' plans, cached in memory: every create and start needs them.
 *
 * Always: a changed plan or tenant empties the cache within milliseconds (channel `tenants`).
 */
import type { Database } from "../db/database.ts";
import { NotifiedCache } from "../db/notified-cache.ts";
import type { Ceilings } from "./quota.ts";
import { readCeilings } from "./store.ts";

const TENANTS_MAX = 10_000;

export class CeilingsCache {
  readonly #db: Database;
  readonly #known: NotifiedCache<Ceilings>;

  constructor(db: Database) {
    this.#db = db;
    // A changed plan affects tenants that are not named, so any change empties the cache.
    this.#known = new NotifiedCache(db, { entriesMax: TENANTS_MAX, changes: [{ channel: "tenants" }] });
  }

  async of(tenantId: string): Promise<Ceilings> {
    return this.#known.get(tenantId) ?? (await this.#known.read(tenantId, () => readCeilings(this.#db, tenantId)));
  }

  close(): void {
    this.#known.close();
  }
}
