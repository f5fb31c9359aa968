/**
 * The query for what decides who may reach a machine by its address.
 *
 * Writes nothing: the tables belong to machines, tenants, plans and share links.
 */
import { type Queryable, sql } from "../db/database.ts";

/** What decides who may reach a machine. */
export interface MachineAccess {
  readonly id: string;
  readonly tenantId: string;
  readonly isPublic: boolean;
  readonly isSuspended: boolean;
  /** null: it has no share link. */
  readonly shareHash: Buffer | null;
  /** Rate of its tenant's plan. */
  readonly requestsPerSecond: number;
  readonly burst: number;
}

/** Reads the access of a machine that is not deleted, by its id or by the label of its host. */
export function findAccess(db: Queryable, name: string): Promise<MachineAccess | undefined> {
  return db.queryOne<MachineAccess>(sql`
    SELECT m.id, m.tenant_id AS "tenantId", m.is_public AS "isPublic", t.status = 'suspended' AS "isSuspended",
      s.token_hash AS "shareHash", p.rate_requests_per_second AS "requestsPerSecond", p.rate_burst AS burst
    FROM machines m JOIN tenants t ON t.id = m.tenant_id
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default)) LEFT JOIN machine_shares s ON s.machine_id = m.id
    WHERE m.deleted_at IS NULL AND (m.id = ${name} OR m.host_label = ${name})
    ORDER BY m.id = ${name} DESC LIMIT 1`);
}
