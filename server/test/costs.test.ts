/**
 * Costs by machine, API key and label: recorded when a run begins, kept when the machine is gone, and exact
 * parts of the invoice.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { Invoice, InvoiceCost } from "@flotilla/contract/billing";
import { runCli } from "../../cli/test/run-cli.ts";
import { monthAt } from "../src/billing/month.ts";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { invoiceReconciler } from "../src/billing/invoices-loop.ts";
import { budgetReconciler } from "../src/machines/lifetime/budgets-loop.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";
import { startTestServer } from "./support/server.ts";
import { openTestServices } from "./support/services.ts";
import { until } from "../../test/support/until.ts";
import { countStatements } from "./support/statements.ts";

const { server, client: admin, context } = await startMachineServer({ invoiceGraceHours: 1_000_000 });
const { db, ids } = context;
const thisMonth = monthAt(Date.now());
const lastMonth = monthAt(thisMonth.from - 1);
const monthBefore = monthAt(lastMonth.from - 1);
/** A server of two months ago, which makes tenants. */
const earlierServer = await startTestServer({
  clock: { ...systemClock, now: () => monthBefore.from + 1 },
  databaseUrl: server.databaseUrl,
  invoiceGraceHours: 1_000_000,
});

async function makeTenant(name: string) {
  const plan = (await admin.post("/v1/plans", { name, rateCpuHourMicros: 1_000_003, rateMemoryGbHourMicros: 777 }))
    .json;
  const { id } = (await earlierServer.client.post("/v1/tenants", { name, planId: plan.id })).json;
  const makeKey = async () => (await admin.post("/v1/apikeys", { tenantId: id })).json;
  return { id: id as string, makeKey };
}

/** `asOf`: an instant as in a query; null: now. */
const costsOf = async (
  tenant: string,
  month: string,
  by: string,
  asOf: string | null = null,
): Promise<readonly InvoiceCost[]> => {
  const query = new URLSearchParams({ tenantId: tenant, by, ...(asOf === null ? {} : { asOf }) });
  const answer = await admin.get(`/v1/billing/invoices/${month}/costs?${query}`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
};

const costsPath = (tenant: string, month: string, asOf: string): string =>
  `/v1/billing/invoices/${month}/costs?tenantId=${tenant}&asOf=${encodeURIComponent(asOf)}`;

/** Sums of the exact amounts of a meter, by group. */
const sums = (costs: readonly InvoiceCost[], meter: string): Record<string, number> =>
  Object.fromEntries(
    costs.filter((cost) => cost.meter === meter).map(({ group, amount }) => [String(group), Number(amount)]),
  );

test("what a machine ran costs the key that started it and its labels, also when machine and keys are gone", async () => {
  const tenant = await makeTenant("attributed");
  const [maker, starter] = [await tenant.makeKey(), await tenant.makeKey()];
  const [made, started] = [admin.withKey(maker.key), admin.withKey(starter.key)];
  const id = await createMachine(made, { labels: { team: "red", "cost.center": "7", app: "shop" } });
  const plain = await createMachine(made);
  for (const machine of [id, plain]) assert.equal((await made.post(`/v1/machines/${machine}/start`)).status, 200);
  assert.equal((await made.post(`/v1/machines/${id}/stop`)).status, 200);
  // A command starts it again, for the key of the command.
  assert.equal((await started.post(`/v1/machines/${id}/exec`, { command: ["true"] })).status, 200);
  for (const machine of [id, plain]) assert.equal((await made.delete(`/v1/machines/${machine}`)).status, 204);
  const runs = await db.query<{ machine: string; key: string; ms: number }>(sql`
    SELECT machine_id AS machine, CASE WHEN row_number() OVER (PARTITION BY machine_id ORDER BY started_at) = 1
        THEN ${maker.id} ELSE ${starter.id} END AS key,
      floor(1000 * extract(epoch FROM least(ended_at, counted_until) - started_at))::int AS ms
    FROM machine_runs WHERE tenant_id = ${tenant.id} ORDER BY started_at`);
  assert.equal(runs.length, 3);
  await db.execute(
    sql`UPDATE machine_runs SET ended_at = counted_until, end_cause = 'delete' WHERE tenant_id = ${tenant.id} AND ended_at IS NULL`,
  );
  await db.execute(sql`DELETE FROM machines WHERE tenant_id = ${tenant.id}`);
  const expected = (nameOf: (run: (typeof runs)[number]) => string): Record<string, number> => {
    const found: Record<string, number> = {};
    for (const run of runs) if (run.ms > 0) found[nameOf(run)] = (found[nameOf(run)] ?? 0) + run.ms;
    return found;
  };
  const measured = async (by: string) => sums(await costsOf(tenant.id, thisMonth.id, by), "uptime");
  assert.deepEqual(
    await measured("machine"),
    expected(({ machine }) => machine),
  );
  assert.deepEqual(
    await measured("key"),
    expected(({ key }) => key),
  );
  const teams = expected(({ machine }) => (machine === id ? "red" : "null"));
  assert.deepEqual(await measured("label:team"), teams);
  assert.deepEqual(
    await measured("label:cost.center"),
    expected(({ machine }) => (machine === id ? "7" : "null")),
  );
  assert.deepEqual(
    await measured("app"),
    expected(({ machine }) => (machine === id ? "shop" : "null")),
  );
  const all = Object.values(teams).reduce((sum, ms) => sum + ms, 0);
  assert.deepEqual(await measured("label:none"), { null: all });
  const kept = await db.query(sql`SELECT FROM usage_attributions WHERE machine_id = ${id}`);
  assert.equal(kept.length, 2, "one row for each key, however often it starts the machine");
  await assert.rejects(db.execute(sql`UPDATE usage_attributions SET key_id = 'key-x'`), /never changed/);
  await assert.rejects(db.execute(sql`DELETE FROM usage_attributions`), /never changed/);
  const deleting = db.execute(sql`DELETE FROM machine_runs WHERE machine_id = ${id}`);
  await assert.rejects(deleting, /^error: run .* has usage intervals, .* it cannot be deleted$/);
  await assert.rejects(db.execute(sql`TRUNCATE machine_runs CASCADE`), /never changed/);
});

/** Records a run as the server does; of a machine that has a row, so that it has labels. */
async function run(tenant: string, machine: string, from: number, to: number | null): Promise<string> {
  const boot = ids.make("boot");
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    VALUES (${boot}, ${machine}, 'node-x', ${tenant}, 3, 1023, ${instantOf(from)}, ${instantOf(to)}::timestamptz,
      ${to === null ? null : "stop"}, now())`);
  return boot;
}

/** An instant, after which something is recorded later. */
async function pass(): Promise<string> {
  const read = async (): Promise<number> =>
    (await db.queryOne<{ at: number }>(sql`SELECT ceil(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS at`))
      ?.at ?? 0;
  const instant = await read();
  await until(async () => (await read()) > instant + 1);
  return instantOf(instant);
}

/**
 * The parts of each line add up to it, in every division and month. Returns how many lines were adjustments.
 */
async function assertWhole(tenant: string, months: readonly string[], asOf: string | null = null): Promise<number> {
  let adjustments = 0;
  for (const month of months) {
    const query = new URLSearchParams({ tenantId: tenant, ...(asOf === null ? {} : { asOf }) });
    const invoice = (await admin.get(`/v1/billing/invoices/${month}?${query}`)).json as Invoice;
    const lines = invoice.lines.map((line) => [`${line.month} ${line.meter} ${line.rateId}`, line.amount, line.micros]);
    adjustments += invoice.lines.filter(({ kind }) => kind === "adjustment").length;
    for (const by of ["machine", "app", "key", "label:team"]) {
      const parts = new Map<string, { amount: bigint; micros: number }>();
      for (const { month: used, meter, rateId, amount, micros } of await costsOf(tenant, month, by, asOf)) {
        const key = `${used} ${meter} ${rateId}`;
        const before = parts.get(key) ?? { amount: 0n, micros: 0 };
        parts.set(key, { amount: before.amount + BigInt(amount), micros: before.micros + micros });
      }
      const added = [...parts].map(([key, { amount, micros }]) => [key, String(amount), micros]);
      assert.deepEqual(added.toSorted(), lines.toSorted(), `${month} by ${by} as of ${asOf}`);
    }
  }
  return adjustments;
}

test("the parts of every line add up to it exactly, of drafts, final invoices and adjustments", async () => {
  const tenant = await makeTenant("divided");
  const key = admin.withKey((await tenant.makeKey()).key);
  const machines: string[] = [];
  for (const team of ["red", "blue", "red", undefined])
    machines.push(await createMachine(key, team === undefined ? {} : { labels: { team } }));
  await db.execute(sql`
    INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
    SELECT plan_id, ${instantOf(lastMonth.from + 3_600_007)}, 31, 999999937, now() FROM tenants WHERE id = ${tenant.id}`);
  const past = [monthBefore.id, lastMonth.id];
  const open: string[] = [];
  for (const [index, machine] of [...machines, "mach-unknown"].entries()) {
    await run(tenant.id, machine, monthBefore.to - 7_001 * (index + 1), monthBefore.to + 5_003 * (index + 1));
    await run(tenant.id, machine, lastMonth.from + 3_600_000, lastMonth.from + 3_600_011 + index);
    if (index < 3) open.push(await run(tenant.id, machine, lastMonth.to - 86_400_000 - index, null));
  }
  const late = await createMachine(key, { labels: { team: "blue" } });
  machines.push(late);
  assert.equal(await assertWhole(tenant.id, past), 0);
  const asOf = [await pass()];
  const loop = invoiceReconciler({ context, graceHours: 1 });
  for (let isDone = false; !isDone; ) {
    const { errors, hasMore } = await loop.activate(new AbortController().signal);
    assert.deepEqual(errors, []);
    isDone = hasMore !== true;
  }
  await assertWhole(tenant.id, past);
  asOf.push(await pass());
  // What becomes known afterwards is an adjustment, also when it is less than was invoiced.
  for (const [index, boot] of open.entries())
    await db.execute(sql`
      UPDATE machine_runs SET ended_at = ${instantOf(lastMonth.to - 80_000_000 + 13 * index)}, end_cause = 'stop'
      WHERE boot_id = ${boot}`);
  await run(tenant.id, late, monthBefore.to - 500, lastMonth.from + 4_000_003);
  asOf.push(await pass());
  // Nothing is in use any more, so the draft does not grow between two reads.
  for (const machine of machines) await key.delete(`/v1/machines/${machine}`);
  assert.ok((await assertWhole(tenant.id, [...past, thisMonth.id])) >= 4);
  // As of each earlier instant the parts are those of that time.
  let adjustments = 0;
  for (const instant of asOf) adjustments += await assertWhole(tenant.id, [...past, thisMonth.id], instant);
  assert.ok(adjustments >= 4);
  const first = costsPath(tenant.id, lastMonth.id, "2000-01-01T00:00:00Z");
  assert.equal((await admin.get(first)).status, 404);
  assert.equal((await admin.get(costsPath(tenant.id, lastMonth.id, "2999-01-01T00:00:00Z"))).status, 400);
});

test("the budgets of all tenants are checked with a fixed number of queries", async () => {
  const plan = { name: "stopped", budgetPolicy: "stop", monthlyBudgetMicros: 1_000_000, rateCpuHourMicros: 1 };
  const planId = (await admin.post("/v1/plans", plan)).json.id;
  const services = openTestServices(server);
  const { activate } = budgetReconciler(services);
  const { signal } = new AbortController();
  const counts: number[] = [];
  for (let tenants = 0; tenants < 3; tenants += 1) {
    const { id } = (await admin.post("/v1/tenants", { name: `stopped ${tenants}`, planId })).json;
    const key = admin.withKey((await admin.post("/v1/apikeys", { tenantId: id })).json.key);
    const machine = await createMachine(key);
    assert.equal((await key.post(`/v1/machines/${machine}/start`)).status, 200);
    counts.push(
      await countStatements(services.context.db, () => activate(signal), /usage_intervals|budget_policy = 'stop'/),
    );
  }
  assert.deepEqual(counts, [2, 2, 2]);
});

test("costs are divided on the command line, page by page, and only in the ways that exist", async (t) => {
  const tenant = await makeTenant("shown");
  const key = admin.withKey((await tenant.makeKey()).key);
  for (const team of ["red", "blue"])
    await run(tenant.id, await createMachine(key, { labels: { team } }), lastMonth.from, lastMonth.from + 3_600_000);
  const path = `/v1/billing/invoices/${lastMonth.id}/costs?by=label:team`;
  const whole = (await key.get(path)).json;
  assert.equal(whole.length, 6);
  const first = await key.get(`${path}&limit=4`);
  const next = await key.get(/<(.*)>/.exec(first.headers.get("link") ?? "")?.[1] ?? "");
  assert.deepEqual([...first.json, ...next.json], whole);
  const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
  const cli = (...argv: string[]) =>
    runCli(t, ["invoice", "show", lastMonth.id, "--tenant", tenant.id, ...argv], { environment });
  const table = String((await cli("--by", "label:team")).output);
  assert.match(table, /^red +1\.000 +3\.000 +0\.999 +3\.0007\d* *$/m);
  const csv = String((await cli("--by", "label:team", "--csv")).output)
    .trim()
    .split("\n");
  assert.equal(csv.length, 7);
  const focus = String((await cli("--focus")).output);
  assert.match(focus, /"\{""team"":""red""\}",,key-[0-9a-f]{32}/);
  assert.equal((await cli("--by", "label:team", "--focus")).code, 2);
  const then = String((await cli("--by", "label:team", "--as-of", instantOf(lastMonth.from + 1))).output);
  assert.match(then, /^\(all\) +0\.000 +0\.000 +0\.000 +0\.00 *$/m);
  for (const by of ["", "team", "label:", "label:A", "Machine", `label:${"x".repeat(100)}`, "label:a%00b"])
    assert.equal((await key.get(`/v1/billing/invoices/${lastMonth.id}/costs?by=${by}`)).status, 422, by);
  const byMachine = (await key.get(`/v1/billing/invoices/${lastMonth.id}/costs`)).json as InvoiceCost[];
  assert.ok(byMachine.every(({ group }) => group?.startsWith("mach-") === true));
  assert.equal((await key.get("/v1/billing/invoices/2026-13/costs?by=key")).status, 404);
});

test("a page of intervals ends where their labels are long, and reading on until an empty page finds all", async (t) => {
  const tenant = await makeTenant("wordy");
  const key = admin.withKey((await tenant.makeKey()).key);
  const labels = Object.fromEntries(Array.from({ length: 32 }, (_, at) => [`label-${at}`, "x".repeat(250)]));
  const machine = await createMachine(key, { labels });
  const runs = 80;
  for (let at = 0; at < runs; at += 1)
    await run(tenant.id, machine, lastMonth.from + at * 1_000, lastMonth.from + at * 1_000 + 500);
  const path = `/v1/billing/invoices/${lastMonth.id}/intervals`;
  const found = new Set<number>();
  let pages = 0;
  for (let cursor = 0; ; pages += 1) {
    const page = await key.get(`${path}?cursor=${cursor}`);
    if (page.json.length === 0) break;
    assert.ok(page.text.length < 1_500_000, `${page.text.length} bytes`);
    for (const { id } of page.json) found.add(id);
    cursor = page.json.at(-1).id;
  }
  assert.deepEqual([found.size, pages], [3 * runs, 2]);
  assert.equal((await key.get(`${path}?limit=7`)).json.length, 7);
  const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
  const verified = String((await runCli(t, ["billing", "verify", "--tenant", tenant.id], { environment })).output);
  assert.match(verified, /: 0 differences$/m, verified);
});
