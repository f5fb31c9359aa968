/**
 * Reads recorded intervals of usage, summed for a period.
 *
 * Writes nothing: triggers (docs/decisions/0029-usage-intervals.md) write intervals together with runs and
 * machines.
 *
 * Always:
 * - An open interval counts up to the last heartbeat of its node, so a silent node bills nothing and a later
 *   sum is never smaller. If its machine has left that node, it counts up to then.
 * - A change of rates during an open interval applies from its instant.
 */
import type { Queryable, Statement } from "../db/database.ts";
import { sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import { costOf, type Meter, type Period, type Usage, type UsageLine } from "./usage.ts";

interface SumRow {
  readonly tenantId: string;
  readonly machineCount: number;
  readonly execCount: number;
  readonly execDurationMs: number;
  readonly lines: readonly {
    readonly meter: Meter;
    readonly rate_id: string;
    readonly cpu_hour_micros: number;
    readonly memory_gb_hour_micros: number;
    readonly egress_gb_micros: number;
    readonly registry_gb_hour_micros: number;
    readonly amount: string;
  }[];
}

interface ReadOptions extends Period {
  /**
   * Open intervals count at most up to now. Epoch milliseconds of real time; the period is in billing time.
   */
  readonly now: number;
}

/** Usage of a tenant. Commands are counted by whole minutes: those of minutes that begin in the period. */
export async function readTenantUsage(
  db: Queryable,
  { tenantId, ...options }: ReadOptions & { readonly tenantId: string },
): Promise<Usage> {
  const row = await db.queryOne<SumRow>(sql`
    WITH used AS (SELECT * FROM usage_intervals WHERE tenant_id = ${tenantId} AND ${overlaps(options)}),
    executed AS (SELECT * FROM machine_exec_minutes WHERE tenant_id = ${tenantId} AND ${begins(options)}),
    ${sums(options)}`);
  return usageOf(row, { ...options, tenantId });
}

/** Usage of one machine. */
export async function readMachineUsage(
  db: Queryable,
  { machineId, tenantId, ...options }: ReadOptions & { readonly machineId: string; readonly tenantId: string },
): Promise<Usage> {
  const row = await db.queryOne<SumRow>(sql`
    WITH used AS (SELECT * FROM usage_intervals WHERE machine_id = ${machineId} AND ${overlaps(options)}),
    executed AS (SELECT * FROM machine_exec_minutes WHERE machine_id = ${machineId} AND ${begins(options)}),
    ${sums(options)}`);
  return usageOf(row, { ...options, tenantId });
}

/** Usage of these tenants by their ids; tenants without usage and without commands are missing. */
export async function readUsageOf(
  db: Queryable,
  { tenantIds, ...options }: ReadOptions & { readonly tenantIds: readonly string[] },
): Promise<ReadonlyMap<string, Usage>> {
  const rows = await db.query<SumRow>(sql`
    WITH used AS (SELECT * FROM usage_intervals WHERE tenant_id = ANY(${tenantIds}::text[]) AND ${overlaps(options)}),
    executed AS (SELECT * FROM machine_exec_minutes WHERE tenant_id = ANY(${tenantIds}::text[]) AND ${begins(options)}),
    ${sums(options)}`);
  return new Map(rows.map((row) => [row.tenantId, usageOf(row, { ...options, tenantId: row.tenantId })]));
}

/** Max tenants whose intervals one statement reads. */
const TENANTS_PER_STATEMENT_MAX = 100;

/**
 * As `readUsageOf`, for any number of tenants: some at a time, so that no statement reads the usage of an
 * installation, and other requests are served in between.
 */
export async function* eachUsageOf(
  db: Queryable,
  { tenantIds, ...options }: ReadOptions & { readonly tenantIds: readonly string[] },
): AsyncGenerator<Usage> {
  for (let at = 0; at < tenantIds.length; at += TENANTS_PER_STATEMENT_MAX) {
    const some = tenantIds.slice(at, at + TENANTS_PER_STATEMENT_MAX);
    yield* (await readUsageOf(db, { tenantIds: some, ...options })).values();
  }
}

/**
 * What the usage of each tenant costs, in micros, by their ids, read as by `eachUsageOf`; those without usage
 * are missing.
 */
export async function costsOf(
  db: Queryable,
  options: ReadOptions & { readonly tenantIds: readonly string[] },
): Promise<ReadonlyMap<string, number>> {
  const costs = new Map<string, number>();
  for await (const { tenantId, lines } of eachUsageOf(db, options)) costs.set(tenantId, costOf(lines));
  return costs;
}

/** Whether an interval overlaps the period. */
const overlaps = ({ from, to }: Period): Statement =>
  sql`started_at < ${instantOf(to)}::timestamptz AND (ended_at IS NULL OR ended_at > ${instantOf(from)}::timestamptz)`;

/** Whether a minute begins in the period, so that the commands of adjacent periods add up. */
const begins = ({ from, to }: Period): Statement =>
  sql`minute >= ${instantOf(from)}::timestamptz AND minute < ${instantOf(to)}::timestamptz`;

/** One row for each tenant, from the selected intervals and minutes of commands. */
const sums = ({ from, to, now }: ReadOptions): Statement => sql`
    parts AS (
      SELECT tenant_id, meter, quantity, rate_id, started_at, ended_at FROM used WHERE ended_at IS NOT NULL
      UNION ALL
      SELECT u.tenant_id, u.meter, u.quantity, p.rate_id, p.started_at, p.ended_at
      FROM used u
      LEFT JOIN machines m ON u.boot_id IS NOT NULL AND m.id = u.machine_id
      LEFT JOIN nodes n ON n.id = m.node_id
      CROSS JOIN LATERAL rated_parts(u.tenant_id, u.started_at,
        greatest(u.started_at, least(u.left_at, billing_time(u.tenant_id, least(${instantOf(now)}::timestamptz,
          CASE WHEN u.left_at IS NULL THEN n.last_heartbeat_at END))))) p
      WHERE u.ended_at IS NULL),
    counted AS (
      SELECT tenant_id, meter, rate_id, quantity * greatest(0, floor(1000 * extract(epoch FROM
        least(ended_at, ${instantOf(to)}::timestamptz) - greatest(started_at, ${instantOf(from)}::timestamptz)))) AS amount
      FROM parts),
    lines AS (SELECT tenant_id, meter, rate_id, sum(amount)::text AS amount FROM counted GROUP BY 1, 2, 3),
    commands AS (
      SELECT tenant_id, sum(exec_count)::bigint AS count, sum(exec_duration_ms)::bigint AS ms FROM executed GROUP BY 1),
    held AS (SELECT tenant_id, count(DISTINCT machine_id)::int AS machines FROM used WHERE meter = 'disk' GROUP BY 1),
    listed AS (
      SELECT l.tenant_id, jsonb_agg(jsonb_build_object('meter', l.meter, 'rate_id', r.id, 'cpu_hour_micros', r.cpu_hour_micros,
        'memory_gb_hour_micros', r.memory_gb_hour_micros, 'egress_gb_micros', r.egress_gb_micros,
        'registry_gb_hour_micros', r.registry_gb_hour_micros, 'amount', l.amount) ORDER BY r.active_from, r.id, l.meter) AS lines
      FROM lines l JOIN rates r ON r.id = l.rate_id GROUP BY 1)
    SELECT tenant_id AS "tenantId", coalesce(h.machines, 0) AS "machineCount", coalesce(c.count, 0) AS "execCount",
      coalesce(c.ms, 0) AS "execDurationMs", coalesce(l.lines, '[]') AS lines
    FROM (SELECT tenant_id FROM listed UNION SELECT tenant_id FROM commands) t
    LEFT JOIN listed l USING (tenant_id) LEFT JOIN held h USING (tenant_id) LEFT JOIN commands c USING (tenant_id)`;

function usageOf(row: SumRow | undefined, { tenantId, from, to }: Period & { readonly tenantId: string }): Usage {
  const lines = (row?.lines ?? []).map(
    (line): UsageLine => ({
      meter: line.meter,
      amount: BigInt(line.amount),
      rate: {
        id: line.rate_id,
        cpuHourMicros: line.cpu_hour_micros,
        memoryGbHourMicros: line.memory_gb_hour_micros,
        egressGbMicros: line.egress_gb_micros,
        registryGbHourMicros: line.registry_gb_hour_micros,
      },
    }),
  );
  const { machineCount = 0, execCount = 0, execDurationMs = 0 } = row ?? {};
  return { tenantId, from, to, lines, machineCount, execCount, execDurationMs };
}
