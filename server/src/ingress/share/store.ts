/**
 * Every statement that writes share links. ../access-store.ts reads them.
 *
 * Always:
 * - a machine has at most one share link; the statement that makes one replaces the previous one;
 * - only hashes are stored.
 */
import type { Context } from "../../context.ts";
import { type Queryable, sql } from "../../db/database.ts";
import { instantOf } from "../../db/instant.ts";

/** Makes the machine's share link. false: the tenant has no such machine. */
export async function putShare(
  { db, clock }: Context,
  share: { readonly tenantId: string; readonly machineId: string; readonly hash: Buffer; readonly keyId: string },
): Promise<boolean> {
  const written = await db.execute(sql`
    INSERT INTO machine_shares AS s (machine_id, token_hash, created_by, created_at)
    SELECT id, ${share.hash}, ${share.keyId}, ${instantOf(clock.now())}::timestamptz FROM machines
    WHERE id = ${share.machineId} AND tenant_id = ${share.tenantId} AND deleted_at IS NULL
    ON CONFLICT (machine_id) DO UPDATE SET
      token_hash = excluded.token_hash, created_by = excluded.created_by, created_at = excluded.created_at`);
  return written > 0;
}

/** Deletes the machine's share link. Returns whether there was one. */
export async function removeShare(db: Queryable, machineId: string): Promise<boolean> {
  return (await db.execute(sql`DELETE FROM machine_shares WHERE machine_id = ${machineId}`)) > 0;
}
