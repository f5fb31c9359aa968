/**
 * Every statement over connect tokens.
 *
 * Always:
 * - only hashes are stored;
 * - a token never outlives the key that made it;
 * - the statement that inserts bounds the number of valid tokens per machine;
 * - expired tokens are deleted when the next one is made, or by the loop that deletes expired credentials.
 */
import type { KeyRow } from "../../auth/key-store.ts";
import type { Context } from "../../context.ts";
import { type Queryable, sql } from "../../db/database.ts";
import { instantOf } from "../../db/instant.ts";

/**
 * Returns when the token expires, in epoch milliseconds: with its key, if that is sooner. A token that exists
 * keeps its expiry. undefined: the machine has `max` valid tokens.
 */
export async function insertConnectToken(
  { db, clock }: Context,
  token: { readonly hash: Buffer; readonly machineId: string; readonly keyId: string; readonly expiresAt: number },
  max: number,
): Promise<number | undefined> {
  const row = await db.queryOne<{ expiresAt: number }>(sql`
    WITH expired AS (
      DELETE FROM connect_tokens
      WHERE machine_id = ${token.machineId} AND expires_at <= ${instantOf(clock.now())} AND token_hash <> ${token.hash}),
    known AS (SELECT FROM connect_tokens WHERE token_hash = ${token.hash})
    INSERT INTO connect_tokens (token_hash, machine_id, key_id, expires_at)
    SELECT ${token.hash}, ${token.machineId}, id, least(${instantOf(token.expiresAt)}::timestamptz, expires_at)
    FROM api_keys
    WHERE id = ${token.keyId}
      AND (good_connect_tokens_locked(${token.machineId}, ${instantOf(clock.now())}) < ${max} OR EXISTS (SELECT FROM known))
    ON CONFLICT (token_hash) DO UPDATE SET token_hash = excluded.token_hash
    RETURNING ms(connect_tokens.expires_at) AS "expiresAt"`);
  return row?.expiresAt;
}

/** Deletes expired tokens of all machines, at most `limit`. Returns how many. */
export function purgeConnectTokens({ db, clock }: Context, limit: number): Promise<number> {
  return db.execute(sql`
    DELETE FROM connect_tokens WHERE token_hash IN (
      SELECT token_hash FROM connect_tokens WHERE expires_at <= ${instantOf(clock.now())}
      ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
}

/**
 * The key that made a token of the machine, with the token's expiry. undefined: the token is unknown or
 * expired, or its key is not valid.
 */
export function findKeyOfConnectToken(
  db: Queryable,
  token: { readonly hash: Buffer; readonly machineId: string; readonly now: number },
): Promise<KeyRow | undefined> {
  return db.queryOne<KeyRow>(sql`
    SELECT k.id, k.tenant_id AS "tenantId", k.scopes,
      ms(c.expires_at) AS "expiresAt", t.status,
      p.rate_requests_per_second AS "requestsPerSecond", p.rate_burst AS burst
    FROM connect_tokens c
    JOIN api_keys k ON k.id = c.key_id
    JOIN tenants t ON t.id = k.tenant_id
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    WHERE c.token_hash = ${token.hash} AND c.machine_id = ${token.machineId}
      AND c.expires_at > ${instantOf(token.now)} AND k.revoked_at IS NULL`);
}
