/**
 * Every statement over invoices, their lines and their limits. `computed` derives lines from intervals;
 * drafts and final invoices use the same statement text.
 *
 * Always:
 * - A line is the price of all that was used in a month at a rate, rounded down once, less what earlier
 *   invoices have of it. So the lines of a month over all invoices add up to what /v1/account says of it.
 * - Usage of an earlier month is an adjustment of the tenant's first invoice that is not final, and of no
 *   other.
 * - One statement writes an invoice with all its lines, under a lock that blocks the recording of intervals
 *   of its tenant. A crash leaves the whole invoice or nothing.
 */
import { type Database, type Queryable, sql, type Statement } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { Meter } from "../usage/usage.ts";
import type { Month } from "./month.ts";

/** A final invoice. Instants in epoch milliseconds, money in micros. */
export interface InvoiceRow {
  readonly month: string;
  /** null: of a time before the control plane was first restored from a backup, or without a number. */
  readonly series: string | null;
  /** null: of a tenant with a test clock. */
  readonly number: number | null;
  readonly cut: number;
  readonly finalizedAt: number;
  readonly totalMicros: number;
}

export interface LineRow {
  readonly usageMonth: string;
  readonly meter: Meter;
  readonly rateId: string;
  /** Quantity × milliseconds, as a decimal integer. */
  readonly amount: string;
  readonly micros: number;
}

interface LinesQuery {
  readonly month: Month;
  /** What is in use counts at most up to now. Epoch milliseconds of real time. */
  readonly now: number;
  /**
   * Only what was known at this instant of the tenant's billing time; null: everything. Epoch milliseconds.
   */
  readonly knownAt: number | null;
}

/** The date in UTC, such as 2026-07-01. */
export const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** The invoices of a tenant that were final at the instant, in the order of their months; null: now. */
export const listFinalInvoices = (
  db: Queryable,
  { tenantId, knownAt }: { readonly tenantId: string; readonly knownAt: number | null },
): Promise<readonly InvoiceRow[]> =>
  db.query<InvoiceRow>(sql`
    SELECT to_char(month, 'YYYY-MM') AS month, CASE WHEN number IS NOT NULL THEN nullif(series, '') END AS series, number, cut, total_micros AS "totalMicros",
      ms(finalized_at) AS "finalizedAt"
    FROM invoices WHERE tenant_id = ${tenantId}
      AND (${instantOf(knownAt)}::timestamptz IS NULL OR finalized_at <= ${instantOf(knownAt)}::timestamptz)
    ORDER BY invoices.month`);

export const listFinalLines = (db: Queryable, tenantId: string, month: Month): Promise<readonly LineRow[]> =>
  db.query<LineRow>(sql`
    SELECT to_char(l.usage_month, 'YYYY-MM') AS "usageMonth", l.meter, l.rate_id AS "rateId", l.amount::text AS amount, l.micros
    FROM invoice_lines l JOIN rates r ON r.id = l.rate_id
    WHERE l.tenant_id = ${tenantId} AND l.month = ${dayOf(month.from)}::date
    ORDER BY l.usage_month DESC, l.meter, r.active_from, r.id`);

/** The lines that the month's invoice would have if it became final now, or as it was known at an instant. */
export const computeLines = (
  db: Queryable,
  { tenantId, ...query }: LinesQuery & { readonly tenantId: string },
): Promise<readonly LineRow[]> =>
  db.query<LineRow>(sql`
    WITH ${computed({ ...query, tenantIds: [tenantId] })}
    SELECT to_char(l.usage_month, 'YYYY-MM') AS "usageMonth", l.meter, l.rate_id AS "rateId", l.amount::text AS amount,
      l.micros::bigint AS micros
    FROM line l JOIN rates r ON r.id = l.rate_id
    ORDER BY l.usage_month DESC, l.meter, r.active_from, r.id`);

export interface RateSpanRow {
  readonly id: string;
  readonly activeFrom: number;
  /** null: not before the end of the requested time, so that rates that are set later change nothing. */
  readonly activeUntil: number | null;
  readonly cpuHourMicros: number;
  readonly memoryGbHourMicros: number;
  readonly egressGbMicros: number;
  readonly registryGbHourMicros: number;
}

/** The rates of a tenant in order of time, up to an instant. */
export const listRateSpans = (db: Queryable, tenantId: string, until: number): Promise<readonly RateSpanRow[]> =>
  db.query<RateSpanRow>(sql`
    SELECT r.id, ms(t.active_from) AS "activeFrom",
      CASE WHEN t.active_until < ${instantOf(until)}::timestamptz THEN ms(t.active_until) END AS "activeUntil",
      r.cpu_hour_micros AS "cpuHourMicros", r.memory_gb_hour_micros AS "memoryGbHourMicros", r.egress_gb_micros AS "egressGbMicros",
      r.registry_gb_hour_micros AS "registryGbHourMicros"
    FROM tenant_rates t JOIN rates r ON r.id = t.rate_id
    WHERE t.tenant_id = ${tenantId} AND t.active_from < ${instantOf(until)}::timestamptz ORDER BY t.active_from`);

export interface IntervalRow {
  readonly id: number;
  /** null: of the registry. */
  readonly machineId: string | null;
  readonly bootId: string | null;
  readonly meter: Meter;
  readonly quantity: number;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly countedUntil: number;
  readonly recordedAt: number;
  readonly rateId: string | null;
  readonly keyId: string | null;
  readonly labels: Readonly<Record<string, string>>;
}

interface IntervalsQuery {
  readonly tenantId: string;
  /** Month of the invoice. */
  readonly month: Month;
  /** The month whose usage is listed. */
  readonly usageMonth: Month;
  /** Cut of a final invoice; null: everything that is known. */
  readonly cut: number | null;
  readonly now: number;
  readonly meter: Meter | null;
  readonly after: number;
  readonly limit: number;
}

/** A page ends after the interval whose labels reach this. Labels of one interval have up to about 10 KB. */
const LABEL_BYTES_PER_PAGE_MAX = 1024 * 1024;

/**
 * The intervals of a month as an invoice knows them, in the order of their ids: at least one if there are
 * any, at most `limit`.
 *
 * `found` has those that may be of the month, each by an index of its tenant. MATERIALIZED: in the order of
 * their ids PostgreSQL would read the intervals of all tenants, from the first one on. What an open one
 * counts up to, and labels, are only looked up where they matter.
 */
export const listIntervals = (db: Queryable, query: IntervalsQuery): Promise<readonly IntervalRow[]> =>
  db.query<IntervalRow>(sql`
    WITH found AS MATERIALIZED (
      SELECT u.*, true AS is_closed FROM usage_intervals u
      WHERE ${mayBeOf(query)} AND u.ended_at > ${instantOf(query.usageMonth.from)}::timestamptz
        AND (${query.cut}::bigint IS NULL OR u.closed_in < ${query.cut}::bigint)
      UNION ALL
      SELECT u.*, false FROM usage_intervals u WHERE ${mayBeOf(query)} AND u.ended_at IS NULL
      UNION ALL
      SELECT u.*, false FROM usage_intervals u WHERE ${mayBeOf(query)} AND u.closed_in >= ${query.cut}::bigint),
    known AS (
      SELECT f.*, CASE WHEN is_closed THEN f.ended_at
        WHEN ${query.cut}::bigint IS NOT NULL THEN coalesce((
          SELECT l.counted_until FROM invoice_limits l
          WHERE l.tenant_id = f.tenant_id AND l.month = ${dayOf(query.month.from)}::date AND l.interval_id = f.id),
          ${instantOf(query.month.to)}::timestamptz)
        ELSE greatest(f.started_at, least(f.left_at,
          billing_time(f.tenant_id, least(${instantOf(query.now)}::timestamptz, (
            SELECT n.last_heartbeat_at FROM machines m JOIN nodes n ON n.id = m.node_id
            WHERE f.boot_id IS NOT NULL AND f.left_at IS NULL AND m.id = f.machine_id))),
          ${instantOf(query.month.to)}::timestamptz)) END AS counted_until
      FROM found f),
    page AS (
      SELECT k.*, a.key_id, a.labels, sum(octet_length(a.labels::text)) OVER (
        ORDER BY k.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
      FROM (
        SELECT * FROM known WHERE counted_until > ${instantOf(query.usageMonth.from)}::timestamptz
        ORDER BY id LIMIT ${query.limit}::int) k
      LEFT JOIN usage_attributions a ON a.id = k.attribution_id)
    SELECT id, machine_id AS "machineId", boot_id AS "bootId", meter, quantity,
      ms(started_at) AS "startedAt",
      CASE WHEN is_closed THEN ms(ended_at) END AS "endedAt",
      ms(counted_until) AS "countedUntil",
      ms(recorded_at) AS "recordedAt", CASE WHEN is_closed THEN rate_id END AS "rateId",
      key_id AS "keyId", coalesce(labels, '{}') AS labels
    FROM page WHERE coalesce(bytes_before, 0) < ${LABEL_BYTES_PER_PAGE_MAX}::int ORDER BY id`);

/** Conditions on `u`, a row of usage_intervals, that do not depend on whether it has ended. */
const mayBeOf = ({ tenantId, usageMonth, after, cut, meter }: IntervalsQuery): Statement => sql`
        u.tenant_id = ${tenantId} AND u.started_at < ${instantOf(usageMonth.to)}::timestamptz
        AND u.id > ${after}::bigint AND (${cut}::bigint IS NULL OR u.id < ${cut}::bigint)
        AND (${meter}::text IS NULL OR u.meter = ${meter}::text)`;

/**
 * The tenants whose next invoice can become final, oldest months first. `endedBefore`: of months that had
 * ended then, without test clocks.
 */
export const listDue = (
  db: Queryable,
  { endedBefore, limit }: { readonly endedBefore: number; readonly limit: number },
): Promise<readonly { readonly tenantId: string; readonly from: number }[]> =>
  db.query(sql`
    SELECT t.id AS "tenantId", ms(due.month AT TIME ZONE 'UTC') AS from
    FROM tenants t
    LEFT JOIN LATERAL (SELECT i.month FROM invoices i WHERE i.tenant_id = t.id ORDER BY i.month DESC LIMIT 1) last ON true
    CROSS JOIN LATERAL (
      SELECT coalesce(last.month + interval '1 month', date_trunc('month', t.created_at AT TIME ZONE 'UTC')) AS month) due
    WHERE (due.month + interval '1 month') AT TIME ZONE 'UTC' <= ${instantOf(endedBefore)}::timestamptz + t.clock_ahead_ms * interval '1 ms'
    ORDER BY due.month, t.id LIMIT ${limit}::int`);

/**
 * Makes the month's invoices of these tenants final, in one transaction. Skips a tenant if another
 * transaction has locked it, if its month before is not final, or if this month is final already. Returns how
 * many became final.
 */
export const finalizeInvoices = (
  db: Database,
  { tenantIds, month, now }: { readonly tenantIds: readonly string[]; readonly month: Month; readonly now: number },
): Promise<number> =>
  db.transaction(async (transaction) => {
    const locked = await transaction.query<{ readonly id: string }>(sql`
      SELECT id FROM tenants WHERE id = ANY(${tenantIds}::text[]) ORDER BY id FOR UPDATE SKIP LOCKED`);
    const due = await transaction.query<{ readonly id: string }>(sql`
      SELECT t.id FROM tenants t
      LEFT JOIN LATERAL (SELECT i.month FROM invoices i WHERE i.tenant_id = t.id ORDER BY i.month DESC LIMIT 1) last ON true
      WHERE t.id = ANY(${locked.map(({ id }) => id)}::text[])
        AND coalesce(last.month + interval '1 month', date_trunc('month', t.created_at AT TIME ZONE 'UTC')) = ${dayOf(month.from)}::date`);
    const ids = due.map(({ id }) => id);
    if (ids.length === 0) return 0;
    await transaction.execute(sql`
      WITH ${computed({ tenantIds: ids, month, now, knownAt: null })},
      total AS (
        SELECT t.tenant_id, t.has_test_clock, count(l.meter)::int AS lines, coalesce(sum(l.micros), 0)::bigint AS micros
        FROM target t LEFT JOIN line l USING (tenant_id) GROUP BY 1, 2),
      counter AS (
        UPDATE invoice_counter SET last_number = last_number + (SELECT count(*) FROM total WHERE NOT has_test_clock)
        RETURNING last_number),
      made AS (
        INSERT INTO invoices (tenant_id, month, number, cut, finalized_at, line_count, total_micros)
        SELECT t.tenant_id, ${dayOf(month.from)}::date,
          CASE WHEN NOT t.has_test_clock THEN c.last_number - count(*) FILTER (WHERE NOT t.has_test_clock) OVER ()
            + row_number() OVER (PARTITION BY t.has_test_clock ORDER BY t.tenant_id) END,
          nextval(pg_get_serial_sequence('usage_intervals', 'id')), billing_time(t.tenant_id, clock_timestamp()), t.lines, t.micros
        FROM total t CROSS JOIN counter c),
      limited AS (
        INSERT INTO invoice_limits (tenant_id, month, interval_id, counted_until)
        SELECT tenant_id, ${dayOf(month.from)}::date, id, ends_at FROM used
        WHERE is_open AND ends_at < ${instantOf(month.to)}::timestamptz)
      INSERT INTO invoice_lines (tenant_id, month, usage_month, meter, rate_id, amount, micros)
      SELECT tenant_id, ${dayOf(month.from)}::date, usage_month, meter, rate_id, amount, micros FROM line`);
    return ids.length;
  });

/**
 * The relations from which the invoices of a month are computed:
 * - `target`: the tenants, each with the cut of its invoice before, and whether it is the first that is not
 *   final;
 * - `used`: the relevant intervals, each up to its known end. `timeline` rates open intervals, closed ones
 *   name their rate;
 * - `late`: those that adjust an earlier month. What earlier invoices counted of them is subtracted;
 * - `line`: the lines, less what earlier invoices have of the same usage.
 */
const computed = (query: LinesQuery & { readonly tenantIds: readonly string[] }): Statement => sql`
    ${known(query)},
    ${priced()}`;

/**
 * Columns of an interval `u` and its tenant `t`. The statement repeats tenants and month as parameters, so
 * that indexes are used.
 */
const FOUND = sql`u.*, t.cut, t.last_month, t.takes_late, t.from_at, t.to_at, t.known_at, t.now`;

const known = ({
  tenantIds,
  month,
  now,
  knownAt,
}: LinesQuery & { readonly tenantIds: readonly string[] }): Statement => sql`
    bounds AS (
      SELECT ${instantOf(month.from)}::timestamptz AS from_at, ${instantOf(month.to)}::timestamptz AS to_at,
        ${dayOf(month.from)}::date AS month, ${instantOf(knownAt)}::timestamptz AS known_at,
        ${instantOf(now)}::timestamptz AS now),
    target AS (
      SELECT t.id AS tenant_id, t.has_test_clock, coalesce(last.cut, 0) AS cut, last.month AS last_month, b.*,
        coalesce(last.month + interval '1 month', date_trunc('month', t.created_at AT TIME ZONE 'UTC')) = b.month AS takes_late
      FROM bounds b JOIN tenants t ON t.id = ANY(${tenantIds}::text[])
      LEFT JOIN LATERAL (
        SELECT i.month, i.cut FROM invoices i
        WHERE i.tenant_id = t.id AND i.month < b.month AND (b.known_at IS NULL OR i.finalized_at <= b.known_at)
        ORDER BY i.month DESC LIMIT 1) last ON true),
    timeline AS MATERIALIZED (SELECT * FROM tenant_rates WHERE tenant_id = ANY(${tenantIds}::text[])),
    found AS (
      SELECT ${FOUND} FROM target t
      JOIN usage_intervals u ON u.tenant_id = t.tenant_id
      WHERE u.tenant_id = ANY(${tenantIds}::text[]) AND u.ended_at > ${instantOf(month.from)}::timestamptz
        AND u.started_at < ${instantOf(month.to)}::timestamptz
      UNION ALL
      SELECT ${FOUND} FROM target t
      JOIN usage_intervals u ON u.tenant_id = t.tenant_id
      WHERE u.tenant_id = ANY(${tenantIds}::text[]) AND u.ended_at IS NULL AND u.started_at < ${instantOf(month.to)}::timestamptz
      UNION ALL
      SELECT ${FOUND} FROM target t
      JOIN usage_intervals u ON u.tenant_id = t.tenant_id AND u.closed_in > t.cut
      WHERE u.tenant_id = ANY(${tenantIds}::text[]) AND u.ended_at <= ${instantOf(month.from)}::timestamptz AND t.takes_late
        AND (t.known_at IS NULL OR u.closed_at <= t.known_at)),
    used AS (
      SELECT f.id, f.tenant_id, f.meter, f.quantity, f.rate_id, f.started_at, f.closed_in, f.ended_at, f.ended_at IS NULL AS is_open,
        f.cut, f.last_month, f.takes_late, f.from_at, f.to_at,
        CASE WHEN f.ended_at IS NULL THEN greatest(f.started_at, least(f.known_at, f.left_at,
            billing_time(f.tenant_id, least(f.now, CASE WHEN f.boot_id IS NOT NULL AND f.left_at IS NULL THEN (
              SELECT n.last_heartbeat_at FROM machines m JOIN nodes n ON n.id = m.node_id WHERE m.id = f.machine_id) END))))
          WHEN f.closed_at > f.known_at THEN greatest(f.started_at, least(f.known_at, f.ended_at)) ELSE f.ended_at END AS ends_at
      FROM found f
      WHERE f.known_at IS NULL OR f.recorded_at <= f.known_at),
    late AS (
      SELECT u.*, l.counted_until FROM used u
      LEFT JOIN invoice_limits l ON l.tenant_id = u.tenant_id AND l.month = u.last_month AND l.interval_id = u.id
      WHERE u.takes_late AND u.started_at < u.from_at
        AND (u.id > u.cut OR l.interval_id IS NOT NULL OR (u.closed_in > u.cut AND u.ended_at <= u.from_at)))`;

const priced = (): Statement => sql`
    moved AS (
      SELECT tenant_id, meter, quantity, rate_id, is_open, started_at AS begins, least(ends_at, from_at) AS ends FROM late
      UNION ALL
      SELECT tenant_id, meter, -quantity, NULL, true, started_at, coalesce(counted_until, from_at) FROM late WHERE id < cut),
    monthly AS (
      SELECT u.tenant_id, u.meter, u.quantity, u.rate_id, u.is_open, b.month AS usage_month,
        greatest(u.started_at, b.from_at) AS begins, least(u.ends_at, b.to_at) AS ends
      FROM bounds b CROSS JOIN used u WHERE u.ends_at > b.from_at
      UNION ALL
      SELECT p.tenant_id, p.meter, p.quantity, p.rate_id, p.is_open, m.month::date,
        greatest(p.begins, m.month AT TIME ZONE 'UTC'), least(p.ends, (m.month + interval '1 month') AT TIME ZONE 'UTC')
      FROM moved p CROSS JOIN LATERAL generate_series(
        date_trunc('month', p.begins AT TIME ZONE 'UTC'), p.ends AT TIME ZONE 'UTC', interval '1 month') AS m(month)),
    rated AS (
      SELECT tenant_id, usage_month, meter, rate_id, quantity, begins, ends FROM monthly WHERE NOT is_open
      UNION ALL
      SELECT p.tenant_id, p.usage_month, p.meter, r.rate_id, p.quantity, greatest(p.begins, r.active_from), least(p.ends, r.active_until)
      FROM monthly p JOIN timeline r ON r.tenant_id = p.tenant_id AND r.active_from < p.ends AND r.active_until > p.begins
      WHERE p.is_open),
    summed AS (
      SELECT tenant_id, usage_month, meter, rate_id,
        sum(quantity * greatest(0, floor(1000 * extract(epoch FROM ends - begins)))) AS amount
      FROM rated GROUP BY 1, 2, 3, 4),
    line AS (
      SELECT s.tenant_id, s.usage_month, s.meter, s.rate_id, s.amount,
        usage_micros(s.meter, s.amount + before.amount, r) - before.micros AS micros
      FROM summed s CROSS JOIN bounds b JOIN rates r ON r.id = s.rate_id
      CROSS JOIN LATERAL (
        SELECT coalesce(sum(l.amount), 0) AS amount, coalesce(sum(l.micros), 0) AS micros FROM invoice_lines l
        WHERE l.tenant_id = s.tenant_id AND l.usage_month = s.usage_month AND l.meter = s.meter AND l.rate_id = s.rate_id
          AND l.month < b.month) before
      WHERE s.amount <> 0)`;
