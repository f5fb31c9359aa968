/**
 * What a monthly budget does when it is used: events, refused creates and starts, stopped machines.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { budgetReconciler } from "../src/machines/lifetime/budgets-loop.ts";
import { noticeReconciler } from "../src/usage/notices-loop.ts";
import { monthUpTo } from "../src/usage/usage.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestServer } from "./support/server.ts";
import { openTestServices } from "./support/services.ts";
import { until } from "../../test/support/until.ts";

const HOUR = 3_600_000;

test("a tenant gets one event at 80 % of its budget and one at 100 %, from any number of servers and restarts", async () => {
  const server = await startTestServer();
  const {
    client: admin,
    context: { db },
  } = server;
  const budget = 1_000_000;
  const plan = { name: "watched", budgetPolicy: "notify", monthlyBudgetMicros: budget, rateMemoryGbHourMicros: 0 };
  const planId = (await admin.post("/v1/plans", { ...plan, rateCpuHourMicros: HOUR })).json.id;
  const tenantId: string = (await admin.post("/v1/tenants", { name: "watched", planId })).json.id;
  const client = admin.withKey((await admin.post("/v1/apikeys", { tenantId })).json.key);
  const from = Date.UTC(2026, 5, 15);
  const context = { ...server.context, clock: { ...server.context.clock, now: () => from + HOUR } };
  // At one micro for a millisecond.
  const use = (boot: string, start: number, ms: number) =>
    db.execute(sql`
      INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
      VALUES (${boot}, ${boot}, 'node-x', ${tenantId}, 1, 1, ${instantOf(start)}, ${instantOf(start + ms)}, 'stop', now())`);
  const events = async (): Promise<readonly string[]> => {
    // As many servers as there are loops, each started again twice.
    for (let restarts = 0; restarts < 3; restarts += 1)
      await Promise.all(
        Array.from({ length: 4 }, () => noticeReconciler(context).activate(new AbortController().signal)),
      );
    const written = await db.query<{ message: string }>(sql`
      SELECT message FROM tenant_events WHERE tenant_id = ${tenantId} AND subject_kind = 'tenant' ORDER BY position`);
    return written.map(({ message }) => message);
  };
  await use("watched-1", from, 799_999);
  assert.deepEqual(await events(), []);
  await use("watched-2", from, 1);
  assert.deepEqual(await events(), ["80 % of the monthly budget is used: 0.80 of 1.00"]);
  await use("watched-3", from, 200_000);
  assert.deepEqual((await events()).slice(1), ["100 % of the monthly budget is used: 1.00 of 1.00"]);
  await use("watched-4", from, 500_000);
  assert.equal((await events()).length, 2);
  const listed = await until(async () => {
    const all = (await client.get("/v1/events")).json as { type: string; level: string; data: object }[];
    return all.length === 2 && all;
  });
  assert.deepEqual(
    listed.map(({ type, level, data }) => [type, level, data]),
    [80, 100].map((percent) => {
      const amounts = { usedMicros: percent * 10_000, budgetMicros: budget, heldMicros: 0 };
      return ["tenant.budgetUsed", "warn", { percent, ...amounts, policy: "notify" }];
    }),
  );
});

test("a budget that is used up refuses creates and starts, and stops machines where the plan says so", async () => {
  const { server: served, client, context } = await startMachineServer();
  const plan = async (budgetPolicy: string) =>
    (
      await client.post("/v1/plans", {
        ...{ name: `budget-${budgetPolicy}`, budgetPolicy, monthlyBudgetMicros: 1_000_000 },
        ...{ rateCpuHourMicros: 3_600_000, rateMemoryGbHourMicros: 0 },
      })
    ).json.id as string;
  const planIds = { notify: await plan("notify"), block: await plan("block"), stop: await plan("stop") };
  const { id: tenantId } = (await client.post("/v1/tenants", { name: "spender", planId: planIds.block })).json;
  const spender = client.withKey((await client.post("/v1/apikeys", { tenantId })).json.key);
  const source = { type: "image", reference: "local/busybox" };
  const { id } = (await spender.post("/v1/machines", { source, resources: { cpus: 1 } })).json;
  const other = (await spender.post("/v1/machines", { source })).json.id;
  assert.equal((await spender.post(`/v1/machines/${id}/start`)).status, 200);
  // 1 micro for each processor and millisecond: 1,000 s are the budget. The month may have begun just now.
  const from = Math.max(monthUpTo(Date.now()).from, Date.now() - 2_000);
  const spend = (cpus: number, boot: string, at: number) =>
    context.db.execute(sql`
      INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
      VALUES (${boot}, ${other}, 'node-x', ${tenantId}, ${cpus}, 1, ${instantOf(at)}, ${instantOf(at + 1)}, 'stop', now())`);
  await spend(900_000, "boot-spent", from);
  assert.equal((await spender.post("/v1/machines", { source })).status, 201, "something is left");
  await spend(100_000, "boot-spent-all", from + 1);
  for (const refused of [
    await spender.post("/v1/machines", { source }),
    await spender.post(`/v1/machines/${other}/start`),
  ]) {
    assert.equal(refused.status, 402, refused.text);
    assert.match(refused.text, /^monthly budget used up: your budget-block plan has a budget of 1\.00, and 1\.\d+ are/);
  }
  assert.equal((await spender.get("/v1/account")).json.budgetRemainingMicros, 0);
  assert.equal((await spender.get(`/v1/machines/${id}`)).json.state, "started", "what runs keeps running");
  const services = openTestServices(served);
  const sweep = () => budgetReconciler(services).activate(new AbortController().signal);
  assert.equal((await sweep()).counts["stopped"], 0);
  await client.patch(`/v1/tenants/${tenantId}`, { planId: planIds.stop });
  await sweep();
  await until(async () => (await spender.get(`/v1/machines/${id}`)).json.state === "stopped");
  await services.stop();
  await client.patch(`/v1/tenants/${tenantId}`, { planId: planIds.notify });
  await until(async () => (await spender.post(`/v1/machines/${id}/start`)).status === 200);
});
