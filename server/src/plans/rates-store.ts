/**
 * Every statement over `rates`, except the insert of each plan's first row, which is a trigger's, and which
 * tenants a plan had.
 *
 * Always: a rate is never changed. The database refuses it.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

/** The prices of a plan from an instant on. Money in micros, instants in epoch milliseconds. */
export interface RateRow {
  readonly id: string;
  readonly planId: string;
  readonly activeFrom: number;
  readonly rateCpuHourMicros: number;
  readonly rateMemoryGbHourMicros: number;
  readonly rateEgressGbMicros: number;
  readonly rateRegistryGbHourMicros: number;
  readonly createdAt: number;
}

const COLUMNS = sql`id, plan_id AS "planId", ms(active_from) AS "activeFrom",
  cpu_hour_micros AS "rateCpuHourMicros", memory_gb_hour_micros AS "rateMemoryGbHourMicros", egress_gb_micros AS "rateEgressGbMicros",
  registry_gb_hour_micros AS "rateRegistryGbHourMicros",
  ms(created_at) AS "createdAt"`;

/** All rates of a plan in order of time; none: there is no such plan. */
export const listRates = (db: Queryable, planId: string): Promise<readonly RateRow[]> =>
  db.query<RateRow>(sql`SELECT ${COLUMNS} FROM rates WHERE plan_id = ${planId} ORDER BY active_from`);

export const findRate = (db: Queryable, id: string): Promise<RateRow | undefined> =>
  db.queryOne<RateRow>(sql`SELECT ${COLUMNS} FROM rates WHERE id = ${id}`);

/**
 * The tenants that were on the plan at any time of the period, in the order of their ids. Epoch milliseconds
 * of billing time.
 */
export async function listTenantsOfPlan(
  db: Queryable,
  planId: string,
  { from, to }: { readonly from: number; readonly to: number },
): Promise<readonly string[]> {
  const rows = await db.query<{ readonly id: string }>(sql`
    SELECT DISTINCT p.tenant_id AS id FROM tenant_plans p
    WHERE p.plan_id = ${planId} AND p.active_from < ${instantOf(to)}::timestamptz
      AND NOT EXISTS (
        SELECT FROM tenant_plans later
        WHERE later.tenant_id = p.tenant_id AND later.active_from > p.active_from AND later.active_from <= ${instantOf(from)}::timestamptz)
    ORDER BY p.tenant_id`);
  return rows.map(({ id }) => id);
}

/** Whether it was inserted; false: the id is taken, or the plan has another rate from the same instant on. */
export async function insertRate(db: Queryable, rate: RateRow): Promise<boolean> {
  const count = await db.execute(sql`
    INSERT INTO rates (id, plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, egress_gb_micros, registry_gb_hour_micros, created_at)
    VALUES (${rate.id}, ${rate.planId}, ${instantOf(rate.activeFrom)}, ${rate.rateCpuHourMicros},
      ${rate.rateMemoryGbHourMicros}, ${rate.rateEgressGbMicros}, ${rate.rateRegistryGbHourMicros}, ${instantOf(rate.createdAt)})
    ON CONFLICT DO NOTHING`);
  return count === 1;
}
