/**
 * What is recorded as used, and what it costs: compared with sums that are computed here from the history
 * itself.
 *
 * The histories write runs, machines, plans and rates as the server's statements do, at chosen instants.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { writeActivity } from "../src/machines/activity-store.ts";
import { eachUsageOf, readMachineUsage, readTenantUsage } from "../src/usage/intervals-store.ts";
import { costBreakdown, METERS, type Meter, type Usage } from "../src/usage/usage.ts";
import { monthAfter, monthAt, type Month } from "../src/billing/month.ts";
import { computeLines, finalizeInvoices, type LineRow, listFinalLines } from "../src/billing/store.ts";
import { assertSound } from "./support/sound.ts";
import { startTestServer } from "./support/server.ts";
import { countStatements } from "./support/statements.ts";
import { History, type Priced, type Span } from "./support/usage-history.ts";
import { until } from "../../test/support/until.ts";

const HOUR = 3_600_000;
// Its own loop would make invoices of the histories, which are in the past, final.
const server = await startTestServer({ invoiceGraceHours: 1_000_000 });
const { db, ids } = server.context;
const admin = server.client;

const amountOf = (usage: Usage, meter: Meter): bigint =>
  usage.lines.reduce((sum, line) => (line.meter === meter ? sum + line.amount : sum), 0n);

/** Plays random lives of machines and prices on the database, and compares along the way. */
class Play {
  readonly history = new History();
  readonly live: string[] = [];
  readonly running: { boot: string; machine: string; spans: Span[] }[] = [];
  readonly draw: (max: number) => number;
  now: number;
  private plan = "";
  private readonly node = ids.make("machine");
  private isSilent = false;
  /** The month of each tenant's next invoice. */
  private readonly next = new Map<string, Month>();

  constructor(draw: (max: number) => number) {
    this.draw = draw;
    this.now = Date.UTC(2026, 0, 31, 22) + draw(4 * HOUR);
  }

  async begin(): Promise<void> {
    await db.execute(sql`
      INSERT INTO nodes (id, address, status, credential_hash, registered_at)
      VALUES (${this.node}, 'node', 'ready', sha256(${this.node}::text::bytea), now())`);
    await this.beat();
    for (let count = 0; count < 2; count += 1) await this.makePlan(false);
    for (let count = 0; count < 2; count += 1) {
      const id = ids.make("tenant");
      const at = instantOf(this.now);
      await db.execute(sql`INSERT INTO tenants (id, name, plan_id, created_at, updated_at)
        VALUES (${id}, ${id}, ${this.plan}, ${at}, ${at})`);
      this.history.tenants.set(id, [{ from: 0, plan: this.plan }]);
      this.next.set(id, monthAt(this.now));
    }
  }

  async step(): Promise<void> {
    this.now +=
      2 + this.draw(this.draw(4) === 0 ? 30 * HOUR : HOUR) + (this.draw(12) === 0 ? this.draw(500 * HOUR) : 0);
    if (!this.isSilent) await this.beat();
    const actions = [
      () => this.makeMachine(),
      () => this.start(),
      () => this.start(),
      () => this.end(),
      () => this.end(),
      () => this.reportLate(),
      () => this.send(),
      () => this.remove(),
      () => this.movePlan(),
      () => this.setRate(),
      () => this.invoice(),
      () => this.beSilent(),
    ];
    await actions[this.draw(actions.length)]?.();
  }

  async compare(): Promise<void> {
    const month = Date.UTC(2026, 1 + this.draw(2), 1);
    const periods = [
      { from: 0, to: this.now },
      { from: month, to: Math.max(month, this.now) },
      { from: this.now - this.draw(100 * HOUR), to: this.now - this.draw(HOUR) },
    ];
    const all = new Map<string, Usage>();
    const tenantIds = [...this.history.tenants.keys()];
    for await (const usage of eachUsageOf(db, { tenantIds, from: 0, to: this.now, now: this.now }))
      all.set(usage.tenantId, usage);
    for (const tenantId of this.history.tenants.keys()) {
      for (const period of periods.filter(({ from, to }) => from <= to)) {
        const usage = await readTenantUsage(db, { tenantId, now: this.now, ...period });
        for (const meter of METERS)
          assert.equal(
            amountOf(usage, meter),
            this.history.amount(tenantId, meter, { ...period, now: this.now }),
            meter,
          );
        const { cpuMicros, memoryMicros, egressMicros } = costBreakdown(usage.lines);
        const expected = this.history.cost(tenantId, period.from, period.to, this.now);
        assert.deepEqual(
          [BigInt(cpuMicros), BigInt(memoryMicros), BigInt(egressMicros)],
          [expected.cpu, expected.memory, expected.egress],
        );
        if (period.from === 0) assert.deepEqual(all.get(tenantId)?.lines ?? [], usage.lines);
      }
    }
  }

  private async makePlan(isDefault: boolean): Promise<void> {
    const id = ids.make("plan");
    const [cpu, memory, egress] = [this.draw(100_000), this.draw(100_000), this.draw(100_000)];
    const answer = await admin.post("/v1/plans", {
      ...{
        id,
        name: id,
        isDefault,
        rateCpuHourMicros: cpu,
        rateMemoryGbHourMicros: memory,
        rateEgressGbMicros: egress,
      },
    });
    assert.equal(answer.status, 201, answer.text);
    this.history.plans.set(id, { id, rates: [{ from: 0, cpu, memory, egress }] });
    this.plan = id;
  }

  private pick<T>(items: readonly T[]): T | undefined {
    return items[this.draw(items.length)];
  }

  private async makeMachine(): Promise<void> {
    const [id, tenant] = [ids.make("machine"), this.pick([...this.history.tenants.keys()])];
    if (tenant === undefined) return;
    const [cpus, memory, disk] = [1 + this.draw(8), 1 + this.draw(8192), 1 + this.draw(100)];
    await db.execute(sql`
      INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
        is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state, observed_generation, revision, node_id)
      SELECT ${id}, ${tenant}, '{}', '{}', '{}', '[]', '{}', ${cpus}::int, ${memory}::int, ${disk}::int, false, false, false,
        at, at, 'stopped', 1, at, 'absent', 0, 1, ${this.node} FROM (SELECT ${instantOf(this.now)}::timestamptz AS at) AS given`);
    this.history.spans.push({ machine: id, tenant, meter: "disk", quantity: disk, from: this.now, to: null });
    this.live.push(id);
  }

  /** Writes a run as the server does when a report names one, with its end if it has ended. */
  private async write(machine: string, from: number, to: number | null): Promise<{ boot: string; spans: Span[] }> {
    const boot = ids.make("event");
    const sent = to === null ? 0 : this.draw(3 * 2 ** 30);
    const row = await db.queryOne<{ tenant: string; cpus: number; memory: number }>(sql`
      WITH m AS (SELECT * FROM machines WHERE id = ${machine}),
      run AS (
        INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at,
          egress_bytes, egress_at)
        SELECT ${boot}, id, 'node-x', tenant_id, cpus, memory_mb, ${instantOf(from)}::timestamptz, ${instantOf(to)}::timestamptz,
          ${to === null ? null : "stop"}, ${instantOf(this.now)}::timestamptz, ${sent}::bigint, ${instantOf(this.now)}::timestamptz FROM m)
      SELECT tenant_id AS tenant, cpus, memory_mb AS memory FROM m`);
    assert.ok(row !== undefined);
    const span = (meter: Meter, quantity: number): Span => ({ machine, tenant: row.tenant, meter, quantity, from, to });
    const spans = [span("uptime", 1), span("cpu", row.cpus), span("memory", row.memory)];
    this.history.spans.push(...spans);
    if (sent > 0) this.noteSent({ machine, tenant: row.tenant, quantity: sent, from: to ?? from });
    return { boot, spans };
  }

  /** What was sent counts when the server learns of it, at the latest at the end of the run. */
  private noteSent(sent: Omit<Span, "meter" | "to">): void {
    this.history.spans.push({ ...sent, meter: "egress", to: sent.from + 1 });
  }

  /** A node says what a run has sent so far, and repeats it. */
  private async send(): Promise<void> {
    const run = this.pick(this.running);
    const [first] = run?.spans ?? [];
    if (run === undefined || first === undefined) return;
    const quantity = 1 + this.draw(2 ** 31);
    const before = await db.queryOne<{ bytes: number }>(
      sql`SELECT egress_bytes AS bytes FROM machine_runs WHERE boot_id = ${run.boot}`,
    );
    for (let count = 0; count < 2; count += 1)
      await db.execute(sql`
        UPDATE machine_runs SET egress_bytes = ${(before?.bytes ?? 0) + quantity}::bigint, egress_at = ${instantOf(this.now)}::timestamptz
        WHERE boot_id = ${run.boot}`);
    this.noteSent({ machine: run.machine, tenant: first.tenant, quantity, from: Math.max(first.from, this.now) });
  }

  private async start(): Promise<void> {
    const machine = this.pick(this.live);
    if (machine === undefined || this.running.some((run) => run.machine === machine)) return;
    const from = Math.max(this.lastEnd(machine), this.now - this.draw(2000));
    this.running.push({ machine, ...(await this.write(machine, from, null)) });
  }

  private async end(): Promise<void> {
    const [run] = this.running.splice(this.draw(this.running.length), 1);
    if (run === undefined) return;
    const at = Math.max(run.spans[0]?.from ?? 0, this.now - this.draw(3 * HOUR));
    // Twice, as a report that is repeated.
    for (let count = 0; count < 2; count += 1)
      await db.execute(sql`
        UPDATE machine_runs SET ended_at = ${instantOf(at)}::timestamptz, end_cause = 'stop' WHERE boot_id = ${run.boot} AND ended_at IS NULL`);
    for (const span of run.spans) span.to = at;
  }

  private async reportLate(): Promise<void> {
    const machine = this.pick(this.live);
    if (machine === undefined || this.running.some((run) => run.machine === machine)) return;
    const to = this.now - this.draw(HOUR);
    const from = Math.max(this.lastEnd(machine), to - this.draw(40 * HOUR));
    if (from < to) await this.write(machine, from, to);
  }

  /** Runs of a machine do not overlap. */
  private lastEnd(machine: string): number {
    const runs = this.history.spans.filter((span) => span.machine === machine && span.meter === "uptime");
    return Math.max(0, ...runs.map(({ to }) => to ?? this.now));
  }

  private async remove(): Promise<void> {
    const machine = this.pick(this.live);
    if (machine === undefined || this.running.some((run) => run.machine === machine)) return;
    const at = instantOf(this.now);
    await db.execute(sql`UPDATE machines SET desired_state = 'absent', deleted_at = ${at} WHERE id = ${machine}`);
    if (this.draw(2) === 0) await db.execute(sql`DELETE FROM machines WHERE id = ${machine}`);
    this.live.splice(this.live.indexOf(machine), 1);
    for (const span of this.history.spans) if (span.machine === machine && span.meter === "disk") span.to = this.now;
  }

  private async beat(): Promise<void> {
    this.history.heartbeat = this.now;
    await db.execute(sql`UPDATE nodes SET last_heartbeat_at = ${instantOf(this.now)} WHERE id = ${this.node}`);
  }

  private async beSilent(): Promise<void> {
    this.isSilent = !this.isSilent;
    if (!this.isSilent) await this.beat();
  }

  /**
   * Compares the draft with the history, and makes it final if its month has ended: without a grace period.
   */
  private async invoice(): Promise<void> {
    const tenantId = this.pick([...this.history.tenants.keys()]) ?? "";
    const month = this.next.get(tenantId);
    if (month === undefined) return;
    const expected = this.history.nextInvoice(tenantId, month, this.now);
    const draft = await computeLines(db, { tenantId, month, now: this.now, knownAt: null });
    assert.deepEqual(await this.named(draft), sortedLines(expected));
    if (month.to > this.now) return;
    assert.equal(await finalizeInvoices(db, { tenantIds: [tenantId], month, now: this.now }), 1);
    this.history.noteInvoice(tenantId, month, this.now);
    this.next.set(tenantId, monthAfter(month));
    const lines = await listFinalLines(db, tenantId, month);
    assert.deepEqual(await this.named(lines), sortedLines(expected));
  }

  /** Lines as the history names them. */
  private async named(lines: readonly LineRow[]): Promise<object> {
    const named = new Map<string, Priced>();
    for (const { usageMonth, meter, rateId, amount, micros } of lines) {
      const rate = await db.queryOne<{ plan: string; at: number }>(sql`
        SELECT plan_id AS plan, (SELECT count(*) FROM rates o WHERE o.plan_id = r.plan_id AND o.active_from < r.active_from)::int AS at
        FROM rates r WHERE id = ${rateId}`);
      named.set(`${usageMonth} ${meter} ${rate?.plan} ${rate?.at}`, { amount: BigInt(amount), micros: BigInt(micros) });
    }
    return sortedLines(named);
  }

  private async movePlan(): Promise<void> {
    const [tenant, plan] = [this.pick([...this.history.tenants.keys()]), this.pick([...this.history.plans.keys()])];
    if (tenant === undefined || plan === undefined) return;
    const moves = this.history.tenants.get(tenant);
    if (moves?.at(-1)?.plan === plan) return;
    await db.execute(
      sql`UPDATE tenants SET plan_id = ${plan}, updated_at = ${instantOf(this.now)} WHERE id = ${tenant}`,
    );
    moves?.push({ from: this.now, plan });
  }

  /** From an instant on that is still to come, as the API asks for. */
  private async setRate(): Promise<void> {
    const plan = this.pick([...this.history.plans.values()]);
    const from = this.now + 60_000 + this.draw(20 * HOUR);
    if (plan === undefined || (plan.rates.at(-1)?.from ?? 0) >= from) return;
    const [cpu, memory, egress] = [this.draw(100_000), this.draw(100_000), this.draw(100_000)];
    await db.execute(sql`
      INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, egress_gb_micros, created_at)
      VALUES (${plan.id}, ${instantOf(from)}, ${cpu}, ${memory}, ${egress}, ${instantOf(this.now)})`);
    plan.rates.push({ from, cpu, memory, egress });
  }
}

const sortedLines = (lines: ReadonlyMap<string, Priced>): object =>
  Object.fromEntries([...lines].toSorted(([one], [other]) => (one < other ? -1 : 1)));

test("after any history of machines, plans and prices every sum and cost is what the history says, to the micro", async () => {
  await fc.assert(
    fc.asyncProperty(fc.infiniteStream(fc.nat(2 ** 30)), async (stream) => {
      const play = new Play((max) => (max <= 0 ? 0 : (stream.next().value as number) % max));
      await play.begin();
      for (let steps = 0; steps < 60; steps += 1) {
        await play.step();
        if (steps % 12 === 11) await play.compare();
      }
      await assertSound(db);
    }),
    { numRuns: Number(process.env["FLOTILLA_TEST_DEEP_HISTORIES"] ?? 6) },
  );
});

test("the database refuses what is used twice, and a change of what was recorded", async () => {
  const rate = await db.queryOne<{ id: string }>(sql`SELECT id FROM rates LIMIT 1`);
  const insert = (boot: string, from: string, to: string | null) =>
    db.execute(sql`
      INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id)
      VALUES ('tenant-x', 'mach-x', ${boot}, 'cpu', 1, ${from}, ${to}, ${rate?.id})`);
  await insert("boot-a", "2026-07-01T00:00:00Z", "2026-07-01T01:00:00Z");
  await insert("boot-a", "2026-07-01T01:00:00Z", null);
  await assert.rejects(insert("boot-a", "2026-07-01T00:59:59.999Z", "2026-07-01T01:00:00Z"), /nothing_twice/);
  await assert.rejects(insert("boot-a", "2026-08-01T00:00:00Z", null), /nothing_twice/);
  const closed = sql`machine_id = 'mach-x' AND ended_at IS NOT NULL`;
  await assert.rejects(db.execute(sql`UPDATE usage_intervals SET quantity = 2 WHERE ${closed}`), /never changed/);
  await assert.rejects(db.execute(sql`DELETE FROM usage_intervals WHERE ${closed}`), /never changed/);
  await assert.rejects(db.execute(sql`UPDATE rates SET cpu_hour_micros = 0`), /never changed/);
  await assert.rejects(db.execute(sql`DELETE FROM tenant_plans`), /never changed/);
  await assert.rejects(db.execute(sql`TRUNCATE rates CASCADE`), /never changed/);
  await assert.rejects(db.execute(sql`TRUNCATE usage_attributions CASCADE`), /never changed/);
});

test("an interval of a price or an attribution that does not exist is refused, also among others, and when it is ended", async () => {
  const insert = (rates: readonly string[], attribution: number | null) =>
    db.execute(sql`
      INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, rate_id)
      SELECT 'tenant-r', 'mach-r', 'boot-' || r, ${attribution}::bigint, 'uptime', 1, now(), r FROM unnest(${rates}::text[]) r`);
  const known = (await db.queryOne<{ id: string }>(sql`SELECT id FROM rates LIMIT 1`))?.id ?? "";
  await assert.rejects(insert([known, "rate-none"], null), /names a rate that does not exist/);
  await assert.rejects(insert([known], 1_000_000_000), /names an attribution that does not exist/);
  assert.equal(await insert([known], null), 1);
  const own = sql`machine_id = 'mach-r'`;
  await assert.rejects(db.execute(sql`UPDATE usage_intervals SET rate_id = 'rate-none' WHERE ${own}`), /names a rate/);
  assert.equal((await db.query(sql`SELECT FROM usage_intervals WHERE ${own}`)).length, 1);
});

test("what a new interval refers to is looked up by its key, also if its plan was made when there were few attributions", async () => {
  const read = await db.transaction(async (transaction) => {
    const add = (from: number, to: number) =>
      transaction.execute(sql`
        INSERT INTO usage_attributions (machine_id, labels, labels_hash)
        SELECT 'mach-k-' || n, '{}', sha256('{}') FROM generate_series(${from}::int, ${to}::int) n`);
    const begin = (machine: string) =>
      transaction.execute(sql`
        INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, rate_id)
        SELECT 'tenant-k', a.machine_id, a.machine_id, a.id, 'uptime', 1, now(), (SELECT id FROM rates LIMIT 1)
        FROM usage_attributions a WHERE a.machine_id = ${machine}`);
    const seen = sql`SELECT seq_tup_read AS count FROM pg_stat_xact_user_tables WHERE relname = 'usage_attributions'`;
    const count = async () => (await transaction.queryOne<{ count: number }>(seen))?.count ?? 0;
    await add(1, 1);
    await transaction.execute(sql`ANALYZE usage_attributions`);
    assert.equal(await begin("mach-k-1"), 1);
    await add(2, 2_000);
    const before = await count();
    assert.equal(await begin("mach-k-2000"), 1);
    return (await count()) - before;
  });
  assert.equal(read, 0);
});

test("a run is recorded with what is looked up by its machine, also if the plans for it were made when there were few", async () => {
  const { id: tenant } = (await admin.post("/v1/tenants", { name: "grower" })).json;
  const read = await db.transaction(async (transaction) => {
    const add = (from: number, to: number) =>
      transaction.execute(sql`
        INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
          is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state, observed_generation, revision)
        SELECT 'mach-' || lpad(n::text, 32, '0'), ${tenant}, '{}', '{}', '{}', '[]', '{}', 1, 1, 1, false, false, false,
          now() - interval '1 hour', now(), 'stopped', 1, now(), 'absent', 0, 1 FROM generate_series(${from}::int, ${to}::int) n`);
    const record = (machine: number) =>
      transaction.execute(sql`
        INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
        SELECT 'boot-' || kind || ${machine}::int, 'mach-' || lpad(${String(machine)}, 32, '0'), 'node-g', ${tenant}, 1, 1, start_at,
          end_at, CASE kind WHEN 'ended' THEN 'stop' END, now()
        FROM (VALUES ('ended', now() - interval '1 minute', now()), ('open', now(), NULL)) AS r(kind, start_at, end_at)`);
    const seen = sql`
      SELECT sum(seq_tup_read)::int AS count FROM pg_stat_xact_user_tables WHERE relname IN ('machines', 'usage_attributions')`;
    const count = async () => (await transaction.queryOne<{ count: number }>(seen))?.count ?? 0;
    await add(1, 10);
    await transaction.execute(sql`ANALYZE machines, usage_attributions`);
    // PostgreSQL keeps the plan of a statement from the sixth time on.
    for (let machine = 1; machine <= 10; machine += 1) await record(machine);
    await add(11, 2_000);
    const before = await count();
    assert.equal(await record(2_000), 2);
    return (await count()) - before;
  });
  assert.equal(read, 0);
});

test("a change of plan waits for what is being recorded, and begins after it, whatever the clocks say", async () => {
  const { id: tenant } = (await admin.post("/v1/tenants", { name: "mover" })).json;
  const plan = (await admin.post("/v1/plans", { name: "moves" })).json.id;
  const end = Date.now() - 1_000;
  const move = { isDone: false };
  let moved: Promise<unknown> = Promise.resolve();
  await db.transaction(async (transaction) => {
    await transaction.execute(sql`
      INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
      VALUES ('boot-mover', 'mach-mover', 'node-x', ${tenant}, 1, 1, ${instantOf(end - 10_000)}, ${instantOf(end)}, 'stop', now())`);
    moved = db
      .execute(sql`UPDATE tenants SET plan_id = ${plan}, updated_at = ${instantOf(end - 500)} WHERE id = ${tenant}`)
      .then(() => Object.assign(move, { isDone: true }));
    await until(async () => move.isDone || (await db.query(sql`SELECT FROM pg_locks WHERE NOT granted`)).length > 0);
  });
  await moved;
  const [before, after, ...more] = await db.query<{ at: Date }>(sql`
    SELECT active_from AS at FROM tenant_plans WHERE tenant_id = ${tenant} ORDER BY 1`);
  assert.deepEqual([before?.at.getTime(), after?.at.getTime(), more.length], [0, end, 0]);
});

test("account, usage, meters and machine usage say the same of the same time", async () => {
  const made = await admin.post("/v1/tenants", { name: "payer" });
  const tenantId: string = made.json.id;
  const key = await admin.post("/v1/apikeys", { tenantId });
  const payer = admin.withKey(key.json.key);
  const machine = await payer.post("/v1/machines", {
    source: { type: "image", reference: "local/busybox" },
    resources: { cpus: 2, memoryMb: 3000 },
  });
  const from = Date.now() - 7_654;
  await db.execute(sql`
    INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
    SELECT id, ${instantOf(from - 1000)}, 1234567, 7654321, now() FROM plans WHERE is_default`);
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    VALUES ('boot-payer', ${machine.json.id}, 'node-x', ${tenantId}, 2, 3000, ${instantOf(from)}, ${instantOf(from + 7_001)}, 'stop', now())`);
  const expected = {
    cpu: Math.floor((7_001 * 2 * 1_234_567) / HOUR),
    memory: Math.floor((7_001 * 3000 * 7_654_321) / HOUR / 1024),
  };
  const account = (await payer.get("/v1/account")).json;
  const usage = (await payer.get(`/v1/usage?from=${encodeURIComponent(instantOf(from - 1000))}`)).json;
  const meters = (await admin.get("/v1/billing/meters")).json as { tenantId: string; cost: object; cpuHours: number }[];
  const meter = meters.find((each) => each.tenantId === tenantId);
  const ofMachine = (await payer.get(`/v1/machines/${machine.json.id}/usage`)).json;
  const { cpuMicros, memoryMicros, totalMicros } = account.periodCost;
  assert.deepEqual(
    [cpuMicros, memoryMicros, totalMicros],
    [expected.cpu, expected.memory, expected.cpu + expected.memory],
  );
  assert.deepEqual(meter?.cost, account.periodCost);
  assert.deepEqual(ofMachine.cost, account.periodCost);
  for (const cpuHours of [usage.cpuHours, meter?.cpuHours, ofMachine.usage.cpuHours])
    assert.equal(cpuHours, account.periodUsage.cpuHours);
  assert.deepEqual([usage.totalUptimeSeconds, usage.machineCount, usage.tenantId], [7, 1, tenantId]);
  assert.equal(account.status, "active");
  const usagePath = `/v1/machines/${machine.json.id}/usage`;
  const second = { from: instantOf(from + 1_000), to: instantOf(from + 2_000) };
  const part = (await payer.get(`${usagePath}?${new URLSearchParams(second)}`)).json;
  assert.deepEqual([part.from, part.to, part.usage.totalUptimeSeconds], [second.from, second.to, 1]);
  assert.equal(part.cost.cpuMicros, Math.floor((1_000 * 2 * 1_234_567) / HOUR));
  const lost = await payer.get(`${usagePath}?${new URLSearchParams({ from: second.to, to: second.from })}`);
  assert.equal(lost.status, 400);
  assert.match(lost.text, /is later than to/);
  assert.equal(account.plan.name, "default");
  assert.equal((await payer.get("/v1/billing/meters")).status, 403);
});

test("the money fields that existing clients read are numbers, also those without a price", async () => {
  const { plan, periodCost, lowBalanceThresholdMicros } = (await admin.get("/v1/account")).json;
  const { id } = (await admin.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } })).json;
  const ofMachine = (await admin.get(`/v1/machines/${id}/usage`)).json.cost;
  const ofDeleted = (await admin.call("DELETE", `/v1/machines/${id}?includeUsage=true`)).json.cost;
  const lines = ["cpu", "memory", "exec", "disk", "egress", "base", "total", "amountDue"];
  const others = ["creditApplied", "freeCredit", "volumeDiscount", "monthlyFee"];
  for (const cost of [periodCost, ofMachine, ofDeleted])
    for (const name of [...lines, ...others])
      assert.ok(Number.isSafeInteger(cost[`${name}Micros`]), `${name}: ${JSON.stringify(cost)}`);
  for (const name of ["rateBaseHour", "rateDiskGbHour", "rateEgressGb", "freeCredit", "monthlyFee"])
    assert.equal(plan[`${name}Micros`], 0, name);
  assert.equal(lowBalanceThresholdMicros, 0);
});

test("a command counts in the range in which it ended, and ranges that follow each other add up", async () => {
  const { id } = (await admin.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } })).json;
  const day = Date.UTC(2020, 1, 29);
  const at = (minutes: number) => ({ at: day + minutes * 60_000, exitCode: 0, durationMs: 1000 });
  for (const execs of [[at(0), at(990.5), at(990.99), at(991)], [at(990)], [at(1035)]])
    await writeActivity(server.context, { activity: [{ machineId: id, at: day, execs }], lines: [] });
  const used = async (from: number, to: number): Promise<readonly number[]> => {
    const query = new URLSearchParams({ from: instantOf(at(from).at), to: instantOf(at(to).at) });
    const { execCount, execDurationMs } = (await admin.get(`/v1/usage?${query}`)).json;
    return [execCount, execDurationMs];
  };
  assert.deepEqual(await used(0, 990), [1, 1000]);
  assert.deepEqual(await used(990, 991), [3, 3000]);
  assert.deepEqual(await used(990, 1035), [4, 4000]);
  assert.deepEqual(await used(0, 1035), [5, 5000]);
  assert.deepEqual(await used(1036, 2000), [0, 0]);
});

test("meters and the comparison of prices read the usage of some tenants at a time, however many there are", async () => {
  const from = monthAt(monthAt(Date.now()).from - 1).from;
  const planId = (await admin.post("/v1/plans", { name: "many", rateCpuHourMicros: HOUR, rateMemoryGbHourMicros: 0 }))
    .json.id;
  await db.execute(sql`
    INSERT INTO tenants (id, name, plan_id, created_at, updated_at)
    SELECT 'many-' || n, 'many-' || n, ${planId}, ${instantOf(from)}, ${instantOf(from)} FROM generate_series(1, 250) n`);
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    SELECT 'many-boot-' || n || m, 'many-machine-' || n, 'node-x', 'many-' || n, 1, 1, ${instantOf(from)}::timestamptz + m * interval '2 s',
      ${instantOf(from)}::timestamptz + m * interval '2 s' + n * interval '1 ms', 'stop', now()
    FROM generate_series(1, 250) n CROSS JOIN generate_series(1, 2) m`);
  let answer = await admin.get("/v1/billing/meters");
  const tenants = answer.json.length as number;
  const read = /FROM usage_intervals/;
  const meters = await countStatements(db, async () => (answer = await admin.get("/v1/billing/meters")), read);
  assert.deepEqual([answer.status, answer.json.length, meters], [200, tenants, Math.ceil(tenants / 100)]);
  const diff = await countStatements(
    db,
    async () => (answer = await admin.get(`/v1/billing/plans/${planId}/diff?rateCpuHourMicros=${2 * HOUR}`)),
    read,
  );
  assert.equal(diff, 3);
  const costs = (answer.json.tenants as { tenantId: string; micros: number; differenceMicros: number }[]).map(
    ({ tenantId, micros, differenceMicros }) => [tenantId, micros, differenceMicros],
  );
  const expected = Array.from({ length: 250 }, (_, index) => [`many-${index + 1}`, 2 * (index + 1), 2 * (index + 1)]);
  assert.deepEqual(
    costs,
    expected.toSorted(([one], [other]) => ((one ?? "") < (other ?? "") ? -1 : 1)),
  );
});

test("a machine that is deleted and forgotten stays in its tenant's usage", async () => {
  const { id, tenantId } = (await admin.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } }))
    .json;
  const owner = tenantId ?? (await admin.get("/v1/me")).json.tenantId;
  const from = Date.now() - 5_000;
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    VALUES ('boot-gone', ${id}, 'node-x', ${owner}, 1, 1024, ${instantOf(from)}, ${instantOf(from + 1_000)}, 'stop', now())`);
  const period = { from, to: from + 2_000, now: Date.now() };
  const before = await readTenantUsage(db, { tenantId: owner, ...period });
  assert.equal((await admin.delete(`/v1/machines/${id}`)).status, 204);
  await db.execute(sql`DELETE FROM machines WHERE id = ${id}`);
  assert.deepEqual((await readTenantUsage(db, { tenantId: owner, ...period })).lines, before.lines);
  const ofMachine = await readMachineUsage(db, { machineId: id, tenantId: owner, ...period });
  assert.equal(amountOf(ofMachine, "uptime"), 1_000n);
});

test("a malformed period is refused", async () => {
  for (const query of [
    "from=yesterday",
    "from=2026-02-30T00:00:00Z",
    "from=2026-07-02T00:00:00Z&to=2026-07-01T00:00:00Z",
  ])
    assert.equal((await admin.get(`/v1/usage?${query}`)).status, 400, query);
});
