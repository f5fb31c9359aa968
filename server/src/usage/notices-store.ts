/**
 * Finds tenants that may have reached a share of their budget, and writes the event of each share once.
 *
 * Always: one statement writes an event and its row of budget_notices, so neither exists without the other,
 * and no server or restart writes a second event.
 */
import { eventDocument, insertEvents } from "../write-events.ts";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { Budgeted, Notice } from "./notices.ts";

/** Usage that ended longer ago was checked before, or is checked when the tenant uses something again. */
const RECENT_MS = 24 * 60 * 60_000;

/**
 * Tenants with a budget and a policy other than `none`, with recent usage, and with notices left this month,
 * in the order of their ids, after the named one. Each tenant's month is that of its billing time. `now`:
 * real time. OFFSET 0 keeps PostgreSQL from reading the usage of all tenants into a hash table.
 */
export const listBudgeted = (
  db: Queryable,
  { now, after, limit }: { readonly now: number; readonly after: string; readonly limit: number },
): Promise<readonly Budgeted[]> =>
  db.query<Budgeted>(sql`
    SELECT t.id AS "tenantId", p.budget_policy AS policy, p.monthly_budget_micros AS "budgetMicros", t.clock_ahead_ms AS "clockAheadMs",
      held_in_month(t.id, ${instantOf(now)}::timestamptz, NULL) AS "heldMicros"
    FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    WHERE p.budget_policy <> 'none' AND p.monthly_budget_micros IS NOT NULL AND t.id > ${after}
      AND NOT EXISTS (SELECT FROM budget_notices n WHERE n.tenant_id = t.id AND n.bound = 'budget' AND n.percent = 100
        AND n.month = date_trunc('month', (${instantOf(now)}::timestamptz + t.clock_ahead_ms * interval '1 ms') AT TIME ZONE 'UTC')::date)
      AND (EXISTS (SELECT FROM machines m WHERE m.tenant_id = t.id AND m.is_active)
        OR EXISTS (SELECT FROM usage_intervals u WHERE u.tenant_id = t.id AND u.ended_at > ${instantOf(now - RECENT_MS)}::timestamptz + t.clock_ahead_ms * interval '1 ms')
        OR EXISTS (SELECT FROM usage_intervals u WHERE u.tenant_id = t.id AND u.ended_at IS NULL AND u.meter = 'uptime' OFFSET 0))
    ORDER BY t.id LIMIT ${limit}::int`);

/** Returns how many were written; the others existed. `month`: its first instant. */
export const insertNotices = (
  db: Queryable,
  { notices, month, now }: { readonly notices: readonly Notice[]; readonly month: number; readonly now: number },
): Promise<number> => {
  const due = notices.map(({ event, ...notice }) => ({ ...notice, event: eventDocument(event) }));
  return db.execute(sql`
    WITH due AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(due)}::jsonb)
        AS d("tenantId" text, bound text, percent int, event jsonb)),
    noted AS (
      INSERT INTO budget_notices (tenant_id, month, bound, percent)
      SELECT "tenantId", (${instantOf(month)}::timestamptz AT TIME ZONE 'UTC')::date, bound, percent FROM due
      ORDER BY 1, 3, 4
      ON CONFLICT DO NOTHING RETURNING tenant_id, bound, percent)
    ${insertEvents(sql`
      SELECT d."tenantId" AS tenant_id, d."tenantId" AS subject_id, d.event, ${instantOf(now)}::timestamptz AS created_at
      FROM due d JOIN noted n ON n.tenant_id = d."tenantId" AND n.bound = d.bound AND n.percent = d.percent
      ORDER BY d."tenantId", d.bound, d.percent`)}`);
};
