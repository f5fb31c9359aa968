/**
 * The queries for what decides who may reach by their address what has a host name, one for each kind.
 *
 * Writes nothing: the tables belong to machines, hosts, apps, tenants, plans and share links.
 */
import { type Queryable, type Statement, sql } from "../db/database.ts";
import type { HostKind, HostSubject } from "../hosts/kinds.ts";

/** What decides who may reach the subject of a host name. */
export interface Access extends HostSubject {
  readonly tenantId: string;
  /** The one label that leads to it besides its id; null: an app, which keeps its label. */
  readonly hostName: string | null;
  readonly isPublic: boolean;
  readonly isSuspended: boolean;
  /** null: it has no share link. */
  readonly shareHash: Buffer | null;
  /** Rate of its tenant's plan. */
  readonly requestsPerSecond: number;
  readonly burst: number;
}

const QUERIES: Readonly<Record<HostKind, (id: string) => Statement>> = {
  machine: (id) => sql`
    SELECT m.id, m.tenant_id AS "tenantId",
      coalesce((SELECT h.name FROM hosts h WHERE h.subject_id = m.id AND h.freed_at IS NULL), m.id) AS "hostName",
      m.is_public AS "isPublic", t.status = 'suspended' AS "isSuspended",
      s.token_hash AS "shareHash", p.rate_requests_per_second AS "requestsPerSecond", p.rate_burst AS burst
    FROM machines m JOIN tenants t ON t.id = m.tenant_id
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default)) LEFT JOIN machine_shares s ON s.machine_id = m.id
    WHERE m.id = ${id} AND m.deleted_at IS NULL`,
  app: (id) => sql`
    SELECT a.id, a.tenant_id AS "tenantId", NULL::text AS "hostName", a.is_public AS "isPublic",
      t.status = 'suspended' AS "isSuspended",
      s.token_hash AS "shareHash", p.rate_requests_per_second AS "requestsPerSecond", p.rate_burst AS burst
    FROM apps a JOIN tenants t ON t.id = a.tenant_id
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default)) LEFT JOIN app_shares s ON s.app_id = a.id
    WHERE a.id = ${id} AND a.deleted_at IS NULL`,
};

/** undefined: the subject is deleted, or never was. */
export async function findAccess(db: Queryable, { kind, id }: HostSubject): Promise<Access | undefined> {
  const row = await db.queryOne<Omit<Access, "kind">>(QUERIES[kind](id));
  return row && { kind, ...row };
}
