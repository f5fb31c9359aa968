/**
 * Thousands of random histories of tenants, one each, played together in one database.
 *
 * Every step is one statement for all tenants of the batch: those of the server where they take arrays
 * (reports of runs, invoices, sums, prices), the same inserts and updates for many rows elsewhere; of
 * deletions and changes of plan, the first ones of each round are made by the server's own. Triggers and
 * constraints are the server's.
 *
 * Any write may be killed in the middle, and is then made again, as by a server that was started again; its
 * answer may be lost, and then it is repeated.
 *
 * Always: what is expected is computed by History from what happened, and by `Life` from what a node could
 * report.
 */
import assert from "node:assert/strict";
import { systemClock } from "@flotilla/base/clock";
import type { Run } from "@flotilla/contract/link/link";
import { type Month, monthAfter, monthAt } from "../../src/billing/month.ts";
import { computeLines, finalizeInvoices } from "../../src/billing/store.ts";
import type { Context } from "../../src/context.ts";
import { type Statement, sql } from "../../src/db/database.ts";
import { instantOf } from "../../src/db/instant.ts";
import { endForgottenRuns, writeRuns } from "../../src/machines/run-store.ts";
import { removeMachine } from "../../src/machines/store.ts";
import { insertRate } from "../../src/plans/rates-store.ts";
import { insertPlan } from "../../src/plans/store.ts";
import { readSpent, renewHolds } from "../../src/usage/holds-store.ts";
import { updateTenant } from "../../src/tenants/store.ts";
import { readUsageOf } from "../../src/usage/intervals-store.ts";
import { writeSubtotal } from "../../src/usage/subtotals-store.ts";
import { lineMicros } from "../../src/usage/usage.ts";
import { type Boot, type BatchNode, Life } from "./history-life.ts";
import { Killed, killedAfter } from "./killed.ts";
import type { Plan, Priced } from "./usage-history.ts";

const HOUR = 3_600_000;
const PLANS = 6;
const NODES = 12;
const ROUNDS_MAX = 10;
/** What one heartbeat holds. */
const REPORTS_MAX = 1000;
const TENANTS_PER_TRANSACTION = 500;
const SAMPLED = 5;
/** How many tenants of one of as many batches have subtotals. */
const SUMMED = 100;
const SUMMED_ONE_OF = 8;
/** How many deletions and changes of plan are made one by one. */
const ONE_BY_ONE = 4;
/** One of so many writes is killed, one of so many answers is lost. */
const KILLED_ONE_OF = 8;
/**
 * In one of so many batches the server knows which machines run, so that plans with a budget hold what they
 * cost.
 */
const HOLDS_ONE_OF = 4;
/** Budget of plans whose tenants have holds. */
const BUDGET = 10 ** 12;

export class HistoryBatch {
  readonly #context: Context;
  readonly #draw: (max: number) => number;
  readonly #plans = new Map<string, Plan>();
  readonly #nodes: BatchNode[] = [];
  readonly #lives: Life[];
  readonly #rounds: number;
  readonly #holds: boolean;
  readonly #summed: readonly Life[];
  #now: number;
  #sequence = 0;

  /**
   * `name`: unique in the database. `draw` returns a whole number from 0 up to its argument, which it
   * excludes.
   */
  constructor(
    context: Context,
    { name, tenants, draw }: { name: string; tenants: number; draw: (max: number) => number },
  ) {
    this.#draw = draw;
    this.#now = Date.UTC(2026, 0, 10) + draw(20 * 24 * HOUR);
    this.#context = { ...context, clock: { ...systemClock, now: () => this.#now } };
    // Mostly short ones, of which more fit into the same time.
    this.#rounds = draw(10) === 0 ? ROUNDS_MAX : 2 + draw(4);
    for (let at = 0; at < PLANS; at += 1)
      this.#plans.set(`plan-${name}-${at}`, {
        id: `plan-${name}-${at}`,
        rates: [{ from: 0, cpu: draw(100_000), memory: draw(100_000) }],
        isHeld: at % 3 === 0,
      });
    this.#holds = draw(HOLDS_ONE_OF) === 0;
    for (let at = 0; at < NODES; at += 1)
      this.#nodes.push({
        id: `node-${name}-${at}`,
        clockError: 0,
        isSilent: false,
        isLost: false,
        heartbeat: this.#now,
      });
    this.#lives = Array.from({ length: tenants }, (_, at) => {
      const [node, plan] = [this.#nodes[draw(NODES)], [...this.#plans.keys()][draw(PLANS)]];
      assert.ok(node !== undefined && plan !== undefined);
      return new Life({ tenant: `tenant-${name}-${at}`, node, plan, plans: this.#plans, at: this.#now, draw });
    });
    this.#summed = draw(SUMMED_ONE_OF) === 0 ? this.#lives.slice(0, SUMMED) : [];
  }

  /** Plays all histories, and compares along the way. */
  async play(): Promise<void> {
    await this.#begin();
    for (let round = 0; round < this.#rounds; round += 1) {
      const before = this.#now;
      this.#now += 2 * 60_000 + this.#draw(8 * 24 * HOUR) + (this.#draw(8) === 0 ? this.#draw(30 * 24 * HOUR) : 0);
      this.#moveClocks();
      await this.#setRate();
      for (const life of this.#lives) life.step(before, this.#now);
      await this.#movePlans();
      await this.#makeMachines();
      await this.#moveMachines();
      await this.#remove();
      for (const node of this.#nodes) await this.#report(node, before);
      if (this.#holds) await this.#hold();
      await this.#sum();
      await this.#invoice();
    }
    await this.#compareSpent();
    await this.#compareUsage();
    await this.#compareDrafts();
  }

  async #begin(): Promise<void> {
    const { db } = this.#context;
    for (const { id, rates, isHeld } of this.#plans.values()) {
      const limits = { maxApps: 1, maxCpus: 1, maxMemoryMb: 1, maxDiskGb: 1, maxMachines: 1, maxConcurrentMachines: 1 };
      const totals = {
        maxTotalCpus: 1,
        maxTotalMemoryMb: 1,
        maxTotalDiskGb: 1,
        rateExecMicros: 0,
        maxEgressGb: null,
        maxPackageGb: null,
      };
      const pace = { rateRequestsPerSecond: 1, rateBurst: 1, monthlyBudgetMicros: null, budgetPolicy: "none" } as const;
      const budget = isHeld === true ? ({ monthlyBudgetMicros: BUDGET, budgetPolicy: "block" } as const) : {};
      const prices = {
        rateCpuHourMicros: rates[0]?.cpu ?? 0,
        rateMemoryGbHourMicros: rates[0]?.memory ?? 0,
        rateEgressGbMicros: 0,
        rateRegistryGbHourMicros: 0,
      };
      const plan = { id, name: id, isDefault: false, createdAt: this.#now };
      assert.ok(await insertPlan(db, { ...plan, ...limits, ...totals, ...pace, ...budget, ...prices }, id));
    }
    await db.execute(sql`
      INSERT INTO nodes (id, address, status, credential_hash, registered_at, last_heartbeat_at)
      SELECT id, 'node', 'ready', sha256(id::bytea), now(), ${instantOf(this.#now)}::timestamptz
      FROM unnest(${this.#nodes.map(({ id }) => id)}::text[]) AS id`);
    await db.execute(sql`
      INSERT INTO tenants (id, name, plan_id, created_at, updated_at)
      SELECT id, id, plan, ${instantOf(this.#now)}::timestamptz, ${instantOf(this.#now)}::timestamptz
      FROM unnest(${this.#lives.map(({ tenant }) => tenant)}::text[], ${this.#lives.map(({ plan }) => plan)}::text[]) AS t(id, plan)`);
  }

  /** Clocks of nodes are set forward and back by up to an hour; nodes fall silent and come back. */
  #moveClocks(): void {
    for (const node of this.#nodes) {
      if (this.#draw(4) === 0) node.clockError = this.#draw(2 * HOUR) - HOUR;
      if (this.#draw(4) === 0) node.isSilent = !node.isSilent;
      node.isLost = node.isSilent && this.#draw(2) === 0;
    }
  }

  /**
   * Returns the first result that was not lost with its process. `mayRepeat`: the caller does not know
   * whether it was made.
   */
  async #write<T>(write: (context: Context) => Promise<T>, { mayRepeat = false } = {}): Promise<T> {
    if (this.#draw(KILLED_ONE_OF) === 0) {
      const killed = { ...this.#context, db: killedAfter(this.#context.db, 1 + this.#draw(3)) };
      await assert.rejects(write(killed), Killed);
    }
    const result = await write(this.#context);
    if (mayRepeat && this.#draw(KILLED_ONE_OF) === 0) await write(this.#context);
    return result;
  }

  readonly #execute = (statement: Statement): Promise<number> => this.#write(({ db }) => db.execute(statement));

  /** A price of a plan, from an instant on that is in the future. */
  async #setRate(): Promise<void> {
    const plan = [...this.#plans.values()][this.#draw(PLANS)];
    const from = this.#now + 60_000 + this.#draw(10 * 24 * HOUR);
    if (plan === undefined || (plan.rates.at(-1)?.from ?? 0) >= from) return;
    const [cpu, memory] = [this.#draw(100_000), this.#draw(100_000)];
    const rate = {
      planId: plan.id,
      activeFrom: from,
      createdAt: this.#now,
      rateCpuHourMicros: cpu,
      rateMemoryGbHourMicros: memory,
      rateEgressGbMicros: 0,
      rateRegistryGbHourMicros: 0,
    };
    await this.#write(({ db, ids }) => insertRate(db, { ...rate, id: ids.make("rate") }));
    plan.rates.push({ from, cpu, memory });
  }

  async #movePlans(): Promise<void> {
    const moved = this.#lives.filter((life) => life.movePlan(this.#now));
    for (const { tenant, plan } of moved.splice(0, ONE_BY_ONE))
      await this.#write(({ db }) => updateTenant(db, tenant, { planId: plan }, this.#now), { mayRepeat: true });
    await this.#execute(
      sql`
        UPDATE tenants t SET plan_id = m.plan, updated_at = ${instantOf(this.#now)}::timestamptz
        FROM unnest(${moved.map(({ tenant }) => tenant)}::text[], ${moved.map(({ plan }) => plan)}::text[]) AS m(id, plan)
        WHERE t.id = m.id`,
    );
  }

  async #makeMachines(): Promise<void> {
    const rows = this.#lives.flatMap(({ tenant, node, created }) =>
      created.map(({ id, cpus, memory, disk, createdAt }) => ({
        ...{ id, tenant_id: tenant, node_id: node.id, cpus, memory_mb: memory, disk_gb: disk },
        at: instantOf(createdAt),
      })),
    );
    await this.#execute(sql`
      INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
        is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state, observed_generation, revision, node_id)
      SELECT id, tenant_id, '{}', '{}', '{}', '[]', '{}', cpus, memory_mb, disk_gb, false, false, false,
        at, at, 'stopped', 1, at, 'absent', 0, 1, node_id
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
        AS m(id text, tenant_id text, node_id text, cpus int, memory_mb int, disk_gb int, at timestamptz)`);
  }

  /** Machines of some tenants come to other nodes, as at the end of a move. */
  async #moveMachines(): Promise<void> {
    const rows = this.#lives.flatMap((life) => {
      const node = this.#draw(8) === 0 ? this.#nodes[this.#draw(NODES)] : undefined;
      return node === undefined ? [] : life.moveTo(node, this.#now).map(({ id }) => ({ id, node_id: node.id }));
    });
    await this.#execute(sql`
      UPDATE machines m SET node_id = r.node_id, updated_at = ${instantOf(this.#now)}::timestamptz
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) AS r(id text, node_id text) WHERE m.id = r.id`);
  }

  /** Deletes machines as the server does, and forgets some of them. */
  async #remove(): Promise<void> {
    const lost = this.#nodes.filter(({ isLost }) => isLost).map(({ id }) => id);
    await this.#execute(
      sql`
        UPDATE nodes SET status = CASE WHEN id = ANY(${lost}::text[]) THEN 'unreachable' ELSE 'ready' END
        WHERE id = ANY(${this.#nodes.map(({ id }) => id)}::text[])`,
    );
    const removed = this.#lives.flatMap((life) =>
      life.remove(this.#now).map(({ id }) => ({ id, tenantId: life.tenant })),
    );
    for (const machine of removed.slice(0, ONE_BY_ONE))
      await this.#write((context) => removeMachine(context, machine), { mayRepeat: true });
    const ids = removed.slice(ONE_BY_ONE).map(({ id }) => id);
    await this.#execute(sql`
      WITH gone AS (
        UPDATE machines SET desired_state = 'absent', deleted_at = ${instantOf(this.#now)}::timestamptz
        WHERE id = ANY(${ids}::text[]) RETURNING id)
      UPDATE machine_runs r SET counted_until = greatest(r.started_at, least(r.counted_until, ${instantOf(this.#now)}::timestamptz,
        CASE WHEN n.status IN ('unreachable', 'revoked') THEN n.last_heartbeat_at END))
      FROM nodes n WHERE r.machine_id IN (SELECT id FROM gone) AND r.ended_at IS NULL AND n.id = r.node_id`);
    const purged = this.#lives.flatMap((life) => life.purged).map(({ id }) => id);
    await this.#execute(sql`DELETE FROM machines WHERE id = ANY(${purged}::text[])`);
  }

  /** A heartbeat, with reports of which some are lost until the next one, and some are repeated. */
  async #report(node: BatchNode, before: number): Promise<void> {
    if (node.isSilent) return;
    const lives = this.#lives.filter((life) => life.nodes.has(node));
    const lastReportAt = node.heartbeat;
    node.heartbeat = this.#now;
    await this.#execute(sql`UPDATE nodes SET last_heartbeat_at = ${instantOf(this.#now)} WHERE id = ${node.id}`);
    const reports = lives.flatMap((life) => life.reports(this.#now, node));
    for (let from = 0; from < reports.length; from += REPORTS_MAX) {
      const some = reports.slice(from, from + REPORTS_MAX).map((run) => this.#numbered(run));
      await this.#write((context) => writeRuns(context, node.id, some), { mayRepeat: true });
    }
    if (before > 0 && this.#draw(3) === 0) await this.#loseJournal(node, lives, lastReportAt);
  }

  /**
   * The states of machines as reports have them, then a renewal: each machine that runs is held once, at its
   * price.
   */
  async #hold(): Promise<void> {
    const at = sql`${instantOf(this.#now)}::timestamptz`;
    const idsOf = (which: "active" | "idle"): readonly string[] =>
      this.#lives.flatMap(({ machines }) => machines[which].map(({ id }) => id));
    for (const [which, state] of [
      ["idle", "stopped"],
      ["active", "running"],
    ] as const)
      await this.#execute(sql`
        UPDATE machines SET observed_state = ${state}, updated_at = ${at}
        WHERE id = ANY(${idsOf(which)}::text[]) AND observed_state <> ${state}`);
    await this.#write(({ db }) => renewHolds(db, this.#now), { mayRepeat: true });
    for (const life of this.#lives) life.renewHolds(this.#now);
    const ours = this.#lives.map(({ tenant }) => tenant);
    const rows = await this.#context.db.query<{ id: string; micros: number; from: Date }>(sql`
      SELECT machine_id AS id, micros, held_from AS from FROM ledger_holds
      WHERE ended_at IS NULL AND tenant_id = ANY(${ours}::text[]) ORDER BY 1`);
    const expected = this.#lives.flatMap(({ holds }) =>
      [...holds].map(([id, { micros, from }]) => `${id} ${micros} ${instantOf(from)}`),
    );
    assert.deepEqual(
      rows.map(({ id, micros, from }) => `${id} ${micros} ${instantOf(from.getTime())}`),
      expected.sort(),
    );
  }

  /** Subtotals of some tenants, from which the next ones and the cost of the month continue. */
  async #sum(): Promise<void> {
    if (this.#draw(3) === 0) return;
    for (const { tenant } of this.#summed) {
      const asked = { tenantId: tenant, now: this.#now };
      assert.equal(await this.#write(({ db }) => writeSubtotal(db, asked), { mayRepeat: true }), true);
    }
  }

  /** What the month costs now, and what it had cost by an instant before subtotals. */
  async #compareSpent(): Promise<void> {
    const lives = this.#lives.slice(0, this.#summed.length + SAMPLED);
    const { from } = monthAt(this.#now);
    for (const now of [this.#now, from + this.#draw(this.#now - from)]) {
      const spent = await readSpent(this.#context.db, { tenantIds: lives.map(({ tenant }) => tenant), now });
      for (const { tenant, history } of lives) {
        const lines = [...history.priced(tenant, from, now, now)];
        const expected = lines.reduce((sum, [, { micros }]) => sum + micros, 0n);
        assert.equal(BigInt(spent.get(tenant) ?? -1), expected, `spent by ${tenant} at ${instantOf(now)}`);
      }
    }
  }

  #numbered(run: Omit<Run, "sequence">): Run {
    this.#sequence += 1;
    return { ...run, sequence: this.#sequence };
  }

  /** The node does not know some of the open runs any more: they end at its previous report. */
  async #loseJournal(node: BatchNode, lives: readonly Life[], lastReportAt: number): Promise<void> {
    const open: Boot[] = lives.flatMap((life) => life.openBoots()).filter((boot) => boot.node === node);
    const kept = open.filter(() => this.#draw(3) > 0);
    const known = {
      ...{ id: node.id, sequence: this.#sequence, endedAt: lastReportAt },
      bootIds: kept.map(({ id }) => id),
    };
    await this.#write((context) => endForgottenRuns(context, { ...known, isRestored: false }), { mayRepeat: true });
    const isKept = new Set(kept);
    for (const life of lives) life.forget((boot) => boot.node === node && !isKept.has(boot), lastReportAt);
  }

  /**
   * Makes the invoices of ended months final, of some tenants only rounds later, and compares each with the
   * history.
   */
  async #invoice(): Promise<void> {
    const due = this.#lives.filter(({ next }) => next.to <= this.#now && this.#draw(4) > 0);
    const byMonth = Map.groupBy(due, ({ next }) => next.id);
    for (const lives of byMonth.values()) {
      const month = lives[0]?.next;
      if (month === undefined) continue;
      const tenantIds = lives.map(({ tenant }) => tenant);
      for (let from = 0; from < tenantIds.length; from += TENANTS_PER_TRANSACTION) {
        const some = tenantIds.slice(from, from + TENANTS_PER_TRANSACTION);
        const asked: Parameters<typeof finalizeInvoices>[1] = { tenantIds: some, month, now: this.#now };
        assert.equal(await this.#write(({ db }) => finalizeInvoices(db, asked), { mayRepeat: true }), some.length);
      }
      await this.#compareInvoices(lives, month);
      for (const life of lives) life.next = monthAfter(month);
    }
    if (due.some(({ next }) => next.to <= this.#now)) await this.#invoice();
  }

  async #compareInvoices(lives: readonly Life[], month: Month): Promise<void> {
    const rows = await this.#context.db.query<{ tenant: string; key: string; amount: string; micros: number }>(sql`
      SELECT l.tenant_id AS tenant, to_char(l.usage_month, 'YYYY-MM') || ' ' || l.meter || ' ' || r.plan_id || ' ' || r.at AS key,
        l.amount::text AS amount, l.micros
      FROM invoice_lines l JOIN (
        SELECT id, plan_id, row_number() OVER (PARTITION BY plan_id ORDER BY active_from) - 1 AS at FROM rates) r ON r.id = l.rate_id
      WHERE l.month = ${month.id + "-01"}::date AND l.tenant_id = ANY(${lives.map(({ tenant }) => tenant)}::text[])`);
    const found = Map.groupBy(rows, ({ tenant }) => tenant);
    for (const life of lives) {
      const expected = life.history.nextInvoice(life.tenant, month, this.#now);
      life.history.noteInvoice(life.tenant, month, this.#now);
      this.#same(life, `invoice ${month.id}`, found.get(life.tenant) ?? [], expected);
    }
  }

  async #compareDrafts(): Promise<void> {
    const rates = await this.#rateNames();
    for (let count = 0; count < SAMPLED; count += 1) {
      const life = this.#lives[this.#draw(this.#lives.length)];
      if (life === undefined) continue;
      const asked = { tenantId: life.tenant, month: life.next, now: this.#now, knownAt: null };
      const lines = await computeLines(this.#context.db, asked);
      const rows = lines.map(({ usageMonth, meter, rateId, amount, micros }) => ({
        ...{ key: `${usageMonth} ${meter} ${rates.get(rateId)}`, amount, micros },
      }));
      this.#same(life, "draft", rows, life.history.nextInvoice(life.tenant, life.next, this.#now));
    }
  }

  /** The sums of all tenants over three periods, from one statement each. */
  async #compareUsage(): Promise<void> {
    const rates = await this.#rateNames();
    const tenantIds = this.#lives.map(({ tenant }) => tenant);
    const to = this.#now - this.#draw(20 * 24 * HOUR);
    const periods = [
      { from: 0, to: this.#now },
      { from: monthAt(this.#now).from, to: this.#now },
      { from: to - this.#draw(40 * 24 * HOUR), to },
    ];
    for (const period of periods) {
      const usage = await readUsageOf(this.#context.db, { tenantIds, now: this.#now, ...period });
      for (const life of this.#lives) {
        const rows = (usage.get(life.tenant)?.lines ?? []).map((line) => ({
          key: `${line.meter} ${rates.get(line.rate.id)}`,
          amount: String(line.amount),
          micros: lineMicros(line),
        }));
        this.#same(life, "usage", rows, life.history.priced(life.tenant, period.from, period.to, this.#now));
      }
    }
  }

  /** A rate's plan and its number among the plan's rates, as histories name it. */
  async #rateNames(): Promise<ReadonlyMap<string, string>> {
    const rows = await this.#context.db.query<{ id: string; name: string }>(sql`
      SELECT id, plan_id || ' ' || row_number() OVER (PARTITION BY plan_id ORDER BY active_from) - 1 AS name FROM rates`);
    return new Map(rows.map(({ id, name }) => [id, name]));
  }

  #same(
    life: Life,
    what: string,
    rows: readonly { readonly key: string; readonly amount: string; readonly micros: number }[],
    expected: ReadonlyMap<string, Priced>,
  ): void {
    const found = new Map(rows.filter(({ amount }) => amount !== "0").map((row) => [row.key, row]));
    const wanted = [...expected].filter(([, { amount }]) => amount !== 0n);
    const isSame = ([key, { amount, micros }]: [string, Priced]): boolean => {
      const row = found.get(key);
      return row !== undefined && BigInt(row.amount) === amount && BigInt(row.micros) === micros;
    };
    if (found.size === wanted.length && wanted.every(isSame)) return;
    const told = (amount: bigint | string, micros: bigint | number): string => `${micros} micros for ${amount}`;
    assert.deepEqual(
      Object.fromEntries([...found].map(([key, { amount, micros }]) => [key, told(amount, micros)]).toSorted()),
      Object.fromEntries(wanted.map(([key, { amount, micros }]) => [key, told(amount, micros)]).toSorted()),
      `${what} of ${life.tenant} at ${instantOf(this.#now)}: ${life.describe()}`,
    );
  }
}
