/**
 * Shared pools, with two servers and two nodes: what waits on the nodes, claims of several tenants, and the end of a pool.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import type { Client } from "./support/client.ts";
import { TEST_JOIN_TOKEN } from "./support/node.ts";
import { startPreparingNode } from "./support/preparing-node.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client, context, databaseUrl } = server;
const second = await startTestServer({ databaseUrl, joinToken: TEST_JOIN_TOKEN });

/** A machine of this size cannot be prepared. */
const BROKEN_MB = 333;
const prepare = (memoryMb: number): void => {
  if (memoryMb === BROKEN_MB) throw new Error("no VM of this size starts");
};
const nodes = [
  await startPreparingNode(server, { id: "node-a", prepare }),
  await startPreparingNode(second, { id: "node-b", prepare }),
];

const IMAGE = "team/shared";

interface Pool {
  readonly id: string;
  readonly shared: boolean;
  readonly idleCount: number;
  readonly busyCount: number;
  readonly status: string;
  readonly error: string | null;
}

async function poolOf(id: string, by: Client = client): Promise<Pool> {
  const found = ((await by.get("/v1/pools")).json as Pool[]).find((each) => each.id === id);
  assert.ok(found, `pool ${id} is not listed`);
  return found;
}

async function shared(fields: object = {}): Promise<string> {
  const made = await client.post("/v1/pools", { image: IMAGE, memoryMb: 256, cpus: 1, shared: true, ...fields });
  assert.equal(made.status, 200, made.text);
  assert.deepEqual([made.json.shared, made.json.maxIdleSecs], [true, null]);
  return made.json.id;
}

const waits = (id: string, idle: number): Promise<unknown> =>
  until(async () => (await poolOf(id)).idleCount === idle, { what: `${idle} VMs to wait for ${id}` });

/** VMs that wait without a pool, on each node. */
let own: readonly number[] = [0, 0];
const waitingBesides = async (): Promise<readonly number[]> => {
  const waiting = await Promise.all(nodes.map((node) => node.waiting()));
  return waiting.map((count, at) => count - (own[at] ?? 0));
};

async function tenant(name: string, fields: object = {}): Promise<Client> {
  const { id } = (await client.post("/v1/tenants", { name, ...fields })).json;
  return client.withKey((await client.post("/v1/apikeys", { tenantId: id })).json.key);
}

interface Machine {
  readonly id: string;
  readonly state: string;
  readonly nodeId: string;
  readonly startTimings: { readonly vm?: string };
}

async function claim(id: string, by: Client, headers: Record<string, string> = {}): Promise<Machine> {
  const claimed = await by.post(`/v1/pools/${id}/claim`, undefined, { headers });
  assert.deepEqual([claimed.status, claimed.json.state], [200, "started"], claimed.text);
  return claimed.json;
}

test("a reserve waits on all nodes, claims of several tenants take it and it is prepared again, until the pool is deleted", async () => {
  await until(async () => (await waitingBesides()).every((count) => count === 5), { what: "the nodes' own VMs" });
  own = [5, 5];
  const id = await shared({ targetSize: 6 });
  await waits(id, 6);
  assert.deepEqual(await waitingBesides(), [3, 3]);
  assert.equal((await poolOf(id)).status, "ready");
  const [one, two] = [await tenant("one"), await tenant("two")];
  const claimed = await Promise.all([
    claim(id, one),
    claim(id, two),
    claim(id, second.client.withKey(one.key)),
    claim(id, two),
  ]);
  assert.equal(new Set(claimed.map((machine) => machine.id)).size, 4);
  for (const { startTimings } of claimed) assert.equal(startTimings.vm, "prepared");
  assert.deepEqual(new Set(claimed.map(({ nodeId }) => nodeId)), new Set(["node-a", "node-b"]));
  for (const by of [one, two]) {
    assert.equal((await poolOf(id, by)).busyCount, 2);
    assert.equal((await by.get("/v1/machines")).json.length, 2);
  }
  assert.equal((await poolOf(id)).busyCount, 0);
  const [mine] = (await one.get("/v1/machines")).json as Machine[];
  assert.equal((await one.post(`/v1/machines/${mine?.id}/exec`, { command: ["true"] })).json.exitCode, 0);
  assert.equal((await two.get(`/v1/machines/${mine?.id}`)).status, 404);
  await waits(id, 6);
  await until(async () => (await waitingBesides()).join() === "3,3", { what: "the reserve to be prepared again" });
  assert.equal((await one.delete(`/v1/machines/${mine?.id}`)).status, 204);
  await until(async () => (await poolOf(id, one)).busyCount === 1, { what: "the deleted machine not to count" });
  const foreign = await context.db.query(sql`
    SELECT m.id FROM machines m JOIN api_keys k ON k.id = m.created_by WHERE m.tenant_id <> k.tenant_id`);
  assert.deepEqual(foreign, [], "every machine is its claimer's");
  assert.equal((await client.delete(`/v1/pools/${id}`)).status, 204);
  // As many as machines have taken recently are still prepared.
  const sum = async (): Promise<number> => (await waitingBesides()).reduce((all, count) => all + count, 0);
  await until(async () => (await sum()) === 4, { what: "the reserve to end" });
  assert.equal((await client.delete(`/v1/pools/${id}`)).status, 404);
  assert.equal((await one.post(`/v1/pools/${id}/claim`)).status, 404);
});

test("of more claims than VMs, through both servers, each gets its own machine and no VM serves two", async () => {
  const id = await shared({ targetSize: 3, memoryMb: 258 });
  await waits(id, 3);
  const by = await Promise.all(["three", "four", "five"].map((name) => tenant(name)));
  const claimers = by.flatMap((each) => [each, second.client.withKey(each.key), each]);
  const claimed = await Promise.all(claimers.map((each) => claim(id, each)));
  assert.equal(new Set(claimed.map((machine) => machine.id)).size, 9);
  const rows = await context.db.query<{ bootId: string; tenantId: string }>(sql`
    SELECT observed_boot_id AS "bootId", tenant_id AS "tenantId" FROM machines
    WHERE id = ANY(${claimed.map((machine) => machine.id)}::text[])`);
  assert.equal(new Set(rows.map(({ bootId }) => bootId)).size, 9, "each has its own VM");
  assert.equal(new Set(rows.map(({ tenantId }) => tenantId)).size, 3);
  const prepared = claimed.filter(({ startTimings }) => startTimings.vm === "prepared");
  assert.ok(prepared.length >= 3, `${prepared.length} of 3 VMs were taken`);
  for (const each of by) assert.equal((await poolOf(id, each)).busyCount, 3);
  await client.delete(`/v1/pools/${id}`);
});

test("a claim that is repeated gets the same machine, and one of an empty reserve starts a machine", async () => {
  const id = await shared({ targetSize: 0, memoryMb: 260 });
  const by = await tenant("repeated");
  const headers = { "idempotency-key": "claim-once" };
  const machine = await claim(id, by, headers);
  assert.equal(machine.startTimings.vm, "boot");
  // As if the server had died before it kept the answer.
  await context.db.execute(sql`
    UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() - interval '1 second'
    WHERE idempotency_key = 'claim-once'`);
  assert.equal((await claim(id, by, headers)).id, machine.id);
  assert.equal((await by.get("/v1/machines")).json.length, 1);
  await client.delete(`/v1/pools/${id}`);
});

test("a claim counts for the ceilings of its tenant, and one that is refused leaves no machine", async () => {
  const plan = await client.post("/v1/plans", { name: "one machine", maxMachines: 1 });
  const by = await tenant("small", { planId: plan.json.id });
  const id = await shared({ targetSize: 2, memoryMb: 264 });
  await waits(id, 2);
  const machine = await claim(id, by);
  const refused = await by.post(`/v1/pools/${id}/claim`);
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "quota_exceeded"]);
  assert.deepEqual(
    ((await by.get("/v1/machines")).json as Machine[]).map((each) => each.id),
    [machine.id],
  );
  await client.delete(`/v1/pools/${id}`);
});

test("an ordinary start of the image and size takes a VM that waits, on its node, and the explanation says so", async () => {
  const id = await shared({ targetSize: 1, memoryMb: 268 });
  await waits(id, 1);
  const at = (await waitingOf(268)) === "node-a" ? "node-a" : "node-b";
  const request = { source: { type: "image", reference: IMAGE }, resources: { cpus: 1, memoryMb: 268 } };
  const explained = (await client.post("/v1/nodes/placement", request)).json;
  assert.equal(explained.nodeId, at);
  assert.deepEqual(
    explained.nodes.map(({ score }: { score: { prepared: number } }) => score.prepared),
    [-0.2, 0],
  );
  const by = await tenant("starter");
  const made = await by.post("/v1/machines", request);
  const started = (await by.post(`/v1/machines/${made.json.id}/start`)).json as Machine;
  assert.deepEqual([started.nodeId, started.startTimings.vm], [at, "prepared"]);
  await client.delete(`/v1/pools/${id}`);
});

/** The node on which a VM of this size waits. */
async function waitingOf(memoryMb: number): Promise<string | undefined> {
  const rows = await context.db.query<{ id: string; reserve: { memoryMb: number; waiting: number }[] }>(
    sql`SELECT id, reserve FROM nodes`,
  );
  return rows.find(({ reserve }) => reserve.some((kind) => kind.memoryMb === memoryMb && kind.waiting > 0))?.id;
}

test("a node that admits no new machine keeps no reserve, and the others keep its share", async () => {
  const id = await shared({ targetSize: 4, memoryMb: 272 });
  await waits(id, 4);
  assert.equal((await client.post("/v1/nodes/node-a/cordon")).status, 200);
  await waits(id, 4);
  const held = await context.db.query<{ id: string; count: number }>(sql`
    SELECT n.id, (SELECT coalesce(sum((r ->> 'waiting')::int), 0)::int FROM jsonb_array_elements(n.reserve) r
      WHERE (r ->> 'memoryMb')::int = 272) AS count FROM nodes n ORDER BY n.id`);
  assert.equal(held.find((node) => node.id === "node-b")?.count, 4);
  assert.equal((await client.post("/v1/nodes/node-a/uncordon")).status, 200);
  await client.delete(`/v1/pools/${id}`);
});

test("a pool whose VMs cannot be prepared says why to an admin, and a claim starts a machine without", async () => {
  const id = await shared({ targetSize: 1, memoryMb: BROKEN_MB });
  await until(async () => (await poolOf(id)).status === "degraded", { what: "the pool to be degraded" });
  assert.match(String((await poolOf(id)).error), /^node node-[ab]: no VM of this size starts$/);
  const by = await tenant("unlucky");
  assert.equal(
    (await poolOf(id, by)).error,
    "nodes cannot prepare its VMs now; a claim starts a machine without",
    "nothing of the nodes is shown",
  );
  assert.equal((await claim(id, by)).startTimings.vm, "boot");
  await client.delete(`/v1/pools/${id}`);
  const missing = await shared({ targetSize: 1, image: "team/missing" });
  await until(async () => (await poolOf(missing)).status === "degraded", { what: "the image to be missing" });
  assert.match(String((await poolOf(missing)).error), /team\/missing.* does not exist in its registry/);
  await client.delete(`/v1/pools/${missing}`);
});

test("only an admin makes and deletes shared pools, which have no tenant and no idle time", async () => {
  const by = await tenant("curious");
  const body = { image: IMAGE, shared: true };
  assert.equal((await by.post("/v1/pools", body)).status, 403);
  const tenantId = (await by.get("/v1/me")).json.tenantId as string;
  for (const [fields, text] of [
    [{ tenantId }, /has no tenant/],
    [{ maxIdleSecs: 60 }, /no machine waits/],
    [{ network: false }, /do not fetch/],
    [{ image: "no image" }, /white space/],
  ] as const) {
    const refused = await client.post("/v1/pools", { ...body, ...fields });
    assert.deepEqual([refused.status, text.test(refused.text)], [400, true], refused.text);
  }
  const id = await shared({ targetSize: 0, image: "local/busybox", network: false });
  assert.equal((await by.delete(`/v1/pools/${id}`)).status, 403);
  assert.deepEqual((await by.get("/v1/pools")).json, [await poolOf(id, by)]);
  const before = (await client.get("/health")).json.poolsTotal;
  const made = [id];
  while (made.length < 8) made.push(await shared({ targetSize: 0, image: `team/app${made.length}` }));
  assert.equal((await client.get("/health")).json.poolsTotal, before + 7);
  const refused = await client.post("/v1/pools", body);
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "quota_exceeded"]);
  for (const each of made) assert.equal((await client.delete(`/v1/pools/${each}`)).status, 204);
});
