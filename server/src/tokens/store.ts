/**
 * Every SQL statement for join tokens. nodes/store.ts counts a token's use, in the statement that registers
 * the node.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface JoinTokenRow {
  readonly prefix: string;
  readonly description: string | null;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly maxUses: number;
  readonly uses: number;
}

const COLUMNS = sql`
  prefix, description, ms(created_at) AS "createdAt",
  ms(expires_at) AS "expiresAt", max_uses AS "maxUses", uses`;

/** Expired tokens are listed this long. */
const EXPIRED_KEPT_MS = 30 * 24 * 60 * 60_000;

/** Newest first. */
export const listJoinTokens = (db: Queryable): Promise<readonly JoinTokenRow[]> =>
  db.query<JoinTokenRow>(sql`SELECT ${COLUMNS} FROM join_tokens ORDER BY created_at DESC, prefix`);

/** undefined: another token has the prefix. An existing row with the same hash counts as inserted. */
export function insertJoinToken(
  db: Queryable,
  token: Omit<JoinTokenRow, "uses"> & { readonly hash: Buffer; readonly labels: Readonly<Record<string, string>> },
): Promise<JoinTokenRow | undefined> {
  return db.queryOne<JoinTokenRow>(sql`
    INSERT INTO join_tokens AS t (prefix, token_hash, description, labels, created_at, expires_at, max_uses)
    VALUES (${token.prefix}, ${token.hash}, ${token.description}, ${JSON.stringify(token.labels)}::jsonb,
      ${instantOf(token.createdAt)}, ${instantOf(token.expiresAt)}, ${token.maxUses})
    ON CONFLICT (prefix) DO UPDATE SET prefix = excluded.prefix WHERE t.token_hash = excluded.token_hash
    RETURNING ${COLUMNS}`);
}

/** Whether there was such a token. */
export async function removeJoinToken(db: Queryable, prefix: string): Promise<boolean> {
  return (await db.execute(sql`DELETE FROM join_tokens WHERE prefix = ${prefix}`)) > 0;
}

/** Removes tokens that expired 30 days ago. Returns how many there were. */
export const purgeJoinTokens = (db: Queryable, now: number, limit: number): Promise<number> =>
  db.execute(sql`
    DELETE FROM join_tokens WHERE prefix IN (
      SELECT prefix FROM join_tokens WHERE expires_at < ${instantOf(now - EXPIRED_KEPT_MS)}
      ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)`);

/** This token and how often it may still be used; undefined: it does not exist or has expired. */
export function findUsableToken(
  db: Queryable,
  { prefix, hash, now }: { readonly prefix: string; readonly hash: Buffer; readonly now: number },
): Promise<{ readonly usesLeft: number; readonly createdAt: number } | undefined> {
  return db.queryOne(sql`
    SELECT greatest(0, max_uses - uses) AS "usesLeft", ms(created_at) AS "createdAt"
    FROM join_tokens WHERE prefix = ${prefix} AND token_hash = ${hash} AND expires_at > ${instantOf(now)}`);
}
