/**
 * The statements that authentication needs: a key with its tenant in one query, when keys were last used, the
 * admin key.
 *
 * apikeys/store.ts makes and revokes all other keys; tenants and plans are only read here. Instants are epoch
 * milliseconds.
 */
import { type Database, type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface KeyRow {
  readonly id: string;
  readonly tenantId: string;
  readonly scopes: readonly string[];
  readonly expiresAt: number | null;
  readonly status: string;
  readonly requestsPerSecond: number;
  readonly burst: number;
}

/** What requests need of the tenant of a key `k`, and where it is found. */
const OF_TENANT = sql`t.status, p.rate_requests_per_second AS "requestsPerSecond", p.rate_burst AS burst
    FROM api_keys k
    JOIN tenants t ON t.id = k.tenant_id
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))`;

/** undefined: no such key, or revoked. */
export const findKeyRow = (db: Queryable, hash: Buffer): Promise<KeyRow | undefined> =>
  db.queryOne<KeyRow>(sql`
    SELECT k.id, k.tenant_id AS "tenantId", k.scopes,
      ms(k.expires_at) AS "expiresAt", ${OF_TENANT}
    WHERE k.key_hash = ${hash} AND k.revoked_at IS NULL`);

/** The key of a session of the console, until either ends; undefined: there is none, or it is revoked. */
export const findSessionRow = (db: Queryable, hash: Buffer): Promise<KeyRow | undefined> =>
  db.queryOne<KeyRow>(sql`
    SELECT k.id, k.tenant_id AS "tenantId", k.scopes,
      ms(least(k.expires_at, s.expires_at)) AS "expiresAt", ${OF_TENANT}
    JOIN console_sessions s ON s.key_id = k.id
    WHERE s.token_hash = ${hash} AND k.revoked_at IS NULL`);

/**
 * Writes when keys were last used, by id; never moves a time back. It locks keys in the order of their ids,
 * as every server does.
 */
export async function touchKeys(db: Queryable, used: ReadonlyMap<string, number>): Promise<void> {
  const ids = [...used.keys()];
  const times = [...used.values()].map((time) => instantOf(time));
  await db.execute(sql`
    WITH locked AS (SELECT FROM api_keys WHERE id = ANY(${ids}::text[]) ORDER BY id FOR NO KEY UPDATE)
    UPDATE api_keys SET last_used_at = greatest(last_used_at, used.at)
    FROM unnest(${ids}::text[], ${times}::timestamptz[]) AS used (id, at)
    WHERE api_keys.id = used.id AND (SELECT count(*) FROM locked) >= 0`);
}

/** Makes the key an admin key of tenant `default` unless it is known. */
export async function adoptAdminKey(
  db: Database,
  { id, hash }: { readonly id: string; readonly hash: Buffer },
): Promise<"new" | "known" | "revoked"> {
  const written = await db.execute(sql`
    INSERT INTO api_keys (id, tenant_id, key_hash, scopes, description)
    SELECT ${id}, tenants.id, ${hash}, ARRAY['*'], 'admin key of the first start'
    FROM tenants WHERE name = 'default'
    ON CONFLICT (key_hash) DO NOTHING`);
  if (written === 1) return "new";
  const isGood = await db.queryOne(sql`SELECT FROM api_keys WHERE key_hash = ${hash} AND revoked_at IS NULL`);
  return isGood === undefined ? "revoked" : "known";
}
