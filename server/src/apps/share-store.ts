/**
 * Every statement that writes share links of apps. ingress/access-store.ts reads them.
 *
 * Always: an app has at most one, and only its hash is stored.
 */
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

/** Makes the app's share link; it replaces the previous one. false: the app was destroyed. */
export async function putAppShare(
  { db, clock }: Pick<Context, "clock" | "db">,
  { appId, hash, keyId }: { readonly appId: string; readonly hash: Buffer; readonly keyId: string },
): Promise<boolean> {
  const written = await db.execute(sql`
    INSERT INTO app_shares AS s (app_id, token_hash, created_by, created_at)
    SELECT id, ${hash}, ${keyId}, ${instantOf(clock.now())}::timestamptz FROM apps
    WHERE id = ${appId} AND deleted_at IS NULL
    ON CONFLICT (app_id) DO UPDATE SET
      token_hash = excluded.token_hash, created_by = excluded.created_by, created_at = excluded.created_at`);
  return written > 0;
}

/** Deletes the app's share link. Returns whether there was one. */
export const removeAppShare = async (db: Queryable, appId: string): Promise<boolean> =>
  (await db.execute(sql`DELETE FROM app_shares WHERE app_id = ${appId}`)) > 0;
