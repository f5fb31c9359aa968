/**
 * API keys: what they permit, who may make and revoke them, and that revoking takes effect immediately, on
 * every server.
 */
import assert from "node:assert/strict";
import { readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { purgeKeys } from "../src/apikeys/store.ts";
import { sql } from "../src/db/database.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

/** Runs like the real clock, and can be set ahead. */
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

test("other spellings of scopes are accepted, and unknown or no scopes are refused", async () => {
  const { key } = await mint({ scopes: ["group:write", "app:write", "members:write"] });
  assert.deepEqual((await client.withKey(key).get("/v1/me")).json.scopes, ["app:write", "keys:write"]);
  const unknown = await client.post("/v1/apikeys", { scopes: ["machine:fly"] });
  assert.equal(unknown.status, 400);
  assert.match(unknown.text, /unknown scope "machine:fly"; known are/);
  assert.equal((await client.post("/v1/apikeys", { scopes: [] })).status, 400);
});

test("scopes that existing clients ask for and nothing needs are kept, and permit nothing", async () => {
  const scopes = ["machine:read", "volume:read", "volume:create", "ops:read", "billing:write", "members:read"];
  const maker = client.withKey((await mint({ scopes: ["keys:write", "machine:read"] })).key);
  const made = await mint({ scopes }, maker);
  const holder = client.withKey(made.key);
  assert.deepEqual((await holder.get("/v1/me")).json.scopes, scopes);
  assert.equal((await holder.get("/v1/apikeys")).status, 403);
  assert.equal((await holder.get("/v1/billing/invoices")).status, 403);
});

test("only an admin makes keys for another tenant, and they never reach beyond it", async () => {
  const tenant = (await client.post("/v1/tenants", { name: "guest" })).json.id as string;
  const { key } = await mint({ tenantId: tenant });
  const me = (await client.withKey(key).get("/v1/me")).json;
  assert.equal(me.tenantId, tenant);
  assert.ok(!me.scopes.includes("*") && !me.scopes.includes("admin"));
  assert.equal((await client.withKey(key).get("/v1/tenants")).status, 403);
  assert.equal((await client.post("/v1/apikeys", { tenantId: tenant, scopes: ["*"] })).status, 400);
  assert.equal((await client.post("/v1/apikeys", { tenantId: "absent" })).status, 404);
  const limited = client.withKey((await mint({ scopes: ["keys:write"] })).key);
  assert.equal((await limited.post("/v1/apikeys", { tenantId: tenant })).status, 403);
});

test("a revoked key is unknown immediately on this server and within moments on another", async () => {
  const { id, key } = await mint({});
  for (const each of [client, replica.client]) assert.equal((await each.withKey(key).get("/v1/me")).status, 200);
  assert.equal((await client.delete(`/v1/apikeys/${id}`)).status, 204);
  assert.equal((await client.withKey(key).get("/v1/me")).status, 401, "this server knows in the same moment");
  await until(async () => (await replica.client.withKey(key).get("/v1/me")).status === 401, { deadlineMs: 2_000 });
  assert.equal((await client.delete(`/v1/apikeys/${id}`)).status, 404);
});

test("a key revoked while another server receives no notifications is refused there too", async () => {
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

test("a key expires at its time although it was used and is cached", async () => {
  const { key } = await mint({ expiresInDays: 1 });
  assert.equal((await client.withKey(key).get("/v1/me")).status, 200);
  aheadMs = 24 * 60 * 60 * 1000 + 1;
  const answer = await client.withKey(key).get("/v1/me");
  aheadMs = 0;
  assert.deepEqual([answer.status, answer.json], [401, { code: "expired_key", error: "API key has expired" }]);
});

test("a key for minutes expires after them, and its time is named once", async () => {
  const { id, key } = await mint({ expiresInSeconds: 90, scopes: ["machine:exec"] });
  const keys = (await client.get("/v1/apikeys")).json as { id: string; createdAt: string; expiresAt: string }[];
  const shown = keys.find((item) => item.id === id);
  assert.equal(Date.parse(shown?.expiresAt ?? "") - Date.parse(shown?.createdAt ?? ""), 90_000);
  assert.equal((await client.withKey(key).get("/v1/me")).status, 200);
  aheadMs = 90_001;
  const answer = await client.withKey(key).get("/v1/me");
  aheadMs = 0;
  assert.equal(answer.status, 401);
  assert.equal((await client.post("/v1/apikeys", { expiresInSeconds: 90, expiresInDays: 1 })).status, 400);
});

test("the time of a key's last use is written a little later", async () => {
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

test("a revoked admin key stays revoked, and the next start replaces it in its file", async () => {
  const { databaseUrl } = server;
  const dataDirectory = join(server.dataDirectory, "revoked");
  const first = await startTestServer({ databaseUrl, dataDirectory });
  const id = (await first.client.get("/v1/me")).json.subject as string;
  assert.equal((await client.delete(`/v1/apikeys/${id}`)).status, 204);
  const second = await startTestServer({ databaseUrl, dataDirectory });
  assert.equal((await second.client.withKey(first.adminKey.key).get("/v1/me")).status, 401);
  assert.deepEqual([second.adminKey.isNew, (await second.client.get("/v1/tenants")).status], [true, 200]);
  assert.equal((await readFile(second.adminKey.path, "utf8")).trim(), second.adminKey.key);
  assert.equal((await stat(second.adminKey.path)).mode & 0o777, 0o600);
});

test("a key does not outlive the one that made it, for another tenant either", async () => {
  const soon = await mint({ expiresInDays: 2, scopes: ["admin"] });
  const own = client.withKey(soon.key);
  const tenantId = (await client.post("/v1/tenants", { name: "shortlived" })).json.id as string;
  const expiryOf = async (id: string, tenant: string): Promise<string | null> =>
    ((await client.get(`/v1/apikeys?tenantId=${tenant}`)).json as { id: string; expiresAt: string | null }[]).find(
      (item) => item.id === id,
    )?.expiresAt ?? null;
  const me = (await client.get("/v1/me")).json.tenantId as string;
  const parent = await expiryOf(soon.id, me);
  for (const more of [{}, { expiresInDays: null }, { tenantId }]) {
    const child = await mint(more, own);
    assert.equal(await expiryOf(child.id, "tenantId" in more ? tenantId : me), parent);
  }
  for (const more of [{}, { tenantId }]) {
    const longer = await own.post("/v1/apikeys", { expiresInDays: 3, ...more });
    assert.equal(longer.status, 400);
    assert.match(longer.text, /would outlive the key that creates it, which expires at \d{4}-/);
  }
  await mint({ expiresInDays: 1 }, own);
});

test("invalid numbers of days are refused", async () => {
  for (const expiresInDays of [0, -1, 36_501, 1e12, 0.5])
    assert.equal((await client.post("/v1/apikeys", { expiresInDays })).status, 422, String(expiresInDays));
  for (const expiresInSeconds of [0, -1, 0.5, 36_500 * 86_400 + 1])
    assert.equal((await client.post("/v1/apikeys", { expiresInSeconds })).status, 422, String(expiresInSeconds));
  for (const expiresInSeconds of [0, 1e12])
    assert.equal((await client.post("/v1/tokens", { expiresInSeconds })).status, 422, String(expiresInSeconds));
});

test("a key can revoke itself, but not a key that it could not have made", async () => {
  const manager = await mint({ scopes: ["keys:write", "machine:read"] });
  const own = client.withKey(manager.key);
  const operator = (await client.get("/v1/me")).json.subject as string;
  const stronger = await mint({ scopes: ["keys:write", "machine:exec"] });
  for (const [id, scope] of [
    [operator, "\\*"],
    [stronger.id, "machine:exec"],
  ] as const) {
    const answer = await own.delete(`/v1/apikeys/${id}`);
    assert.equal(answer.status, 403);
    assert.match(answer.text, new RegExp(`^missing scope: ${scope};`));
  }
  const administrator = client.withKey((await mint({ scopes: ["admin"] })).key);
  assert.equal((await administrator.delete(`/v1/apikeys/${operator}`)).status, 403, "admin is less than *");
  const weaker = await mint({ scopes: ["machine:read"] });
  assert.equal((await own.delete(`/v1/apikeys/${weaker.id}`)).status, 204);
  assert.equal((await own.delete(`/v1/apikeys/${manager.id}`)).status, 204);
  assert.equal((await client.get("/v1/me")).status, 200);
});

test("revoking a key leaves those it made unless it cascades, then all of its descendants are revoked", async () => {
  const line = async () => {
    const first = await mint({ scopes: ["keys:write"] });
    const second = await mint({}, client.withKey(first.key));
    const third = await mint({}, client.withKey(second.key));
    return [first, second, third] as const;
  };
  const statuses = async (keys: readonly { key: string }[]) =>
    Promise.all(keys.map(async ({ key }) => (await client.withKey(key).get("/v1/me")).status));
  const kept = await line();
  assert.equal((await client.delete(`/v1/apikeys/${kept[1].id}`)).status, 204);
  assert.deepEqual(await statuses(kept), [200, 401, 200]);
  // Also through a key that is already revoked.
  assert.equal((await client.delete(`/v1/apikeys/${kept[0].id}?cascade=true`)).status, 204);
  assert.deepEqual(await statuses(kept), [401, 401, 401]);
  const all = await line();
  assert.equal((await client.withKey(all[0].key).delete(`/v1/apikeys/${all[0].id}?cascade=true`)).status, 204);
  assert.deepEqual(await statuses(all), [401, 401, 401]);
});

test("no key survives that is made while its maker is revoked with all its descendants", async () => {
  const first = await mint({ scopes: ["keys:write"] });
  const own = client.withKey(first.key);
  const making = Array.from({ length: 40 }, () => own.post("/v1/apikeys", {}));
  await making[0];
  const revoking = client.delete(`/v1/apikeys/${first.id}?cascade=true`);
  const made = (await Promise.all(making)).filter(({ status }) => status === 200);
  assert.equal((await revoking).status, 204);
  for (const { json } of made) assert.equal((await client.withKey(json.key).get("/v1/me")).status, 401);
});

test("only admins name the tenant of a key, and admins list the keys of any tenant", async () => {
  const me = (await client.get("/v1/me")).json.tenantId as string;
  const limited = client.withKey((await mint({ scopes: ["keys:write"] })).key);
  for (const answer of [
    await limited.post("/v1/apikeys", { tenantId: me }),
    await limited.get(`/v1/apikeys?tenantId=${me}`),
  ]) {
    assert.equal(answer.status, 403);
    assert.match(answer.text, /^missing scope: admin/);
  }
  assert.equal((await limited.post("/v1/apikeys", { tenantId: null })).status, 200);
  const tenantId = (await client.post("/v1/tenants", { name: "listed" })).json.id as string;
  const { id } = await mint({ tenantId });
  const listed = (await client.get(`/v1/apikeys?tenantId=${tenantId}`)).json as { id: string }[];
  assert.deepEqual(
    listed.map((item) => item.id),
    [id],
  );
});

test("names of properties that every object has are not scopes", async () => {
  for (const scope of ["constructor", "toString", "__proto__", "hasOwnProperty"]) {
    const answer = await client.post("/v1/apikeys", { scopes: [scope] });
    assert.equal(answer.status, 400);
    assert.match(answer.text, /unknown scope/);
  }
});

test("a tenant has a bounded number of keys, also when made concurrently, and of rows of revoked ones", async () => {
  const tenantId = (await client.post("/v1/tenants", { name: "hoarder" })).json.id as string;
  const own = client.withKey((await mint({ tenantId })).key);
  const creator = (await own.get("/v1/me")).json.subject as string;
  const fill = (state: string, count: number, at: Date | null) =>
    db.execute(sql`
      INSERT INTO api_keys (id, tenant_id, key_hash, scopes, created_by, created_at, revoked_at)
      SELECT ${state} || n, ${tenantId}, sha256((${state} || n)::bytea), ARRAY['machine:read'], ${creator}, now(), ${at}
      FROM generate_series(1, ${count}::int) n`);
  await fill("good", 990, null);
  await fill("dead", 1_005, new Date());
  const made = await Promise.all(
    Array.from({ length: 20 }, () => own.post("/v1/apikeys", { scopes: ["machine:read"] })),
  );
  assert.equal(made.filter(({ status }) => status === 200).length, 9);
  const refused = made.find(({ status }) => status !== 200);
  assert.equal(refused?.status, 422);
  assert.equal(refused.text, "the tenant has 1000 API keys, which is the limit; revoke one that is unused");
  const left = await db.queryOne<{ count: number }>(
    sql`SELECT count(*)::int AS count FROM api_keys WHERE tenant_id = ${tenantId} AND revoked_at IS NOT NULL`,
  );
  const count = left?.count ?? 0;
  assert.ok(count <= 1_000 && count > 900, `${count} rows of revoked keys`);
  await db.execute(
    sql`UPDATE api_keys SET expires_at = now() - interval '1 day' WHERE tenant_id = ${tenantId} AND id LIKE 'good%'`,
  );
  assert.equal((await own.post("/v1/apikeys", {})).status, 200, "those that have expired do not count");
});

test("rows of keys that have expired are bounded, and removed 30 days later", async () => {
  const tenantId = (await client.post("/v1/tenants", { name: "short-lived" })).json.id as string;
  const own = client.withKey((await mint({ tenantId })).key);
  const creator = (await own.get("/v1/me")).json.subject as string;
  await db.execute(sql`
    INSERT INTO api_keys (id, tenant_id, key_hash, scopes, created_by, created_at, expires_at)
    SELECT 'short' || n, ${tenantId}, sha256(('short' || n)::bytea), ARRAY['machine:read'], ${creator}, now() - interval '2 days',
      now() - interval '1 day' FROM generate_series(1, 1005) n`);
  const expired = async (): Promise<number> =>
    ((await own.get("/v1/apikeys")).json as { id: string }[]).filter(({ id }) => id.startsWith("short")).length;
  assert.equal((await own.post("/v1/apikeys", { expiresInSeconds: 60 })).status, 200);
  assert.equal(await expired(), 1_000);
  const inDays = (days: number): number => server.context.clock.now() + days * 24 * 60 * 60_000;
  await purgeKeys(db, inDays(28), 10_000);
  assert.equal(await expired(), 1_000);
  await purgeKeys(db, inDays(30), 10_000);
  assert.equal(await expired(), 0);
});
