/**
 * The statements that make, list, revoke and purge API keys. auth/key-store.ts has the reads for requests,
 * and the admin key of the data directory.
 *
 * Always: the statement that revokes also notifies the other servers, so a crash in between cannot lose the
 * notification.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface ApiKeyRow {
  readonly id: string;
  readonly description: string | null;
  readonly scopes: readonly string[];
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly lastUsedAt: number | null;
  readonly createdBy: string | null;
}

export interface NewApiKey {
  readonly id: string;
  readonly tenantId: string;
  readonly hash: Buffer;
  readonly scopes: readonly string[];
  readonly description: string | null;
  readonly createdBy: string | null;
  readonly createdAt: number;
  readonly expiresAt: number | null;
}

/** The tenant's keys that are not revoked, oldest first. */
export const listKeys = (db: Queryable, tenantId: string): Promise<readonly ApiKeyRow[]> =>
  db.query<ApiKeyRow>(sql`
    SELECT id, description, scopes,
      ms(created_at) AS "createdAt",
      ms(expires_at) AS "expiresAt",
      ms(last_used_at) AS "lastUsedAt", created_by AS "createdBy"
    FROM api_keys WHERE tenant_id = ${tenantId} AND revoked_at IS NULL
    ORDER BY created_at, id`);

export type KeyInsertion = "inserted" | "noTenant" | "noCreator" | "overCount";

/**
 * Inserts a key, unless its tenant has `max` valid ones. Rows of invalid keys are bounded as well: the
 * tenant's oldest beyond `max` are removed. An existing row with the same id and hash counts as inserted.
 */
export async function insertKey(db: Queryable, key: NewApiKey, max: number): Promise<KeyInsertion> {
  const row = await db.queryOne<{ hasRoom: boolean; isMade: boolean; isKnown: boolean; id: string | null }>(sql`
    WITH room AS (
      SELECT id AS tenant_id, good_keys_locked(id, ${instantOf(key.createdAt)}) < ${max} AS yes FROM tenants
      WHERE id = ${key.tenantId}),
    creator AS (SELECT id FROM api_keys WHERE id = ${key.createdBy} AND revoked_at IS NULL FOR SHARE),
    purged AS (
      DELETE FROM api_keys WHERE id IN (
        SELECT k.id FROM api_keys k WHERE ${REMOVABLE} AND ${ENDED_AT} <= ${instantOf(key.createdAt)} AND k.tenant_id = ${key.tenantId}
        ORDER BY ${ENDED_AT} DESC OFFSET ${max} LIMIT ${PURGED_AT_ONCE})),
    inserted AS (
      INSERT INTO api_keys (id, tenant_id, key_hash, scopes, description, created_by, created_at, expires_at)
      SELECT ${key.id}, tenant_id, ${key.hash}, ${key.scopes}, ${key.description}, creator.id, ${instantOf(key.createdAt)}::timestamptz,
        ${instantOf(key.expiresAt)}::timestamptz
      FROM room, creator WHERE room.yes
      ON CONFLICT (id) DO NOTHING
      RETURNING id)
    SELECT room.yes AS "hasRoom", EXISTS (SELECT FROM creator) AS "isMade", inserted.id,
      EXISTS (SELECT FROM api_keys WHERE id = ${key.id} AND key_hash = ${key.hash}) AS "isKnown"
    FROM room LEFT JOIN inserted ON true`);
  if (row === undefined) return "noTenant";
  if (row.id !== null || row.isKnown) return "inserted";
  return row.isMade ? "overCount" : "noCreator";
}

const PURGED_AT_ONCE = 10;
/** Revoked and expired keys are kept this long, so that the creator of a machine has a name. */
const ENDED_KEPT_MS = 30 * 24 * 60 * 60_000;

/** When `k` was revoked, or expires; null: neither. */
const ENDED_AT = sql`least(k.revoked_at, k.expires_at)`;

/**
 * Whether `k` can be removed once it has ended: without keys made by it, not named by a stored answer, and
 * not an operator's. The file of the admin key may still hold that one, and a removed key would be registered
 * again.
 */
const REMOVABLE = sql`(k.revoked_at IS NOT NULL OR k.expires_at IS NOT NULL) AND k.created_by IS NOT NULL AND NOT k.scopes && ARRAY['*']
  AND NOT EXISTS (SELECT FROM api_keys child WHERE child.created_by = k.id)
  AND NOT EXISTS (SELECT FROM idempotency_keys i WHERE i.key_id = k.id)`;

/** Removes keys that were revoked or expired 30 days ago. Returns how many there were. */
export function purgeKeys(db: Queryable, now: number, limit: number): Promise<number> {
  return db.execute(sql`
    DELETE FROM api_keys WHERE id IN (
      SELECT k.id FROM api_keys k WHERE ${REMOVABLE} AND ${ENDED_AT} < ${instantOf(now - ENDED_KEPT_MS)}
      ORDER BY ${ENDED_AT} LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
}

/** A key that is not revoked, locked. `tenantId` null: any tenant's. */
export const lockKey = (
  transaction: Queryable,
  { keyId, tenantId }: { readonly keyId: string; readonly tenantId: string | null },
): Promise<Pick<ApiKeyRow, "scopes"> | undefined> =>
  transaction.queryOne<Pick<ApiKeyRow, "scopes">>(sql`
    SELECT scopes FROM api_keys
    WHERE id = ${keyId} AND (${tenantId}::text IS NULL OR tenant_id = ${tenantId}) AND revoked_at IS NULL FOR UPDATE`);

/** Revokes a key, or it and all its descendants. Returns the ids of those that were not revoked before. */
export async function revokeKeys(
  transaction: Queryable,
  options: {
    readonly keyId: string;
    readonly tenantId: string | null;
    readonly at: number;
    readonly isCascading: boolean;
  },
): Promise<readonly string[]> {
  const { keyId, tenantId, at, isCascading } = options;
  const rows = await transaction.query<{ id: string }>(sql`
    WITH RECURSIVE tree AS (
      SELECT id FROM api_keys WHERE id = ${keyId}
      UNION SELECT child.id FROM api_keys child JOIN tree ON child.created_by = tree.id WHERE ${isCascading}::boolean),
    revoked AS (
      UPDATE api_keys SET revoked_at = ${instantOf(at)}
      WHERE id IN (SELECT id FROM tree) AND revoked_at IS NULL
        AND (${tenantId}::text IS NULL OR tenant_id = ${tenantId})
      RETURNING id)
    SELECT id, pg_notify('keys', id) FROM revoked`);
  return rows.map(({ id }) => id);
}
