/**
 * Every statement that writes `tenants`, and the reads of it.
 *
 * Always: a change tells the other servers in the same statement, because they keep what a tenant may do in memory.
 */
import type { TenantStatus } from "@flotilla/contract/tenants";
import { type Queryable, sql } from "../db/database.ts";

export interface TenantRow {
  readonly id: string;
  readonly name: string;
  readonly status: TenantStatus;
  readonly plan_id: string | null;
  readonly external_billing_id: string | null;
  readonly max_apps: number | null;
  readonly max_cpus: number | null;
  readonly max_memory_mb: number | null;
  readonly max_disk_gb: number | null;
  readonly created_at: Date;
  readonly updated_at: Date;
}

/** What is to change; what is absent stays, and null clears. */
export interface TenantChange {
  readonly status?: TenantStatus | undefined;
  readonly planId?: string | null | undefined;
  readonly externalBillingId?: string | null | undefined;
  readonly maxApps?: number | null | undefined;
  readonly maxCpus?: number | null | undefined;
  readonly maxMemoryMb?: number | null | undefined;
  readonly maxDiskGb?: number | null | undefined;
}

export const listTenants = (db: Queryable): Promise<readonly TenantRow[]> =>
  db.query<TenantRow>(sql`SELECT * FROM tenants ORDER BY created_at, id`);

export const findTenant = (db: Queryable, id: string): Promise<TenantRow | undefined> =>
  db.queryOne<TenantRow>(sql`SELECT * FROM tenants WHERE id = ${id}`);

/** undefined: the id or the name is taken, by one that was not `madeAs` the same. Fails when the plan does not exist. */
export const insertTenant = (
  db: Queryable,
  tenant: {
    readonly id: string;
    readonly name: string;
    readonly planId: string | null;
    readonly at: Date;
    readonly madeAs: string;
  },
): Promise<TenantRow | undefined> =>
  db.queryOne<TenantRow>(sql`
    WITH inserted AS (
      INSERT INTO tenants (id, name, plan_id, created_at, updated_at, made_as)
      VALUES (${tenant.id}, ${tenant.name}, ${tenant.planId}, ${tenant.at}, ${tenant.at}, ${tenant.madeAs})
      ON CONFLICT DO NOTHING
      RETURNING *)
    SELECT * FROM inserted
    UNION ALL SELECT * FROM tenants WHERE id = ${tenant.id} AND made_as = ${tenant.madeAs}`);

/** undefined: no such tenant. Fails when the plan does not exist. */
export const updateTenant = (
  db: Queryable,
  id: string,
  change: TenantChange,
  at: Date,
): Promise<TenantRow | undefined> =>
  db.queryOne<TenantRow>(sql`
    WITH updated AS (
      UPDATE tenants SET
        status = coalesce(${change.status}, status),
        plan_id = CASE WHEN ${change.planId === undefined} THEN plan_id ELSE ${change.planId}::text END,
        external_billing_id = CASE WHEN ${change.externalBillingId === undefined} THEN external_billing_id ELSE ${change.externalBillingId}::text END,
        max_apps = CASE WHEN ${change.maxApps === undefined} THEN max_apps ELSE ${change.maxApps}::int END,
        max_cpus = CASE WHEN ${change.maxCpus === undefined} THEN max_cpus ELSE ${change.maxCpus}::int END,
        max_memory_mb = CASE WHEN ${change.maxMemoryMb === undefined} THEN max_memory_mb ELSE ${change.maxMemoryMb}::bigint END,
        max_disk_gb = CASE WHEN ${change.maxDiskGb === undefined} THEN max_disk_gb ELSE ${change.maxDiskGb}::bigint END,
        updated_at = ${at}
      WHERE id = ${id}
      RETURNING *
    )
    SELECT updated.*, pg_notify('tenants', id) FROM updated`);

export async function planExists(db: Queryable, id: string): Promise<boolean> {
  return (await db.queryOne(sql`SELECT FROM plans WHERE id = ${id}`)) !== undefined;
}
