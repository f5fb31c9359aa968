/**
 * Every statement on `idempotency_keys`. Instants are epoch milliseconds.
 *
 * Always: a row is changed only by the request that owns it (`owner`), so a request whose lease expired
 * cannot overwrite what the next owner wrote.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface IdempotencyRow {
  readonly fingerprint: Buffer;
  readonly owner: string;
  readonly seed: string;
  /** null while the request runs. */
  readonly status: number | null;
  readonly answer: Buffer | null;
}

/** Which row, and who claims to own it. */
export interface KeyOwner {
  readonly keyId: string;
  readonly key: string;
  readonly owner: string;
}

export interface Claim extends KeyOwner {
  readonly fingerprint: Buffer;
  readonly at: number;
  readonly leaseUntil: number;
  readonly expiresAt: number;
}

/**
 * Takes the key if it is new or expired, or if the same request was lost; returns the row as it is then.
 * undefined: another request inserted it concurrently.
 */
export const claimKey = (db: Queryable, claim: Claim): Promise<IdempotencyRow | undefined> =>
  db.queryOne<IdempotencyRow>(sql`
    WITH claimed AS (
      INSERT INTO idempotency_keys AS k
        (key_id, idempotency_key, fingerprint, owner, seed, lease_until, created_at, expires_at)
      VALUES (${claim.keyId}, ${claim.key}, ${claim.fingerprint}, ${claim.owner}, ${claim.owner}, ${instantOf(claim.leaseUntil)},
              ${instantOf(claim.at)}, ${instantOf(claim.expiresAt)})
      ON CONFLICT (key_id, idempotency_key) DO UPDATE
        SET seed = CASE WHEN k.expires_at <= ${instantOf(claim.at)} THEN excluded.seed ELSE k.seed END,
            fingerprint = excluded.fingerprint, owner = excluded.owner, lease_until = excluded.lease_until,
            status = NULL, answer = NULL, created_at = excluded.created_at, expires_at = excluded.expires_at
        WHERE k.expires_at <= ${instantOf(claim.at)}
           OR (k.status IS NULL AND k.lease_until <= ${instantOf(claim.at)} AND k.fingerprint = excluded.fingerprint)
      RETURNING fingerprint, owner, seed, status, answer
    )
    SELECT fingerprint, owner, seed, status, answer FROM claimed
    UNION ALL
    SELECT fingerprint, owner, seed, status, answer FROM idempotency_keys
    WHERE key_id = ${claim.keyId} AND idempotency_key = ${claim.key} AND NOT EXISTS (SELECT FROM claimed)`);

export async function renewLease(db: Queryable, { keyId, key, owner }: KeyOwner, until: number): Promise<void> {
  await db.execute(sql`
    UPDATE idempotency_keys SET lease_until = ${instantOf(until)}
    WHERE key_id = ${keyId} AND idempotency_key = ${key} AND owner = ${owner}`);
}

export async function keepAnswer(
  db: Queryable,
  { keyId, key, owner }: KeyOwner,
  { status, answer }: { readonly status: number; readonly answer: Buffer | null },
): Promise<void> {
  await db.execute(sql`
    UPDATE idempotency_keys SET status = ${status}, answer = ${answer}
    WHERE key_id = ${keyId} AND idempotency_key = ${key} AND owner = ${owner}`);
}

/** Allows the same request to run again at once: what it made before is found by its ids. */
export async function endLease(db: Queryable, { keyId, key, owner }: KeyOwner, at: number): Promise<void> {
  await db.execute(sql`
    UPDATE idempotency_keys SET lease_until = ${instantOf(at)}
    WHERE key_id = ${keyId} AND idempotency_key = ${key} AND owner = ${owner} AND status IS NULL`);
}

export async function hasKey(db: Queryable, { keyId, key }: Omit<KeyOwner, "owner">): Promise<boolean> {
  const row = await db.queryOne(sql`
    SELECT key_id FROM idempotency_keys WHERE key_id = ${keyId} AND idempotency_key = ${key}`);
  return row !== undefined;
}

export interface KeyUse {
  readonly keys: number;
  /** Bytes of the kept answers. */
  readonly bytes: number;
}

/** Counts the idempotency keys of all API keys of a tenant. */
export async function readKeyUse(db: Queryable, tenantId: string): Promise<KeyUse> {
  const row = await db.queryOne<KeyUse>(sql`
    SELECT count(*)::int AS keys, coalesce(sum(octet_length(i.answer)), 0)::bigint AS bytes
    FROM idempotency_keys i JOIN api_keys k ON k.id = i.key_id WHERE k.tenant_id = ${tenantId}`);
  return row ?? { keys: 0, bytes: 0 };
}

/** Forgets the key, so that the request may be made again. */
export async function releaseKey(db: Queryable, { keyId, key, owner }: KeyOwner): Promise<void> {
  await db.execute(sql`
    DELETE FROM idempotency_keys
    WHERE key_id = ${keyId} AND idempotency_key = ${key} AND owner = ${owner} AND status IS NULL`);
}

/** Removes at most `max` expired rows; returns how many. */
export const removeExpiredKeys = (db: Queryable, at: number, max: number): Promise<number> =>
  db.execute(sql`
    DELETE FROM idempotency_keys WHERE (key_id, idempotency_key) IN (
      SELECT key_id, idempotency_key FROM idempotency_keys WHERE expires_at <= ${instantOf(at)}
      LIMIT ${max} FOR UPDATE SKIP LOCKED)`);
