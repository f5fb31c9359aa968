/**
 * What a statement reads does not grow with rows that do not concern it: of deleted machines, of other times.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { listAllAudit, listAudit, purgeAudit } from "../src/audit/store.ts";
import { monthAt } from "../src/billing/month.ts";
import { listIntervals } from "../src/billing/store.ts";
import type { Context } from "../src/context.ts";
import { findNewest, listTenantEvents } from "../src/events/store.ts";
import { type Queryable, sql, type Statement } from "../src/db/database.ts";
import { findHost } from "../src/hosts/store.ts";
import { findAccess } from "../src/ingress/access-store.ts";
import {
  findMachine,
  listAbsentOfNode,
  listDisksOfNode,
  listMachinesOfNode,
  removeMachine,
} from "../src/machines/store.ts";
import { countRunMismatches } from "../src/machines/run-store.ts";
import type { MachineServices } from "../src/machines/services.ts";
import { listLost } from "../src/nodes/loss-store.ts";
import { budgetReconciler } from "../src/machines/lifetime/budgets-loop.ts";
import { noticeReconciler } from "../src/usage/notices-loop.ts";
import { TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const { client, context } = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { db } = context;
const NODE = "ghost";
const register = { id: NODE, address: "unix:/nowhere/agent.sock", totalCpus: 8 };
assert.equal((await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", register)).status, 200);
const ROWS = 20_000;

interface Plan {
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly "Rows Removed by Index Recheck"?: number;
  readonly "Shared Hit Blocks": number;
  readonly "Shared Read Blocks": number;
  readonly Plans?: readonly Plan[];
}

/**
 * How the database has executed the one statement that `work` sends. `isOnce`: it has an effect only once, so
 * `work` gets no rows.
 */
async function planOf(work: (queryable: Queryable) => Promise<unknown>, { isOnce = false } = {}): Promise<Plan> {
  const sent: Statement[] = [];
  await work({
    ...db,
    query: <Row extends object>(statement: Statement) => (
      sent.push(statement), isOnce ? Promise.resolve([]) : db.query<Row>(statement)
    ),
    queryOne: <Row extends object>(statement: Statement) => (
      sent.push(statement), isOnce ? Promise.resolve(undefined) : db.queryOne<Row>(statement)
    ),
  });
  const [statement] = sent;
  assert.ok(statement !== undefined && sent.length === 1);
  const text = `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${statement.text}`;
  const [row] = await db.query<{ "QUERY PLAN": readonly [{ Plan: Plan }] }>({ ...statement, text });
  assert.ok(row !== undefined);
  return row["QUERY PLAN"][0].Plan;
}

/** How many rows the steps of a plan have had, together with those that they have passed over. */
const rowsOf = (plan: Plan): number =>
  plan["Actual Loops"] *
    (plan["Actual Rows"] + (plan["Rows Removed by Filter"] ?? 0) + (plan["Rows Removed by Index Recheck"] ?? 0)) +
  (plan.Plans ?? []).reduce((sum, part) => sum + rowsOf(part), 0);

/** Rows as they were left by what happened before, without what happens then. */
async function insertPast(table: string, statement: Statement): Promise<void> {
  await db.transaction(async (transaction) => {
    await transaction.execute(sql`SET LOCAL session_replication_role = replica`);
    await transaction.execute(statement);
  });
  await db.execute({ text: `ANALYZE ${table}`, values: [] });
}

test("of deleted machines of a node, of which nothing is left there", async () => {
  const body = { source: { type: "image", reference: "local/busybox" }, resources: { cpus: 1, memoryMb: 256 } };
  const { id } = (await client.post("/v1/machines", body)).json;
  await db.execute(sql`UPDATE machines SET node_id = ${NODE} WHERE id = ${id}`);
  await insertPast(
    "machines",
    sql`
      INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
        is_branchable, created_at, updated_at, desired_state, generation, desired_at, node_id, observed_state, observed_generation,
        revision, deleted_at)
      SELECT 'mach-' || md5(n::text), tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
        is_branchable, created_at, updated_at, 'absent', 2, now(), node_id, 'absent', 2, 3, now()
      FROM machines, generate_series(1, ${ROWS}::int) n WHERE id = ${id}`,
  );
  await db.execute(sql`UPDATE nodes SET status = 'unreachable'`);
  const now = context.clock.now();
  const asked: Readonly<Record<string, (queryable: Queryable) => Promise<unknown>>> = {
    machines: (queryable) => listMachinesOfNode(queryable, NODE),
    absent: (queryable) => listAbsentOfNode(queryable, NODE, { now, limit: 100 }),
    disks: (queryable) => listDisksOfNode(queryable, NODE),
    lost: listLost,
    mismatches: countRunMismatches,
  };
  for (const [name, work] of Object.entries(asked)) {
    const rows = rowsOf(await planOf(work));
    assert.ok(rows < 100, `${name}: ${rows}`);
  }
  assert.deepEqual(
    (await listMachinesOfNode(db, NODE)).map((machine) => machine.id),
    [id],
  );
});

test("of deleted machines, those of which something may be left are found", async () => {
  const now = context.clock.now();
  const absent = async () => (await listAbsentOfNode(db, NODE, { now, limit: 100 })).map(({ machineId }) => machineId);
  assert.deepEqual(await absent(), []);
  const [one, two, three] = ["1", "2", "3"].map((n) => sql`'mach-' || md5(${n})`);
  await db.execute(sql`UPDATE machines SET observed_state = 'stopped' WHERE id = ${one}`);
  await db.execute(sql`UPDATE machines SET observed_generation = 1 WHERE id = ${two}`);
  await db.execute(sql`UPDATE machines SET fence = 'on' WHERE id = ${three}`);
  const rows = await db.query<{ id: string }>(
    sql`SELECT id FROM machines WHERE id IN (${one}, ${two}, ${three}) ORDER BY id`,
  );
  assert.deepEqual(
    await absent(),
    rows.map(({ id }) => id),
  );
});

test("of recorded calls of all tenants, those from before the asked time", async () => {
  await insertPast(
    "audit_log",
    sql`
      WITH chain AS (INSERT INTO audit_chains (tenant_id, sequence, hash) VALUES ('tenant-busy', ${ROWS}::int, ''))
      INSERT INTO audit_log (tenant_id, sequence, at, record, previous_hash, hash, type)
      SELECT 'tenant-busy', n, now() - interval '30 days' + n * interval '1 second', '{}', '', '', 'machines.x' FROM generate_series(1, ${ROWS}::int) n`,
  );
  const from = context.clock.now() - 24 * 60 * 60_000;
  const nothing = { keyId: null, resource: null, type: null, to: null };
  await client.post("/v1/apikeys", { scopes: ["machine:read"] });
  const asked = { ...nothing, after: null, limit: 10, from };
  assert.ok((await listAllAudit(db, asked)).length > 0);
  const plan = await planOf((queryable) => listAllAudit(queryable, asked));
  // What the index passes over is not counted as rows.
  const blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
  assert.ok(blocks < 20, `${blocks} blocks`);
});

test("of a chain of recorded calls, those from before the asked time", async () => {
  const from = context.clock.now() - 30 * 24 * 60 * 60_000 + (ROWS / 2) * 1000;
  const asked = {
    keyId: null,
    resource: null,
    type: null,
    to: null,
    tenantId: "tenant-busy",
    after: null,
    limit: 10,
    from,
  };
  assert.equal((await listAudit(db, asked)).length, 10);
  const rows = rowsOf(await planOf((queryable) => listAudit(queryable, asked)));
  assert.ok(rows < 100, `${rows}`);
});

test("of a tenant's events, those that the filter of an earlier answer left out", async () => {
  const { id: tenantId } = (await client.post("/v1/tenants", { name: "filtered" })).json;
  const reader = client.withKey((await client.post("/v1/apikeys", { tenantId, scopes: ["machine:read"] })).json.key);
  await insertPast(
    "tenant_events",
    sql`
      INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
      SELECT 'ev-many-' || n, ${tenantId}, 'machine', 'mach-x', 'machine.started', '{}', 'info', '', now()
      FROM generate_series(1, ${ROWS}::int) n`,
  );
  const first = await reader.get("/v1/events?type=machine.failed");
  const cursor = first.headers.get("x-cursor");
  assert.ok(first.json.length === 0 && cursor !== null);
  const read = async (after: number | null) => {
    const page = { tenantId, machineId: null, appId: null, type: "machine.failed", after, limit: 10 };
    return rowsOf(await planOf((queryable) => listTenantEvents(queryable, page)));
  };
  const [whole, next] = [await read(null), await read(Number(cursor))];
  assert.ok(whole >= ROWS && next < 10, `${whole} and ${next} rows`);
  const newest = rowsOf(await planOf((queryable) => findNewest(queryable, tenantId)));
  assert.ok(newest < 10, `${newest} rows for the newest`);
});

test("of a chain of recorded calls, those that are purged next", async () => {
  const days = 30 - 1_500 / 86_400;
  const plan = await planOf((queryable) => purgeAudit({ ...context, db: { ...db, ...queryable } }, days, 500));
  const blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
  assert.ok(blocks < 5_000, `${blocks} blocks`);
  const first = await db.queryOne(
    sql`SELECT min(sequence)::int AS sequence FROM audit_log WHERE tenant_id = 'tenant-busy'`,
  );
  assert.deepEqual(first, { sequence: 1001 });
});

test("of intervals of a month, those of other tenants and months", async () => {
  const { tenantId } = (await client.get("/v1/me")).json;
  const model = await db.queryOne<{ id: string }>(sql`SELECT id FROM rates LIMIT 1`);
  await insertPast(
    "usage_intervals",
    sql`
      INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id, closed_at, closed_in)
      SELECT CASE n % 2 WHEN 0 THEN ${tenantId} ELSE 'tenant-busy' END, 'mach-' || n, 'boot-' || n, 'uptime', 1,
        now() - interval '70 days', now() - interval '70 days' + interval '1 second', ${model?.id}, now(), 1
      FROM generate_series(1, ${ROWS / 4}::int) n`,
  );
  const now = context.clock.now();
  const month = monthAt(now);
  const asked = { tenantId, month, usageMonth: month, cut: null, now, meter: null, after: 0, limit: 10 };
  assert.ok((await listIntervals(db, asked)).length > 0);
  const rows = rowsOf(await planOf((queryable) => listIntervals(queryable, asked)));
  assert.ok(rows < 200, `${rows}`);
});

test("of host names, those of other machines", async () => {
  const body = { source: { type: "image", reference: "local/busybox" }, name: "named" };
  const { id } = (await client.post("/v1/machines", body)).json;
  const { tenantId } = (await client.get("/v1/me")).json;
  await insertPast(
    "hosts",
    sql`INSERT INTO hosts SELECT 'host-' || n, 'machine', 'mach-' || md5(n::text), 'tenant-busy' FROM generate_series(1, ${ROWS}::int) n`,
  );
  const asked: Readonly<Record<string, (queryable: Queryable) => Promise<{ readonly id: string } | undefined>>> = {
    host: (queryable) => findHost(queryable, "named"),
    label: (queryable) => findMachine(queryable, { tenantId, id }),
    access: (queryable) => findAccess(queryable, { kind: "machine", id }),
  };
  for (const [name, work] of Object.entries(asked)) {
    assert.equal((await work(db))?.id, id, name);
    const rows = rowsOf(await planOf(work));
    assert.ok(rows < 20, `${name}: ${rows}`);
  }
});

test("of tenants with a budget, a statement reads the usage of a hundred at most", async () => {
  const budget = { budgetPolicy: "stop", monthlyBudgetMicros: 1_000_000, maxConcurrentMachines: 1 };
  const { id: planId } = (await client.post("/v1/plans", { name: "budgeted", ...budget })).json;
  const model = await db.queryOne<{ id: string }>(
    sql`SELECT id FROM machines WHERE deleted_at IS NULL AND node_id IS NOT NULL`,
  );
  await insertPast(
    "tenants",
    sql`
      WITH made AS (
        INSERT INTO tenants (id, name, plan_id) SELECT 'tenant-b' || n, 'b' || n, ${planId}::text FROM generate_series(1, 250) n RETURNING id)
      INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
        is_branchable, created_at, updated_at, desired_state, generation, desired_at, node_id, observed_state, observed_generation,
        revision)
      SELECT 'mach-' || md5(made.id), made.id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
        is_branchable, created_at, updated_at, 'running', 2, now(), node_id, 'running', 2, 3
      FROM machines m, made WHERE m.id = ${model?.id}`,
  );
  const sizes: number[] = [];
  const query: Queryable["query"] = (statement) => {
    if (/usage_intervals|spent_in_month/.test(statement.text))
      sizes.push(...statement.values.flatMap((value) => (Array.isArray(value) ? [value.length] : [])));
    return db.query(statement);
  };
  const counted: Context = { ...context, db: { ...db, query } };
  assert.deepEqual(
    (await budgetReconciler({ context: counted } as MachineServices).activate(new AbortController().signal)).errors,
    [],
  );
  assert.ok(sizes.length > 0 && Math.max(...sizes) <= 100, sizes.join());
  sizes.length = 0;
  await noticeReconciler(counted).activate(new AbortController().signal);
  assert.ok(sizes.length > 0 && Math.max(...sizes) <= 100, sizes.join());
});

test("of a machine's runs, those that have ended, and those of other machines", async () => {
  const body = { source: { type: "image", reference: "local/busybox" }, resources: { cpus: 1, memoryMb: 256 } };
  const { id } = (await client.post("/v1/machines", body)).json;
  const { tenantId } = (await client.get("/v1/me")).json;
  await db.execute(sql`UPDATE machines SET node_id = ${NODE} WHERE id = ${id}`);
  await insertPast(
    "machine_runs",
    sql`
      INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
      SELECT 'boot-past-' || n, CASE n % 2 WHEN 0 THEN ${id} ELSE 'mach-' || n END, ${NODE}, ${tenantId}, 1, 256,
        now() - interval '30 days' + n * interval '1 s', CASE n % 2 WHEN 0 THEN now() - interval '30 days' + n * interval '1 s' END,
        CASE n % 2 WHEN 0 THEN 'stop' END, now()
      FROM generate_series(1, ${ROWS}::int) n`,
  );
  const remove = (queryable: Queryable) => removeMachine({ ...context, db: { ...db, ...queryable } }, { tenantId, id });
  const rows = rowsOf(await planOf(remove, { isOnce: true }));
  assert.ok(rows < 200, `${rows}`);
});
