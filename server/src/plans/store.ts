/**
 * Every statement that writes `plans`, and the reads of it.
 *
 * Always: exactly one plan is the default; making another one the default takes it from the old one in the same
 * transaction, and tells the other servers, because every tenant without a plan of its own then has other ceilings.
 */
import { type Queryable, sql } from "../db/database.ts";

/** A tenant plan: ceilings, rates and budget. Money in micros, memory in MiB, disk in GiB. */
export interface PlanRow {
  readonly id: string;
  readonly name: string;
  readonly is_default: boolean;
  readonly budget_policy: "none" | "notify" | "block" | "stop";
  readonly max_apps: number;
  readonly max_cpus: number;
  readonly max_memory_mb: number;
  readonly max_disk_gb: number;
  readonly max_machines: number;
  readonly max_concurrent_machines: number;
  readonly max_total_cpus: number;
  readonly max_total_memory_mb: number;
  readonly max_total_disk_gb: number;
  readonly rate_cpu_hour_micros: number;
  readonly rate_memory_gb_hour_micros: number;
  readonly rate_exec_micros: number;
  readonly rate_requests_per_second: number;
  readonly rate_burst: number;
  readonly max_egress_gb: number | null;
  readonly monthly_budget_micros: number | null;
  readonly created_at: Date;
}

export const listPlans = (db: Queryable): Promise<readonly PlanRow[]> =>
  db.query<PlanRow>(sql`SELECT * FROM plans ORDER BY is_default DESC, created_at, name`);

/** The plan that holds for a tenant: its own or the default one. */
export async function getPlanOf(db: Queryable, tenantId: string): Promise<PlanRow> {
  const row = await db.queryOne<PlanRow>(sql`
    SELECT p.* FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    WHERE t.id = ${tenantId}`);
  if (row === undefined) throw new Error(`tenant ${tenantId} has no plan`);
  return row;
}

/** Makes transactions that may change which plan is the default take turns. Reading plans goes on. */
export async function lockPlans(transaction: Queryable): Promise<void> {
  await transaction.execute(sql`LOCK TABLE plans IN SHARE ROW EXCLUSIVE MODE`);
}

export async function getDefaultPlan(db: Queryable): Promise<PlanRow> {
  const row = await db.queryOne<PlanRow>(sql`SELECT * FROM plans WHERE is_default`);
  if (row === undefined) throw new Error("no plan is the default");
  return row;
}

/** Takes the mark from the plan that has it; only together with inserting another default plan. */
export async function unsetDefaultPlan(transaction: Queryable): Promise<void> {
  await transaction.query(sql`
    WITH old AS (UPDATE plans SET is_default = false WHERE is_default RETURNING id)
    SELECT pg_notify('tenants', id) FROM old`);
}

/** undefined: the id or the name is taken. */
export const insertPlan = (db: Queryable, plan: PlanRow, madeAs: string): Promise<PlanRow | undefined> =>
  db.queryOne<PlanRow>(sql`
    INSERT INTO plans (
      id, name, is_default, budget_policy, max_apps, max_cpus, max_memory_mb, max_disk_gb, max_machines,
      max_concurrent_machines, max_total_cpus, max_total_memory_mb, max_total_disk_gb, rate_cpu_hour_micros, rate_memory_gb_hour_micros, rate_exec_micros,
      rate_requests_per_second, rate_burst, max_egress_gb, monthly_budget_micros, created_at, made_as)
    VALUES (
      ${plan.id}, ${plan.name}, ${plan.is_default}, ${plan.budget_policy}, ${plan.max_apps}, ${plan.max_cpus},
      ${plan.max_memory_mb}, ${plan.max_disk_gb}, ${plan.max_machines}, ${plan.max_concurrent_machines},
      ${plan.max_total_cpus}, ${plan.max_total_memory_mb}, ${plan.max_total_disk_gb},
      ${plan.rate_cpu_hour_micros}, ${plan.rate_memory_gb_hour_micros}, ${plan.rate_exec_micros},
      ${plan.rate_requests_per_second}, ${plan.rate_burst}, ${plan.max_egress_gb}, ${plan.monthly_budget_micros},
      ${plan.created_at}, ${madeAs})
    ON CONFLICT DO NOTHING
    RETURNING *`);

/** The plan that a request has made which gave it this id, or would have if the caller had chosen none. */
export const findPlanMadeAs = (
  db: Queryable,
  { id, madeAs }: { readonly id: string; readonly madeAs: string },
): Promise<PlanRow | undefined> =>
  db.queryOne<PlanRow>(sql`SELECT * FROM plans WHERE id = ${id} AND made_as = ${madeAs}`);
