/**
 * What machines send: counted by their node, priced, invoiced, and bounded by the plan's `maxEgressGb`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { budgetReconciler } from "../src/machines/lifetime/budgets-loop.ts";
import { writeRuns } from "../src/machines/run-store.ts";
import { noticeReconciler } from "../src/usage/notices-loop.ts";
import type { Client } from "./support/client.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";
import { openTestServices } from "./support/services.ts";
import { until } from "../../test/support/until.ts";

const { server, client } = await startMachineServer();
const { db } = server.context;
const GB = 2 ** 30;
const PRICE = 3_000;

/** A tenant with its own plan. */
async function sender(plan: object): Promise<{ readonly by: Client; readonly tenantId: string }> {
  const name = server.context.ids.make("tenant");
  const made = await client.post("/v1/plans", { name, rateEgressGbMicros: PRICE, ...plan });
  assert.equal(made.status, 201, made.text);
  const tenantId: string = (await client.post("/v1/tenants", { name, planId: made.json.id })).json.id;
  const scopes = ["machine:create", "machine:read", "machine:delete", "machine:exec", "billing:read", "usage:read"];
  const { key } = (await client.post("/v1/apikeys", { tenantId, scopes })).json;
  return { by: client.withKey(key), tenantId };
}

const start = (by: Client, id: string) => by.post(`/v1/machines/${id}/start`);

/** As a report of the machine's node would. */
async function send(machineId: string, bytes: number): Promise<void> {
  const written = await db.execute(sql`
    UPDATE machine_runs SET egress_bytes = egress_bytes + ${bytes}::bigint, egress_at = ${instantOf(Date.now())}::timestamptz
    WHERE machine_id = ${machineId} AND ended_at IS NULL`);
  assert.equal(written, 1);
}

test("what a machine sends is counted once per run, priced, and a line of the invoice", async () => {
  const { by } = await sender({});
  const id = await createMachine(by, { env: { FAKE_SENT_BYTES: String(GB / 2) } });
  for (let run = 0; run < 3; run += 1) {
    assert.equal((await start(by, id)).status, 200);
    await by.post(`/v1/machines/${id}/stop`);
  }
  const month = new Date().toISOString().slice(0, 7);
  const account = (await by.get("/v1/account")).json;
  assert.deepEqual([account.periodUsage.egressGb, account.periodCost.egressMicros], [1.5, 1.5 * PRICE]);
  const { cost, usage } = (await by.delete(`/v1/machines/${id}?includeUsage=true`)).json;
  assert.deepEqual([usage.egressGb, cost.egressMicros], [1.5, 1.5 * PRICE]);
  assert.equal(cost.totalMicros, cost.cpuMicros + cost.memoryMicros + cost.egressMicros);
  const { lines } = (await by.get(`/v1/billing/invoices/${month}`)).json;
  const line = (lines as { meter: string; amount: string; micros: number }[]).find(({ meter }) => meter === "egress");
  assert.deepEqual([line?.amount, line?.micros], [String(1.5 * GB), 1.5 * PRICE]);
  const intervals = (await by.get(`/v1/billing/invoices/${month}/intervals?meter=egress`)).json;
  assert.deepEqual(
    intervals.map(({ machineId, quantity }: { machineId: string; quantity: number }) => [machineId, quantity]),
    [1, 2, 3].map(() => [id, GB / 2]),
  );
});

test("a node never makes what was sent less, and what it repeats counts once", async () => {
  const { by } = await sender({});
  const id = await createMachine(by);
  await start(by, id);
  const run = await db.queryOne<{ bootId: string; nodeId: string; startedAt: number; sequence: number }>(sql`
    SELECT boot_id AS "bootId", node_id AS "nodeId", ms(started_at) AS "startedAt", coalesce(sequence, 1) AS sequence
    FROM machine_runs WHERE machine_id = ${id}`);
  assert.ok(run);
  const { nodeId, ...known } = run;
  const report = (egressBytes: number) =>
    writeRuns(server.context, nodeId, [{ ...known, machineId: id, endedAt: null, cause: null, egressBytes }]);
  for (const bytes of [GB, GB, 5, GB, 2 * GB]) await report(bytes);
  assert.equal((await by.get("/v1/usage")).json.egressGb, 2);
  await assert.rejects(
    db.execute(sql`UPDATE machine_runs SET egress_bytes = 5 WHERE machine_id = ${id}`),
    /has sent 2147483648 bytes, which cannot become 5/,
  );
});

test("at the ceiling starts are refused and what runs is stopped, with one event at 80 % and one at 100 %", async () => {
  const { by, tenantId } = await sender({ maxEgressGb: 2 });
  const [id, other] = [await createMachine(by), await createMachine(by)];
  assert.equal((await start(by, id)).status, 200);
  const services = openTestServices(server);
  const messages = async (): Promise<readonly string[]> => {
    await noticeReconciler(server.context).activate(new AbortController().signal);
    const events = (await by.get("/v1/events?type=tenant.egressUsed")).json as { message: string }[];
    return events.map(({ message }) => message);
  };
  const stopped = async () =>
    (await budgetReconciler(services).activate(new AbortController().signal)).counts["stopped"];
  await send(id, 1.5 * GB);
  assert.deepEqual(await messages(), []);
  await send(id, GB / 4);
  assert.deepEqual(await messages(), ["80 % of the month's egress is used: 1.750 GB of 2 GB"]);
  assert.equal(await stopped(), 0, "something is left");
  assert.equal((await start(by, other)).status, 200);
  await by.post(`/v1/machines/${other}/stop`);
  await send(id, GB / 4);
  assert.equal(await stopped(), 1);
  await until(async () => (await by.get(`/v1/machines/${id}`)).json.state === "stopped", { what: "the stop" });
  assert.match((await messages())[1] ?? "", /^100 % of the month's egress is used: 2\.000 GB of 2 GB; starts are/);
  assert.equal((await messages()).length, 2);
  const events = (await by.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  assert.ok(events.some(({ message }) => /have sent the 2 GB that they may send in a month/.test(message)));
  for (const machine of [id, other]) {
    const refused = await start(by, machine);
    assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "quota_exceeded"]);
    assert.match(
      refused.text,
      /^egress limit reached: your .* allows machines to send 2 GB a month, and 2\.000 GB were/,
    );
  }
  assert.equal((await by.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 422, "also by a command");
  const { planId } = (await client.get(`/v1/tenants/${tenantId}`)).json;
  await client.patch(`/v1/plans/${planId}`, { maxEgressGb: 3 });
  assert.equal((await start(by, id)).status, 200);
  await services.stop();
});

test("what is sent counts in a budget like processors and memory", async () => {
  const { by } = await sender({
    ...{ rateCpuHourMicros: 0, rateMemoryGbHourMicros: 0, monthlyBudgetMicros: 2 * PRICE, budgetPolicy: "block" },
  });
  const [id, other] = [await createMachine(by), await createMachine(by)];
  await start(by, id);
  await send(id, 2 * GB - 1);
  assert.equal((await start(by, other)).status, 200);
  await by.post(`/v1/machines/${other}/stop`);
  await send(id, 1);
  assert.equal((await start(by, other)).status, 402);
});
