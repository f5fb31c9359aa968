/**
 * Every SQL statement for the console's links and sessions, except the read of a session for requests, which
 * is auth/key-store.ts's.
 *
 * Always:
 * - A link is deleted by the statement that makes its session, so it signs in once, whichever servers are
 *   asked at the same time.
 * - The statement that ends a session also notifies all servers.
 * - A key has at most MAX_OF_KEY of each; the oldest make room.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

const MAX_OF_KEY = 100;

export interface NewSession {
  readonly hash: Buffer;
  readonly createdAt: number;
  readonly expiresAt: number;
}

/** Inserts a link of the key. */
export async function insertLink(
  db: Queryable,
  link: { readonly hash: Buffer; readonly keyId: string; readonly expiresAt: number },
): Promise<void> {
  await db.execute(sql`
    WITH room AS (
      DELETE FROM console_links WHERE token_hash IN (
        SELECT token_hash FROM console_links WHERE key_id = ${link.keyId}
        ORDER BY expires_at DESC OFFSET ${MAX_OF_KEY - 1}))
    INSERT INTO console_links (token_hash, key_id, expires_at)
    VALUES (${link.hash}, ${link.keyId}, ${instantOf(link.expiresAt)})
    ON CONFLICT (token_hash) DO NOTHING`);
}

/** Makes a session of the key, unless it was revoked. */
export async function insertSession(db: Queryable, keyId: string, session: NewSession): Promise<void> {
  await db.execute(sql`
    WITH room AS (
      DELETE FROM console_sessions WHERE token_hash IN (
        SELECT token_hash FROM console_sessions WHERE key_id = ${keyId}
        ORDER BY created_at DESC OFFSET ${MAX_OF_KEY - 1}))
    INSERT INTO console_sessions (token_hash, key_id, created_at, expires_at)
    SELECT ${session.hash}, id, ${instantOf(session.createdAt)}::timestamptz, ${instantOf(session.expiresAt)}::timestamptz
    FROM api_keys WHERE id = ${keyId} AND revoked_at IS NULL
    ON CONFLICT (token_hash) DO NOTHING`);
}

/**
 * Makes a session of the key that made the link, and deletes the link. undefined: there is no such link, it
 * has expired or was opened before, or its key is no longer valid.
 */
export const openLink = (
  db: Queryable,
  linkHash: Buffer,
  session: NewSession,
): Promise<{ readonly expiresAt: number } | undefined> =>
  db.queryOne<{ expiresAt: number }>(sql`
    WITH opened AS (
      DELETE FROM console_links WHERE token_hash = ${linkHash} RETURNING key_id, expires_at)
    INSERT INTO console_sessions (token_hash, key_id, created_at, expires_at)
    SELECT ${session.hash}, k.id, ${instantOf(session.createdAt)}::timestamptz,
      least(${instantOf(session.expiresAt)}::timestamptz, k.expires_at)
    FROM opened JOIN api_keys k ON k.id = opened.key_id
    WHERE opened.expires_at > ${instantOf(session.createdAt)} AND k.revoked_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > ${instantOf(session.createdAt)})
    RETURNING ms(expires_at) AS "expiresAt"`);

/** Ends a session. */
export async function removeSession(db: Queryable, hash: Buffer): Promise<void> {
  await db.query(sql`
    WITH removed AS (DELETE FROM console_sessions WHERE token_hash = ${hash} RETURNING key_id)
    SELECT pg_notify('keys', key_id) FROM removed`);
}

/** Removes links and sessions that have expired. Returns how many there were. */
export const purgeExpired = (db: Queryable, now: number, limit: number): Promise<number> =>
  db.execute(sql`
    WITH links AS (
      DELETE FROM console_links WHERE token_hash IN (
        SELECT token_hash FROM console_links WHERE expires_at < ${instantOf(now)}
        ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED))
    DELETE FROM console_sessions WHERE token_hash IN (
      SELECT token_hash FROM console_sessions WHERE expires_at < ${instantOf(now)}
      ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);
