/**
 * The meter of the registry: what a tenant has there is billed for as long as it is there, at the price that
 * held, as its own line.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { computeLines, listIntervals } from "../src/billing/store.ts";
import { monthAt } from "../src/billing/month.ts";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { openDatabase } from "../src/db/postgres.ts";
import { randomIds } from "../src/ids.ts";
import { createLog } from "../src/log.ts";
import { readSpent } from "../src/usage/holds-store.ts";
import { costsOf, readTenantUsage } from "../src/usage/intervals-store.ts";
import { writeSubtotal } from "../src/usage/subtotals-store.ts";
import { monthUpTo } from "../src/usage/usage.ts";
import { freshDatabase } from "./support/server.ts";

const ids = randomIds(randomBytes);
const db = openDatabase({
  connection: { connectionString: await freshDatabase() },
  clock: systemClock,
  log: createLog("error"),
});
test.after(() => db.close());
const HOUR = 3_600_000;
const PRICE = 7_777_777;
const PLAN = "plan-packed";

await db.execute(sql`
  INSERT INTO plans (id, name, budget_policy, max_apps, max_cpus, max_memory_mb, max_disk_gb, max_machines, max_concurrent_machines,
    max_total_cpus, max_total_memory_mb, max_total_disk_gb, rate_registry_gb_hour_micros, monthly_budget_micros)
  VALUES (${PLAN}, ${PLAN}, 'block', 1, 99, 99999, 99, 99, 99, 99, 99999, 999, ${PRICE}, 1000000000000)`);

/** A tenant with a test clock. */
async function tenant(): Promise<string> {
  const id = ids.make("tenant");
  await db.execute(sql`
    INSERT INTO tenants (id, name, plan_id, has_test_clock) VALUES (${id}, ${id}, ${PLAN}, true)`);
  return id;
}

interface Recorded {
  readonly meter: string;
  readonly quantity: number;
  readonly startedAt: number;
  readonly endedAt: number | null;
}
const recorded = (id: string): Promise<readonly Recorded[]> =>
  db.query<Recorded>(sql`
    SELECT meter, quantity, ms(started_at) AS "startedAt", ms(ended_at) AS "endedAt" FROM usage_intervals
    WHERE tenant_id = ${id} ORDER BY id`);

const use = (id: string, mb: number): Promise<number> =>
  db.execute(sql`SELECT record_registry_use(id, ${mb}::bigint) FROM tenants WHERE id = ${id} FOR NO KEY UPDATE`);

/** Moves the tenant's clock. */
const advance = (id: string, ms: number): Promise<number> =>
  db.execute(sql`
    WITH moved AS (
      INSERT INTO clock_advances (tenant_id, active_from, advanced_at, ahead_ms)
      VALUES (${id}, clock_timestamp() - interval '1 second', clock_timestamp(), ${ms}::bigint))
    UPDATE tenants SET clock_ahead_ms = ${ms}::bigint WHERE id = ${id}`);

test("each change of what a tenant has ends one interval and begins another, and none is left of nothing", async () => {
  const id = await tenant();
  await use(id, 0);
  assert.deepEqual(await recorded(id), []);
  for (const mb of [3, 3, 5, 0, 0, 2]) await use(id, mb);
  const [first, second, third, ...others] = await recorded(id);
  assert.deepEqual(others, []);
  assert.deepEqual([first?.quantity, second?.quantity, third?.quantity], [3, 5, 2]);
  assert.equal(first?.endedAt, second?.startedAt);
  assert.ok((second?.endedAt ?? Infinity) <= (third?.startedAt ?? 0));
  assert.equal(third?.endedAt, null);
});

test("the amount is exact, has the price of its plan, and is a line of the invoice that no machine has", async () => {
  const id = await tenant();
  await use(id, 3000);
  const ahead = 5 * HOUR;
  await advance(id, ahead);
  await use(id, 0);
  const [interval] = await recorded(id);
  const heldMs = (interval?.endedAt ?? 0) - (interval?.startedAt ?? 0);
  assert.ok(heldMs >= ahead && heldMs < ahead + HOUR, `${heldMs} ms`);
  const amount = 3000n * BigInt(heldMs);
  const micros = Number((amount * BigInt(PRICE)) / BigInt(HOUR * 1024));
  const now = Date.now();
  const period = { from: monthUpTo(interval?.startedAt ?? 0).from, to: (interval?.endedAt ?? 0) + HOUR };
  const usage = await readTenantUsage(db, { tenantId: id, now, ...period });
  assert.deepEqual(
    usage.lines.map((line) => [line.meter, line.amount]),
    [["registry", amount]],
  );
  assert.equal(usage.machineCount, 0);
  assert.equal((await costsOf(db, { tenantIds: [id], now, ...period })).get(id), micros);
  // The month may have ended in between.
  const months = [...new Set([interval?.startedAt ?? 0, interval?.endedAt ?? 0].map((at) => monthAt(at).id))];
  let sum = 0n;
  for (const name of months) {
    const month = monthAt(Date.parse(`${name}-01T00:00:00Z`));
    const lines = await computeLines(db, { tenantId: id, month, now, knownAt: null });
    const own = lines.filter(({ usageMonth }) => usageMonth === name);
    assert.deepEqual([...new Set(own.map(({ meter }) => meter))], ["registry"]);
    sum += own.reduce((total, line) => total + BigInt(line.amount), 0n);
    const query = { tenantId: id, month, usageMonth: month, cut: null, now, meter: null, after: 0, limit: 10 };
    const [listed] = await listIntervals(db, query);
    assert.deepEqual([listed?.machineId, listed?.bootId, listed?.quantity, listed?.labels], [null, null, 3000, {}]);
  }
  assert.equal(sum, amount);
});

test("what is spent of a budget has it, with and without a subtotal", async () => {
  const id = await tenant();
  await use(id, 100_000);
  await advance(id, HOUR);
  await use(id, 50_000);
  const now = Date.now() + 1000;
  const spent = async (): Promise<number> => (await readSpent(db, { tenantIds: [id], now })).get(id) ?? 0;
  const before = await spent();
  const costs = await costsOf(db, { tenantIds: [id], now, ...monthUpTo(now + HOUR) });
  assert.equal(before, costs.get(id));
  assert.ok(before > 0);
  assert.equal(await writeSubtotal(db, { tenantId: id, now }), true);
  assert.equal(await spent(), before);
});

test("the database refuses use of the registry by a machine, and two uses of a tenant at once", async () => {
  const id = await tenant();
  const insert = (machine: string | null, meter: string) =>
    db.execute(sql`
      INSERT INTO usage_intervals (tenant_id, machine_id, meter, quantity, started_at, rate_id)
      SELECT ${id}, ${machine}::text, ${meter}, 1, ${instantOf(Date.now())}::timestamptz, rate_id FROM tenant_rates
      WHERE tenant_id = ${id} ORDER BY active_from LIMIT 1`);
  await assert.rejects(insert("mach-a", "registry"), /registry_has_no_machine/);
  await assert.rejects(insert(null, "disk"), /registry_has_no_machine/);
  await insert(null, "registry");
  await assert.rejects(insert(null, "registry"), /nothing_twice/);
});
