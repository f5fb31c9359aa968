/**
 * Makes the invoices of a month final: n tenants with 20 machines each, of which each has a disk, a run that ended in the month
 * and a run that is open.
 *
 * It runs the server's own loop on its own PostgreSQL, with the durability of production. Rows are written directly, without the
 * constraint against overlaps, which only writers of intervals need. Afterwards the invoices of some tenants are compared with what
 * /v1/account computes.
 */
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { monthAt } from "../server/src/billing/month.ts";
import { type Database, sql } from "../server/src/db/database.ts";
import { instantOf } from "../server/src/db/instant.ts";
import { migrate } from "../server/src/db/migrate.ts";
import { openDatabase } from "../server/src/db/postgres.ts";
import { startEmbeddedPostgres } from "../server/src/embedded-postgres/embedded.ts";
import { randomIds } from "../server/src/ids.ts";
import { createLog } from "../server/src/log.ts";
import { invoiceReconciler } from "../server/src/reconcilers/invoices.ts";
import { readTenantUsage } from "../server/src/usage/intervals-store.ts";
import { costBreakdown } from "../server/src/usage/usage.ts";
import { monotonic } from "./support/clock.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

const MACHINES_EACH = 20;
const COMPARED = 200;
/** Tenants whose rows one statement writes: no statement may take longer than the database has to answer. */
const SEEDED_AT_ONCE = 500;
const LIMIT_S = 60;
const HOUR = 3_600_000;

export async function monthEnd(tenants: number): Promise<Finding> {
  const directory = await mkdtemp(path.join(tmpdir(), "flotilla-bench-"));
  const log = createLog("error");
  const options = { directory: path.join(directory, "postgres"), clock: systemClock, log, randomBytes };
  const postgres = await startEmbeddedPostgres(options);
  const db = openDatabase({ connection: postgres.connection, clock: systemClock, log });
  try {
    await migrate({ connection: postgres.connection, log });
    const seededFrom = monotonic();
    await seed(db, tenants);
    const seedMs = monotonic() - seededFrom;
    const timed = timing(db);
    const context = { db: timed.db, clock: systemClock, log, ids: randomIds(randomBytes), randomBytes };
    const startedAt = monotonic();
    for (let more = true; more; ) {
      const report = await invoiceReconciler({ context, graceHours: 1 }).activate(new AbortController().signal);
      if (report.errors.length > 0) throw new Error(report.errors[0]);
      more = report.hasMore === true;
    }
    const seconds = (monotonic() - startedAt) / 1000;
    await compare(db, tenants);
    return {
      name: "month-end",
      series: [{ what: "transactions of up to 100 tenants", summary: summarize(timed.samplesMs) }],
      reaches: [atMost("all invoices final", seconds, LIMIT_S, "s")],
      setting: { tenants, "machines each": MACHINES_EACH, intervals: tenants * MACHINES_EACH * 7 },
      notes: [
        `${Math.min(COMPARED, tenants)} invoices compared with what /v1/account computes: 0 micros apart`,
        `the rows were written in ${(seedMs / 1000).toFixed(0)} s`,
      ],
    };
  } finally {
    await db.close();
    await postgres.stop();
    await rm(directory, { recursive: true, force: true });
  }
}

const lastMonth = monthAt(monthAt(systemClock.now()).from - 1);

async function seed(db: Database, tenants: number): Promise<void> {
  const from = instantOf(lastMonth.from);
  await db.transaction(async (transaction) => {
    await transaction.execute(sql`ALTER TABLE usage_intervals DROP CONSTRAINT nothing_twice`);
    await transaction.execute(sql`SET LOCAL statement_timeout = '10min'`);
    await transaction.execute(sql`SET LOCAL session_replication_role = replica`);
    await transaction.execute(sql`
      INSERT INTO nodes (id, address, status, credential_hash, registered_at, last_heartbeat_at)
      VALUES ('bench', 'bench', 'ready', sha256('bench'), ${from}, now())`);
    await transaction.execute(sql`
      INSERT INTO tenants (id, name, created_at, updated_at)
      SELECT 'bench-' || n, 'bench-' || n, ${from}::timestamptz, ${from}::timestamptz FROM generate_series(1, ${tenants}::int) n`);
    await transaction.execute(sql`
      INSERT INTO tenant_plans (tenant_id, plan_id, active_from)
      SELECT t.id, p.id, 'epoch' FROM tenants t CROSS JOIN plans p WHERE p.is_default AND t.id LIKE 'bench-%'`);
    await transaction.execute(sql`
      INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
      SELECT id, ${from}::timestamptz, 12345, 6789, now() FROM plans WHERE is_default`);
    for (let first = 1; first <= tenants; first += SEEDED_AT_ONCE) {
      const count = Math.min(SEEDED_AT_ONCE, tenants - first + 1);
      const ids = Array.from({ length: count }, (_, at) => `bench-${first + at}`);
      await transaction.execute(sql`
        INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
          is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state, observed_generation, revision, node_id, host_label)
        SELECT 'mach-' || md5(t.id || ' ' || m), t.id, '{}', '{}', '{}', '[]', '{}', 2, 2048, 20, false, false, false, at, at, 'stopped', 1, at, 'absent', 0, 1,
          'bench', t.id || '-' || m
        FROM unnest(${ids}::text[]) AS t(id) CROSS JOIN generate_series(1, ${MACHINES_EACH}::int) m
        CROSS JOIN (SELECT ${from}::timestamptz AS at) AS given`);
      await transaction.execute(sql`
        INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id, closed_at, closed_in)
        SELECT m.tenant_id, m.id, CASE WHEN u.meter <> 'disk' THEN m.id || u.run END, u.meter, u.quantity,
          ${from}::timestamptz + u.run * interval '5 days', CASE WHEN u.run = 1 THEN ${from}::timestamptz + interval '8 days 1.234 s' END,
          r.id, CASE WHEN u.run = 1 THEN now() END, CASE WHEN u.run = 1 THEN 0 END
        FROM machines m JOIN plans p ON p.is_default JOIN rates r ON r.plan_id = p.id AND r.active_from > 'epoch'
        CROSS JOIN (VALUES ('disk', 0, 20), ('uptime', 1, 1), ('cpu', 1, 2), ('memory', 1, 2048), ('uptime', 3, 1), ('cpu', 3, 2),
          ('memory', 3, 2048)) AS u(meter, run, quantity)
        WHERE m.tenant_id = ANY(${ids}::text[])`);
    }
  });
  for (const statement of [sql`ANALYZE usage_intervals`, sql`ANALYZE machines`, sql`ANALYZE tenants`])
    await db.execute(statement);
}

/** The database, and how long each of its transactions took. */
function timing(db: Database): { readonly db: Database; readonly samplesMs: number[] } {
  const samplesMs: number[] = [];
  const transaction: Database["transaction"] = async (work) => {
    const startedAt = monotonic();
    const result = await db.transaction(work);
    samplesMs.push(monotonic() - startedAt);
    return result;
  };
  return { db: Object.create(db, { transaction: { value: transaction } }) as Database, samplesMs };
}

async function compare(db: Database, tenants: number): Promise<void> {
  const rows = await db.query<{ readonly id: string; readonly micros: number }>(sql`
    SELECT tenant_id AS id, total_micros AS micros FROM invoices
    WHERE tenant_id LIKE 'bench-%' ORDER BY number`);
  if (rows.length !== tenants) throw new Error(`${rows.length} invoices were made for ${tenants} tenants`);
  for (const { id, micros } of rows.filter((_, at) => at % Math.max(1, Math.floor(tenants / COMPARED)) === 0)) {
    const usage = await readTenantUsage(db, { tenantId: id, ...lastMonth, now: systemClock.now() + HOUR });
    const { totalMicros } = costBreakdown(usage.lines);
    if (totalMicros !== micros || micros === 0) throw new Error(`${id}: invoiced ${micros}, used ${totalMicros}`);
  }
}
