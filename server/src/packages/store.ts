/**
 * Every statement over the retention of packages, and the events of packages.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Context } from "../context.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { eventJson, insertEvents } from "../write-events.ts";

export interface RetentionRow {
  readonly repository: string;
  /** The tenant that set it, which receives the events of what is deleted. */
  readonly tenantId: string;
  readonly keepLast: number;
}

const COLUMNS = sql`repository, tenant_id AS "tenantId", keep_last AS "keepLast"`;

export async function setRetention(db: Queryable, { repository, tenantId, keepLast }: RetentionRow): Promise<void> {
  await db.execute(sql`
    INSERT INTO package_retention (repository, tenant_id, keep_last) VALUES (${repository}, ${tenantId}, ${keepLast})
    ON CONFLICT (repository) DO UPDATE SET tenant_id = excluded.tenant_id, keep_last = excluded.keep_last`);
}

export async function endRetention(db: Queryable, repository: string): Promise<void> {
  await db.execute(sql`DELETE FROM package_retention WHERE repository = ${repository}`);
}

/** What a tenant has set. */
export const listRetention = (db: Queryable, tenantId: string): Promise<readonly RetentionRow[]> =>
  db.query<RetentionRow>(sql`
    SELECT ${COLUMNS} FROM package_retention WHERE tenant_id = ${tenantId} ORDER BY repository`);

/** Repositories that have more tags than are kept. */
export const listExceeded = (db: Queryable, limit: number): Promise<readonly RetentionRow[]> =>
  db.query<RetentionRow>(sql`
    SELECT ${COLUMNS} FROM package_retention r
    WHERE EXISTS (SELECT FROM registry_tags t WHERE t.repository = r.repository OFFSET r.keep_last)
    ORDER BY repository LIMIT ${limit}`);

/** Tags of a repository beyond the newest ones. */
export const listExcess = (
  db: Queryable,
  { repository, keepLast }: RetentionRow,
): Promise<readonly { readonly tag: string; readonly digest: string }[]> =>
  db.query(sql`
    SELECT tag, digest FROM registry_tags WHERE repository = ${repository}
    ORDER BY updated_at DESC, tag OFFSET ${keepLast} LIMIT 1000`);

/** Writes an event about a repository. */
export async function writePackageEvent(
  { clock, db }: Pick<Context, "clock" | "db">,
  { tenantId, repository }: { readonly tenantId: string; readonly repository: string },
  event: NewEvent,
): Promise<void> {
  await db.execute(
    insertEvents(sql`
      SELECT ${tenantId} AS tenant_id, ${repository} AS subject_id, ${eventJson(event)} AS event,
        ${instantOf(clock.now())}::timestamptz AS created_at`),
  );
}
