/**
 * Every statement that writes `tenants`, and the reads of it.
 *
 * Always: the statement that changes a tenant also notifies the other servers, which cache its limits.
 */
import type { TenantStatus } from "@flotilla/contract/tenants";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

export interface TenantRow {
  readonly id: string;
  readonly name: string;
  readonly status: TenantStatus;
  readonly planId: string | null;
  readonly externalBillingId: string | null;
  readonly maxApps: number | null;
  readonly maxCpus: number | null;
  readonly maxMemoryMb: number | null;
  readonly maxDiskGb: number | null;
  /** The balance of its ledger; 0 if it owes. */
  readonly creditMicros: number;
  readonly hasTestClock: boolean;
  /** How far its billing time is ahead of real time, in milliseconds; 0 without a test clock. */
  readonly clockAheadMs: number;
  readonly createdAt: number;
  readonly updatedAt: number;
}

const COLUMNS = sql`
  t.id, t.name, t.status, t.plan_id AS "planId", t.external_billing_id AS "externalBillingId",
  t.max_apps AS "maxApps", t.max_cpus AS "maxCpus", t.max_memory_mb AS "maxMemoryMb", t.max_disk_gb AS "maxDiskGb",
  (SELECT greatest(coalesce(sum(e.micros), 0), 0)::bigint FROM ledger_transactions l
    JOIN ledger_entries e ON e.transaction_id = l.id AND e.account = 'balance' WHERE l.tenant_id = t.id) AS "creditMicros",
  t.has_test_clock AS "hasTestClock", t.clock_ahead_ms AS "clockAheadMs",
  ms(t.created_at) AS "createdAt",
  ms(t.updated_at) AS "updatedAt"`;

/** The fields to change. A missing field is unchanged; null clears it. */
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
  db.query<TenantRow>(sql`SELECT ${COLUMNS} FROM tenants t ORDER BY t.created_at, t.id`);

export const findTenant = (db: Queryable, id: string): Promise<TenantRow | undefined> =>
  db.queryOne<TenantRow>(sql`SELECT ${COLUMNS} FROM tenants t WHERE t.id = ${id}`);

export const findTenantNamed = (db: Queryable, name: string): Promise<TenantRow | undefined> =>
  db.queryOne<TenantRow>(sql`SELECT ${COLUMNS} FROM tenants t WHERE t.name = ${name}`);

/**
 * undefined: the id or the name is taken by a tenant with another `madeAs`. Fails when the plan does not
 * exist.
 */
export const insertTenant = (
  db: Queryable,
  tenant: {
    readonly id: string;
    readonly name: string;
    readonly planId: string | null;
    readonly hasTestClock: boolean;
    readonly at: number;
    readonly madeAs: string;
  },
): Promise<TenantRow | undefined> =>
  db.queryOne<TenantRow>(sql`
    WITH inserted AS (
      INSERT INTO tenants (id, name, plan_id, has_test_clock, created_at, updated_at, made_as)
      VALUES (${tenant.id}, ${tenant.name}, ${tenant.planId}, ${tenant.hasTestClock}, ${instantOf(tenant.at)}, ${instantOf(tenant.at)}, ${tenant.madeAs})
      ON CONFLICT DO NOTHING
      RETURNING *)
    SELECT ${COLUMNS} FROM inserted t
    UNION ALL SELECT ${COLUMNS} FROM tenants t WHERE t.id = ${tenant.id} AND t.made_as = ${tenant.madeAs}`);

/** undefined: no such tenant. Fails when the plan does not exist. */
export const updateTenant = (
  db: Queryable,
  id: string,
  change: TenantChange,
  at: number,
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
        updated_at = ${instantOf(at)}
      WHERE id = ${id}
      RETURNING *
    )
    SELECT ${COLUMNS}, pg_notify('tenants', t.id) FROM updated t`);

/** The tenant, locked so that none of its usage is recorded until the transaction ends. */
export const lockTenant = (transaction: Queryable, id: string): Promise<TenantRow | undefined> =>
  transaction.queryOne<TenantRow>(sql`SELECT ${COLUMNS} FROM tenants t WHERE t.id = ${id} FOR UPDATE OF t`);

/**
 * Moves the test clock of a locked tenant to `aheadMs` ahead of real time, from `now` on; if machines run,
 * from the last report of their nodes on, so that what has been reported to run runs through the move.
 */
export const advanceClock = (
  transaction: Queryable,
  { id, aheadMs, now }: { readonly id: string; readonly aheadMs: number; readonly now: number },
): Promise<TenantRow | undefined> =>
  transaction.queryOne<TenantRow>(sql`
    WITH advanced AS (
      INSERT INTO clock_advances (tenant_id, active_from, advanced_at, ahead_ms)
      SELECT ${id}, greatest(
        (SELECT max(c.active_from) FROM clock_advances c WHERE c.tenant_id = ${id}),
        least(${instantOf(now)}::timestamptz, (
          SELECT min(n.last_heartbeat_at) FROM machine_runs r JOIN nodes n ON n.id = r.node_id
          WHERE r.tenant_id = ${id} AND r.ended_at IS NULL AND n.status NOT IN ('unreachable', 'revoked')))), ${instantOf(now)}::timestamptz, ${aheadMs}::bigint),
    updated AS (
      UPDATE tenants SET clock_ahead_ms = ${aheadMs}::bigint, updated_at = ${instantOf(now)}::timestamptz WHERE id = ${id}
      RETURNING *)
    SELECT ${COLUMNS}, pg_notify('clocks', t.id) FROM updated t`);

export async function planExists(db: Queryable, id: string): Promise<boolean> {
  return (await db.queryOne(sql`SELECT FROM plans WHERE id = ${id}`)) !== undefined;
}
