/**
 * Reads the resources that a tenant's machines use, the ceilings of its plan, and its billing time.
 *
 * Writes nothing: each table has its own store.
 */
import type { Queryable } from "../db/database.ts";
import { sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { notFound } from "../missing.ts";
import type { Budgeted } from "./notices.ts";
import type { Ceilings, Totals } from "./quota.ts";

/** The resources that all machines of a tenant use now. */
export async function readTotals(db: Queryable, tenantId: string): Promise<Totals> {
  const row = await db.queryOne<Totals>(sql`
    SELECT count(*) FILTER (WHERE is_active) AS machines, coalesce(sum(cpus) FILTER (WHERE is_active), 0) AS cpus,
      coalesce(sum(memory_mb) FILTER (WHERE is_active), 0) AS "memoryMb", coalesce(sum(held_disk_gb), 0) AS "diskGb"
    FROM machines WHERE tenant_id = ${tenantId} AND deleted_at IS NULL`);
  if (row === undefined) throw new Error("a sum has no row");
  return row;
}

/** The ceilings of a tenant's plan, overridden by the tenant's own. */
export async function readCeilings(db: Queryable, tenantId: string): Promise<Ceilings> {
  const row = await db.queryOne<Ceilings>(sql`
    SELECT p.name AS "planName",
      array_remove(ARRAY[CASE WHEN t.max_cpus IS NOT NULL THEN 'maxCpus' END,
        CASE WHEN t.max_memory_mb IS NOT NULL THEN 'maxMemoryMb' END,
        CASE WHEN t.max_disk_gb IS NOT NULL THEN 'maxDiskGb' END], NULL) AS own, p.max_machines AS "maxMachines",
      p.max_concurrent_machines AS "maxConcurrentMachines", p.max_total_cpus AS "maxTotalCpus",
      p.max_total_memory_mb AS "maxTotalMemoryMb", p.max_total_disk_gb AS "maxTotalDiskGb", coalesce(t.max_cpus, p.max_cpus) AS "maxCpus",
      coalesce(t.max_memory_mb, p.max_memory_mb) AS "maxMemoryMb", coalesce(t.max_disk_gb, p.max_disk_gb) AS "maxDiskGb",
      p.max_egress_gb AS "maxEgressGb", p.max_package_gb AS "maxPackageGb", p.budget_policy AS "budgetPolicy", p.monthly_budget_micros AS "monthlyBudgetMicros"
    FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    WHERE t.id = ${tenantId}`);
  if (row === undefined) throw notFound("tenant", tenantId);
  return row;
}

/** Whether an operator has suspended the tenant, so that none of its machines starts. */
export async function isSuspended(db: Queryable, tenantId: string): Promise<boolean> {
  return (await db.queryOne(sql`SELECT id FROM tenants WHERE id = ${tenantId} AND status = 'suspended'`)) !== undefined;
}

/**
 * The billing time of a tenant at an instant of real time, in epoch milliseconds: the same one without a test
 * clock.
 */
export async function readBillingTime(db: Queryable, tenantId: string, at: number): Promise<number> {
  const row = await db.queryOne<{ readonly at: number }>(sql`
    SELECT ms(billing_time(${tenantId}, ${instantOf(at)}::timestamptz)) AS at`);
  return row?.at ?? at;
}

/**
 * Tenants with running machines whose plan stops machines when the budget is used up, with what is held at
 * `now` (real time).
 */
export const listStoppable = (db: Queryable, now: number): Promise<readonly Budgeted[]> =>
  db.query<Budgeted>(sql`
    SELECT t.id AS "tenantId", p.budget_policy AS policy, p.monthly_budget_micros AS "budgetMicros", t.clock_ahead_ms AS "clockAheadMs",
      held_in_month(t.id, ${instantOf(now)}::timestamptz, NULL) AS "heldMicros"
    FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    WHERE p.budget_policy = 'stop' AND p.monthly_budget_micros IS NOT NULL
      AND EXISTS (SELECT FROM machines m WHERE m.tenant_id = t.id AND m.is_active)
    ORDER BY t.id`);
