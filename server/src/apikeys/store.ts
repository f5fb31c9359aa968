/**
 * Every statement that writes `api_keys`, and the lists of it.
 *
 * Always: revoking tells the other servers in the same statement, so it cannot be forgotten by a crash in between.
 */
import { type Database, type Queryable, sql } from "../db/database.ts";

export interface ApiKeyRow {
  readonly id: string;
  readonly description: string | null;
  readonly scopes: readonly string[];
  readonly created_at: Date;
  readonly expires_at: Date | null;
  readonly last_used_at: Date | null;
  readonly created_by: string | null;
}

export interface NewApiKey {
  readonly id: string;
  readonly tenantId: string;
  readonly hash: Buffer;
  readonly scopes: readonly string[];
  readonly description: string | null;
  readonly createdBy: string | null;
  readonly createdAt: Date;
  readonly expiresAt: Date | null;
}

/** The tenant's keys that are not revoked, oldest first. */
export const listKeys = (db: Queryable, tenantId: string): Promise<readonly ApiKeyRow[]> =>
  db.query<ApiKeyRow>(sql`
    SELECT id, description, scopes, created_at, expires_at, last_used_at, created_by
    FROM api_keys WHERE tenant_id = ${tenantId} AND revoked_at IS NULL
    ORDER BY created_at, id`);

/** Whether it was written: false when the tenant does not exist. */
export async function insertKey(db: Queryable, key: NewApiKey): Promise<boolean> {
  const written = await db.execute(sql`
    INSERT INTO api_keys (id, tenant_id, key_hash, scopes, description, created_by, created_at, expires_at)
    SELECT ${key.id}, id, ${key.hash}, ${key.scopes}, ${key.description}, ${key.createdBy}, ${key.createdAt}, ${key.expiresAt}
    FROM tenants WHERE id = ${key.tenantId}`);
  return written === 1;
}

/** Whether there was such a key of the tenant. `tenantId` null: any tenant's. */
export async function revokeKey(
  db: Queryable,
  { keyId, tenantId, at }: { readonly keyId: string; readonly tenantId: string | null; readonly at: Date },
): Promise<boolean> {
  const rows = await db.query(sql`
    WITH revoked AS (
      UPDATE api_keys SET revoked_at = ${at}
      WHERE id = ${keyId} AND (${tenantId}::text IS NULL OR tenant_id = ${tenantId}) AND revoked_at IS NULL
      RETURNING id
    )
    SELECT pg_notify('keys', id) FROM revoked`);
  return rows.length === 1;
}

/** Writes when keys were last used, by id in epoch milliseconds; never moves a time back. */
export async function touchKeys(db: Queryable, used: ReadonlyMap<string, number>): Promise<void> {
  const ids = [...used.keys()];
  const times = [...used.values()].map((time) => new Date(time));
  await db.execute(sql`
    UPDATE api_keys SET last_used_at = greatest(last_used_at, used.at)
    FROM unnest(${ids}::text[], ${times}::timestamptz[]) AS used (id, at)
    WHERE api_keys.id = used.id`);
}

/** Makes the key an admin key of tenant `default` unless it is known; whether it was not. */
export async function adoptAdminKey(
  db: Database,
  { id, hash }: { readonly id: string; readonly hash: Buffer },
): Promise<boolean> {
  const written = await db.execute(sql`
    INSERT INTO api_keys (id, tenant_id, key_hash, scopes, description)
    SELECT ${id}, tenants.id, ${hash}, ARRAY['*'], 'admin key of the first start'
    FROM tenants WHERE name = 'default'
    ON CONFLICT (key_hash) DO NOTHING`);
  return written === 1;
}
