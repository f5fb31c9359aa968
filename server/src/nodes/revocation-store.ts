/**
 * Revokes nodes, and says which join tokens admit a revoked one again. Every SQL statement for
 * node_revocations.
 *
 * Always:
 * - A node is revoked and the revocation is recorded in one statement.
 * - A join token made before a revocation admits neither the id nor the key of the revoked node. So a revoked
 *   node whose environment still has a token does not return by itself; an operator makes a new token for it.
 */
import { type Queryable, type Statement, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { movesOf } from "./state.ts";

/**
 * Whether there was such a node. Its next call fails, and its machines are unreachable until it is registered
 * again. `now`: epoch milliseconds.
 */
export async function revokeNode(db: Queryable, id: string, now: number): Promise<boolean> {
  const { from } = movesOf("revoked");
  const row = await db.queryOne(sql`
    WITH revoked AS (
      UPDATE nodes SET credential_hash = NULL, status = 'revoked'
      WHERE id = ${id} AND status = ANY(${from}::text[]) RETURNING id, key_hash)
    INSERT INTO node_revocations (node_id, key_hash, revoked_at)
    SELECT id, key_hash, ${instantOf(now)}::timestamptz FROM revoked
    ON CONFLICT (node_id, key_hash) DO UPDATE SET revoked_at = excluded.revoked_at
    RETURNING node_id`);
  return row !== undefined;
}

export interface JoiningNode {
  readonly id: string;
  /** null: it has none, as a node of the server's host. */
  readonly keyHash: Buffer | null;
  /** When its join token was made, in epoch milliseconds. */
  readonly tokenMadeAt: number;
}

/** A condition: the node was not revoked after its join token was made. */
export const isNotRevokedSince = ({ id, keyHash, tokenMadeAt }: JoiningNode): Statement => sql`NOT EXISTS (
  SELECT 1 FROM node_revocations r
  WHERE (r.node_id = ${id} OR r.key_hash = ${keyHash}::bytea) AND r.revoked_at > ${instantOf(tokenMadeAt)}::timestamptz)`;

/** Whether the node was revoked after its join token was made. */
export async function isRevokedSince(db: Queryable, node: JoiningNode): Promise<boolean> {
  const row = await db.queryOne<{ isFree: boolean }>(sql`SELECT ${isNotRevokedSince(node)} AS "isFree"`);
  return row?.isFree === false;
}
