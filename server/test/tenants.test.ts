/**
 * Tenants: creating and changing them, and that suspension takes effect immediately, on every server.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer();
const replica = await startTestServer({ databaseUrl: server.databaseUrl });
const { client } = server;

async function tenantWithKey(name: string): Promise<{ id: string; caller: Client }> {
  const tenant = await client.post("/v1/tenants", { name });
  assert.equal(tenant.status, 201, tenant.text);
  const key = await client.post("/v1/apikeys", { tenantId: tenant.json.id });
  return { id: tenant.json.id as string, caller: client.withKey(key.json.key) };
}

test("the first start makes tenant default", async () => {
  const tenants = (await client.get("/v1/tenants")).json as { name: string; status: string }[];
  assert.deepEqual(
    tenants.map(({ name, status }) => [name, status]),
    [["default", "active"]],
  );
});

test("a tenant is made, read and changed", async () => {
  const plans = (await client.get("/v1/plans")).json as { id: string; name: string }[];
  const planId = plans.find(({ name }) => name === "standard")?.id;
  const made = await client.post("/v1/tenants", { name: "Acme", id: "acme_1", planId });
  assert.equal(made.status, 201, made.text);
  assert.deepEqual([made.json.id, made.json.planId, made.json.status], ["acme_1", planId, "active"]);
  const change = { externalBillingId: "bill-1", maxCpus: 16, maxMemoryMb: 65_536, maxDiskGb: null };
  const changed = await client.patch("/v1/tenants/acme_1", change);
  assert.equal(changed.status, 200, changed.text);
  const { externalBillingId, maxCpus, maxMemoryMb, maxDiskGb, name } = changed.json;
  assert.deepEqual([externalBillingId, maxCpus, maxMemoryMb, maxDiskGb, name], ["bill-1", 16, 65_536, null, "Acme"]);
  assert.deepEqual((await client.get("/v1/tenants/acme_1")).json, changed.json);
});

test("null clears a tenant's own value, and omitted fields keep theirs", async () => {
  const { id } = await tenantWithKey("Cleared");
  const planId = ((await client.get("/v1/plans")).json as { id: string; name: string }[]).find(
    ({ name }) => name === "standard",
  )?.id;
  const set = { planId, externalBillingId: "bill-2", maxApps: 1, maxCpus: 2, maxMemoryMb: 3, maxDiskGb: 4 };
  await client.patch(`/v1/tenants/${id}`, set);
  for (const name of Object.keys(set)) {
    const before = (await client.get(`/v1/tenants/${id}`)).json;
    const answer = await client.patch(`/v1/tenants/${id}`, { [name]: null, status: null });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(answer.json, { ...before, [name]: null, updatedAt: answer.json.updatedAt });
  }
});

test("names and ids can be used once, and plans must exist", async () => {
  for (const [body, reason] of [
    [{ name: "Acme" }, "the name Acme is already that of tenant acme_1; choose another name"],
    [{ name: "Other", id: "acme_1" }, "a tenant with the id acme_1 exists already; choose another id"],
  ] as const) {
    const answer = await client.post("/v1/tenants", body);
    assert.deepEqual([answer.status, answer.headers.get("x-error-code"), answer.text], [409, "name_taken", reason]);
  }
  assert.equal((await client.post("/v1/tenants", { name: "New", planId: "plan-none" })).status, 400);
  assert.equal((await client.patch("/v1/tenants/acme_1", { planId: "plan-none" })).status, 400);
  assert.equal((await client.patch("/v1/tenants/none", { status: "active" })).status, 404);
  assert.equal((await client.patch("/v1/tenants/acme_1", { status: "asleep" })).status, 422);
});

test("every call of a suspended tenant answers 402, immediately here and within moments elsewhere", async () => {
  const { id, caller } = await tenantWithKey("late payer");
  const elsewhere = replica.client.withKey(caller.key);
  for (const each of [caller, elsewhere]) assert.equal((await each.get("/v1/me")).status, 200);
  assert.equal((await client.post(`/v1/tenants/${id}/suspend`)).status, 204);
  const refused = await caller.get("/v1/me");
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [402, "payment_required"]);
  await until(async () => (await elsewhere.get("/v1/me")).status === 402, { deadlineMs: 2_000 });
  assert.equal((await client.get(`/v1/tenants/${id}`)).json.status, "suspended");
  assert.equal((await client.post(`/v1/tenants/${id}/reactivate`)).status, 204);
  assert.equal((await caller.get("/v1/me")).status, 200);
  await until(async () => (await elsewhere.get("/v1/me")).status === 200, { deadlineMs: 2_000 });
  assert.equal((await client.post("/v1/tenants/none/suspend")).status, 404);
});

test("an operator who suspends the own tenant can still end that", async () => {
  const id = (await client.get("/v1/me")).json.tenantId as string;
  assert.equal((await client.post(`/v1/tenants/${id}/suspend`)).status, 204);
  assert.equal((await client.get("/v1/me")).status, 402);
  assert.equal((await client.post(`/v1/tenants/${id}/reactivate`)).status, 204);
  assert.equal((await client.get("/v1/me")).status, 200);
});

test("a tenant given another plan has its rate at the next request", async () => {
  const { id, caller } = await tenantWithKey("upgraded");
  assert.notEqual((await caller.get("/v1/me")).headers.get("ratelimit-limit"), "5000");
  const plan = await client.post("/v1/plans", { name: "wide", rateBurst: 5000 });
  await client.patch(`/v1/tenants/${id}`, { planId: plan.json.id });
  assert.equal((await caller.get("/v1/me")).headers.get("ratelimit-limit"), "5000");
});

test("two servers together admit what a tenant's plan allows", async () => {
  const limits = { rateRequestsPerSecond: 1, rateBurst: 50 };
  const { id: planId } = (await client.post("/v1/plans", { name: "one rate", ...limits })).json as { id: string };
  const { id, caller } = await tenantWithKey("uses two servers");
  await client.patch(`/v1/tenants/${id}`, { planId });
  const elsewhere = replica.client.withKey(caller.key);
  const ask = async (one: typeof caller) => (await one.get("/v1/me")).status;
  await until(async () => (await caller.get("/v1/me")).headers.get("ratelimit-limit") === "50", { what: "the plan" });
  await Promise.all(Array.from({ length: 60 }, () => ask(caller)));
  let there = 0;
  // Each poll takes one request, so it must not poll often.
  await until(async () => (await ask(elsewhere)) === 429 || void (there += 1), { what: "a refusal", everyMs: 200 });
  assert.ok(there < 40, `the other server admitted ${there}`);
  // A debt: later requests pay for what both admitted.
  const refused = await caller.get("/v1/me");
  assert.equal(refused.status, 429);
  assert.ok(Number(refused.headers.get("retry-after")) >= 1);
});
