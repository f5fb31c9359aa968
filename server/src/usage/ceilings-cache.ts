/**
 * The ceilings of tenants' plans, kept in memory: every create and start needs them.
 *
 * Always: a changed plan or tenant drops them within milliseconds (channel `tenants`); while notifications do not
 * arrive nothing is kept; what was read while a change came in is used once and not kept.
 */
import type { Database } from "../db/database.ts";
import type { Ceilings } from "./quota.ts";
import { readCeilings } from "./store.ts";

const TENANTS_MAX = 10_000;

export class CeilingsCache {
  readonly #db: Database;
  readonly #known = new Map<string, Ceilings>();
  readonly #unlisten: () => void;
  #epoch = 0;

  constructor(db: Database) {
    this.#db = db;
    // A changed plan concerns tenants that are not named, so any change empties it.
    const forget = () => this.#forgetAll();
    this.#unlisten = db.listen("tenants", { onPayload: forget, onGap: forget });
  }

  async of(tenantId: string): Promise<Ceilings> {
    const known = this.#known.get(tenantId);
    if (known !== undefined) return known;
    const epoch = this.#epoch;
    const ceilings = await readCeilings(this.#db, tenantId);
    if (epoch === this.#epoch && this.#db.isListening() && this.#known.size < TENANTS_MAX)
      this.#known.set(tenantId, ceilings);
    return ceilings;
  }

  close(): void {
    this.#unlisten();
  }

  #forgetAll(): void {
    this.#epoch += 1;
    this.#known.clear();
  }
}
