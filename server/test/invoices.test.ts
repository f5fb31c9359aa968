/**
 * Invoices and the ledger over HTTP and on the command line: drafts, final ones, adjustments, and what was
 * known at an earlier time.
 *
 * That their sums are right after any history is tested in usage.test.ts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import pg from "pg";
import { runCli } from "../../cli/test/run-cli.ts";
import { monthAt } from "../src/billing/month.ts";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { invoiceReconciler } from "../src/billing/invoices-loop.ts";
import type { Client } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

// Invoices become final when a test says so, not by the server's own loop.
const server = await startTestServer({ invoiceGraceHours: 1_000_000 });
const { context, client: admin } = server;
const { db, ids } = context;
const loop = invoiceReconciler({ context, graceHours: 1 });
const { signal } = new AbortController();
const HOUR = 3_600_000;
const thisMonth = monthAt(Date.now());
const lastMonth = monthAt(thisMonth.from - 1);
const monthBefore = monthAt(lastMonth.from - 1);
/** A server of two months ago, which makes tenants. */
const earlierServer = await startTestServer({
  clock: { ...systemClock, now: () => monthBefore.from + HOUR },
  databaseUrl: server.databaseUrl,
  invoiceGraceHours: 1_000_000,
});

/** A tenant that was made two months ago, on a plan with a price. */
async function makeTenant(name: string): Promise<{ id: string; client: Client }> {
  const plan = (await admin.post("/v1/plans", { name, rateCpuHourMicros: 1_000_003, rateMemoryGbHourMicros: 777 })).json
    .id;
  const { id } = (await earlierServer.client.post("/v1/tenants", { name, planId: plan })).json;
  const key = (await admin.post("/v1/apikeys", { tenantId: id })).json.key;
  return { id, client: admin.withKey(key) };
}

/** Records a run of a machine with 2 processors and 1 GiB, as the server does when a node reports it. */
async function run(tenant: string, from: number, to: number | null, boot = ids.make("boot")): Promise<string> {
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    VALUES (${boot}, ${`mach-of-${boot}`}, 'node-x', ${tenant}, 2, 1024, ${instantOf(from)}, ${instantOf(to)}::timestamptz,
      ${to === null ? null : "stop"}, now())`);
  return boot;
}

const end = (boot: string, at: number) =>
  db.execute(sql`UPDATE machine_runs SET ended_at = ${instantOf(at)}, end_cause = 'stop' WHERE boot_id = ${boot}`);

async function finalizeAll(): Promise<void> {
  for (let more = true; more; ) {
    const { hasMore, errors } = await loop.activate(signal);
    assert.deepEqual(errors, []);
    more = hasMore === true;
  }
}

const invoiceOf = async (client: Client, month: string, query = "") =>
  (await client.get(`/v1/billing/invoices/${month}${query}`)).json;

const cpuMicros = (ms: number): number => Number((2n * BigInt(ms) * 1_000_003n) / BigInt(HOUR));
const memoryMicros = (ms: number): number => Number((1024n * BigInt(ms) * 777n) / BigInt(HOUR * 1024));

test("the invoice of a month is a draft, then in its grace period, then final with the same lines and the next number", async () => {
  const { id, client } = await makeTenant("steady");
  await run(id, monthBefore.to - 10_001, monthBefore.to + 5_000);
  await run(id, thisMonth.from, thisMonth.from + 1);
  const listed = (await client.get("/v1/billing/invoices")).json as { id: string; status: string }[];
  assert.deepEqual(
    listed.map((each) => [each.id, each.status]),
    [
      [monthBefore.id, "grace"],
      [lastMonth.id, "grace"],
      [thisMonth.id, "draft"],
    ],
  );
  const drafts = [await invoiceOf(client, monthBefore.id), await invoiceOf(client, lastMonth.id)];
  await finalizeAll();
  const final = [await invoiceOf(client, monthBefore.id), await invoiceOf(client, lastMonth.id)];
  assert.deepEqual(
    final.map(({ lines }) => lines),
    drafts.map(({ lines }) => lines),
  );
  assert.deepEqual(
    final.map(({ status }) => status),
    ["finalized", "finalized"],
  );
  assert.ok(final[0].number < final[1].number);
  assert.equal(final[0].totalMicros, cpuMicros(10_001) + memoryMicros(10_001));
  assert.equal(final[1].totalMicros, cpuMicros(5_000) + memoryMicros(5_000));
  const cpu = final[0].lines.find(({ meter }: { meter: string }) => meter === "cpu");
  assert.deepEqual([cpu.kind, cpu.amount, cpu.micros], ["usage", "20002", cpuMicros(10_001)]);
  const [interval] = (await client.get(cpu.intervals)).json;
  assert.deepEqual([interval.quantity, interval.rateId], [2, cpu.rateId]);
  assert.equal((await invoiceOf(client, thisMonth.id)).status, "draft");
  assert.equal(
    (await client.get("/v1/account")).json.periodCost.totalMicros,
    (await invoiceOf(client, thisMonth.id)).totalMicros,
  );
});

test("usage that is reported after its invoice is final is an adjustment of the next one, also when it turns out to be less", async () => {
  const { id, client } = await makeTenant("late");
  const open = await run(id, monthBefore.to - 60_000, null);
  await finalizeAll();
  const before = await invoiceOf(client, monthBefore.id);
  assert.equal(before.totalMicros, cpuMicros(60_000) + memoryMicros(60_000), "it counts to the end of the month");
  await run(id, lastMonth.from + 1, lastMonth.from + 7_778);
  await end(open, monthBefore.to - 50_000);
  assert.deepEqual(await invoiceOf(client, monthBefore.id), before);
  const { lines, totalMicros } = await invoiceOf(client, thisMonth.id);
  const found = lines
    .filter(({ meter }: { meter: string }) => meter === "cpu")
    .map(({ kind, month, amount, micros }: Record<string, unknown>) => [kind, month, amount, micros]);
  const all = thisMonth.from - lastMonth.from;
  assert.deepEqual(found, [
    ["adjustment", lastMonth.id, String(2 * (7_777 - all)), cpuMicros(7_777) - cpuMicros(all)],
    ["adjustment", monthBefore.id, String(-2 * 50_000), cpuMicros(10_000) - cpuMicros(60_000)],
  ]);
  assert.ok(totalMicros < 0);
});

test("as of an earlier time an invoice shows what was known then", async () => {
  const { id, client } = await makeTenant("historic");
  const first = await run(id, lastMonth.from, lastMonth.from + 1_000);
  const open = await run(id, lastMonth.from, null);
  const then = await databaseTime();
  await until(async () => (await databaseTime()) > then);
  await run(id, lastMonth.from + 5_000, lastMonth.from + 9_000);
  await end(open, lastMonth.from + 3_000);
  const asOf = `?asOf=${encodeURIComponent(instantOf(then))}`;
  const sum = (invoice: { lines: { meter: string; amount: string }[] }) =>
    invoice.lines.filter(({ meter }) => meter === "uptime").reduce((total, { amount }) => total + Number(amount), 0);
  assert.equal(sum(await invoiceOf(client, lastMonth.id)), 8_000);
  const past = await invoiceOf(client, lastMonth.id, asOf);
  assert.deepEqual([past.status, past.asOf, sum(past)], ["grace", instantOf(then), 4_000]);
  await finalizeAll();
  assert.deepEqual(await invoiceOf(client, lastMonth.id, asOf), past);
  assert.equal((await invoiceOf(client, lastMonth.id)).status, "finalized");
  const early = await client.get(
    `/v1/billing/invoices/${lastMonth.id}?asOf=${encodeURIComponent(instantOf(monthBefore.from))}`,
  );
  assert.equal(early.status, 404, "there was no such month then");
  assert.ok(first);
});

const databaseTime = async (): Promise<number> =>
  (await db.queryOne<{ now: number }>(sql`SELECT ceil(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now`))
    ?.now ?? 0;

test("the database refuses to change a final invoice, to add a line to it, and to leave out a number", async () => {
  await makeTenant("fixed");
  await finalizeAll();
  for (const statement of [
    sql`UPDATE invoices SET total_micros = 0`,
    sql`DELETE FROM invoice_lines`,
    sql`DELETE FROM invoices`,
    sql`UPDATE invoice_lines SET micros = 0`,
    sql`DELETE FROM invoice_limits`,
  ])
    await assert.rejects(db.execute(statement), /never changed/, statement.text);
  const added = sql`
    INSERT INTO invoice_lines (tenant_id, month, usage_month, meter, rate_id, amount, micros)
    SELECT i.tenant_id, i.month, i.month, 'cpu', r.id, 1, 0 FROM invoices i CROSS JOIN rates r
    WHERE NOT EXISTS (SELECT FROM invoice_lines l WHERE (l.tenant_id, l.month, l.rate_id) = (i.tenant_id, i.month, r.id)) LIMIT 1`;
  await assert.rejects(db.execute(added), /do not add up/);
  const skipped = sql`
    INSERT INTO invoices (tenant_id, month, number, cut, finalized_at, line_count, total_micros)
    SELECT tenant_id, ${thisMonth.id + "-01"}::date, (SELECT max(number) + 2 FROM invoices), 0, now(), 0, 0 FROM invoices LIMIT 1`;
  await assert.rejects(db.execute(skipped), /gap/);
});

test("a final invoice is posted to the ledger once, and what is left of credit is in the account", async () => {
  const { id, client } = await makeTenant("prepaid");
  await run(id, monthBefore.from + 2 * HOUR, monthBefore.from + 3 * HOUR);
  const post = (body: object) => admin.post("/v1/billing/ledger", { tenantId: id, ...body });
  assert.equal((await post({ micros: 5_000_000, note: "welcome" })).json.balanceMicros, 5_000_000);
  await finalizeAll();
  const { totalMicros } = await invoiceOf(client, monthBefore.id);
  assert.equal(totalMicros, cpuMicros(HOUR) + memoryMicros(HOUR));
  const ledger = (await client.get("/v1/billing/ledger")).json;
  assert.deepEqual(
    ledger.map(({ kind, invoice, entries }: Record<string, unknown>) => [kind, invoice, entries]),
    [
      [
        "credit",
        null,
        [
          { account: "balance", micros: 5_000_000 },
          { account: "credit", micros: -5_000_000 },
        ],
      ],
      [
        "invoice",
        monthBefore.id,
        [
          { account: "balance", micros: -totalMicros },
          { account: "usage", micros: totalMicros },
        ],
      ],
      ["invoice", lastMonth.id, []],
    ],
  );
  const account = (await client.get("/v1/account")).json;
  assert.equal(account.prepaidCreditMicros, 5_000_000 - totalMicros);
  const shown = async (): Promise<number> => (await admin.get(`/v1/tenants/${id}`)).json.freeCreditMicros;
  assert.equal(await shown(), account.prepaidCreditMicros);
  const taken = await post({ micros: -account.prepaidCreditMicros - 1, kind: "adjustment" });
  assert.deepEqual([taken.status, taken.json.balanceMicros], [201, -1]);
  assert.equal((await client.get("/v1/account")).json.prepaidCreditMicros, 0);
  assert.equal(await shown(), 0);
  const page = await client.get("/v1/billing/ledger?limit=2");
  assert.equal((await client.get(/<(.*)>/.exec(page.headers.get("link") ?? "")?.[1] ?? "")).json.length, 2);
});

test("a posting that is repeated under its idempotency key is posted once, and one that makes no sense is refused", async () => {
  const { id, client } = await makeTenant("careful");
  const headers = { "idempotency-key": "credit-once" };
  const body = { tenantId: id, micros: 7 };
  for (let count = 0; count < 2; count += 1)
    assert.equal((await admin.call("POST", "/v1/billing/ledger", { body, headers })).status, 201);
  assert.equal((await client.get("/v1/billing/ledger")).json.at(-1).balanceMicros, 7);
  for (const wrong of [{ micros: 0 }, { micros: -1 }, { micros: 0, kind: "adjustment" }])
    assert.equal((await admin.post("/v1/billing/ledger", { ...body, ...wrong })).status, 400, JSON.stringify(wrong));
  for (const wrong of [
    { micros: 2 ** 53 },
    { micros: 1.5 },
    { micros: "1" },
    { kind: "gift" },
    { note: "x".repeat(1_000_000) },
  ])
    assert.equal((await admin.post("/v1/billing/ledger", { ...body, ...wrong })).status, 422);
  assert.equal((await admin.post("/v1/billing/ledger", { tenantId: "none", micros: 1 })).status, 404);
  assert.equal((await client.post("/v1/billing/ledger", body)).status, 403);
  const other = (await admin.get("/v1/me")).json.tenantId;
  assert.equal((await client.get(`/v1/billing/ledger?tenantId=${other}`)).status, 403);
});

test("the database refuses a ledger that does not add up, a second posting of an invoice, and every change", async () => {
  const { id } = await makeTenant("balanced");
  const { json } = await admin.post("/v1/billing/ledger", { tenantId: id, micros: 1_000 });
  await finalizeAll();
  const entry = (transaction: string, account: string, micros: number) => sql`
    INSERT INTO ledger_entries (transaction_id, account, micros) VALUES (${transaction}, ${account}, ${micros}::bigint)`;
  await assert.rejects(db.execute(entry(json.id, "usage", 1)), /do not add up to 0/);
  const pair = db.execute(sql`
    INSERT INTO ledger_entries (transaction_id, account, micros) VALUES (${json.id}, 'usage', 5), (${json.id}, 'adjustment', -5)`);
  await assert.rejects(pair, /posted before/);
  for (const statement of [
    sql`UPDATE ledger_entries SET micros = 1`,
    sql`DELETE FROM ledger_entries`,
    sql`UPDATE ledger_transactions SET note = ''`,
    sql`DELETE FROM ledger_transactions`,
  ])
    await assert.rejects(db.execute(statement), /never changed/);
  const again = db.execute(sql`
    INSERT INTO ledger_transactions (id, tenant_id, kind, invoice_month, note, made_at)
    SELECT 'post-' || repeat('0', 32), tenant_id, kind, invoice_month, note, made_at FROM ledger_transactions
    WHERE tenant_id = ${id} AND kind = 'invoice' LIMIT 1`);
  await assert.rejects(again, /posted_once/);
});

test("a plan's past month is rated again at other prices, for each tenant, and nothing changes", async (t) => {
  const { id, client } = await makeTenant("rerated");
  await run(id, lastMonth.from, lastMonth.from + 1_234_567);
  await finalizeAll();
  const before = await invoiceOf(client, lastMonth.id);
  const { planId } = (await admin.get(`/v1/tenants/${id}`)).json;
  const diff = async (query: string) =>
    await admin.get(`/v1/billing/plans/${planId}/diff?month=${lastMonth.id}${query}`);
  const plannedMicros = Number((2n * 1_234_567n * 2_000_001n) / BigInt(HOUR)) + memoryMicros(1_234_567);
  const micros = cpuMicros(1_234_567) + memoryMicros(1_234_567);
  const tenant = { tenantId: id, micros, plannedMicros, differenceMicros: plannedMicros - micros };
  assert.deepEqual((await diff("&rateCpuHourMicros=2000001")).json.tenants, [tenant]);
  const same = (await diff("")).json;
  assert.deepEqual(same.tenants, [{ tenantId: id, micros, plannedMicros: micros, differenceMicros: 0 }]);
  // Without prices it is the newest rate, which is planned.
  const planned = { rateCpuHourMicros: 2_000_001, activeFrom: "2999-01-01T00:00:00Z" };
  assert.equal((await admin.post(`/v1/plans/${planId}/rates`, planned)).status, 201);
  assert.deepEqual((await diff("")).json.tenants, [tenant]);
  assert.deepEqual(await invoiceOf(client, lastMonth.id), before);
  const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
  const shown = await runCli(t, ["plan", "diff", planId, lastMonth.id, "--cpu-hour", "2.000001"], { environment });
  assert.match(String(shown.output), new RegExp(`^${id} +\\d`, "m"), shown.errors);

  for (const query of ["&rateCpuHourMicros=-1", "&rateCpuHourMicros=9007199254740993", "&rateMemoryGbHourMicros=x"])
    assert.equal((await diff(query)).status, 422, query);
  const path = `/v1/billing/plans/${planId}/diff`;
  assert.deepEqual((await admin.get(path)).json, (await diff("")).json);
  for (const month of ["2026-13", "2999-01", "x"])
    assert.equal((await admin.get(`${path}?month=${month}`)).status, 400);
  assert.equal((await admin.get("/v1/billing/plans/none/diff")).status, 404);
  assert.equal((await client.get(path)).status, 403);
});

test("an id that is not a month, an instant that does not exist and another tenant's invoice are refused", async () => {
  const { id, client } = await makeTenant("curious");
  const path = "/v1/billing/invoices";
  for (const month of ["2026-13", "july", "-1", "9007199254740993", "x".repeat(5_000), "1999-01", "2999-01"])
    assert.equal((await client.get(`${path}/${month}`)).status, 404, month.slice(0, 20));
  for (const asOf of ["yesterday", "2026-02-30T00:00:00Z", "2999-01-01T00:00:00Z"])
    assert.equal((await client.get(`${path}/${thisMonth.id}?asOf=${asOf}`)).status, 400, asOf);
  for (const query of ["cursor=x", "cursor=99999999999999999999", "limit=0", "limit=-1", "meter=love", `month=2999-01`])
    assert.ok([404, 422].includes((await client.get(`${path}/${thisMonth.id}/intervals?${query}`)).status), query);
  const stranger = (await admin.get("/v1/me")).json.tenantId;
  for (const other of [path, `${path}/${thisMonth.id}`, `${path}/${thisMonth.id}/intervals`]) {
    assert.equal((await client.get(`${other}?tenantId=${stranger}`)).status, 403);
    assert.equal((await client.get(`${other}?tenantId=${id}`)).status, 200);
    assert.equal((await admin.get(`${other}?tenantId=${id}`)).status, 200);
    assert.equal((await admin.get(`${other}?tenantId=none`)).status, 404);
    assert.equal((await admin.get(`${other}?tenantId=${"x".repeat(100)}`)).status, 422);
  }
  const narrow = (await client.post("/v1/apikeys", { scopes: ["usage:read"] })).json.key;
  assert.equal((await client.withKey(narrow).get(path)).status, 403);
});

test("the command line shows and exports invoices, and its own computation finds an amount that intervals do not make", async (t) => {
  const { id } = await makeTenant("checked");
  await run(id, lastMonth.from, lastMonth.from + 123_457);
  await run(id, monthBefore.to - 1_000, null);
  await finalizeAll();
  const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
  const cli = (...argv: string[]) => runCli(t, argv, { environment });
  const month = lastMonth.id;
  assert.match(
    String((await cli("invoice", "ls", "--tenant", id)).output),
    new RegExp(`^${month} +finalized +\\d+ `, "m"),
  );
  const shown = String((await cli("invoice", "show", month, "--tenant", id)).output);
  assert.match(shown, /^usage +\d{4}-\d\d +\d+\.\d{3} CPU hours +rate-/m);
  const { totalMicros } = (await admin.get(`/v1/billing/invoices/${month}?tenantId=${id}`)).json;
  const csv = String((await cli("invoice", "show", month, "--tenant", id, "--csv")).output)
    .trim()
    .split("\n");
  assert.equal(
    csv.slice(1).reduce((sum, row) => sum + Number(row.split(",").at(-1)), 0),
    totalMicros,
  );
  const focus = String((await cli("invoice", "show", month, "--tenant", id, "--focus")).output)
    .trim()
    .split("\n");
  const column = (focus[0] ?? "").split(",").indexOf("BilledCost");
  assert.equal(
    focus.slice(1).reduce((sum, row) => sum + Math.round(Number(row.split(",")[column]) * 1e6), 0),
    totalMicros,
  );

  assert.equal(
    String((await cli("billing", "credit", id, "19.99", "--note", "thanks")).output).trim().length > 0,
    true,
  );
  assert.equal((await cli("billing", "credit", id, "much")).code, 2);
  assert.match(String((await cli("billing", "ledger", "--tenant", id)).output), /credit +19\.99 .*thanks$/m);

  const whole = await cli("billing", "verify");
  assert.deepEqual(
    [whole.code, /: 0 differences$/m.test(String(whole.output))],
    [0, true],
    `${whole.output}${whole.errors}`,
  );
  const forger = new pg.Client({ connectionString: server.databaseUrl });
  await forger.connect();
  await forger.query(`SET session_replication_role = replica`);
  await forger.query(`UPDATE usage_intervals SET quantity = 3 WHERE tenant_id = $1 AND meter = 'cpu'`, [id]);
  await forger.end();
  const forged = await cli("billing", "verify", "--tenant", id);
  assert.equal(forged.code, 1);
  assert.match(
    String(forged.output),
    /cpu of \d{4}-\d\d at rate-\w+ is invoiced as \d+ micros for \d+; its intervals make \d+/,
  );
});

/** A server whose connection to the database is cut after so many statements of each transaction. */
function dyingAfter(statements: number): typeof context {
  const transaction: typeof db.transaction = (work) =>
    db.transaction(async (real) => {
      let count = 0;
      const counted =
        <A extends Parameters<typeof real.query>, R>(call: (...args: A) => Promise<R>) =>
        async (...args: A): Promise<R> => {
          const result = await call(...args);
          count += 1;
          if (count === statements) await real.execute(sql`SELECT pg_terminate_backend(pg_backend_pid())`);
          return result;
        };
      return await work({
        query: counted(real.query) as typeof real.query,
        queryOne: counted(real.queryOne) as typeof real.queryOne,
        execute: counted(real.execute),
      });
    });
  return { ...context, db: Object.create(db, { transaction: { value: transaction } }) };
}

test("many tenants become final once, without gaps in the numbers, while servers die and race", async () => {
  const plan = (await admin.post("/v1/plans", { name: "crowd", rateCpuHourMicros: 12_345 })).json.id;
  const at = instantOf(monthBefore.from);
  await db.execute(sql`
    INSERT INTO tenants (id, name, plan_id, created_at, updated_at)
    SELECT 'crowd-' || n, 'crowd-' || n, ${plan}, ${at}, ${at} FROM generate_series(1, 220) n`);
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    SELECT 'crowd-boot-' || n, 'crowd-machine-' || n, 'node-x', 'crowd-' || n, 1, 1, ${at}::timestamptz + n * interval '1 s',
      ${at}::timestamptz + 2 * n * interval '1 s', 'stop', now() FROM generate_series(1, 220) n`);
  // A server that dies after any statement of the transaction leaves nothing of it.
  for (const statements of [1, 2, 3]) {
    const { errors, counts } = await invoiceReconciler({ context: dyingAfter(statements), graceHours: 1 }).activate(
      signal,
    );
    assert.ok(errors.length > 0, `after ${statements} statements`);
    assert.deepEqual(counts, { finalized: 0 });
    assert.equal((await db.query(sql`SELECT FROM invoices WHERE tenant_id LIKE 'crowd-%'`)).length, 0);
  }
  const left = async () =>
    (
      await db.queryOne<{ left: number }>(sql`
      SELECT 440 - count(*)::int AS left FROM invoices WHERE tenant_id LIKE 'crowd-%'`)
    )?.left;
  await until(
    async () => {
      const replica = invoiceReconciler({ context, graceHours: 1 });
      await Promise.all([loop.activate(signal), replica.activate(signal)]);
      return (await left()) === 0;
    },
    { what: "all invoices to be final", deadlineMs: 60_000 },
  );
  const wrong = await db.query(sql`
    SELECT i.tenant_id FROM invoices i JOIN machine_runs r ON r.tenant_id = i.tenant_id
    WHERE i.tenant_id LIKE 'crowd-%' AND i.total_micros <>
      CASE WHEN i.month = ${monthBefore.id + "-01"}::date THEN div(extract(epoch FROM r.ended_at - r.started_at) * 1000 * 12345, 3600000) ELSE 0 END
      + (SELECT coalesce(sum(l.micros), 0) FROM invoice_lines l WHERE l.tenant_id = i.tenant_id AND l.month = i.month AND l.meter = 'memory')`);
  assert.deepEqual(wrong, []);
  const posted = await db.query(sql`
    SELECT i.tenant_id FROM invoices i LEFT JOIN ledger_transactions t ON (t.tenant_id, t.invoice_month) = (i.tenant_id, i.month)
    LEFT JOIN ledger_entries e ON e.transaction_id = t.id AND e.account = 'balance'
    WHERE t.id IS NULL OR coalesce(e.micros, 0) <> -i.total_micros`);
  assert.deepEqual(posted, []);
  const numbers = await db.queryOne(sql`SELECT max(number)::int = count(*)::int AS whole FROM invoices`);
  assert.deepEqual(numbers, { whole: true });
});

test("tenants whose usage takes too long to read together become final in smaller batches", async () => {
  const at = instantOf(lastMonth.from);
  await db.execute(sql`
    INSERT INTO tenants (id, name, created_at, updated_at)
    SELECT 'many-' || n, 'many-' || n, ${at}, ${at} FROM generate_series(1, 250) n`);
  // As PostgreSQL does with a statement that takes longer than it may.
  await db.execute(sql`
    CREATE FUNCTION cancel_many() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF (SELECT count(*) FROM added) > 30 THEN RAISE query_canceled; END IF; RETURN NULL; END $$`);
  await db.execute(sql`
    CREATE TRIGGER cancels AFTER INSERT ON invoices REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION cancel_many()`);
  // The connection of a canceled statement is closed, and until the database notices its tenants are locked
  // and passed over.
  await until(
    async () => {
      const { errors } = await loop.activate(signal);
      assert.deepEqual(errors, []);
      return (await db.query(sql`SELECT FROM invoices WHERE tenant_id LIKE 'many-%'`)).length === 250;
    },
    { what: "all invoices to be final" },
  );
  await db.execute(sql`DROP FUNCTION cancel_many CASCADE`);
});

test("tenants wait for fewer others' invoices after a transaction that took long", async () => {
  const at = instantOf(lastMonth.from);
  await db.execute(sql`
    INSERT INTO tenants (id, name, created_at, updated_at)
    SELECT 'slow-' || n, 'slow-' || n, ${at}, ${at} FROM generate_series(1, 350) n`);
  let now = 0;
  const sizes: number[] = [];
  // Each tenant takes 6 ms.
  const timed: typeof db.transaction = (work) =>
    db.transaction(async (transaction) => {
      const execute: typeof db.execute = async (statement) => {
        const { made } = (await transaction.queryOne<{ made: number }>(count)) ?? { made: 0 };
        const result = await transaction.execute(statement);
        const size = ((await transaction.queryOne<{ made: number }>(count))?.made ?? 0) - made;
        sizes.push(size);
        now += 6 * size;
        return result;
      };
      return await work({ ...transaction, execute });
    });
  const count = sql`SELECT count(*)::int AS made FROM invoices`;
  const slow = {
    ...context,
    clock: { ...context.clock, now: () => context.clock.now(), monotonic: () => now },
    db: Object.create(db, { transaction: { value: timed } }),
  };
  await invoiceReconciler({ context: slow, graceHours: 1 }).activate(signal);
  assert.deepEqual(sizes, [100, 50, 25, 25, 25, 25, 25, 25, 25, 25]);
});

test("a tenant whose amounts are too large for the database delays no other's invoice, and is named", async () => {
  const plan = (await admin.post("/v1/plans", { name: "absurd" })).json.id;
  const at = instantOf(monthBefore.from);
  await db.execute(sql`
    INSERT INTO rates (id, plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
    VALUES (${`rate-${"9".repeat(32)}`}, ${plan}, ${at}, 1000000000, 0, ${at})`);
  await db.execute(sql`
    INSERT INTO tenants (id, name, plan_id, created_at, updated_at)
    SELECT 'absurd-' || n, 'absurd-' || n, ${plan}, ${at}, ${at} FROM generate_series(1, 7) n`);
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    SELECT 'absurd-boot-' || n, 'absurd-machine-' || n, 'node-x', 'absurd-4', 2000000000, 1, ${at}, ${instantOf(monthBefore.to)}, 'stop', now()
    FROM generate_series(1, 20) n`);
  const { errors } = await loop.activate(signal);
  assert.equal(errors.length, 1, String(errors));
  assert.match(errors[0] ?? "", new RegExp(`^${monthBefore.id} of absurd-4: `));
  for (let more = true; more; ) more = (await loop.activate(signal)).hasMore === true;
  const made = await db.query<{ id: string; count: number }>(sql`
    SELECT tenant_id AS id, count(*)::int AS count FROM invoices WHERE tenant_id LIKE 'absurd-%' GROUP BY 1 ORDER BY 1`);
  assert.deepEqual(
    made.map(({ id, count }) => `${id} ${count}`),
    [1, 2, 3, 5, 6, 7].map((n) => `absurd-${n} 2`),
  );
});
