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

/** What is to change; what is absent stays. */
export interface TenantChange {
  readonly status?: TenantStatus | undefined;
  readonly planId?: string | undefined;
  readonly externalBillingId?: string | undefined;
  readonly maxApps?: number | undefined;
  readonly maxCpus?: number | undefined;
  readonly maxMemoryMb?: number | undefined;
  readonly maxDiskGb?: number | undefined;
}

export const listTenants = (db: Queryable): Promise<readonly TenantRow[]> =>
  db.query<TenantRow>(sql`SELECT * FROM tenants ORDER BY created_at, id`);

export const findTenant = (db: Queryable, id: string): Promise<TenantRow | undefined> =>
  db.queryOne<TenantRow>(sql`SELECT * FROM tenants WHERE id = ${id}`);

/** undefined: the id or the name is taken. Fails when the plan does not exist. */
export const insertTenant = (
  db: Queryable,
  tenant: { readonly id: string; readonly name: string; readonly planId: string | null; readonly at: Date },
): Promise<TenantRow | undefined> =>
  db.queryOne<TenantRow>(sql`
    INSERT INTO tenants (id, name, plan_id, created_at, updated_at)
    VALUES (${tenant.id}, ${tenant.name}, ${tenant.planId}, ${tenant.at}, ${tenant.at})
    ON CONFLICT DO NOTHING
    RETURNING *`);

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
        plan_id = coalesce(${change.planId}, plan_id),
        external_billing_id = coalesce(${change.externalBillingId}, external_billing_id),
        max_apps = coalesce(${change.maxApps}, max_apps),
        max_cpus = coalesce(${change.maxCpus}, max_cpus),
        max_memory_mb = coalesce(${change.maxMemoryMb}, max_memory_mb),
        max_disk_gb = coalesce(${change.maxDiskGb}, max_disk_gb),
        updated_at = ${at}
      WHERE id = ${id}
      RETURNING *
    )
    SELECT updated.*, pg_notify('tenants', id) FROM updated`);

export async function planExists(db: Queryable, id: string): Promise<boolean> {
  return (await db.queryOne(sql`SELECT FROM plans WHERE id = ${id}`)) !== undefined;
}
