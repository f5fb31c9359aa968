/**
 * Records of volumes: kept for each tenant, without storage, which every answer says.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { VOLUMES_MAX } from "@flotilla/contract/limits";
import { sql } from "../src/db/database.ts";
import type { Client } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer();
const admin = server.client;

async function newTenant(name: string): Promise<{ readonly id: string; readonly client: Client }> {
  const id = (await admin.post("/v1/tenants", { name })).json.id as string;
  const key = await admin.post("/v1/apikeys", { tenantId: id, scopes: ["machine:read"] });
  return { id, client: admin.withKey(key.json.key) };
}

test("a volume is recorded, listed, read and deleted, and every answer says that it has no storage", async () => {
  const { client } = await newTenant("recorder");
  const made = await client.post("/v1/volumes", { name: "data", sizeGb: 10, node: "node-7" });
  assert.equal(made.status, 200, made.text);
  const { id, createdAt, ...rest } = made.json;
  assert.match(id, /^vol-[0-9a-f]{32}$/);
  assert.match(createdAt, /^2\d{3}-.*Z$/);
  assert.deepEqual(rest, { name: "data", nodeId: "node-7", sizeGb: 10, status: "unsupported", appInstanceId: null });
  const plain = await client.post("/v1/volumes", { name: "more", sizeGb: 1, node: null });
  assert.equal(plain.json.nodeId, "");
  const [all, read] = [await client.get("/v1/volumes"), await client.get(`/v1/volumes/${id}`)];
  assert.deepEqual(all.json, [made.json, plain.json]);
  assert.deepEqual(read.json, made.json);
  const deleted = await client.call("DELETE", `/v1/volumes/${id}`);
  assert.deepEqual([deleted.status, (await client.get(`/v1/volumes/${id}`)).status], [204, 404]);
  const [gone, twice] = [
    await client.call("DELETE", `/v1/volumes/${id}`),
    await client.post("/v1/volumes", plain.json),
  ];
  const invalid = await client.post("/v1/volumes", {});
  assert.deepEqual([gone.status, twice.status, invalid.status], [404, 409, 422]);
  assert.deepEqual((await client.get("/v1/volumes")).json, [plain.json]);
  for (const { headers } of [made, plain, all, read, deleted, gone, twice, invalid])
    assert.equal(headers.get("x-unsupported"), "volumes");
});

test("a name is unique in its tenant, and a lost answer can be asked for again", async () => {
  const [one, other] = [await newTenant("first owner"), await newTenant("second owner")];
  const body = { name: "data", sizeGb: 1 };
  const headers = { "idempotency-key": "volume-1" };
  const made = await one.client.post("/v1/volumes", body, { headers });
  const again = await one.client.post("/v1/volumes", body, { headers });
  assert.deepEqual([made.status, again.json], [200, made.json]);
  assert.equal((await one.client.post("/v1/volumes", body)).headers.get("x-error-code"), "name_taken");
  assert.equal((await other.client.post("/v1/volumes", body)).status, 200);
});

test("pages of volumes are complete", async () => {
  const { client } = await newTenant("many");
  for (const name of ["a", "b", "c"]) await client.post("/v1/volumes", { name, sizeGb: 1 });
  const first = await client.get("/v1/volumes?limit=2");
  const next = /<(.+)>; rel="next"/.exec(String(first.headers.get("link")))?.[1] ?? "";
  const second = await client.get(next);
  assert.deepEqual(
    [...first.json, ...second.json].map(({ name }: { name: string }) => name),
    ["a", "b", "c"],
  );
});

test("a tenant has a bounded number of volumes, also when it creates many at the same time", async () => {
  const { id, client } = await newTenant("greedy");
  await server.context.db.execute(sql`
    INSERT INTO volumes (id, tenant_id, name, node, size_gb, created_at)
    SELECT 'vol-' || lpad(i::text, 32, '0'), ${id}, 'volume ' || i, '', 1, now()
    FROM generate_series(1, ${VOLUMES_MAX - 3}::int) AS series(i)`);
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, i) => client.post("/v1/volumes", { name: `late ${i}`, sizeGb: 1 })),
  );
  const codes = answers.map(({ status, headers }) => (status === 200 ? "made" : headers.get("x-error-code")));
  assert.deepEqual([codes.filter((code) => code === "made").length, new Set(codes).size], [3, 2]);
  assert.ok(codes.includes("quota_exceeded"), codes.join());
});

test("sizes and names that no volume can have are refused", async () => {
  const { client } = await newTenant("careless");
  for (const body of [
    {},
    { name: "", sizeGb: 1 },
    { name: "x".repeat(64), sizeGb: 1 },
    { name: "x", sizeGb: 0 },
    { name: "x", sizeGb: 1.5 },
    { name: "x", sizeGb: 2 ** 53 },
    { name: "x\u0000", sizeGb: 1 },
  ]) {
    const { status } = await client.post("/v1/volumes", body);
    assert.ok(status === 400 || status === 422, `${JSON.stringify(body)}: ${status}`);
  }
});
