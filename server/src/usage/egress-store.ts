/**
 * Reads what machines of tenants have sent in the current month. Triggers write it as usage intervals.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { EgressUse } from "./notices.ts";

/**
 * What the tenant's machines have sent in its month, and when that ends, in epoch milliseconds. `now`: real
 * time.
 */
export async function readEgress(
  db: Queryable,
  { tenantId, now }: { readonly tenantId: string; readonly now: number },
): Promise<{ readonly sentBytes: number; readonly nextMonth: number }> {
  const row = await db.queryOne<{ readonly sentBytes: number; readonly nextMonth: number }>(sql`
    SELECT egress_in_month(${tenantId}, r.at) AS "sentBytes",
      ms((month_of(billing_time(${tenantId}, r.at)) AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC') AS "nextMonth"
    FROM (SELECT ${instantOf(now)}::timestamptz AS at) r`);
  if (row === undefined) throw new Error("a sum has no row");
  return row;
}

/** What was sent longer ago was checked before, or is checked when the tenant sends something again. */
const RECENT_MS = 24 * 60 * 60_000;

/** Tenants with a ceiling, of plan `p` and tenant `t`. */
const CEILED = sql`
    FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    WHERE p.max_egress_gb IS NOT NULL`;

/**
 * Tenants with a ceiling that have sent something lately, and with notices left this month, in the order of
 * their ids, after the named one. `now`: real time.
 */
export const listCeiled = (
  db: Queryable,
  { now, after, limit }: { readonly now: number; readonly after: string; readonly limit: number },
): Promise<readonly EgressUse[]> =>
  db.query<EgressUse>(sql`
    SELECT t.id AS "tenantId", p.max_egress_gb AS "maxEgressGb", t.clock_ahead_ms AS "clockAheadMs",
      egress_in_month(t.id, ${instantOf(now)}::timestamptz) AS "sentBytes"
    ${CEILED} AND t.id > ${after}
      AND NOT EXISTS (SELECT FROM budget_notices n WHERE n.tenant_id = t.id AND n.bound = 'egress' AND n.percent = 100
        AND n.month = date_trunc('month', (${instantOf(now)}::timestamptz + t.clock_ahead_ms * interval '1 ms') AT TIME ZONE 'UTC')::date)
      AND EXISTS (SELECT FROM usage_intervals u WHERE u.tenant_id = t.id AND u.meter = 'egress'
        AND u.ended_at > ${instantOf(now - RECENT_MS)}::timestamptz + t.clock_ahead_ms * interval '1 ms')
    ORDER BY t.id LIMIT ${limit}::int`);

/** Max tenants whose intervals one statement sums. */
const TENANTS_PER_STATEMENT_MAX = 100;

/** Tenants with running machines that have a ceiling, in the order of their ids. `now`: real time. */
export async function listRunningCeiled(db: Queryable, now: number): Promise<readonly EgressUse[]> {
  const all: EgressUse[] = [];
  for (;;) {
    const some = await db.query<EgressUse>(sql`
      SELECT t.id AS "tenantId", p.max_egress_gb AS "maxEgressGb", t.clock_ahead_ms AS "clockAheadMs",
        egress_in_month(t.id, ${instantOf(now)}::timestamptz) AS "sentBytes"
      ${CEILED} AND t.id > ${all.at(-1)?.tenantId ?? ""}
        AND EXISTS (SELECT FROM machines m WHERE m.tenant_id = t.id AND m.is_active)
      ORDER BY t.id LIMIT ${TENANTS_PER_STATEMENT_MAX}::int`);
    all.push(...some);
    if (some.length < TENANTS_PER_STATEMENT_MAX) return all;
  }
}
