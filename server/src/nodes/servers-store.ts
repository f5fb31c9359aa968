/**
 * Every SQL statement for the rows of servers.
 *
 * Always: whether a server runs is decided by the database's clock, because servers' clocks may differ.
 */
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { LISTENER_LOST_MS } from "../link/trust.ts";

/** One run of a server. */
export interface ServerIdentity {
  readonly id: string;
  readonly host: string;
  readonly release: string;
  readonly linkVersion: number;
}

/** Instants are epoch milliseconds. */
export type ServerRecord = ServerIdentity & { readonly startedAt: number; readonly seenAt: number };

/** Rows of servers that ended are kept this long. */
const GONE_AFTER_MS = 10 * LISTENER_LOST_MS;

/** Confirms that this server runs, and deletes rows of those that ended long ago. */
export async function announceServer({ db }: Pick<Context, "db">, server: ServerIdentity): Promise<void> {
  await db.execute(sql`
    WITH gone AS (DELETE FROM servers WHERE seen_at < now() - ${GONE_AFTER_MS} * interval '1 ms' AND id <> ${server.id})
    INSERT INTO servers (id, host, release, link_version, started_at, seen_at)
    VALUES (${server.id}, ${server.host}, ${server.release}, ${server.linkVersion}, now(), now())
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at`);
}

/** Removes the row of a server that stops. */
export async function removeServer({ db }: Pick<Context, "db">, { id }: ServerIdentity): Promise<void> {
  await db.execute(sql`DELETE FROM servers WHERE id = ${id}`);
}

/** The servers that announced themselves lately, by host. */
export const listServers = (db: Queryable): Promise<readonly ServerRecord[]> =>
  db.query<ServerRecord>(sql`
    SELECT id, host, release, link_version AS "linkVersion",
      ms(started_at) AS "startedAt",
      ms(seen_at) AS "seenAt"
    FROM servers WHERE seen_at >= now() - ${LISTENER_LOST_MS} * interval '1 ms' ORDER BY host, started_at, id LIMIT 256`);
