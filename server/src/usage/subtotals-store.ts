/**
 * Writes usage_subtotals: what closed intervals of a tenant's month amount to, up to a cut, for tenants whose
 * budget or ceiling of egress is checked at each start.
 *
 * Always:
 * - A subtotal has exactly the closed intervals with a lower `closed_in` than its cut. It is written while
 *   the tenant's row is locked as for an invoice (billing/store.ts): the record of an end locks that row as
 *   well before it takes its number, so none with a lower one is to come.
 * - Closed intervals do not change, so a subtotal stays right, and the next one continues from it.
 * - The functions spent_in_month and egress_in_month, its only readers, return the same without it.
 *
 * A crash leaves the subtotal before.
 */
import { type Database, type Queryable, sql, type Statement } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

/** A tenant gets a subtotal when a check would read more intervals than this without it. */
const UNSUMMED_MAX = 1000;

/**
 * Tenants with a budget or a ceiling that is checked, whose checks read many intervals. `now`: real time. The
 * OFFSETs end the count.
 */
export async function listUnsummed(
  db: Queryable,
  { now, limit }: { readonly now: number; readonly limit: number },
): Promise<readonly string[]> {
  const rows = await db.query<{ readonly id: string }>(sql`
    SELECT t.id FROM plans p JOIN tenants t ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    CROSS JOIN LATERAL (SELECT month_of(billing_time(t.id, ${instantOf(now)}::timestamptz)) AS from_at) m
    LEFT JOIN usage_subtotals s ON s.tenant_id = t.id AND s.month = (m.from_at AT TIME ZONE 'UTC')::date
    WHERE (p.budget_policy IN ('block', 'stop') AND p.monthly_budget_micros IS NOT NULL OR p.max_egress_gb IS NOT NULL)
      AND CASE WHEN s.cut IS NULL
        THEN EXISTS (SELECT FROM usage_intervals u WHERE u.tenant_id = t.id AND u.ended_at > m.from_at OFFSET ${UNSUMMED_MAX}::int)
        ELSE EXISTS (SELECT FROM usage_intervals u WHERE u.tenant_id = t.id AND u.closed_in >= s.cut OFFSET ${UNSUMMED_MAX}::int) END
    ORDER BY t.id LIMIT ${limit}::int`);
  return rows.map(({ id }) => id);
}

/**
 * Sums what has been closed in the current month of a tenant. Returns whether it did: not while another
 * transaction has locked the tenant, as each does that records something of it.
 */
export const writeSubtotal = (
  db: Database,
  { tenantId, now }: { readonly tenantId: string; readonly now: number },
): Promise<boolean> =>
  db.transaction(async (transaction) => {
    const locked = await transaction.queryOne(
      sql`SELECT id FROM tenants WHERE id = ${tenantId} FOR UPDATE SKIP LOCKED`,
    );
    if (locked === undefined) return false;
    const written = await transaction.execute(summed(tenantId, now));
    return written > 0;
  });

const summed = (tenantId: string, now: number): Statement => sql`
    WITH month AS MATERIALIZED (
      SELECT month_of(b.at) AS from_at, (month_of(b.at) AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC' AS until_at
      FROM (SELECT billing_time(${tenantId}, ${instantOf(now)}::timestamptz) AS at) b),
    before AS MATERIALIZED (
      SELECT s.cut, s.meters, s.rate_ids, s.amounts FROM usage_subtotals s
      WHERE s.tenant_id = ${tenantId} AND s.month = (SELECT from_at AT TIME ZONE 'UTC' FROM month)::date),
    added AS (
      SELECT u.meter, u.rate_id, u.quantity, u.started_at, u.ended_at FROM usage_intervals u
      WHERE u.tenant_id = ${tenantId} AND u.closed_in >= (SELECT cut FROM before)
      UNION ALL
      SELECT u.meter, u.rate_id, u.quantity, u.started_at, u.ended_at FROM usage_intervals u
      WHERE u.tenant_id = ${tenantId} AND u.ended_at > (SELECT from_at FROM month) AND NOT EXISTS (SELECT FROM before)),
    part AS (
      SELECT l.meter, l.rate_id, l.amount FROM before b CROSS JOIN unnest(b.meters, b.rate_ids, b.amounts) AS l(meter, rate_id, amount)
      UNION ALL
      SELECT a.meter, a.rate_id, a.quantity * greatest(0, floor(1000 * extract(epoch FROM
        least(a.ended_at, m.until_at) - greatest(a.started_at, m.from_at))))
      FROM added a CROSS JOIN month m WHERE a.meter IN ('cpu', 'memory', 'egress', 'registry')),
    line AS (SELECT meter, rate_id, sum(amount) AS amount FROM part GROUP BY 1, 2 HAVING sum(amount) > 0)
    INSERT INTO usage_subtotals (tenant_id, month, cut, meters, rate_ids, amounts)
    SELECT ${tenantId}, (m.from_at AT TIME ZONE 'UTC')::date, nextval(pg_get_serial_sequence('usage_intervals', 'id')),
      ARRAY(SELECT meter FROM line ORDER BY meter, rate_id), ARRAY(SELECT rate_id FROM line ORDER BY meter, rate_id),
      ARRAY(SELECT amount FROM line ORDER BY meter, rate_id)
    FROM month m
    ON CONFLICT (tenant_id) DO UPDATE SET month = excluded.month, cut = excluded.cut, meters = excluded.meters,
      rate_ids = excluded.rate_ids, amounts = excluded.amounts`;
