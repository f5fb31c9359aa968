/**
 * Reads an API key with what a request needs to know of its tenant, in one query.
 *
 * Writes nothing: api_keys belongs to apikeys/store.ts, tenants and plans to theirs.
 */
import { type Queryable, sql } from "../db/database.ts";

export interface KeyRow {
  readonly id: string;
  readonly tenant_id: string;
  readonly scopes: readonly string[];
  readonly expires_at: Date | null;
  readonly status: string;
  readonly rate_requests_per_second: number;
  readonly rate_burst: number;
}

/** undefined: no such key, or revoked. */
export const findKeyRow = (db: Queryable, hash: Buffer): Promise<KeyRow | undefined> =>
  db.queryOne<KeyRow>(sql`
    SELECT k.id, k.tenant_id, k.scopes, k.expires_at, t.status, p.rate_requests_per_second, p.rate_burst
    FROM api_keys k
    JOIN tenants t ON t.id = k.tenant_id
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    WHERE k.key_hash = ${hash} AND k.revoked_at IS NULL`);
