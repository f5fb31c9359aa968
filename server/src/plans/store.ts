/**
 * Every statement that writes `plans`, and the reads of it.
 *
 * Always:
 * - Exactly one plan is the default. Making another one the default takes the mark from the old one in the
 *   same transaction, and notifies the other servers, because tenants that have no plan then have other
 *   ceilings.
 * - A plan is read with the prices that hold at an instant; rates-store.ts has them all.
 */
import { type Queryable, sql, type Statement } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

/**
 * A tenant plan: ceilings, rates and budget. Money in micros, memory in MiB, disk in GiB, instants in epoch
 * milliseconds.
 */
export interface PlanRow {
  readonly id: string;
  readonly name: string;
  readonly isDefault: boolean;
  readonly budgetPolicy: "none" | "notify" | "block" | "stop";
  readonly maxApps: number;
  readonly maxCpus: number;
  readonly maxMemoryMb: number;
  readonly maxDiskGb: number;
  readonly maxMachines: number;
  readonly maxConcurrentMachines: number;
  readonly maxTotalCpus: number;
  readonly maxTotalMemoryMb: number;
  readonly maxTotalDiskGb: number;
  readonly rateCpuHourMicros: number;
  readonly rateMemoryGbHourMicros: number;
  readonly rateEgressGbMicros: number;
  readonly rateRegistryGbHourMicros: number;
  readonly rateExecMicros: number;
  readonly rateRequestsPerSecond: number;
  readonly rateBurst: number;
  readonly maxEgressGb: number | null;
  readonly maxPackageGb: number | null;
  readonly monthlyBudgetMicros: number | null;
  readonly createdAt: number;
}

/** Columns of `plans p` and `rates r`. */
const COLUMNS = sql`p.id, p.name, p.is_default AS "isDefault", p.budget_policy AS "budgetPolicy", p.max_apps AS "maxApps",
  p.max_cpus AS "maxCpus", p.max_memory_mb AS "maxMemoryMb", p.max_disk_gb AS "maxDiskGb", p.max_machines AS "maxMachines",
  p.max_concurrent_machines AS "maxConcurrentMachines", p.max_total_cpus AS "maxTotalCpus",
  p.max_total_memory_mb AS "maxTotalMemoryMb", p.max_total_disk_gb AS "maxTotalDiskGb",
  r.cpu_hour_micros AS "rateCpuHourMicros", r.memory_gb_hour_micros AS "rateMemoryGbHourMicros",
  r.egress_gb_micros AS "rateEgressGbMicros", r.registry_gb_hour_micros AS "rateRegistryGbHourMicros",
  p.rate_exec_micros AS "rateExecMicros", p.rate_requests_per_second AS "rateRequestsPerSecond", p.rate_burst AS "rateBurst",
  p.max_egress_gb AS "maxEgressGb", p.max_package_gb AS "maxPackageGb", p.monthly_budget_micros AS "monthlyBudgetMicros",
  ms(p.created_at) AS "createdAt"`;

/** The rate of `plans p` that holds at an instant; every instant has one. */
const rateAt = (now: number): Statement => sql`CROSS JOIN LATERAL (
    SELECT * FROM rates WHERE plan_id = p.id AND active_from <= ${instantOf(now)} ORDER BY active_from DESC LIMIT 1) r`;

export const listPlans = (db: Queryable, now: number): Promise<readonly PlanRow[]> =>
  db.query<PlanRow>(sql`
    SELECT ${COLUMNS} FROM plans p ${rateAt(now)} ORDER BY p.is_default DESC, p.created_at, p.name`);

export const findPlan = (db: Queryable, id: string, now: number): Promise<PlanRow | undefined> =>
  db.queryOne<PlanRow>(sql`SELECT ${COLUMNS} FROM plans p ${rateAt(now)} WHERE p.id = ${id}`);

/** The tenant's plan: its own or the default one. */
export async function getPlanOf(db: Queryable, tenantId: string, now: number): Promise<PlanRow> {
  const row = await db.queryOne<PlanRow>(sql`
    SELECT ${COLUMNS} FROM tenants t
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default)) ${rateAt(now)}
    WHERE t.id = ${tenantId}`);
  if (row === undefined) throw new Error(`tenant ${tenantId} has no plan`);
  return row;
}

/** Serializes transactions that may change the default plan. Reads are not blocked. */
export async function lockPlans(transaction: Queryable): Promise<void> {
  await transaction.execute(sql`LOCK TABLE plans IN SHARE ROW EXCLUSIVE MODE`);
}

/**
 * Waits for all transactions that have locked tenants, as each record of usage does, and keeps others from
 * it: a new default plan locks its tenants in the order of their ids, and a report those of its machines in
 * another one.
 */
export async function lockTenants(transaction: Queryable): Promise<void> {
  await transaction.execute(sql`LOCK TABLE tenants IN EXCLUSIVE MODE`);
}

export async function getDefaultPlan(db: Queryable, now: number): Promise<PlanRow> {
  const row = await db.queryOne<PlanRow>(sql`
    SELECT ${COLUMNS} FROM plans p ${rateAt(now)} WHERE p.is_default`);
  if (row === undefined) throw new Error("no plan is the default");
  return row;
}

/** Unmarks the default plan; only together with inserting another default plan. */
export async function unsetDefaultPlan(transaction: Queryable): Promise<void> {
  await transaction.query(sql`
    WITH old AS (UPDATE plans SET is_default = false WHERE is_default RETURNING id)
    SELECT pg_notify('tenants', id) FROM old`);
}

/** Whether it was inserted; false: the id or the name is taken. */
export async function insertPlan(db: Queryable, plan: PlanRow, madeAs: string): Promise<boolean> {
  const count = await db.execute(sql`
    INSERT INTO plans (
      id, name, is_default, budget_policy, max_apps, max_cpus, max_memory_mb, max_disk_gb, max_machines,
      max_concurrent_machines, max_total_cpus, max_total_memory_mb, max_total_disk_gb, rate_cpu_hour_micros, rate_memory_gb_hour_micros, rate_egress_gb_micros, rate_registry_gb_hour_micros, rate_exec_micros,
      rate_requests_per_second, rate_burst, max_egress_gb, max_package_gb, monthly_budget_micros, created_at, made_as)
    VALUES (
      ${plan.id}, ${plan.name}, ${plan.isDefault}, ${plan.budgetPolicy}, ${plan.maxApps}, ${plan.maxCpus},
      ${plan.maxMemoryMb}, ${plan.maxDiskGb}, ${plan.maxMachines}, ${plan.maxConcurrentMachines},
      ${plan.maxTotalCpus}, ${plan.maxTotalMemoryMb}, ${plan.maxTotalDiskGb},
      ${plan.rateCpuHourMicros}, ${plan.rateMemoryGbHourMicros}, ${plan.rateEgressGbMicros}, ${plan.rateRegistryGbHourMicros}, ${plan.rateExecMicros},
      ${plan.rateRequestsPerSecond}, ${plan.rateBurst}, ${plan.maxEgressGb}, ${plan.maxPackageGb}, ${plan.monthlyBudgetMicros},
      ${instantOf(plan.createdAt)}, ${madeAs})
    ON CONFLICT DO NOTHING`);
  return count === 1;
}

/**
 * Writes what may change of a plan, and notifies the other servers. Whether it was written; false: the name
 * is taken.
 */
export async function writePlan(transaction: Queryable, plan: PlanRow): Promise<boolean> {
  const written = await transaction.query(sql`
    UPDATE plans SET
      name = ${plan.name}, budget_policy = ${plan.budgetPolicy}, max_apps = ${plan.maxApps}, max_cpus = ${plan.maxCpus},
      max_memory_mb = ${plan.maxMemoryMb}, max_disk_gb = ${plan.maxDiskGb}, max_machines = ${plan.maxMachines},
      max_concurrent_machines = ${plan.maxConcurrentMachines}, max_total_cpus = ${plan.maxTotalCpus},
      max_total_memory_mb = ${plan.maxTotalMemoryMb}, max_total_disk_gb = ${plan.maxTotalDiskGb},
      rate_exec_micros = ${plan.rateExecMicros}, rate_requests_per_second = ${plan.rateRequestsPerSecond},
      rate_burst = ${plan.rateBurst}, max_egress_gb = ${plan.maxEgressGb}, max_package_gb = ${plan.maxPackageGb}, monthly_budget_micros = ${plan.monthlyBudgetMicros}
    WHERE id = ${plan.id} AND NOT EXISTS (SELECT FROM plans other WHERE other.name = ${plan.name} AND other.id <> ${plan.id})
    RETURNING pg_notify('tenants', id)`);
  return written.length === 1;
}

/** The plan with this id that the same request made. */
export const findPlanMadeAs = (
  db: Queryable,
  { id, madeAs, now }: { readonly id: string; readonly madeAs: string; readonly now: number },
): Promise<PlanRow | undefined> =>
  db.queryOne<PlanRow>(sql`
    SELECT ${COLUMNS} FROM plans p ${rateAt(now)} WHERE p.id = ${id} AND p.made_as = ${madeAs}`);
