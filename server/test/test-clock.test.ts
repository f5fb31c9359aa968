/**
 * Tenants with a test clock: months are rehearsed by moving their billing time, and no other tenant is
 * affected.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { monthAfter, monthAt } from "../src/billing/month.ts";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { runCli } from "../../cli/test/run-cli.ts";
import type { Client } from "./support/client.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { assertSound } from "./support/sound.ts";
import { until } from "../../test/support/until.ts";

const HOUR = 3_600_000;
const GRACE_HOURS = 72;
const { server, client: admin, context } = await startMachineServer({ invoiceGraceHours: GRACE_HOURS });
const { db } = context;
const source = { type: "image", reference: "local/busybox" };

interface Tenant {
  readonly id: string;
  readonly client: Client;
  readonly planId: string;
}

/** At 3.6 units for a processor and hour: one micro for a millisecond. */
async function makeTenant(
  name: string,
  { testClock = true, ...plan }: { testClock?: boolean; budgetPolicy?: string; monthlyBudgetMicros?: number } = {},
): Promise<Tenant> {
  const rates = { rateCpuHourMicros: HOUR, rateMemoryGbHourMicros: 0 };
  const planId = (await admin.post("/v1/plans", { name, ...rates, ...plan })).json.id;
  const made = await admin.post("/v1/tenants", { name, planId, testClock });
  assert.equal(made.status, 201, made.text);
  const { id } = made.json;
  return { id, planId, client: admin.withKey((await admin.post("/v1/apikeys", { tenantId: id })).json.key) };
}

async function startOne({ client }: Tenant, cpus = 1): Promise<string> {
  const made = await client.post("/v1/machines", { source, resources: { cpus } });
  assert.equal(made.status, 201, made.text);
  const started = await client.post(`/v1/machines/${made.json.id}/start`);
  assert.equal(started.status, 200, started.text);
  return made.json.id;
}

const advance = (tenant: Tenant, to: number) => admin.post(`/v1/tenants/${tenant.id}/clock`, { to: instantOf(to) });

async function advanced(tenant: Tenant, to: number): Promise<void> {
  const answer = await advance(tenant, to);
  assert.equal(answer.status, 200, answer.text);
  assert.ok(Date.parse(answer.json.testClock) >= to);
}

const invoiceOf = async ({ client }: Tenant, month: string) => (await client.get(`/v1/billing/invoices/${month}`)).json;
const isFinal = (tenant: Tenant, month: string) => async () =>
  (await invoiceOf(tenant, month)).status === "finalized" && (await invoiceOf(tenant, month));
const cpuMs = ({ lines }: { lines: { meter: string; month: string; amount: string }[] }, month: string): number =>
  lines.reduce((sum, line) => (line.meter === "cpu" && line.month === month ? sum + Number(line.amount) : sum), 0);

test("a machine that runs is billed for the time over which the clock is moved, and its months become invoices", async () => {
  const tenant = await makeTenant("rehearsal");
  const real = await makeTenant("real", { testClock: false });
  const begun = Date.now();
  const elapsed = (): number => Date.now() - begun;
  const machine = await startOne(tenant);
  const startedMs = elapsed();
  const bystander = await startOne(real);
  const first = monthAt(begun);
  const second = monthAfter(first);
  assert.equal((await invoiceOf(tenant, first.id)).status, "draft");

  await advanced(tenant, first.to + HOUR);
  const grace = await invoiceOf(tenant, first.id);
  assert.deepEqual([grace.status, grace.isTest], ["grace", true]);
  const counted = cpuMs(grace, first.id);
  assert.ok(counted <= first.to - begun && counted >= first.to - begun - startedMs, `${counted} ms since ${begun}`);
  const readAccount = async () => (await tenant.client.get("/v1/account")).json;
  // The time since the last report of the node counts with its next one.
  await until(async () => (await readAccount()).periodCost.totalMicros >= HOUR, { deadlineMs: 60_000 });
  const account = await readAccount();
  assert.ok(account.periodCost.totalMicros <= HOUR + elapsed());
  assert.ok(Date.parse(account.testClock) >= first.to + HOUR);
  const meters = (await admin.get("/v1/billing/meters")).json as { tenantId: string; cost: { totalMicros: number } }[];
  const metered = meters.find(({ tenantId }) => tenantId === tenant.id)?.cost.totalMicros ?? 0;
  assert.ok(metered >= account.periodCost.totalMicros && metered <= HOUR + elapsed());
  const ofMachine = (await tenant.client.get(`/v1/machines/${machine}/usage`)).json.cost.totalMicros;
  assert.ok(ofMachine >= metered && ofMachine <= HOUR + elapsed());

  await advanced(tenant, first.to + GRACE_HOURS * HOUR);
  const final = await until(isFinal(tenant, first.id), { deadlineMs: 60_000 });
  assert.deepEqual(final.lines, grace.lines);
  assert.deepEqual([final.number, final.isTest], [null, true]);
  assert.ok(Date.parse(final.finalizedAt) >= first.to + GRACE_HOURS * HOUR);

  // To the end of the next month and its grace period, in one step.
  assert.equal((await tenant.client.post(`/v1/machines/${machine}/stop`)).status, 200);
  const before = cpuMs(await invoiceOf(tenant, second.id), second.id);
  await advanced(tenant, second.to + GRACE_HOURS * HOUR);
  const next = await until(isFinal(tenant, second.id), { deadlineMs: 60_000 });
  assert.equal(cpuMs(next, second.id), before, "a stopped machine is not billed");
  const ledger = (await tenant.client.get("/v1/billing/ledger")).json;
  assert.equal(ledger.at(-1).balanceMicros, -final.totalMicros - next.totalMicros);

  const other = await real.client.get("/v1/account");
  assert.ok(other.json.periodCost.totalMicros <= elapsed());
  assert.equal(other.json.testClock, null);
  assert.equal(
    (await real.client.get(`/v1/machines/${bystander}/usage`)).json.usage.totalUptimeSeconds * 1000 <= elapsed(),
    true,
  );
  assert.deepEqual(
    (await real.client.get("/v1/billing/invoices")).json.map((invoice: { status: string }) => invoice.status),
    ["draft"],
  );
  const numbered = await db.queryOne(sql`SELECT last_number::int AS last FROM invoice_counter`);
  assert.deepEqual(numbered, { last: 0 }, "no number is used up");
  await assertSound(db);
});

test("a price that is set for a later month applies once the clock is there, and one that is set afterwards from then on", async () => {
  const tenant = await makeTenant("prices");
  await startOne(tenant);
  const month = monthAfter(monthAt(Date.now()));
  const rate = (rateCpuHourMicros: number, activeFrom?: string) =>
    admin.post(`/v1/plans/${tenant.planId}/rates`, {
      rateCpuHourMicros,
      ...(activeFrom === undefined ? {} : { activeFrom }),
    });
  assert.equal((await rate(2 * HOUR, instantOf(month.from))).status, 201);
  const begun = Date.now();
  const elapsed = (): number => Date.now() - begun;
  await advanced(tenant, month.from + HOUR);
  const cost = async (): Promise<number> => (await tenant.client.get("/v1/account")).json.periodCost.totalMicros;
  await until(async () => (await cost()) >= 2 * HOUR, { deadlineMs: 60_000 });
  assert.ok((await cost()) <= 2 * (HOUR + elapsed()));
  // In real time this price begins in a minute, which for the tenant is long ago.
  assert.equal((await rate(5 * HOUR)).status, 201);
  const setMs = elapsed();
  assert.ok((await cost()) <= 2 * (HOUR + elapsed()), "what was used before keeps its price");
  await advanced(tenant, month.from + 3 * HOUR);
  // It begins a minute after it was set.
  const least = 2 * (HOUR + setMs + 60_000) + 5 * (2 * HOUR - setMs - 60_000);
  await until(async () => (await cost()) >= least, { deadlineMs: 60_000 });
  assert.ok((await cost()) <= 2 * (HOUR + 60_000) + 5 * (2 * HOUR - 60_000 + elapsed()));
  await assertSound(db);
});

test("a report that arrives after the invoice is final is an adjustment, at the time at which it was", async () => {
  const tenant = await makeTenant("late");
  const first = monthAt(Date.now());
  const at = Date.now();
  await advanced(tenant, first.to + GRACE_HOURS * HOUR);
  const final = await until(isFinal(tenant, first.id), { deadlineMs: 60_000 });
  assert.equal(final.totalMicros, 0);
  const started = Math.max(first.from, at - 5_000);
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    VALUES ('late-boot', 'late-machine', 'node-x', ${tenant.id}, 2, 1, ${instantOf(started)}, ${instantOf(started + 1_500)}, 'stop', now())`);
  const draft = await invoiceOf(tenant, monthAfter(first).id);
  assert.equal(cpuMs(draft, first.id), 3_000);
  assert.equal(draft.lines.find(({ meter }: { meter: string }) => meter === "cpu").kind, "adjustment");
  assert.deepEqual((await invoiceOf(tenant, first.id)).lines, []);
});

test("notices and the stop of a budget follow the clock", async () => {
  const budget = 100 * HOUR;
  const tenant = await makeTenant("spender", { budgetPolicy: "stop", monthlyBudgetMicros: budget });
  // From the start of a month, so that it does not end in between.
  const month = monthAfter(monthAt(Date.now()));
  await advanced(tenant, month.from);
  const machine = await startOne(tenant, 1);
  const messages = async (): Promise<readonly string[]> =>
    (await tenant.client.get("/v1/events")).json
      .filter(({ type }: { type: string }) => type === "tenant.budgetUsed")
      .map(({ message }: { message: string }) => message);
  await advanced(tenant, month.from + 80 * HOUR + 60_000);
  await until(async () => (await messages()).some((text) => text.startsWith("80 %")), { deadlineMs: 60_000 });
  await advanced(tenant, month.from + 100 * HOUR + 120_000);
  await until(async () => (await messages()).some((text) => text.startsWith("100 %")), { deadlineMs: 60_000 });
  const state = async () => (await tenant.client.get(`/v1/machines/${machine}`)).json.state;
  await until(async () => (await state()) === "stopped", { deadlineMs: 60_000 });
  const refused = await tenant.client.post(`/v1/machines/${machine}/start`);
  assert.equal(refused.status, 402, refused.text);
  assert.ok(refused.text.includes(instantOf(month.to)), "it names the next month of the tenant's time");
  await advanced(tenant, month.to + 1);
  assert.equal((await tenant.client.post(`/v1/machines/${machine}/start`)).status, 200);
});

test("only an operator moves a clock, only forward, and never that of a tenant without one", async (t) => {
  const tenant = await makeTenant("guarded");
  const real = await makeTenant("plain", { testClock: false });
  const path = `/v1/tenants/${tenant.id}/clock`;
  const later = instantOf(Date.now() + HOUR);
  assert.equal((await tenant.client.post(path, { to: later })).status, 403);
  assert.equal((await admin.post("/v1/tenants/none/clock", { to: later })).status, 404);
  const refused = await advance(real, Date.now() + HOUR);
  assert.deepEqual([refused.status, /has no test clock/.test(refused.text)], [400, true]);
  for (const to of ["tomorrow", "2026-02-30T00:00:00Z", instantOf(Date.now() - 1), "2999-01-01T00:00:00Z"])
    assert.equal((await admin.post(path, { to })).status, 400, to);
  for (const body of [{}, { to: 5 }, { to: "x".repeat(1000) }])
    assert.equal((await admin.post(path, body)).status, 422, JSON.stringify(body).slice(0, 40));
  const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
  const to = instantOf(Date.now() + 2 * HOUR);
  const moved = await runCli(t, ["tenant", "advance", tenant.id, "--to", to], { environment });
  assert.ok(Date.parse(String(moved.output).trim()) >= Date.parse(to), moved.errors);
  assert.equal((await advance(tenant, Date.now() + HOUR)).status, 400, "it does not go back");
  for (const statement of [
    sql`UPDATE tenants SET has_test_clock = true WHERE id = ${real.id}`,
    sql`UPDATE tenants SET has_test_clock = false, clock_ahead_ms = 0 WHERE id = ${tenant.id}`,
    sql`UPDATE tenants SET clock_ahead_ms = 1 WHERE id = ${tenant.id}`,
    sql`UPDATE tenants SET clock_ahead_ms = 1 WHERE id = ${real.id}`,
    sql`INSERT INTO clock_advances (tenant_id, active_from, advanced_at, ahead_ms) VALUES (${real.id}, now(), now(), 1)`,
    sql`UPDATE clock_advances SET ahead_ms = 1`,
  ])
    await assert.rejects(db.execute(statement), /test clock|only_test_clocks_move|never changed/, statement.text);
});

test("ten years at the highest price that is accepted are billed and shown to the micro", async () => {
  const price = { rateCpuHourMicros: 1_000_000_000, rateMemoryGbHourMicros: 0 };
  let [cpus, made] = [256, await admin.post("/v1/plans", { name: "dear", maxTotalCpus: 256, ...price })];
  while (made.status === 422) {
    cpus /= 2;
    made = await admin.post("/v1/plans", { name: "dear", maxTotalCpus: cpus, ...price });
  }
  const { id } = (await admin.post("/v1/tenants", { name: "dear", planId: made.json.id, testClock: true })).json;
  const client = admin.withKey((await admin.post("/v1/apikeys", { tenantId: id })).json.key);
  const tenant = { id, client, planId: made.json.id };
  for (let each = Math.min(64, cpus), left = cpus; left > 0; left -= each) await startOne(tenant, each);
  const begun = Date.now();
  const months = 117;
  let month = monthAt(begun);
  for (let count = 1; count < months; count += 1) month = monthAfter(month);
  await advanced(tenant, month.to + (GRACE_HOURS + 1) * HOUR);
  await until(isFinal(tenant, month.id), { deadlineMs: 60_000 });
  for (const path of ["/v1/account", "/v1/usage", "/v1/billing/ledger"]) {
    const answer = await client.get(path);
    assert.equal(answer.status, 200, answer.text);
  }
  for (const path of ["/v1/tenants", "/v1/billing/meters"]) assert.equal((await admin.get(path)).status, 200);
  const invoices = (await client.get("/v1/billing/invoices")).json as { status: string; totalMicros: number }[];
  const finals = invoices.filter(({ status }) => status === "finalized");
  const owed = finals.reduce((sum, { totalMicros }) => sum + BigInt(totalMicros), 0n);
  const ledger = (await client.get("/v1/billing/ledger")).json as { balanceMicros: number }[];
  assert.deepEqual([finals.length, BigInt(ledger.at(-1)?.balanceMicros ?? 0)], [months, -owed]);
  assert.ok(owed > BigInt(cpus) * 1_000_000_000n * 24n * 28n * BigInt(months - 1));
});
