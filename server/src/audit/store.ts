/**
 * Every statement for the audit log. The database computes the hashes and refuses changes (functions
 * append_audit and purge_audit, triggers of audit_log).
 */
import { AUDIT_FIRST_HASH } from "@flotilla/contract/audit";
import type { Context } from "../context.ts";
import { type Queryable, sql, type Statement } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { isOfType } from "../db/of-type.ts";

export interface NewAudit {
  /** null: the first tenant, which is the operator's. */
  readonly tenantId: string | null;
  readonly keyId: string;
  readonly resource: string | null;
  readonly type: string;
  /** RFC 3339. */
  readonly at: string;
  /** The JSON text that is hashed. */
  readonly record: string;
}

export interface AuditRow {
  readonly tenantId: string;
  readonly sequence: number;
  readonly record: string;
  readonly previousHash: string;
  readonly hash: string;
}

/** Appends to the chains of all tenants in the list, in its order. */
export async function appendAudit(db: Queryable, rows: readonly NewAudit[]): Promise<void> {
  await db.execute(sql`SELECT append_audit(${JSON.stringify(rows)}::jsonb)`);
}

/** Which rows are listed; null: any. */
export interface AuditFilter {
  readonly keyId: string | null;
  /** The id that the call named or made; the first if there are more. */
  readonly resource: string | null;
  /** A type, or `machines.*`. */
  readonly type: string | null;
  /** Epoch milliseconds; inclusive. */
  readonly from: number | null;
  /** Exclusive. */
  readonly to: number | null;
  /** Default: oldest first. */
  readonly isNewestFirst?: boolean;
}

/** The chain of a tenant, oldest first unless the filter says otherwise. */
export const listAudit = (
  db: Queryable,
  {
    tenantId,
    after,
    limit,
    ...filter
  }: AuditFilter & { readonly tenantId: string; readonly after: number | null; readonly limit: number },
): Promise<readonly AuditRow[]> =>
  db.query<AuditRow>(sql`
    SELECT tenant_id AS "tenantId", sequence, record, previous_hash AS "previousHash", hash FROM audit_log
    WHERE tenant_id = ${tenantId} AND ${matches(filter)} AND ${furtherOf(filter, after)}
    LIMIT ${limit}`);

/** The rows of a chain after that one, in the filter's order. */
const furtherOf = ({ isNewestFirst = false }: AuditFilter, after: number | null): Statement =>
  isNewestFirst
    ? sql`sequence < ${after ?? Number.MAX_SAFE_INTEGER}::bigint ORDER BY sequence DESC`
    : sql`sequence > ${after ?? 0}::bigint ORDER BY sequence`;

/** Where a row is in the list of all tenants. */
export interface AuditPosition {
  /** RFC 3339. */
  readonly at: string;
  readonly tenantId: string;
  readonly sequence: number;
}

/**
 * The rows of all tenants in the order of their times. A row may appear up to seconds after its time. The
 * list begins at `from` in the index, and at `to` in the other order: with another begin, PostgreSQL would
 * read and pass over all rows from before it.
 */
export const listAllAudit = (
  db: Queryable,
  { after, limit, ...filter }: AuditFilter & { readonly after: AuditPosition | null; readonly limit: number },
): Promise<readonly AuditRow[]> =>
  db.query<AuditRow>(sql`
    SELECT tenant_id AS "tenantId", sequence, record, previous_hash AS "previousHash", hash FROM audit_log
    WHERE ${matches(filter)} AND ${furtherOfAll(filter, after)}
    LIMIT ${limit}`);

/** The rows of all tenants after that position, in the filter's order. */
const furtherOfAll = ({ isNewestFirst = false, from, to }: AuditFilter, after: AuditPosition | null): Statement =>
  isNewestFirst
    ? sql`
      (at, tenant_id, sequence) <
        (coalesce(${after?.at ?? instantOf(to)}::timestamptz, 'infinity'), ${after?.tenantId ?? ""}::text, ${after?.sequence ?? 0}::bigint)
      ORDER BY at DESC, tenant_id DESC, sequence DESC`
    : sql`
      (at, tenant_id, sequence) >
        (coalesce(${after?.at ?? instantOf(from)}::timestamptz, '-infinity'), ${after?.tenantId ?? ""}::text, ${after?.sequence ?? 0}::bigint)
      ORDER BY at, tenant_id, sequence`;

const TYPE = sql`type`;

const matches = ({ keyId, resource, type, from, to }: AuditFilter): Statement => sql`
      (${keyId}::text IS NULL OR key_id = ${keyId}::text) AND (${resource}::text IS NULL OR resource = ${resource}::text)
      AND ${isOfType(TYPE, type)}
      AND at >= coalesce(${instantOf(from)}::timestamptz, '-infinity') AND at < coalesce(${instantOf(to)}::timestamptz, 'infinity')`;

/** The end of a chain. */
export async function findChain(
  db: Queryable,
  tenantId: string,
): Promise<{ readonly sequence: number; readonly hash: string }> {
  const row = await db.queryOne<{ sequence: number; hash: string }>(sql`
    SELECT sequence, hash FROM audit_chains WHERE tenant_id = ${tenantId}`);
  return row ?? { sequence: 0, hash: AUDIT_FIRST_HASH };
}

const DAY_MS = 24 * 60 * 60_000;

/** Deletes the oldest rows of chains. Returns how many. */
export async function purgeAudit({ db, clock }: Context, days: number, limit: number): Promise<number> {
  const before = instantOf(clock.now() - days * DAY_MS);
  const row = await db.queryOne<{ purged: number }>(sql`
    SELECT purge_audit(${before}::timestamptz, ${limit}::int) AS purged`);
  return row?.purged ?? 0;
}
