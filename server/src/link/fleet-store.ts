/**
 * Every SQL statement for fleet authorities and node listeners, and the reading of nodes' keys.
 *
 * Always:
 * - At most one authority signs (a unique index).
 * - Whether a listener is alive is decided by the database's clock: servers' clocks may differ.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface AuthorityRow {
  readonly fingerprint: string;
  readonly certificate: string;
  readonly privateKey: Buffer;
  readonly createdAt: number;
  readonly retiredAt: number | null;
}

/** The one that signs first, then the newest. */
export const listAuthorities = (db: Queryable): Promise<readonly AuthorityRow[]> =>
  db.query<AuthorityRow>(sql`
    SELECT fingerprint, certificate, private_key AS "privateKey",
      ms(created_at) AS "createdAt",
      ms(retired_at) AS "retiredAt"
    FROM fleet_authorities ORDER BY retired_at IS NOT NULL, created_at DESC`);

type NewAuthority = Omit<AuthorityRow, "retiredAt">;

/** Makes it the one that signs, if there is none. */
export async function insertFirstAuthority(db: Queryable, row: NewAuthority): Promise<void> {
  await db.execute(sql`
    INSERT INTO fleet_authorities (fingerprint, certificate, private_key, created_at)
    VALUES (${row.fingerprint}, ${row.certificate}, ${row.privateKey}, ${instantOf(row.createdAt)})
    ON CONFLICT DO NOTHING`);
}

/** Retires the authority that signs, and makes another one sign. false: `retired` does not sign any more. */
export async function replaceAuthority(
  db: Queryable,
  { retired, row }: { readonly retired: string; readonly row: NewAuthority },
): Promise<boolean> {
  const replaced = await db.execute(sql`
    UPDATE fleet_authorities SET retired_at = ${instantOf(row.createdAt)}
    WHERE fingerprint = ${retired} AND retired_at IS NULL`);
  if (replaced === 0) return false;
  await db.execute(sql`
    INSERT INTO fleet_authorities (fingerprint, certificate, private_key, created_at)
    VALUES (${row.fingerprint}, ${row.certificate}, ${row.privateKey}, ${instantOf(row.createdAt)})`);
  return true;
}

/** Whether there was such a retired authority. */
export async function removeRetiredAuthority(db: Queryable, fingerprint: string): Promise<boolean> {
  const rows = await db.execute(sql`
    DELETE FROM fleet_authorities WHERE fingerprint = ${fingerprint} AND retired_at IS NOT NULL`);
  return rows > 0;
}

/** Confirms where this server listens, and deletes rows of servers that ended long ago. */
export async function upsertListener(
  db: Queryable,
  { id, addresses, goneAfterMs }: { id: string; addresses: readonly string[]; goneAfterMs: number },
): Promise<void> {
  await db.execute(sql`
    WITH gone AS (DELETE FROM node_listeners WHERE seen_at < now() - ${goneAfterMs} * interval '1 ms' AND id <> ${id})
    INSERT INTO node_listeners (id, addresses, seen_at) VALUES (${id}, ${addresses}::text[], now())
    ON CONFLICT (id) DO UPDATE SET addresses = excluded.addresses, seen_at = excluded.seen_at`);
}

export async function removeListener(db: Queryable, id: string): Promise<void> {
  await db.execute(sql`DELETE FROM node_listeners WHERE id = ${id}`);
}

export interface ListenerRow {
  readonly id: string;
  readonly addresses: readonly string[];
}

/** The listeners that were confirmed within the last `lostAfterMs` milliseconds. */
export const listListeners = (db: Queryable, lostAfterMs: number): Promise<readonly ListenerRow[]> =>
  db.query<ListenerRow>(sql`
    SELECT id, addresses FROM node_listeners WHERE seen_at >= now() - ${lostAfterMs} * interval '1 ms' ORDER BY id LIMIT 256`);

/** The keys with which nodes may connect now, by node; a revoked node has none. */
export async function listNodeKeys(db: Queryable, nodeIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const rows = await db.query<{ id: string; keyHash: Buffer }>(sql`
    SELECT id, key_hash AS "keyHash" FROM nodes
    WHERE id = ANY(${nodeIds}::text[]) AND key_hash IS NOT NULL AND credential_hash IS NOT NULL AND status <> 'revoked'`);
  return new Map(rows.map(({ id, keyHash }) => [id, keyHash.toString("hex")]));
}
