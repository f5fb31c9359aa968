/**
 * Pools: machines that wait, claims that race, and what is left when something fails.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { POOLS_MAX } from "@flotilla/contract/limits";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { removeMachine } from "../src/machines/store.ts";
import type { Client } from "./support/client.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";
import { startTestServer } from "./support/server.ts";

const { client, server, context } = await startMachineServer();
// Two servers fill the same pools.
await startTestServer({ databaseUrl: server.databaseUrl });
const IMAGE = "local/busybox";

interface Pool {
  readonly id: string;
  readonly idleCount: number;
  readonly busyCount: number;
  readonly status: string;
  readonly error: string | null;
}

const poolOf = async (id: string, by: Client = client): Promise<Pool> => {
  const found = (await by.get("/v1/pools")).json as Pool[];
  const pool = found.find((each) => each.id === id);
  assert.ok(pool, `pool ${id} is not listed`);
  return pool;
};

async function pool(fields: object = {}, by: Client = client): Promise<string> {
  const made = await by.post("/v1/pools", { image: IMAGE, memoryMb: 256, cpus: 1, ...fields });
  assert.equal(made.status, 200, made.text);
  return made.json.id;
}

const waits = (id: string, idle: number, by: Client = client): Promise<unknown> =>
  until(async () => (await poolOf(id, by)).idleCount === idle, { what: `${idle} machines to wait in ${id}` });

const waitingIn = async (id: string): Promise<readonly string[]> =>
  ((await client.get(`/v1/machines?label=flotilla-pool=${id}`)).json as { id: string }[]).map((machine) => machine.id);

async function tenant(name: string): Promise<Client> {
  const { id } = (await client.post("/v1/tenants", { name })).json;
  return client.withKey(
    (await client.post("/v1/apikeys", { tenantId: id, scopes: ["machine:create", "pool:write"] })).json.key,
  );
}

test("a pool fills, claims that race get different running machines, and it fills again", async () => {
  const id = await pool({ targetSize: 3 });
  await waits(id, 3);
  assert.equal((await poolOf(id)).status, "ready");
  const claims = await Promise.all(Array.from({ length: 5 }, () => client.post(`/v1/pools/${id}/claim`)));
  for (const claim of claims) assert.deepEqual([claim.status, claim.json.state], [200, "started"], claim.text);
  const claimed = new Set(claims.map(({ json }) => json.id as string));
  assert.equal(claimed.size, 5);
  for (const machine of claimed)
    assert.equal((await client.post(`/v1/machines/${machine}/exec`, { command: ["true"] })).json.exitCode, 0);
  await waits(id, 3);
  assert.equal((await poolOf(id)).busyCount, 5);
  for (const machine of claimed) assert.equal((await client.call("DELETE", `/v1/machines/${machine}`)).status, 204);
  await until(async () => (await poolOf(id)).busyCount === 0, { what: "no claimed machine to be counted" });
  assert.equal((await client.get("/health")).json.poolsTotal, 1);
  assert.equal((await client.call("DELETE", `/v1/pools/${id}`)).status, 204);
  await until(async () => (await waitingIn(id)).length === 0, { what: "the waiting machines to be deleted" });
  assert.equal((await client.call("DELETE", `/v1/pools/${id}`)).status, 404);
  await until(async () => (await context.db.query(sql`SELECT 1 FROM pools`)).length === 0, {
    what: "no row to be left",
  });
});

test("a claim that is repeated gets the same machine, also when none waited", async () => {
  for (const targetSize of [1, 0]) {
    const id = await pool({ targetSize });
    await waits(id, targetSize);
    const headers = { "idempotency-key": `claim-${targetSize}` };
    const first = await client.post(`/v1/pools/${id}/claim`, undefined, { headers });
    assert.equal(first.status, 200, first.text);
    // As if the server had died before it kept the answer.
    await context.db.execute(sql`
      UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() - interval '1 second'
      WHERE idempotency_key = ${`claim-${targetSize}`}`);
    const again = await client.post(`/v1/pools/${id}/claim`, undefined, { headers });
    assert.deepEqual([again.status, again.json.id], [200, first.json.id]);
    assert.equal((await poolOf(id)).busyCount, 1);
    await client.call("DELETE", `/v1/pools/${id}`);
    assert.equal((await client.get(`/v1/machines/${first.json.id}`)).json.state, "started", "a claimed machine stays");
  }
});

test("a machine whose server died before it was made is made by another one", async () => {
  const id = await pool({ targetSize: 1 });
  await waits(id, 1);
  const machine = `mach-${"7".repeat(32)}`;
  // What such a server leaves behind.
  await context.db.execute(
    sql`INSERT INTO machine_owners (machine_id, kind, id, created_at) VALUES (${machine}, 'pool', ${id}, now())`,
  );
  await until(async () => (await waitingIn(id)).includes(machine), { what: "the machine to be made" });
  await client.call("DELETE", `/v1/pools/${id}`);
});

test("a machine that was used without a claim leaves the pool and is kept; one that ended is replaced", async () => {
  const id = await pool({ targetSize: 2 });
  await waits(id, 2);
  const [used = "", ended = ""] = await waitingIn(id);
  assert.equal((await client.post(`/v1/machines/${used}/exec`, { command: ["true"] })).status, 200);
  await until(async () => (await poolOf(id)).busyCount === 1, { what: "the used machine to leave" });
  assert.equal((await client.post(`/v1/machines/${ended}/stop`)).status, 200);
  await until(async () => !(await waitingIn(id)).includes(ended), { what: "the ended machine to be replaced" });
  await waits(id, 2);
  await client.call("DELETE", `/v1/pools/${id}`);
  await until(async () => (await waitingIn(id)).length === 1, { what: "the others to be deleted" });
  assert.deepEqual(await waitingIn(id), [used]);
});

test("uses that race with the deletion of their pool are refused, or keep their machines", async () => {
  const id = await pool({ targetSize: 6 });
  await waits(id, 6);
  const [decided = "", ...machines] = await waitingIn(id);
  const use = (machine: string, at: number) =>
    at % 2 === 0
      ? client.post(`/v1/machines/${machine}/exec`, { command: ["true"] })
      : client.post(`/v1/machines/${machine}/sessions`, {});
  // What a server leaves that dies between the decision and the deletion.
  await context.db.execute(sql`UPDATE machine_owners SET discarded_at = now() WHERE machine_id = ${decided}`);
  assert.equal((await use(decided, 0)).status, 404);
  const early = machines.slice(0, 3).map(use);
  const deleted = client.call("DELETE", `/v1/pools/${id}`);
  const answers = await Promise.all([...early, ...machines.slice(3).map(use)]);
  assert.equal((await deleted).status, 204);
  const kept = machines.filter((_, at) => answers[at] !== undefined && answers[at].status < 300);
  assert.ok(kept.length > 0, "none was used");
  for (const { status } of answers) assert.ok(status < 300 || status === 404, `a use was answered with ${status}`);
  await until(async () => (await waitingIn(id)).length === kept.length, { what: "the others to be deleted" });
  assert.deepEqual(new Set(await waitingIn(id)), new Set(kept));
});

test("a pool that cannot be filled says why and keeps the tenant's ceiling, and a claim is refused with the reason", async () => {
  const small = await client.post("/v1/plans", { name: "two machines", maxMachines: 2 });
  const owner = await client.post("/v1/tenants", { name: "small", planId: small.json.id });
  const { key } = (await client.post("/v1/apikeys", { tenantId: owner.json.id })).json;
  const by = client.withKey(key);
  const id = await pool({ targetSize: 5 }, by);
  await until(async () => (await poolOf(id, by)).status === "degraded", {
    what: "the pool to say that it is not full",
  });
  assert.match(String((await poolOf(id, by)).error), /2 machines/);
  await waits(id, 2, by);
  const others = await Promise.all([1, 2, 3].map(() => by.post(`/v1/pools/${id}/claim`)));
  const codes = others.map(({ headers }) => headers.get("x-error-code"));
  assert.deepEqual(codes.toSorted(), [null, null, "quota_exceeded"]);
  const missing = await pool({ image: "nowhere/nothing:missing" });
  await until(async () => (await poolOf(missing)).status === "degraded", { what: "the image to be missing" });
  assert.match(String((await poolOf(missing)).error), /not found|no image|image/i);
  // Tried again, with the same result, and then not for a minute.
  await context.db.execute(sql`UPDATE pools SET retry_at = now() WHERE id = ${missing}`);
  const later = async () =>
    await context.db.query(sql`
      SELECT 1 FROM pools WHERE id = ${missing} AND failures = 2 AND retry_at > now() + interval '50 seconds'`);
  await until(async () => (await later()).length === 1, { what: "a second failure, and a later try" });
  await client.call("DELETE", `/v1/pools/${missing}`);
});

test("a claim that is refused leaves no machine", async () => {
  const plan = await client.post("/v1/plans", { name: "little memory", maxTotalMemoryMb: 512 });
  assert.equal(plan.status, 201, plan.text);
  const owner = await client.post("/v1/tenants", { name: "little", planId: plan.json.id });
  const { key } = (await client.post("/v1/apikeys", { tenantId: owner.json.id })).json;
  const by = client.withKey(key);
  const id = await pool({ targetSize: 0 }, by);
  const claims = await Promise.all(Array.from({ length: 5 }, () => by.post(`/v1/pools/${id}/claim`)));
  assert.deepEqual(
    claims.map(({ status }) => status).toSorted((one, other) => one - other),
    [200, 200, 422, 422, 422],
  );
  const claimed = claims.flatMap(({ status, json }) => (status === 200 ? [json.id as string] : []));
  const left = (await by.get("/v1/machines")).json as { id: string }[];
  assert.deepEqual(left.map((machine) => machine.id).toSorted(), claimed.toSorted());
  await until(async () => (await poolOf(id, by)).busyCount === 2, { what: "the refused claims to be forgotten" });
});

test("claims that are refused again and again leave no rows, which later claims would read", async () => {
  const plan = await client.post("/v1/plans", { name: "no machines", maxMachines: 0 });
  const owner = await client.post("/v1/tenants", { name: "none", planId: plan.json.id });
  const by = client.withKey((await client.post("/v1/apikeys", { tenantId: owner.json.id })).json.key);
  const id = await pool({ targetSize: 0 }, by);
  for (let count = 0; count < 3; count += 1) assert.equal((await by.post(`/v1/pools/${id}/claim`)).status, 422);
  await context.db.execute(sql`
    UPDATE pool_claims SET claimed_at = claimed_at - interval '1 minute' WHERE pool_id = ${id}`);
  await until(async () => (await context.db.query(sql`SELECT 1 FROM pool_claims WHERE pool_id = ${id}`)).length === 0, {
    what: "the refused claims to be forgotten",
  });
});

test("a repeated claim gets the machine that was made for it, also when its row was forgotten", async () => {
  const id = await pool({ targetSize: 0 });
  const headers = { "idempotency-key": "claim-forgotten" };
  const made = await client.post(`/v1/pools/${id}/claim`, undefined, { headers });
  assert.equal(made.status, 200, made.text);
  await context.db.execute(sql`DELETE FROM pool_claims WHERE machine_id = ${made.json.id}`);
  await context.db.execute(sql`UPDATE pools SET target_size = 1 WHERE id = ${id}`);
  await waits(id, 1);
  // As if the server had died before it kept the answer.
  await context.db.execute(sql`
    UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() - interval '1 second'
    WHERE idempotency_key = 'claim-forgotten'`);
  const again = await client.post(`/v1/pools/${id}/claim`, undefined, { headers });
  assert.deepEqual([again.status, again.json.id], [200, made.json.id]);
  assert.deepEqual([(await poolOf(id)).idleCount, (await poolOf(id)).busyCount], [1, 1]);
  await client.call("DELETE", `/v1/pools/${id}`);
});

test("a claim that is refused does not delete a machine that has run: another copy of the claim was answered with it", async () => {
  const fresh = await createMachine(client);
  const used = await createMachine(client);
  await client.post(`/v1/machines/${used}/start`);
  await client.post(`/v1/machines/${used}/stop`);
  const { tenantId } = (await client.get("/v1/me")).json;
  const removed = (id: string) => removeMachine(context, { tenantId, id, ifUnused: true });
  assert.deepEqual([await removed(used), (await removed(fresh))?.id], [undefined, fresh]);
  // A new start has not been observed yet.
  await context.db.execute(sql`UPDATE machines SET has_run = false WHERE id = ${used}`);
  assert.equal(await removed(used), undefined);
});

test("a waiting machine that is too old is replaced, and the pool keeps its size", async () => {
  const id = await pool({ targetSize: 3, maxIdleSecs: 3_600 });
  await waits(id, 3);
  const first = await waitingIn(id);
  await context.db.execute(sql`
    UPDATE machines SET ready_at = ready_at - interval '2 hours' WHERE id = ANY(${[...first]})`);
  await until(async () => (await waitingIn(id)).every((machine) => !first.includes(machine)), { what: "new machines" });
  await waits(id, 3);
  assert.equal((await waitingIn(id)).length, 3);
  await client.call("DELETE", `/v1/pools/${id}`);
});

test("a pool whose machines the plan forbids is refused, with the field of the pool", async () => {
  const { id: planId } = (await client.post("/v1/plans", { name: "one processor", maxCpus: 1 })).json;
  const { id: tenantId } = (await client.post("/v1/tenants", { name: "one processor", planId })).json;
  const by = client.withKey((await client.post("/v1/apikeys", { tenantId })).json.key);
  for (const [who, body] of [
    [by, {}],
    [client, { tenantId }],
  ] as const) {
    const refused = await who.post("/v1/pools", { image: IMAGE, ...body });
    assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "quota_exceeded"]);
    assert.match(refused.text, /allows 1 vCPUs per machine, and 4 is the default; name cpus, or/);
  }
  assert.equal((await by.post("/v1/pools", { image: IMAGE, cpus: 1, targetSize: 0 })).status, 200);
});

test("a pool is invisible to other tenants, and made for another tenant by an admin only", async () => {
  const [one, other] = [await tenant("first"), await tenant("second")];
  const id = await pool({ targetSize: 0 }, one);
  assert.deepEqual((await other.get("/v1/pools")).json, []);
  for (const answer of [await other.post(`/v1/pools/${id}/claim`), await other.call("DELETE", `/v1/pools/${id}`)])
    assert.equal(answer.status, 404, answer.text);
  const tenantId = (await one.get("/v1/me")).json.tenantId as string;
  assert.equal((await other.post("/v1/pools", { image: IMAGE, tenantId })).status, 403);
  const own = await one.post("/v1/pools", { image: IMAGE, tenantId });
  assert.deepEqual([own.status, own.headers.get("x-error-code")], [403, "missing_scope"], "as with keys");
  assert.equal((await client.post("/v1/pools", { image: IMAGE, tenantId, targetSize: 0 })).status, 200);
  assert.equal((await client.post("/v1/pools", { image: IMAGE, tenantId: "tenant_none" })).status, 404);
  assert.equal((await one.get("/v1/pools")).json.length, 2);
  for (const bad of [
    { image: "" },
    { image: IMAGE, targetSize: 101 },
    { image: IMAGE, targetSize: -1 },
    { image: IMAGE, cpus: 0 },
  ])
    assert.equal((await one.post("/v1/pools", bad)).status, 422, JSON.stringify(bad));
});

test("a tenant has a bounded number of pools, also when one is being made", async () => {
  const by = await tenant("greedy");
  const make = (from: number, to: number) => sql`
    INSERT INTO pools (id, tenant_id, created_by, image, has_network, target_size, created_at)
    SELECT 'pool-' || lpad(i::text, 32, '0'), id, 'key', ${IMAGE}, true, 0, now()
    FROM tenants, generate_series(${from}::int, ${to}::int) AS series(i) WHERE name = 'greedy'`;
  await context.db.execute(make(1, POOLS_MAX - 2));
  const body = { image: IMAGE, targetSize: 0 };
  assert.equal((await by.post("/v1/pools", body)).status, 200);
  const [late] = await context.db.transaction(async (transaction) => {
    await transaction.query(sql`SELECT FROM tenants WHERE name = 'greedy' FOR NO KEY UPDATE`);
    await transaction.execute(make(POOLS_MAX, POOLS_MAX));
    let isAnswered = false;
    const asked = by.post("/v1/pools", body).finally(() => (isAnswered = true));
    const waiting = sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FROM tenants%'`;
    await until(async () => isAnswered || (await context.db.queryOne(waiting)) !== undefined, {
      what: "the request to wait for the other pool",
    });
    // Not waited for: it waits for the end of this transaction.
    return [asked];
  });
  const answer = await late;
  assert.deepEqual([answer?.status, answer?.headers.get("x-error-code")], [422, "quota_exceeded"], answer?.text);
});
