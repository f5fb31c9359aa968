/**
 * API keys: what they may do, who may make them, and that revoking takes effect at once, on every server.
 */
import assert from "node:assert/strict";
import { readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import type { Clock } from "../src/context.ts";
import { systemClock } from "../src/clock.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "./support/until.ts";

/** Goes like the real clock, and can be put forward. */
let aheadMs = 0;
const clock: Clock = { ...systemClock, now: () => systemClock.now() + aheadMs };

const server = await startTestServer({ clock });
const replica = await startTestServer({ clock, databaseUrl: server.databaseUrl });
const { client } = server;
const { db } = server.context;

const mint = async (body: object, as = client): Promise<{ id: string; key: string }> => {
  const answer = await as.post("/v1/apikeys", body);
  assert.equal(answer.status, 200, answer.text);
  return answer.json as { id: string; key: string };
};

test("a key is shown once, is long, and only its hash is kept", async () => {
  const { id, key } = await mint({ description: "shown once" });
  assert.match(key, /^smk_[A-Za-z0-9_-]{43}$/);
  assert.match(id, /^key-[0-9a-f]{32}$/);
  const listed = (await client.get("/v1/apikeys")).json as { id: string }[];
  assert.deepEqual(Object.keys(listed.find((item) => item.id === id) ?? {}).sort(), [
    "createdAt",
    "createdBy",
    "description",
    "expiresAt",
    "id",
    "lastUsedAt",
    "scopes",
  ]);
  const rows = await db.query<{ row: string }>(sql`SELECT api_keys::text AS row FROM api_keys`);
  for (const { row } of rows) assert.ok(!row.includes(key.slice(4)));
});

test("a new key has its creator's scopes unless others are named", async () => {
  const { key } = await mint({ scopes: ["keys:write", "machine:read"] });
  const made = await mint({}, client.withKey(key));
  assert.deepEqual((await client.withKey(made.key).get("/v1/me")).json.scopes, ["keys:write", "machine:read"]);
});

test("a key grants no more than its creator has", async () => {
  const limited = client.withKey((await mint({ scopes: ["keys:write", "machine:read"] })).key);
  for (const scope of ["machine:exec", "admin", "*"]) {
    const answer = await limited.post("/v1/apikeys", { scopes: ["machine:read", scope] });
    assert.deepEqual([answer.status, answer.text], [403, `missing scope: ${scope}`]);
  }
  const administrator = client.withKey((await mint({ scopes: ["admin"] })).key);
  assert.equal((await administrator.post("/v1/apikeys", { scopes: ["*"] })).status, 403, "admin is less than *");
});

test("other spellings of scopes are taken, and unknown or no scopes are refused", async () => {
  const { key } = await mint({ scopes: ["group:write", "app:write", "members:write"] });
  assert.deepEqual((await client.withKey(key).get("/v1/me")).json.scopes, ["app:write", "keys:write"]);
  const unknown = await client.post("/v1/apikeys", { scopes: ["machine:fly"] });
  assert.equal(unknown.status, 400);
  assert.match(unknown.text, /unknown scope "machine:fly"; known are/);
  assert.equal((await client.post("/v1/apikeys", { scopes: [] })).status, 400);
});

test("only an admin makes keys for another tenant, and they never reach beyond it", async () => {
  const tenant = (await client.post("/v1/tenants", { name: "guest" })).json.id as string;
  const { key } = await mint({ tenantId: tenant });
  const me = (await client.withKey(key).get("/v1/me")).json;
  assert.equal(me.tenantId, tenant);
  assert.ok(!me.scopes.includes("*") && !me.scopes.includes("admin"));
  assert.equal((await client.withKey(key).get("/v1/tenants")).status, 403);
  assert.equal((await client.post("/v1/apikeys", { tenantId: tenant, scopes: ["*"] })).status, 400);
  assert.equal((await client.post("/v1/apikeys", { tenantId: "nobody" })).status, 404);
  const limited = client.withKey((await mint({ scopes: ["keys:write"] })).key);
  assert.equal((await limited.post("/v1/apikeys", { tenantId: tenant })).status, 403);
});

test("a revoked key is unknown at once on this server and within moments on another", async () => {
  const { id, key } = await mint({});
  for (const each of [client, replica.client]) assert.equal((await each.withKey(key).get("/v1/me")).status, 200);
  assert.equal((await client.delete(`/v1/apikeys/${id}`)).status, 204);
  assert.equal((await client.withKey(key).get("/v1/me")).status, 401, "this server knows in the same moment");
  await until(async () => (await replica.client.withKey(key).get("/v1/me")).status === 401, { deadlineMs: 2_000 });
  assert.equal((await client.delete(`/v1/apikeys/${id}`)).status, 404);
});

test("a key revoked while another server hears nothing is refused there too", async () => {
  const { id, key } = await mint({});
  assert.equal((await replica.client.withKey(key).get("/v1/me")).status, 200);
  await db.query(
    sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flotilla listener'`,
  );
  await until(() => !replica.context.db.isListening());
  assert.equal((await client.delete(`/v1/apikeys/${id}`)).status, 204);
  assert.equal((await replica.client.withKey(key).get("/v1/me")).status, 401);
});

test("a tenant's key cannot revoke another tenant's key, an admin's can", async () => {
  const tenant = (await client.post("/v1/tenants", { name: "neighbour" })).json.id as string;
  const theirs = await mint({ tenantId: tenant });
  const mine = await mint({});
  assert.equal((await client.withKey(theirs.key).delete(`/v1/apikeys/${mine.id}`)).status, 404);
  assert.equal((await client.withKey(mine.key).get("/v1/me")).status, 200);
  assert.equal((await client.delete(`/v1/apikeys/${theirs.id}`)).status, 204);
});

test("a key expires at its time although it was used and is remembered", async () => {
  const { key } = await mint({ expiresInDays: 1 });
  assert.equal((await client.withKey(key).get("/v1/me")).status, 200);
  aheadMs = 24 * 60 * 60 * 1000 + 1;
  const answer = await client.withKey(key).get("/v1/me");
  aheadMs = 0;
  assert.deepEqual([answer.status, answer.json], [401, { code: "expired_key", error: "API key has expired" }]);
});

test("when a key was last used is written a little later", async () => {
  const { id, key } = await mint({});
  const lastUsed = async () =>
    ((await client.get("/v1/apikeys")).json as { id: string; lastUsedAt: string | null }[]).find(
      (item) => item.id === id,
    )?.lastUsedAt;
  assert.equal(await lastUsed(), null);
  await client.withKey(key).get("/v1/me");
  await until(async () => ((await lastUsed()) ?? null) !== null);
});

test("the admin key's file is readable by its owner only, and a lost one is replaced", async () => {
  const path = join(server.dataDirectory, "admin.key");
  assert.equal(server.adminKey.path, path);
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.equal((await readFile(path, "utf8")).trim(), server.adminKey.key);
  assert.equal(server.adminKey.isNew, true);
  const { dataDirectory, databaseUrl } = server;
  const again = await startTestServer({ databaseUrl, dataDirectory: join(dataDirectory, "kept") });
  assert.notEqual(again.adminKey.key, server.adminKey.key);
  assert.equal((await again.client.get("/v1/tenants")).status, 200);
  const known = await startTestServer({ databaseUrl, dataDirectory: join(dataDirectory, "kept") });
  assert.deepEqual([known.adminKey.key, known.adminKey.isNew], [again.adminKey.key, false]);
  await writeFile(join(dataDirectory, "kept/admin.key"), "nonsense\n");
  await assert.rejects(
    startTestServer({ databaseUrl, dataDirectory: join(dataDirectory, "kept") }),
    /holds no API key/,
  );
  await rm(join(dataDirectory, "kept"), { recursive: true });
});

test("a revoked admin key stays revoked after a restart", async () => {
  const { databaseUrl } = server;
  const dataDirectory = join(server.dataDirectory, "revoked");
  const first = await startTestServer({ databaseUrl, dataDirectory });
  const id = (await first.client.get("/v1/me")).json.subject as string;
  assert.equal((await client.delete(`/v1/apikeys/${id}`)).status, 204);
  const second = await startTestServer({ databaseUrl, dataDirectory });
  assert.equal((await second.client.get("/v1/me")).status, 401);
});
