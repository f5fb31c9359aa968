/**
 * Reads what a machine's usage is computed from, what a tenant's machines take, and the ceilings and rates of its plan.
 *
 * Writes nothing: machines, their runs, plans and tenants have stores of their own.
 */
import type { Queryable } from "../db/database.ts";
import { sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { Ceilings, Totals } from "./quota.ts";
import { type MeteredMachine, type UsageFacts, usagePeriod } from "./usage.ts";

interface UsageRow {
  readonly cpuHourMicros: number;
  readonly memoryGbHourMicros: number;
  readonly execCount: number | null;
  readonly execDurationMs: number | null;
  readonly runs: readonly { readonly started_at: string; readonly ended_at: string | null }[] | null;
}

/** One statement: the rates of the tenant's plan, the runs that overlap the period, the month's commands. */
export async function readUsage(db: Queryable, machine: MeteredMachine, now: number): Promise<UsageFacts> {
  const { from, to } = usagePeriod(machine, now);
  const row = await db.queryOne<UsageRow>(sql`
    SELECT p.rate_cpu_hour_micros AS "cpuHourMicros", p.rate_memory_gb_hour_micros AS "memoryGbHourMicros",
      e.exec_count AS "execCount", e.exec_duration_ms AS "execDurationMs",
      (SELECT jsonb_agg(jsonb_build_object('started_at', r.started_at, 'ended_at', r.ended_at))
       FROM machine_runs r WHERE r.machine_id = ${machine.id} AND r.started_at < ${instantOf(to)}
         AND (r.ended_at IS NULL OR r.ended_at > ${instantOf(from)})) AS runs
    FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    LEFT JOIN machine_exec_months e ON e.machine_id = ${machine.id} AND e.month = ${instantOf(from).slice(0, 10)}::date
    WHERE t.id = ${machine.tenantId}`);
  return {
    machine,
    runs: (row?.runs ?? []).map((run) => ({
      startedAt: Date.parse(run.started_at),
      endedAt: run.ended_at === null ? null : Date.parse(run.ended_at),
    })),
    execCount: row?.execCount ?? 0,
    execDurationMs: row?.execDurationMs ?? 0,
    rates: { cpuHourMicros: row?.cpuHourMicros ?? 0, memoryGbHourMicros: row?.memoryGbHourMicros ?? 0 },
    now,
  };
}

/** What all machines of a tenant take now. */
export async function readTotals(db: Queryable, tenantId: string): Promise<Totals> {
  const row = await db.queryOne<Totals>(sql`
    SELECT count(*) FILTER (WHERE is_active) AS machines, coalesce(sum(cpus) FILTER (WHERE is_active), 0) AS cpus,
      coalesce(sum(memory_mb) FILTER (WHERE is_active), 0) AS "memoryMb", coalesce(sum(disk_gb), 0) AS "diskGb"
    FROM machines WHERE tenant_id = ${tenantId} AND deleted_at IS NULL`);
  if (row === undefined) throw new Error("a sum has no row");
  return row;
}

/** The ceilings of a tenant's plan, with the tenant's own in place of them where it has any. */
export async function readCeilings(db: Queryable, tenantId: string): Promise<Ceilings> {
  const row = await db.queryOne<Ceilings>(sql`
    SELECT p.name AS "planName", p.max_machines AS "maxMachines",
      p.max_concurrent_machines AS "maxConcurrentMachines", p.max_total_cpus AS "maxTotalCpus",
      p.max_total_memory_mb AS "maxTotalMemoryMb", p.max_total_disk_gb AS "maxTotalDiskGb", coalesce(t.max_cpus, p.max_cpus) AS "maxCpus",
      coalesce(t.max_memory_mb, p.max_memory_mb) AS "maxMemoryMb", coalesce(t.max_disk_gb, p.max_disk_gb) AS "maxDiskGb"
    FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    WHERE t.id = ${tenantId}`);
  if (row === undefined) throw new Error(`tenant ${tenantId} has no plan`);
  return row;
}
