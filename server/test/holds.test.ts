/**
 * Holds: what running machines may still cost is held of budgets that block or stop, to the micro. On the
 * statements and triggers of the server at chosen instants; then over HTTP, on two servers.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { runCli } from "../../cli/test/run-cli.ts";
import { type Queryable, sql, type Statement } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { openDatabase } from "../src/db/postgres.ts";
import { randomIds } from "../src/ids.ts";
import { createLog } from "../src/log.ts";
import { removeMachine } from "../src/machines/store.ts";
import { insertRate } from "../src/plans/rates-store.ts";
import { refuseOverBudget } from "../src/usage/budget.ts";
import { HOLD_MS, listHolds, readCommitment, readHeld, renewHolds } from "../src/usage/holds-store.ts";
import { readTenantUsage } from "../src/usage/intervals-store.ts";
import { listStoppable, readCeilings } from "../src/usage/store.ts";
import { costBreakdown, monthUpTo } from "../src/usage/usage.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";
import { startTestServer, freshDatabase } from "./support/server.ts";
import { TEST_JOIN_TOKEN } from "./support/node.ts";
import { until } from "../../test/support/until.ts";

const HOUR = 3_600_000;
const GIB = 1024;
const log = createLog("error");
const ids = randomIds(randomBytes);

/** What a machine costs for a time, rounded up for each of its two meters. Independent of the server. */
function price(ms: number, { cpus = 1, memoryMb = GIB, cpu = 0, memory = 0 }): number {
  const up = (amount: bigint, by: bigint): number => Number((amount + by - 1n) / by);
  return (
    up(BigInt(cpus) * BigInt(ms) * BigInt(cpu), BigInt(HOUR)) +
    up(BigInt(memoryMb) * BigInt(ms) * BigInt(memory), BigInt(HOUR) * 1024n)
  );
}

/** A database without a server, whose machines run and report as each test says. */
class Book {
  readonly db: Queryable & { close(): Promise<void> };
  #count = 0;

  constructor(connectionString: string) {
    this.db = openDatabase({ connection: { connectionString }, clock: systemClock, log });
  }

  context(now: number) {
    return { db: this.db as never, clock: { ...systemClock, now: () => now }, log, ids, randomBytes };
  }

  async plan(fields: { policy?: string; budget?: number | null; cpu?: number; memory?: number } = {}): Promise<string> {
    const { policy = "stop", budget = 10 ** 12, cpu = 0, memory = 0 } = fields;
    const id = `plan-${(this.#count += 1)}`;
    await this.db.execute(sql`
      INSERT INTO plans (id, name, budget_policy, max_apps, max_cpus, max_memory_mb, max_disk_gb, max_machines, max_concurrent_machines,
        max_total_cpus, max_total_memory_mb, max_total_disk_gb, rate_cpu_hour_micros, rate_memory_gb_hour_micros, monthly_budget_micros)
      VALUES (${id}, ${id}, ${policy}, 1, 99, 99999, 99, 99, 99, 99, 99999, 999, ${cpu}, ${memory}, ${budget})`);
    return id;
  }

  async tenant(planId: string): Promise<string> {
    const id = `tenant-${(this.#count += 1)}`;
    await this.db.execute(sql`INSERT INTO tenants (id, name, plan_id) VALUES (${id}, ${id}, ${planId})`);
    return id;
  }

  async node(at: number): Promise<string> {
    const id = `node-${(this.#count += 1)}`;
    await this.db.execute(sql`
      INSERT INTO nodes (id, address, status, credential_hash, registered_at, last_heartbeat_at)
      VALUES (${id}, 'node', 'ready', sha256(${id}::bytea), now(), ${instantOf(at)})`);
    return id;
  }

  heartbeat(node: string, at: number, status = "ready"): Promise<number> {
    return this.db.execute(sql`
      UPDATE nodes SET last_heartbeat_at = ${instantOf(at)}, status = ${status} WHERE id = ${node}`);
  }

  /** A stopped machine. */
  async machine(tenant: string, node: string, at: number, { cpus = 1, memoryMb = GIB } = {}): Promise<string> {
    const id = ids.make("machine");
    await this.db.execute(sql`
      INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
        is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state, observed_generation, revision, node_id)
      VALUES (${id}, ${tenant}, '{}', '{}', '{}', '[]', '{}', ${cpus}, ${memoryMb}, 1, false, false, false, ${instantOf(at)},
        ${instantOf(at)}, 'stopped', 1, ${instantOf(at)}, 'absent', 0, 1, ${node})`);
    return id;
  }

  /** As a start, a stop or a report of any server writes it. */
  #set(machine: string, at: number, what: Statement): Promise<number> {
    return this.db.execute(
      sql`UPDATE machines SET ${what}, updated_at = ${instantOf(at)}, revision = revision + 1 WHERE id = ${machine}`,
    );
  }

  start = (machine: string, at: number) =>
    this.#set(machine, at, sql`desired_state = 'running', generation = generation + 1`);
  stop = (machine: string, at: number) =>
    this.#set(machine, at, sql`desired_state = 'stopped', generation = generation + 1, observed_state = 'stopped'`);
  fail = (machine: string, at: number) =>
    this.#set(
      machine,
      at,
      sql`observed_state = 'failed', observed_reason = 'no image', observed_generation = generation`,
    );

  async run(machine: string, from: number, to: number | null = null): Promise<void> {
    await this.#set(machine, from, sql`observed_state = 'running', observed_generation = generation`);
    const [end, cause] = [instantOf(to), to === null ? null : "stop"];
    await this.db.execute(sql`
      INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
      SELECT ${`boot-${(this.#count += 1)}`}, id, node_id, tenant_id, cpus, memory_mb, ${instantOf(from)}::timestamptz, ${end}::timestamptz, ${cause}, now()
      FROM machines WHERE id = ${machine}`);
  }

  endRuns = (machine: string, at: number) =>
    this.db.execute(sql`
      UPDATE machine_runs SET ended_at = ${instantOf(at)}, end_cause = 'stop' WHERE machine_id = ${machine} AND ended_at IS NULL`);

  outcomes = async (machine: string): Promise<readonly (string | null)[]> =>
    (
      await this.db.query<{ outcome: string | null }>(sql`
      SELECT outcome FROM ledger_holds WHERE machine_id = ${machine} ORDER BY number`)
    ).map(({ outcome }) => outcome);

  /** The cost of the month, as /v1/account has it. */
  spent = async (tenantId: string, now: number): Promise<number> =>
    costBreakdown((await readTenantUsage(this.db, { tenantId, now, ...monthUpTo(now) })).lines).totalMicros;

  held = (tenantId: string, now: number): Promise<number> => readHeld(this.db, { tenantId, now });
}

const book = new Book(await freshDatabase());
const { db } = book;
test.after(() => db.close());
const NOON = Date.UTC(2026, 6, 10, 12);
const ODD = { cpu: 999_999_937, memory: 777_777_773 };

test("a start holds the next window at its rate, rounded up; it is posted when the machine ran, and voided when it did not", async () => {
  const tenant = await book.tenant(await book.plan(ODD));
  const node = await book.node(NOON);
  const size = { cpus: 3, memoryMb: 1001 };
  const ran = await book.machine(tenant, node, NOON, size);
  const failed = await book.machine(tenant, node, NOON, size);
  await book.start(ran, NOON);
  await book.start(failed, NOON);
  assert.equal(await book.held(tenant, NOON), 2 * price(HOLD_MS, { ...size, ...ODD }));
  assert.deepEqual(
    (await listHolds(db, tenant)).map(({ machineId, until: end, micros }) => [machineId, end - NOON, micros]),
    [ran, failed].map((id) => [id, HOLD_MS, price(HOLD_MS, { ...size, ...ODD })]),
  );
  await book.run(ran, NOON + 1_000);
  await book.fail(failed, NOON + 2_000);
  assert.deepEqual([await book.outcomes(ran), await book.outcomes(failed)], [[null], ["voided"]]);
  await book.endRuns(ran, NOON + 5_000);
  await book.stop(ran, NOON + 5_000);
  assert.deepEqual(await book.outcomes(ran), ["posted"]);
  assert.equal(await book.held(tenant, NOON + 5_000), 0);
  await book.start(ran, NOON + 6_000);
  assert.deepEqual(await book.outcomes(ran), ["posted", null], "each start has its own");
  for (const change of [
    sql`UPDATE ledger_holds SET outcome = 'posted' WHERE machine_id = ${failed}`,
    sql`UPDATE ledger_holds SET ended_at = NULL, outcome = NULL WHERE machine_id = ${failed}`,
    sql`UPDATE ledger_holds SET micros = 0 WHERE machine_id = ${failed}`,
    sql`UPDATE ledger_holds SET machine_id = 'other' WHERE machine_id = ${ran}`,
    sql`UPDATE ledger_holds SET outcome = 'posted' WHERE machine_id = ${ran}`,
    sql`DELETE FROM ledger_holds`,
    sql`TRUNCATE ledger_holds`,
    sql`INSERT INTO ledger_holds (tenant_id, machine_id, placed_at, held_from, held_until, micros) VALUES (${tenant}, ${ran}, now(), now(), now(), 1)`,
  ])
    await assert.rejects(db.execute(change), Error, change.text);
});

test("tenants without a budget that blocks or stops have no holds", async () => {
  const node = await book.node(NOON);
  for (const plan of [{ policy: "notify" }, { policy: "none" }, { policy: "stop", budget: null }]) {
    const tenant = await book.tenant(await book.plan({ ...plan, ...ODD }));
    const machine = await book.machine(tenant, node, NOON);
    await book.start(machine, NOON);
    await renewHolds(db, NOON + 30_000);
    assert.deepEqual(await book.outcomes(machine), [], JSON.stringify(plan));
  }
});

test("what is spent and held is never less than what is used when the window ends, and at most one period more", async () => {
  const tenant = await book.tenant(await book.plan(ODD));
  const node = await book.node(NOON);
  const machine = await book.machine(tenant, node, NOON, { cpus: 3, memoryMb: 1001 });
  await book.start(machine, NOON);
  await book.run(machine, NOON + 137);
  const month = monthUpTo(NOON + HOUR);
  for (let now = NOON; now < NOON + 200_000; now += 14_983) {
    await book.heartbeat(node, now - 71);
    await renewHolds(db, now);
    const { spent, held } = await readCommitment(db, { tenantId: tenant, now });
    assert.equal(spent, await book.spent(tenant, now), "the budget and the account agree");
    const [hold] = await listHolds(db, tenant);
    assert.ok(hold !== undefined && hold.until >= now + HOLD_MS - 10_000);
    // As if it ran on, and reported.
    await book.heartbeat(node, hold.until);
    const usage = await readTenantUsage(db, { tenantId: tenant, now: hold.until, ...month, to: hold.until });
    const used = costBreakdown(usage.lines).totalMicros;
    const slack = price(14_983 + 71, { cpus: 3, memoryMb: 1001, ...ODD }) + 4;
    assert.ok(used <= spent + held && spent + held <= used + slack, `${used} of ${spent} + ${held} at ${now - NOON}`);
  }
});

test("the overshoot is the rate for a window and each running machine, to the micro, when stops take a window longer", async () => {
  const [machines, cpus] = [3, 2];
  const rate = { cpus, cpu: 999_999_937 };
  const usedMs = 40_000;
  const exact = (ms: number): number =>
    Number((BigInt(machines * cpus) * BigInt(ms) * BigInt(rate.cpu)) / BigInt(HOUR));
  const node = await book.node(NOON);
  const fits = exact(usedMs) + machines * price(HOLD_MS, rate);
  for (const [budget, isRefused] of [
    [fits, false],
    [fits - 1, true],
  ] as const) {
    const plan = await book.plan({ cpu: rate.cpu, budget });
    const tenant = await book.tenant(plan);
    const ceilings = await readCeilings(db, tenant);
    const made = await Promise.all(Array.from({ length: machines }, () => book.machine(tenant, node, NOON, { cpus })));
    for (const machine of made) {
      await book.start(machine, NOON);
      await book.run(machine, NOON);
    }
    await book.heartbeat(node, NOON + usedMs);
    await renewHolds(db, NOON + usedMs);
    const refusal = refuseOverBudget(book.context(NOON + usedMs), tenant, ceilings);
    if (isRefused) await assert.rejects(refusal, /monthly budget.*: .* held for the next 60 s of running machines/);
    else if (budget === fits) await assert.rejects(refusal, /does not fit in the monthly budget/, "nothing is left");
    const last = { id: made[0] ?? "", cpus, memoryMb: GIB };
    const again = refuseOverBudget(book.context(NOON + usedMs), tenant, ceilings, last);
    await (isRefused ? assert.rejects(again) : again);
    // The windows end; then stops take one more window.
    await book.heartbeat(node, NOON + usedMs + HOLD_MS);
    assert.ok((await book.spent(tenant, NOON + usedMs + HOLD_MS)) <= budget + (isRefused ? 1 : 0));
    const late = NOON + usedMs + 2 * HOLD_MS;
    await book.heartbeat(node, late);
    const overshoot = (await book.spent(tenant, late)) - budget;
    assert.equal(overshoot, exact(usedMs + 2 * HOLD_MS) - budget);
    assert.ok(overshoot <= machines * price(HOLD_MS, rate) + (isRefused ? 1 : 0));
    for (const machine of made) await book.stop(machine, late);
  }
});

test("with `block` what runs continues: each window costs exactly its rate for each running machine more, and nothing else starts", async () => {
  const [machines, cpus] = [3, 2];
  const rate = { cpus, cpu: 999_999_937 };
  const budget = machines * price(HOLD_MS, rate);
  const exact = (ms: number): number =>
    Number((BigInt(machines * cpus) * BigInt(ms) * BigInt(rate.cpu)) / BigInt(HOUR));
  const node = await book.node(NOON);
  const tenant = await book.tenant(await book.plan({ policy: "block", cpu: rate.cpu, budget }));
  const ceilings = await readCeilings(db, tenant);
  const running = await Promise.all(Array.from({ length: machines }, () => book.machine(tenant, node, NOON, { cpus })));
  for (const machine of running) {
    await refuseOverBudget(book.context(NOON), tenant, ceilings, { id: machine, cpus, memoryMb: GIB });
    await book.start(machine, NOON);
    await book.run(machine, NOON);
  }
  const other = { id: await book.machine(tenant, node, NOON, { cpus }), cpus, memoryMb: GIB };
  for (let window = 1; window <= 5; window += 1) {
    const now = NOON + window * HOLD_MS;
    await book.heartbeat(node, now);
    await renewHolds(db, now);
    const { spent, held } = await readCommitment(db, { tenantId: tenant, now });
    assert.equal(spent - budget, exact(window * HOLD_MS) - budget);
    assert.ok(spent - budget <= (window - 1) * machines * price(HOLD_MS, rate));
    assert.equal(held, machines * price(HOLD_MS, rate));
    const stoppable = (await listStoppable(db, now)).map(({ tenantId }) => tenantId);
    assert.ok(!stoppable.includes(tenant), "no machine is to be stopped");
    await assert.rejects(refuseOverBudget(book.context(now), tenant, ceilings, other), /monthly budget/);
  }
  for (const machine of running) await book.stop(machine, NOON + 5 * HOLD_MS);
});

test("a silent node's hold covers what is not counted; one that is unreachable keeps its hold as it is, until the machine ends", async () => {
  const tenant = await book.tenant(await book.plan(ODD));
  const node = await book.node(NOON);
  const machine = await book.machine(tenant, node, NOON);
  await book.start(machine, NOON);
  await book.run(machine, NOON);
  await book.heartbeat(node, NOON + 20_000);
  await renewHolds(db, NOON + 50_000);
  assert.equal(await book.held(tenant, NOON + 50_000), price(30_000 + HOLD_MS, ODD), "from the last report on");
  await book.heartbeat(node, NOON + 20_000, "unreachable");
  await renewHolds(db, NOON + HOUR);
  assert.equal(await book.held(tenant, NOON + HOUR), price(30_000 + HOLD_MS, ODD));
  await removeMachine(book.context(NOON + HOUR), { tenantId: tenant, id: machine });
  assert.deepEqual([await book.outcomes(machine), await book.held(tenant, NOON + HOUR)], [["posted"], 0]);
});

test("a machine that is deleted while it runs or starts ends its hold", async () => {
  const tenant = await book.tenant(await book.plan(ODD));
  const node = await book.node(NOON);
  const [running, starting] = [await book.machine(tenant, node, NOON), await book.machine(tenant, node, NOON)];
  for (const machine of [running, starting]) await book.start(machine, NOON);
  await book.run(running, NOON + 10);
  for (const id of [running, starting]) await removeMachine(book.context(NOON + 1_000), { tenantId: tenant, id });
  assert.deepEqual([await book.outcomes(running), await book.outcomes(starting)], [["posted"], ["voided"]]);
});

test("a price that changes in the window is part of the hold, and a change of plan is within a renewal", async () => {
  const plan = await book.plan({ cpu: 1_000_003 });
  const other = await book.plan({ cpu: 7_000_001, policy: "block" });
  const free = await book.plan({ policy: "notify", cpu: 1 });
  const tenant = await book.tenant(plan);
  const node = await book.node(NOON);
  const machine = await book.machine(tenant, node, NOON);
  const prices = {
    rateCpuHourMicros: 5_000_011,
    rateMemoryGbHourMicros: 0,
    rateEgressGbMicros: 0,
    rateRegistryGbHourMicros: 0,
  };
  const rate = { ...prices, createdAt: NOON - HOUR, planId: plan };
  await insertRate(db, { ...rate, id: ids.make("rate"), activeFrom: NOON + 20_000 });
  await book.start(machine, NOON);
  assert.equal(await book.held(tenant, NOON), price(20_000, { cpu: 1_000_003 }) + price(40_000, { cpu: 5_000_011 }));
  const move = (to: string, at: number) =>
    db.execute(sql`UPDATE tenants SET plan_id = ${to}, updated_at = ${instantOf(at)} WHERE id = ${tenant}`);
  await book.heartbeat(node, NOON + 30_000);
  await move(other, NOON + 30_000);
  await renewHolds(db, NOON + 30_000);
  assert.equal(await book.held(tenant, NOON + 30_000), price(HOLD_MS, { cpu: 7_000_001 }));
  await move(free, NOON + 31_000);
  await renewHolds(db, NOON + 32_000);
  assert.deepEqual([await book.outcomes(machine), await book.held(tenant, NOON + 32_000)], [["voided"], 0]);
  await move(other, NOON + 33_000);
  await renewHolds(db, NOON + 34_000);
  assert.deepEqual(
    await book.outcomes(machine),
    ["voided", null],
    "what an older server or no budget left out is placed",
  );
});

test("a hold ends with its month, and the next month begins with its own", async () => {
  const plan = await book.plan({ cpu: 1_000_003 });
  const tenant = await book.tenant(plan);
  const end = Date.UTC(2026, 7, 1);
  const node = await book.node(end - 30_000);
  const machine = await book.machine(tenant, node, NOON);
  await book.start(machine, end - 20_000);
  assert.equal(await book.held(tenant, end - 20_000), price(20_000, { cpu: 1_000_003 }));
  await book.run(machine, end - 19_000);
  assert.equal(await book.held(tenant, end + 1), 0, "nothing of it is of the new month's budget");
  await book.heartbeat(node, end - 1_000);
  await renewHolds(db, end + 2_000);
  assert.equal(await book.held(tenant, end + 2_000), price(2_000 + HOLD_MS, { cpu: 1_000_003 }));
});

test("servers that renew, start and stop at the same time leave one hold for each active machine", async () => {
  const tenant = await book.tenant(await book.plan(ODD));
  const node = await book.node(NOON);
  const made = await Promise.all(Array.from({ length: 8 }, () => book.machine(tenant, node, NOON)));
  await Promise.all(
    Array.from({ length: 6 }, async (_, turn) => {
      const now = NOON + turn * 20_000;
      await book.heartbeat(node, now);
      await Promise.all([
        ...made.map((machine, at) => (at % 2 === turn % 2 ? book.start(machine, now) : book.stop(machine, now))),
        ...Array.from({ length: 3 }, () => renewHolds(db, now)),
      ]);
    }),
  );
  await renewHolds(db, NOON + HOUR);
  const wrong = await db.query(sql`
    SELECT m.id, m.is_active, count(h.number) FROM machines m LEFT JOIN ledger_holds h ON h.machine_id = m.id AND h.ended_at IS NULL
    WHERE m.tenant_id = ${tenant} GROUP BY 1, 2 HAVING count(h.number) <> m.is_active::int`);
  assert.deepEqual(wrong, []);
});

test("racing starts on two servers take as many windows as the budget has, and everybody sees what is held", async (t) => {
  const { server, client } = await startMachineServer();
  const replica = await startTestServer({ joinToken: TEST_JOIN_TOKEN, databaseUrl: server.databaseUrl });
  // One micro for a millisecond: three windows fit, and less than another one.
  const [rate, budget] = [{ rateCpuHourMicros: HOUR, rateMemoryGbHourMicros: 0 }, 4 * HOLD_MS - 1];
  const fast = { rateRequestsPerSecond: 1_000, rateBurst: 1_000 };
  const plan = { name: "three windows", budgetPolicy: "block", monthlyBudgetMicros: budget, ...rate, ...fast };
  const planId = (await client.post("/v1/plans", plan)).json.id;
  const tenantId = (await client.post("/v1/tenants", { name: "racing", planId, testClock: true })).json.id;
  // Neither the end of a month nor the one of an hour is near.
  const to = instantOf(Date.UTC(new Date().getUTCFullYear() + 1, 0, 10));
  assert.equal((await client.post(`/v1/tenants/${tenantId}/clock`, { to })).status, 200);
  const key = (await client.post("/v1/apikeys", { tenantId })).json.key;
  const mine = client.withKey(key);
  const theirs = Object.assign(client.withKey(key), { url: replica.url });
  const size = { resources: { cpus: 1 } };
  const made = await Promise.all(Array.from({ length: 12 }, () => createMachine(mine, size)));
  const answers = await Promise.all(
    made.map((id, at) => (at % 2 === 0 ? mine : theirs).post(`/v1/machines/${id}/start`)),
  );
  const started = answers.filter(({ status }) => status === 200);
  assert.equal(started.length, 3, answers.map(({ status, text }) => `${status} ${text}`).join("\n"));
  for (const { status, text } of answers.filter((answer) => !started.includes(answer))) {
    assert.equal(status, 402, text);
    assert.match(
      text,
      /^a start does not fit in the monthly budget: your three windows plan has a budget of 0\.239999, and 0\.\d+ are used, with 0\.\d+ held/,
    );
    assert.match(text, /; a start needs 0\.06; ask the operator/);
  }
  const account = (await mine.get("/v1/account")).json;
  assert.ok(account.heldMicros >= 3 * HOLD_MS && account.heldMicros < budget, String(account.heldMicros));
  const ledger = (await mine.get("/v1/billing/ledger")).json as {
    kind: string;
    entries: { account: string; micros: number }[];
  }[];
  const holds = ledger.filter(({ kind }) => kind === "hold");
  assert.equal(holds.length, 3);
  const entries = ledger.flatMap((transaction) => transaction.entries);
  assert.equal(
    entries.reduce((sum, { micros }) => sum + micros, 0),
    0,
  );
  const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: key };
  assert.match(
    String((await runCli(t, ["billing", "ledger"], { environment })).output),
    /hold +0\.06\d* +0\.00 +machine mach-/,
  );
  assert.match(
    String((await runCli(t, ["account"], { environment })).output),
    /0\.18\d* of it held for running machines \(policy: block\)/,
  );
  const first = made.filter((_, at) => answers[at]?.status === 200)[0] ?? "";
  assert.equal((await mine.post(`/v1/machines/${first}/stop`)).status, 200);
  const heldNow = async (): Promise<number> =>
    (await mine.get("/v1/billing/ledger")).json.filter(({ kind }: { kind: string }) => kind === "hold").length;
  await until(async () => (await heldNow()) === 2, { what: "the hold of the stopped machine to end" });
});
