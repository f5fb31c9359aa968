/**
 * Divides the lines of an invoice over machines, keys or the values of a label, from the same intervals.
 * Reads only.
 *
 * Always:
 * - Amounts are exact: the groups of a line add up to the line.
 * - The price of a line is rounded down once. Its groups, in the order of their names, get the differences of
 *   the rounded running sums, so their prices add up to the line as well.
 * - A group of an adjustment is what this invoice knows of the month, less what the invoice before knew.
 */
import { type Queryable, sql, type Statement } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { Month } from "./month.ts";
import { dayOf, type LineRow } from "./store.ts";

export interface CostGroup {
  readonly by: "machine" | "key" | "label";
  /** The name of the label; empty otherwise. */
  readonly label: string;
}

export interface CostRow extends LineRow {
  /** The machine, key or value; null: no label with the name, or unknown. */
  readonly group: string | null;
}

interface CostsQuery {
  readonly tenantId: string;
  /** Month of the invoice. */
  readonly month: Month;
  /** Cut of the final invoice; null: it is not final. */
  readonly cut: number | null;
  /** The newest final invoice of an earlier month. */
  readonly before: { readonly month: Month; readonly cut: number } | null;
  /** The months of its lines. */
  readonly usageMonths: readonly Month[];
  readonly group: CostGroup;
  /**
   * Only what was known at this instant of the tenant's billing time; null: everything. Epoch milliseconds.
   */
  readonly knownAt: number | null;
  readonly now: number;
}

/** Costs in the order of months, newest first, meters, rates and groups. */
export const listCosts = (db: Queryable, query: CostsQuery): Promise<readonly CostRow[]> =>
  db.query<CostRow>(sql`
    WITH ${divided(query)}
    SELECT c.name AS group, to_char(c.usage_month, 'YYYY-MM') AS "usageMonth", c.meter, c.rate_id AS "rateId",
      c.amount::text AS amount,
      (usage_micros(c.meter, c.upto, r)
        - usage_micros(c.meter, c.upto - c.amount, r))::bigint AS micros
    FROM summed c JOIN rates r ON r.id = c.rate_id WHERE c.amount <> 0
    ORDER BY c.usage_month DESC, c.meter, r.active_from, r.id, c.name COLLATE "C"`);

/**
 * Relations that say what each group amounts to:
 * - `usage_month`: the months;
 * - `state`: what the invoice knows, which counts, and what the one before knew, which is subtracted;
 * - `known`: the intervals of both, each up to where that invoice knows it, as `used` in store.ts;
 * - `summed`: the groups of each line, with the sum up to each. It begins with what earlier invoices have of
 *   the line.
 */
const divided = ({ tenantId, month, cut, before, usageMonths, group, knownAt, now }: CostsQuery): Statement => sql`
    usage_month AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(usageMonths.map(monthWire))}::jsonb)
        AS m(month date, from_at timestamptz, to_at timestamptz)),
    state AS (
      SELECT 1 AS sign, ${cut}::bigint AS cut, ${dayOf(month.from)}::date AS month, ${instantOf(month.to)}::timestamptz AS to_at,
        CASE WHEN ${cut}::bigint IS NULL THEN ${instantOf(knownAt)}::timestamptz END AS known_at
      UNION ALL SELECT -1, ${before?.cut ?? null}::bigint, ${dayOf(before?.month.from ?? 0)}::date,
        ${instantOf(before?.month.to ?? 0)}::timestamptz, NULL WHERE ${before !== null}::boolean),
    known AS (
      SELECT s.sign, s.month, u.meter, u.quantity, u.started_at,
        CASE ${group.by}::text WHEN 'machine' THEN u.machine_id WHEN 'key' THEN a.key_id ELSE a.labels ->> ${group.label}::text END AS name,
        CASE WHEN c.is_closed THEN u.rate_id END AS rate_id,
        CASE WHEN c.is_closed AND u.closed_at > s.known_at THEN greatest(u.started_at, least(s.known_at, u.ended_at))
          WHEN c.is_closed THEN u.ended_at
          WHEN s.cut IS NOT NULL THEN coalesce(l.counted_until, s.to_at)
          ELSE greatest(u.started_at, least(s.known_at, u.left_at,
            billing_time(u.tenant_id, least(${instantOf(now)}::timestamptz, CASE WHEN u.left_at IS NULL THEN n.last_heartbeat_at END)),
            s.to_at)) END AS ends_at
      FROM state s
      JOIN usage_intervals u ON u.tenant_id = ${tenantId} AND u.started_at < s.to_at AND (s.cut IS NULL OR u.id < s.cut)
        AND (s.known_at IS NULL OR u.recorded_at <= s.known_at)
        AND (u.ended_at IS NULL OR u.ended_at > (SELECT min(from_at) FROM usage_month) OR u.closed_in >= s.cut)
      CROSS JOIN LATERAL (SELECT u.ended_at IS NOT NULL AND (s.cut IS NULL OR u.closed_in < s.cut) AS is_closed) c
      LEFT JOIN invoice_limits l ON l.tenant_id = u.tenant_id AND l.month = s.month AND l.interval_id = u.id
      LEFT JOIN machines m ON u.boot_id IS NOT NULL AND m.id = u.machine_id
      LEFT JOIN nodes n ON n.id = m.node_id
      LEFT JOIN usage_attributions a ON a.id = u.attribution_id),
    part AS (
      SELECT k.name, m.month AS usage_month, k.meter, k.rate_id, k.sign * k.quantity AS quantity,
        greatest(k.started_at, m.from_at) AS begins, least(k.ends_at, m.to_at) AS ends
      FROM known k JOIN usage_month m ON k.started_at < m.to_at AND k.ends_at > m.from_at AND m.month <= k.month),
    rated AS (
      SELECT name, usage_month, meter, rate_id, quantity, begins, ends FROM part WHERE rate_id IS NOT NULL
      UNION ALL
      SELECT p.name, p.usage_month, p.meter, t.rate_id, p.quantity, greatest(p.begins, t.active_from), least(p.ends, t.active_until)
      FROM part p JOIN tenant_rates t ON t.tenant_id = ${tenantId} AND t.active_from < p.ends AND t.active_until > p.begins
      WHERE p.rate_id IS NULL),
    summed AS (
      SELECT g.*, sum(g.amount) OVER (PARTITION BY g.usage_month, g.meter, g.rate_id ORDER BY g.name COLLATE "C") + coalesce((
          SELECT sum(l.amount) FROM invoice_lines l
          WHERE l.tenant_id = ${tenantId} AND l.usage_month = g.usage_month AND l.meter = g.meter AND l.rate_id = g.rate_id
            AND l.month < ${dayOf(month.from)}::date), 0) AS upto
      FROM (
        SELECT name, usage_month, meter, rate_id,
          sum(quantity * greatest(0, floor(1000 * extract(epoch FROM ends - begins)))) AS amount
        FROM rated GROUP BY 1, 2, 3, 4) g)`;

const monthWire = ({ from, to }: Month): object => ({
  month: dayOf(from),
  from_at: instantOf(from),
  to_at: instantOf(to),
});
