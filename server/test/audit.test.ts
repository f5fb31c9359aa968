/**
 * The audit log: every change and refusal is recorded before it is answered, in a chain that shows any change
 * of it, and holds no secret.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import type { Log } from "@flotilla/base/log";
import type { AuditEntry } from "@flotilla/contract/audit";
import { SCOPES } from "@flotilla/contract/scopes";
import { fastClock } from "../../test/support/fast-clock.ts";
import { until } from "../../test/support/until.ts";
import { appendAudit, findChain, listAudit, purgeAudit } from "../src/audit/store.ts";
import { sql } from "../src/db/database.ts";
import type { Client } from "./support/client.ts";
import { keyedNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startReceiver } from "./support/receiver.ts";
import { startTestServer } from "./support/server.ts";

const DEADLINE_MS = 10_000;
const logged: string[] = [];
const noted = (fields: object, message: string): void => void logged.push(JSON.stringify([fields, message]));
const log: Log = { debug: noted, info: noted, warn: noted, error: noted, child: () => log };
const webhooks = { webhookNetworks: ["127.0.0.0/8"], webhookHttp: true, webhookTimes: { retryMs: 10, leaseMs: 2_000 } };
const options = { ...webhooks, joinToken: TEST_JOIN_TOKEN };
const nodeListen = { host: "127.0.0.1", port: 0 };
const server = await startTestServer({ ...options, log, nodeListen });
const shared = { databaseUrl: server.databaseUrl, dataDirectory: server.dataDirectory };
const replica = await startTestServer({ ...options, ...shared });
const { client, context } = server;

let tenants = 0;

async function newTenant(scopes: readonly string[]): Promise<{ readonly id: string; readonly caller: Client }> {
  const id = (await client.post("/v1/tenants", { name: `audited ${++tenants}` })).json.id as string;
  const key = await client.post("/v1/apikeys", { tenantId: id, scopes });
  assert.equal(key.status, 200, key.text);
  return { id, caller: client.withKey(key.json.key) };
}

/** The whole log of a tenant, read by the operator. */
async function logOf(tenantId: string): Promise<readonly AuditEntry[]> {
  const answer = await client.get(`/v1/audit?limit=1000&tenantId=${tenantId}`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
}

const recorded = (tenantId: string, count: number): Promise<readonly AuditEntry[]> =>
  until(
    async () => {
      const entries = await logOf(tenantId);
      return entries.length >= count && entries;
    },
    { what: `${count} records`, deadlineMs: DEADLINE_MS },
  );

function assertIntact(
  entries: readonly Pick<AuditEntry, "tenantId" | "sequence" | "record" | "previousHash" | "hash">[],
): void {
  let before = "0".repeat(64);
  for (const [index, { tenantId, sequence, record, previousHash, hash }] of entries.entries()) {
    assert.deepEqual([sequence, previousHash], [index + 1, before]);
    const text = `${previousHash}\n${tenantId}\n${sequence}\n${record}`;
    assert.equal(hash, createHash("sha256").update(text).digest("hex"));
    before = hash;
  }
}

const source = { type: "image", reference: "local/busybox" };

test("a change is recorded before it is answered, with key, resource, address and request id; a read is not", async () => {
  const { id, caller } = await newTenant(["machine:create", "machine:read", "machine:delete"]);
  const created = await caller.post("/v1/machines", { source }, { headers: { "x-request-id": "my-request" } });
  assert.equal(created.status, 201, created.text);
  const [entry, ...others] = await logOf(id);
  assert.ok(entry !== undefined);
  assert.deepEqual(others, []);
  const { type, resource, requestId, status, errorCode, address, scopes } = entry;
  assert.deepEqual(
    { type, resource, requestId, status, errorCode, scopes },
    {
      type: "machines.createMachine",
      resource: created.json.id,
      requestId: "my-request",
      status: 201,
      errorCode: null,
      scopes: ["machine:create", "machine:read", "machine:delete"],
    },
  );
  assert.match(address, /^127\.0\.0\.1$|^::1/);
  assert.match(entry.keyId, /^key-/);
  await caller.get(`/v1/machines/${created.json.id}`);
  assert.equal((await caller.post("/v1/machines", { source: {} })).status, 422);
  assert.equal((await caller.delete("/v1/machines/mach-none")).status, 404);
  await caller.delete(`/v1/machines/${created.json.id}`);
  assert.deepEqual(
    (await logOf(id)).map((one) => [one.type, one.resource]),
    [
      ["machines.createMachine", created.json.id],
      ["machines.deleteMachine", created.json.id],
    ],
  );
});

test("calls of a known key that are refused with 401, 402 or 403 are recorded", async () => {
  const { id, caller } = await newTenant(["machine:read"]);
  assert.equal((await caller.post("/v1/machines", { source })).status, 403);
  await client.post(`/v1/tenants/${id}/suspend`);
  await until(async () => (await caller.get("/v1/machines")).status === 402, { what: "the suspension" });
  await context.db.execute(sql`UPDATE api_keys SET expires_at = now() - interval '1 hour' WHERE tenant_id = ${id}`);
  const entries = await until(
    async () => {
      // A server that does not receive notifications yet does not remember whose key it was.
      assert.equal((await replica.client.withKey(caller.key).get("/v1/machines")).status, 401);
      const found = await logOf(id);
      return found.some(({ errorCode }) => errorCode === "expired_key") && found;
    },
    { what: "the refusals", deadlineMs: DEADLINE_MS },
  );
  const codes = new Set(entries.map(({ errorCode, status }) => `${status} ${errorCode}`));
  assert.deepEqual([...codes].toSorted(), ["401 expired_key", "402 payment_required", "403 missing_scope"]);
});

test("a change is not answered with success when it cannot be recorded", async () => {
  await context.db.execute(sql`ALTER FUNCTION append_audit RENAME TO append_audit_away`);
  const refused = await client.post("/v1/tenants", { name: "unrecorded" });
  await context.db.execute(sql`ALTER FUNCTION append_audit_away RENAME TO append_audit`);
  assert.equal(refused.status, 503, refused.text);
  assert.match(refused.text, /not recorded in the audit log/);
  assert.equal((await client.post("/v1/tenants", { name: "recorded" })).status, 201);
});

test("chains are whole after calls at the same time through two servers, and tenants see their own only", async () => {
  const scopes = ["machine:create", "machine:delete", "audit:read"];
  const [one, other] = [await newTenant(scopes), await newTenant(scopes)];
  const callers = [one.caller, other.caller, replica.client.withKey(one.caller.key)];
  const answers = await Promise.all(
    Array.from({ length: 90 }, async (_, n) => (callers[n % 3] as Client).post("/v1/machines", { source })),
  );
  const made = answers.filter(({ status }) => status === 201).length;
  assert.ok(made > 10, `${made} were made`);
  const logs = await Promise.all([logOf(one.id), logOf(other.id)]);
  for (const entries of logs) assertIntact(entries);
  assert.equal(logs.flat().length, made);
  const first = await one.caller.get("/v1/audit?limit=3");
  const next = /^<([^>]+)>; rel="next"$/.exec(first.headers.get("link") ?? "")?.[1] ?? "";
  const second = await one.caller.get(next);
  assert.deepEqual([...first.json, ...second.json], logs[0]?.slice(0, 6));
  assert.equal((await one.caller.get(`/v1/audit?tenantId=${other.id}`)).status, 403);
  assert.equal((await one.caller.get(`/v1/audit/chain?tenantId=${other.id}`)).status, 403);
  const { json: chain } = await one.caller.get("/v1/audit/chain");
  assert.deepEqual([chain.sequence, chain.hash], [logs[0]?.at(-1)?.sequence, logs[0]?.at(-1)?.hash]);
});

const ALL = { after: null, limit: 10_000, keyId: null, resource: null, type: null, from: null, to: null };

test("records of many tenants that share a statement are each in the chain of their tenant, once and in their order, also from two servers", async () => {
  const known = await Promise.all([newTenant(["audit:read"]), newTenant(["audit:read"])]);
  const fresh = await context.db.query<{ id: string }>(sql`
    INSERT INTO tenants (id, name) SELECT 'tenant-unseen-' || n, 'unseen ' || n FROM generate_series(1, 3) n RETURNING id`);
  const ids = [...known, ...fresh].map(({ id }) => id);
  const at = new Date(context.clock.now()).toISOString();
  const rowsOf = (sender: string, batch: number) =>
    Array.from({ length: 25 }, (_, n) => {
      const tenantId = ids[(n * (batch + 2)) % ids.length] ?? "";
      const resource = n % 2 === 0 ? `mach-${n}/port` : null;
      const requestId = `${sender} ${batch * 100 + n} ä\n\\"`;
      const type = "machines.startMachine";
      const called = { at, requestId, type, resource, keyId: `key-${sender}`, scopes: [] };
      const record = JSON.stringify({ ...called, address: null, status: 202, errorCode: null });
      return { tenantId, at, keyId: `key-${sender}`, resource, type, record };
    });
  const sent = ["a", "b", "c"].map((sender) => Array.from({ length: 8 }, (_, batch) => rowsOf(sender, batch)));
  const databases = [context.db, replica.context.db, context.db];
  await Promise.all(
    sent.map(async (batches, n) => {
      for (const batch of batches) await appendAudit(databases[n] ?? context.db, batch);
    }),
  );
  for (const tenantId of ids) {
    const entries = await listAudit(context.db, { ...ALL, tenantId });
    assertIntact(entries);
    const chain = await findChain(context.db, tenantId);
    assert.deepEqual([chain.sequence, chain.hash], [entries.length, entries.at(-1)?.hash]);
    for (const [n, sender] of ["a", "b", "c"].entries()) {
      const own = entries.map(({ record }) => record).filter((record) => JSON.parse(record).keyId === `key-${sender}`);
      const expected = (sent[n] ?? []).flat().filter((row) => row.tenantId === tenantId);
      assert.deepEqual(
        own,
        expected.map(({ record }) => record),
      );
    }
  }
  const filtered = await listAudit(context.db, { ...ALL, tenantId: ids[0] ?? "", keyId: "key-a", resource: "mach-0" });
  const named = (sent[0] ?? []).flat().filter((row) => row.tenantId === ids[0] && row.resource === "mach-0/port");
  assert.ok(named.length > 0);
  assert.deepEqual(
    filtered.map(({ record }) => record),
    named.map(({ record }) => record),
  );
});

test("the database refuses to change or delete rows; retention deletes the oldest", async () => {
  const { id } = await newTenant(["audit:read"]);
  const rows = [400, 399, 10].map((days) => ({
    tenantId: id,
    type: "machines.x",
    at: new Date(context.clock.now() - days * 86_400_000).toISOString(),
    record: JSON.stringify({
      at: "",
      requestId: "",
      type: "machines.x",
      resource: null,
      keyId: "",
      scopes: [],
      address: "",
      status: 200,
      errorCode: null,
    }),
  }));
  await context.db.execute(sql`SELECT append_audit(${JSON.stringify(rows)}::jsonb)`);
  for (const statement of [
    sql`UPDATE audit_log SET record = '{}' WHERE tenant_id = ${id}`,
    sql`DELETE FROM audit_log WHERE tenant_id = ${id}`,
    sql`TRUNCATE audit_log`,
  ])
    await assert.rejects(context.db.execute(statement), /append-only/);
  assert.equal(await purgeAudit(context, 365, 100), 2);
  assert.deepEqual(
    (await logOf(id)).map(({ sequence }) => sequence),
    [3],
  );
});

test("no secret appears in the audit log, events, webhook bodies or the server's log", async () => {
  const { id, caller } = await newTenant(SCOPES.filter((scope) => scope !== "*" && scope !== "admin"));
  const receiver = await startReceiver();
  const webhook = await caller.post("/v1/webhooks", { url: receiver.url });
  const secretEnv = { TOKEN: "planted-variable-5f1c" };
  const machine = await caller.post("/v1/machines", { source, env: { PLAIN: "planted-plain-77aa" }, secretEnv });
  assert.equal(machine.status, 201, machine.text);
  const path = `/v1/machines/${machine.json.id}`;
  const token = await caller.post(`${path}/connect-token`, {});
  const made = await caller.post("/v1/apikeys", { description: "planted" });
  const rotated = await caller.post(`/v1/webhooks/${webhook.json.id}/secret`);
  await caller.post(`${path}/exec`, { command: ["true"], env: { A: "planted-exec-91be" } });
  await caller.delete(`/v1/apikeys/${made.json.id}`);
  await caller.call("DELETE", "/v1/machines/none", { headers: { "x-request-id": made.json.key } });
  await client.withKey(made.json.key).post("/v1/machines", { source });
  await caller.post(`/v1/webhooks/${webhook.json.id}/test`);
  await until(() => receiver.accepted.length >= 2, { what: "deliveries", deadlineMs: DEADLINE_MS });
  const entries = await recorded(id, 6);
  const shown = JSON.stringify([
    entries,
    (await caller.get("/v1/events")).json,
    (await caller.get(`/v1/webhooks/${webhook.json.id}/deliveries`)).json,
    receiver.requests.map(({ body }) => body),
    await context.db.query(sql`SELECT record FROM audit_log`),
    logged,
  ]);
  const secrets = {
    variable: "planted-variable-5f1c",
    plain: "planted-plain-77aa",
    exec: "planted-exec-91be",
    key: made.json.key,
    caller: caller.key ?? "",
    token: token.json?.token ?? "planted-nothing",
    webhook: webhook.json.secret,
    rotated: rotated.json.secret,
  };
  for (const [name, secret] of Object.entries(secrets)) {
    assert.ok(secret.length > 10, name);
    assert.ok(!shown.includes(secret), `the ${name} appears`);
  }
});

test("an operator lists the calls of all tenants page by page, and by key, resource and time; a tenant cannot", async () => {
  const began = new Date(context.clock.now()).toISOString();
  const scopes = ["machine:create", "machine:delete", "audit:read"];
  const all = [await newTenant(scopes), await newTenant(scopes)];
  const made: string[] = [];
  for (const { caller } of [...all, ...all]) made.push((await caller.post("/v1/machines", { source })).json.id);
  await all[0]?.caller.delete(`/v1/machines/${made[0]}`);
  const path = `/v1/audit?all=true&from=${began}`;
  const whole: AuditEntry[] = (await client.get(`${path}&limit=1000`)).json;
  const ours = whole.filter(({ tenantId }) => all.some(({ id }) => id === tenantId));
  assert.deepEqual(
    ours.map(({ type, resource }) => `${type} ${resource}`).toSorted(),
    [...made.map((id) => `machines.createMachine ${id}`), `machines.deleteMachine ${made[0]}`].toSorted(),
  );
  const times = whole.map(({ at }) => at);
  assert.deepEqual(times, times.toSorted());
  const paged: AuditEntry[] = [];
  for (let next: string | undefined = `${path}&limit=2`; next !== undefined; ) {
    const answer: Awaited<ReturnType<Client["get"]>> = await client.get(next);
    paged.push(...answer.json);
    next = /^<([^>]+)>; rel="next"$/.exec(answer.headers.get("link") ?? "")?.[1];
  }
  assert.deepEqual(paged.slice(0, whole.length), whole);
  const newest: AuditEntry[] = [];
  for (let next: string | undefined = `${path}&limit=3&order=desc`; next !== undefined; ) {
    const answer: Awaited<ReturnType<Client["get"]>> = await client.get(next);
    newest.push(...answer.json);
    next = /^<([^>]+)>; rel="next"$/.exec(answer.headers.get("link") ?? "")?.[1];
  }
  assert.deepEqual(newest.slice(-whole.length), whole.toReversed());
  const ofTenant: AuditEntry[] = (await client.get(`/v1/audit?tenantId=${all[0]?.id}&limit=1&order=desc`)).json;
  assert.deepEqual([ofTenant[0]?.type, ofTenant.length], ["machines.deleteMachine", 1]);
  const keyId = ours[0]?.keyId ?? "";
  const found = async (query: string) => ((await client.get(`${path}&${query}`)).json as AuditEntry[]).length;
  assert.deepEqual(
    [await found(`keyId=${keyId}`), await found(`resource=${made[0]}`), await found(`to=${began}`)],
    [3, 2, 0],
  );
  const typed = async (by: Client, query: string) =>
    ((await by.get(`/v1/audit?${query}&limit=1000`)).json as AuditEntry[]).map(({ type }) => type);
  const first = all[0]?.caller as Client;
  const [create, remove] = ["machines.createMachine", "machines.deleteMachine"];
  assert.deepEqual(await typed(first, "type=machines.*"), [create, create, remove]);
  assert.deepEqual(await typed(first, `type=${remove}`), [remove]);
  assert.deepEqual([await typed(first, "type=machines.delete"), await typed(first, "type=machine.*")], [[], []]);
  assert.deepEqual(new Set(await typed(client, `all=true&from=${began}&type=machines.*`)), new Set([create, remove]));
  const page = await first.get(`/v1/audit?type=${create}&limit=1`);
  const more = /^<([^>]+)>; rel="next"$/.exec(page.headers.get("link") ?? "")?.[1] ?? "";
  assert.deepEqual(
    ((await first.get(more)).json as AuditEntry[]).map(({ type, resource }) => [type, resource]),
    [[create, made[2]]],
  );
  const own = all[1]?.caller as Client;
  assert.equal((await own.get("/v1/audit?all=true")).status, 403);
  assert.equal((await own.get(`/v1/audit?resource=${made[0]}`)).json.length, 0, "another tenant's machine");
  assert.equal((await own.get(`/v1/audit?resource=${made[1]}`)).json.length, 1);
  for (const query of [
    `tenantId=${all[0]?.id}`,
    "cursor=1",
    "cursor=2026-02-30T00:00:00.000Z,tenant-a,1",
    "cursor=0000-01-01T00:00:00.000Z,tenant-a,1",
    `cursor=${began},tenant-a,9999999999999999999`,
    "cursor=,,",
    "keyId=%00",
    "type=machines",
    "type=*",
    `resource=${"x".repeat(129)}`,
  ])
    assert.equal((await client.get(`${path}&${query}`)).status, 422, query);
  for (const query of ["from=0000-01-01T00:00:00Z", "to=9999-12-31T23:59:59-01:00", "from=yesterday"])
    assert.equal((await client.get(`/v1/audit?all=true&${query}`)).status, 400, query);
});

test("the registration of a node is recorded in the operator's chain, and its reports are not", async () => {
  const { json: token } = await client.post("/v1/tokens", {});
  const bodyFor = keyedNode("node-audited");
  const register = (bearer: string) => client.withKey(bearer).post("/v1/nodes/register", bodyFor(bearer));
  const registered = await register(token.token);
  assert.equal(registered.status, 200, registered.text);
  const again = await register(registered.json.credential);
  assert.equal(again.status, 200, again.text);
  const own = { id: "node-own", address: "unix:/nowhere/agent.sock" };
  const { credential } = (await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", own)).json;
  assert.equal((await client.withKey(credential).post("/v1/nodes/node-own/heartbeat")).status, 200);
  await client.delete("/v1/nodes/node-audited/credential");
  const { tenantId } = (await client.get("/v1/me")).json;
  const entries = (await client.get("/v1/audit?resource=node-audited")).json as AuditEntry[];
  const me = (await client.get("/v1/me")).json.subject;
  assert.deepEqual(
    entries.map((entry) => [entry.tenantId, entry.type, entry.keyId]),
    [
      [tenantId, "nodes.registerNode", `join-token:${token.prefix}`],
      [tenantId, "nodes.registerNode", "node:node-audited"],
      [tenantId, "nodes.revokeNodeCredential", me],
    ],
  );
  assertIntact(await logOf(tenantId));
  assert.ok(!JSON.stringify(entries).includes(token.token));
  const ofOwn = (await client.get("/v1/audit?resource=node-own")).json as AuditEntry[];
  assert.deepEqual(
    ofOwn.map(({ type }) => type),
    ["nodes.registerNode"],
  );
});

test("an id that is cut in the middle of a character is recorded", async () => {
  const { id, caller } = await newTenant(["machine:read"]);
  const named = `${"x".repeat(127)}\u{1F600}`;
  assert.equal((await caller.delete(`/v1/machines/${encodeURIComponent(named)}`)).status, 403);
  const entries = await recorded(id, 1);
  assert.equal(entries[0]?.resource, `${"x".repeat(127)}\uFFFD`);
});

test("a flood of refusals has a few rows and one with the number of the others, also when the server stops in the middle", async () => {
  const { id, caller } = await newTenant(["machine:read"]);
  const own = await startTestServer({ ...options, ...shared });
  const flooding = own.client.withKey(caller.key);
  for (let call = 0; call < 40; call += 1)
    assert.equal((await flooding.post(`/v1/machines/mach-${call}/start`)).status, 403);
  await own.stop();
  const entries = await logOf(id);
  assertIntact(entries);
  assert.deepEqual(
    entries.map(({ resource, calls }) => [resource, calls]),
    [...Array.from({ length: 10 }, (_, call) => [`mach-${call}`, undefined]), [null, 30]],
  );
});

test("the number of folded refusals is written after a minute, while the server runs", async () => {
  const { id, caller } = await newTenant(["machine:read"]);
  const own = await startTestServer({ ...options, ...shared, clock: fastClock(60) });
  const flooding = own.client.withKey(caller.key);
  for (let call = 0; call < 15; call += 1) assert.equal((await flooding.post("/v1/machines/mach-x/start")).status, 403);
  const entries = await until(
    async () => (await logOf(id)).filter(({ calls }) => calls !== undefined).length > 0 && logOf(id),
    {
      what: "the row of folded calls",
      deadlineMs: DEADLINE_MS,
    },
  );
  assert.equal(
    entries.reduce((sum, { calls = 1 }) => sum + calls, 0),
    15,
  );
  assert.equal(entries.at(-1)?.resource, "mach-x");
});
