/**
 * Subtotals of a month: what a tenant has spent is the same with one and without, to the micro, whatever is
 * recorded before and after.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { openDatabase } from "../src/db/postgres.ts";
import { randomIds } from "../src/ids.ts";
import { createLog } from "../src/log.ts";
import { insertRate } from "../src/plans/rates-store.ts";
import { readEgress } from "../src/usage/egress-store.ts";
import { readSpent } from "../src/usage/holds-store.ts";
import { costsOf } from "../src/usage/intervals-store.ts";
import { listUnsummed, writeSubtotal } from "../src/usage/subtotals-store.ts";
import { monthUpTo } from "../src/usage/usage.ts";
import { freshDatabase } from "./support/server.ts";

const log = createLog("error");
const ids = randomIds(randomBytes);
const db = openDatabase({ connection: { connectionString: await freshDatabase() }, clock: systemClock, log });
test.after(() => db.close());
const MINUTE = 60_000;
const JULY = Date.UTC(2026, 6, 1);
const NOON = JULY + 9.5 * 24 * 60 * MINUTE;
const TENANT = "tenant-odd";
const PLAN = "plan-odd";
await db.execute(sql`
  INSERT INTO plans (id, name, budget_policy, max_apps, max_cpus, max_memory_mb, max_disk_gb, max_machines, max_concurrent_machines,
    max_total_cpus, max_total_memory_mb, max_total_disk_gb, rate_cpu_hour_micros, rate_memory_gb_hour_micros, rate_egress_gb_micros,
    monthly_budget_micros)
  VALUES (${PLAN}, ${PLAN}, 'block', 1, 99, 99999, 99, 99, 99, 99, 99999, 999, 999999937, 777777773, 1000003, 1000000000000)`);

await db.execute(sql`INSERT INTO tenants (id, name, plan_id) VALUES (${TENANT}, ${TENANT}, ${PLAN})`);
await db.execute(sql`
  INSERT INTO nodes (id, address, status, credential_hash, registered_at, last_heartbeat_at)
  VALUES ('node-1', 'node', 'ready', sha256('x'::bytea), now(), ${instantOf(NOON)})`);

/** Runs of as many other machines, each a second later. `to`: null: they run. */
const run = (from: number, to: number | null, count = 1): Promise<number> =>
  db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at,
      egress_bytes, egress_at)
    SELECT ${ids.make("event")} || n, ${ids.make("machine")} || n, 'node-1', ${TENANT}, 1 + n % 3, 1001, ${instantOf(from)}::timestamptz + n * interval '1.003 s',
      ${instantOf(to)}::timestamptz + n * interval '1.003 s', CASE WHEN ${to !== null}::boolean THEN 'stop' END, now(),
      n * 1234567891::bigint, ${instantOf(from)}::timestamptz + n * interval '1.003 s'
    FROM generate_series(0, ${count - 1}::int) AS n`);

/**
 * Asserts that the tenant has spent what its account says, and more than before, and has sent what its runs
 * say.
 */
async function compare(now: number, { isMore = true } = {}): Promise<void> {
  const spent = await readSpent(db, { tenantIds: [TENANT], now });
  const costs = await costsOf(db, { tenantIds: [TENANT], now, ...monthUpTo(now) });
  assert.equal(spent.get(TENANT), costs.get(TENANT) ?? 0, `at ${instantOf(now)}`);
  assert.ok(!isMore || (spent.get(TENANT) ?? 0) > last, "something was recorded");
  last = spent.get(TENANT) ?? 0;
  const { sentBytes } = await readEgress(db, { tenantId: TENANT, now });
  const sent = await db.queryOne<{ readonly bytes: number }>(sql`
    SELECT coalesce(sum(quantity), 0)::bigint AS bytes FROM usage_intervals
    WHERE meter = 'egress' AND month_of(started_at) = ${instantOf(monthUpTo(now).from)}::timestamptz`);
  assert.equal(sentBytes, sent?.bytes, `sent at ${instantOf(now)}`);
}
let last = 0;
const sum = (now = NOON): Promise<boolean> => writeSubtotal(db, { tenantId: TENANT, now });

test("what is spent is the same with a subtotal, whatever is recorded after it, and at instants before it", async () => {
  await sum();
  await compare(NOON, { isMore: false });
  // Over the start of the month, at two prices, and by a clock that is ahead.
  await run(JULY - 7 * MINUTE, JULY + 5 * MINUTE, 3);
  await insertRate(db, {
    ...{ id: ids.make("rate"), planId: PLAN, activeFrom: NOON - 2 * MINUTE, createdAt: NOON - 4 * MINUTE },
    ...{
      rateCpuHourMicros: 888_888_883,
      rateMemoryGbHourMicros: 666_666_661,
      rateEgressGbMicros: 0,
      rateRegistryGbHourMicros: 0,
    },
  });
  await run(NOON - 3 * MINUTE, NOON - MINUTE, 3);
  await run(NOON - MINUTE, NOON + MINUTE, 3);
  await run(NOON + MINUTE, NOON + 2 * MINUTE);
  await compare(NOON);
  await sum();
  await compare(NOON, { isMore: false });
  await compare(NOON + MINUTE + 7);
  await run(JULY + MINUTE, JULY + 3 * MINUTE, 5);
  await run(NOON - MINUTE, null);
  await compare(NOON + MINUTE + 7);
  await sum();
  await db.execute(
    sql`UPDATE machine_runs SET ended_at = ${instantOf(NOON - 1)}, end_cause = 'stop' WHERE ended_at IS NULL`,
  );
  await compare(NOON + MINUTE + 7, { isMore: false });
  await sum();
  for (const now of [NOON + MINUTE + 7, NOON, JULY + 2 * MINUTE, JULY + 1, NOON + 60 * MINUTE])
    await compare(now, { isMore: false });
});

test("a new month begins without the one before", async () => {
  const august = Date.UTC(2026, 7, 1);
  last = 0;
  await run(august - MINUTE, august + MINUTE, 2);
  await compare(august + 2 * MINUTE);
  await sum(august + 2 * MINUTE);
  await compare(august + 2 * MINUTE, { isMore: false });
  await run(august, august + MINUTE);
  await compare(august + 2 * MINUTE);
  await compare(NOON, { isMore: false });
});

test("while a run is being recorded no subtotal is made, so that none lacks it", async () => {
  const now = NOON + 60 * MINUTE;
  await sum(now);
  await db.transaction(async (transaction) => {
    // Its end has its number in the order, and is not committed.
    await transaction.execute(sql`
      INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
      VALUES ('boot-late', 'mach-late', 'node-1', ${TENANT}, 1, 1001, ${instantOf(NOON)}, ${instantOf(now)}, 'stop', now())`);
    assert.equal(await sum(now), false);
  });
  await compare(now);
  assert.equal(await sum(now), true);
  await compare(now, { isMore: false });
});

test("a tenant gets a subtotal when its checks would read many intervals, and another one when they would again", async () => {
  const now = NOON + 60 * MINUTE;
  const due = () => listUnsummed(db, { now, limit: 100 });
  await sum(now);
  assert.deepEqual(await due(), []);
  for (let round = 0; round < 2; round += 1) {
    await run(NOON + round * MINUTE, NOON + round * MINUTE + 900, 400);
    assert.deepEqual(await due(), [TENANT]);
    await until(() => sum(now), { what: "a subtotal" });
    assert.deepEqual(await due(), []);
    await compare(now);
  }
  await db.execute(sql`DELETE FROM usage_subtotals`);
  assert.deepEqual(await due(), [TENANT]);
  await compare(now, { isMore: false });
  await db.execute(sql`UPDATE plans SET budget_policy = 'notify' WHERE id = ${PLAN}`);
  assert.deepEqual(await due(), [], "its starts are not checked");
  await db.execute(sql`UPDATE plans SET max_egress_gb = 5 WHERE id = ${PLAN}`);
  assert.deepEqual(await due(), [TENANT], "for its ceiling of egress");
});
