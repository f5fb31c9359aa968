/**
 * Webhooks: events arrive signed, at least once and in the order of each machine; a receiver that fails, is
 * slow or is down delays no other; addresses of the operator's network are refused.
 */
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { WEBHOOKS_MAX } from "@flotilla/contract/limits";
import { sql } from "../src/db/database.ts";
import { DISABLE_AFTER_MS } from "../src/webhooks/retry.ts";
import type { Client } from "./support/client.ts";
import { type Received, startReceiver } from "./support/receiver.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const DEADLINE_MS = 60_000;
const options = {
  webhookNetworks: ["127.0.0.0/8"],
  webhookHttp: true,
  webhookTimes: { retryMs: 10, leaseMs: 2_000 },
  resolve: async (host: string) => [{ address: host === "inside.example" ? "10.0.0.7" : "127.0.0.1", family: 4 }],
};
const server = await startTestServer(options);
const replica = await startTestServer({
  ...options,
  databaseUrl: server.databaseUrl,
  dataDirectory: server.dataDirectory,
});
const { client, context } = server;

let tenants = 0;
let events = 0;

interface Tenant {
  readonly id: string;
  readonly caller: Client;
}

async function newTenant(): Promise<Tenant> {
  const id = (await client.post("/v1/tenants", { name: `receiver ${++tenants}` })).json.id as string;
  const key = await client.post("/v1/apikeys", { tenantId: id, scopes: ["webhook:write", "machine:read"] });
  return { id, caller: client.withKey(key.json.key) };
}

/** Writes events for machines in turn; their messages count them. */
async function emit(tenantId: string, { count, machines = 1 }: { count: number; machines?: number }): Promise<void> {
  const first = events + 1;
  events += count;
  await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
    SELECT 'ev-' || lpad(i::text, 32, '0'), ${tenantId}, 'machine', 'mach-' || i % ${machines}::int, 'machine.started',
      '{}', 'info', i::text, now()
    FROM generate_series(${first}::int, ${events}::int) AS series(i) ORDER BY series.i`);
}

async function newWebhook(
  { caller }: Tenant,
  url: string,
  more: object = {},
): Promise<{ id: string; secret: string; path: string }> {
  const made = await caller.post("/v1/webhooks", { url, ...more });
  assert.equal(made.status, 201, made.text);
  return { id: made.json.id, secret: made.json.secret, path: `/v1/webhooks/${made.json.id}` };
}

const arrived = (accepted: readonly Received[], count: number): Promise<unknown> =>
  until(() => new Set(accepted.map(({ id }) => id)).size >= count, {
    what: `${count} events`,
    deadlineMs: DEADLINE_MS,
  });

/** The numbers of the events of each machine, in the order in which they were first accepted. */
function firstByMachine(accepted: readonly Received[]): ReadonlyMap<string, readonly number[]> {
  const byId = new Map(accepted.toReversed().map((received) => [received.id, received]));
  const inOrder = accepted.filter((received) => byId.get(received.id) === received);
  const pairs = inOrder.map(({ event }) => [event.data.subject.id as string, Number(event.data.message)] as const);
  return new Map([...Map.groupBy(pairs, ([machine]) => machine)].map(([name, of]) => [name, of.map(([, n]) => n)]));
}

const sorted = (numbers: readonly number[]): number[] => numbers.toSorted((one, other) => one - other);

function assertSigned({ id, timestamp, signature, body }: Received, secrets: readonly string[]): void {
  const expected = secrets.map((secret) => {
    const key = Buffer.from(secret.replace("whsec_", ""), "base64");
    return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64")}`;
  });
  assert.equal(signature, expected.join(" "));
}

test("a webhook receives the events that follow its creation, signed, and no other tenant's", async () => {
  const [one, other] = [await newTenant(), await newTenant()];
  await emit(one.id, { count: 3 });
  const receiver = await startReceiver();
  const { secret } = await newWebhook(one, receiver.url);
  assert.match(secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  await emit(other.id, { count: 5 });
  const created = await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } });
  assert.equal(created.status, 201, created.text);
  await emit(one.id, { count: 2 });
  await arrived(receiver.accepted, 2);
  const [first] = receiver.accepted;
  assert.ok(first !== undefined);
  assertSigned(first, [secret]);
  const own = (await one.caller.get("/v1/events")).json as { id: string; cursor: string }[];
  assert.deepEqual(
    receiver.accepted.map(({ id }) => id),
    own.slice(3).map(({ id }) => id),
  );
  assert.deepEqual(first.event.data, own[3]);
  assert.equal(first.event.type, "machine.started");
});

test("no event is lost or overtakes one of its machine when a receiver fails one in three and replicas share the work", async () => {
  const tenant = await newTenant();
  const [COUNT, MACHINES] = [600, 20];
  let requests = 0;
  const receiver = await startReceiver(() => (requests++ % 3 === 1 ? 500 : 204));
  const second = await startReceiver();
  const { path } = await newWebhook(tenant, receiver.url);
  await newWebhook(tenant, second.url);
  for (let part = 0; part < 5; part += 1) await emit(tenant.id, { count: COUNT / 5, machines: MACHINES });
  await arrived(receiver.accepted, COUNT);
  await arrived(second.accepted, COUNT);
  for (const { accepted } of [receiver, second]) {
    const byMachine = firstByMachine(accepted);
    assert.equal(byMachine.size, MACHINES);
    for (const [machine, numbers] of byMachine) assert.deepEqual(numbers, sorted(numbers), machine);
  }
  const info = await until(
    async () => {
      const { json } = await tenant.caller.get(path);
      return json.pending === 0 && json;
    },
    { what: "an empty queue", deadlineMs: DEADLINE_MS },
  );
  assert.deepEqual([info.enabled, info.failures], [true, 0]);
  const kept = await context.db.query(sql`SELECT FROM webhook_deliveries WHERE webhook_id = ${info.id}`);
  assert.ok(kept.length <= 1001 + 300, `${kept.length} deliveries are kept`);
});

test("receivers that refuse, hang, redirect or send without end delay no other webhook of the tenant", async () => {
  const tenant = await newTenant();
  const redirected = await startReceiver();
  const bad = await startReceiver((_, response) => {
    switch (bad.requests.length % 3) {
      case 0:
        response.writeHead(302, { location: redirected.url }).end();
        return null;
      case 1:
        return null;
      default: {
        response.writeHead(200);
        const more = (): void =>
          void (response.destroyed || (response.write("x".repeat(64 * 1024)), setImmediate(more)));
        more();
        return null;
      }
    }
  });
  const good = await startReceiver();
  await newWebhook(tenant, bad.url);
  await newWebhook(tenant, "http://127.0.0.1:9/closed");
  const { path } = await newWebhook(tenant, "http://inside.example/x");
  await newWebhook(tenant, good.url);
  await emit(tenant.id, { count: 50, machines: 10 });
  await arrived(good.accepted, 50);
  await until(() => bad.requests.length > 3, { what: "attempts at the bad receiver", deadlineMs: DEADLINE_MS });
  assert.equal(redirected.requests.length, 0);
  const failed = await until(
    async () => {
      const { json } = await tenant.caller.get(`${path}/deliveries?status=pending`);
      return json.find(({ attempts }: { attempts: number }) => attempts > 0);
    },
    { what: "a failed attempt", deadlineMs: DEADLINE_MS },
  );
  assert.deepEqual(
    [failed.lastStatus, failed.lastError],
    [null, "its host has no address that is public or that the operator allows"],
  );
});

test("a receiver that answers slowly gets no further request in its turn when that is over", async () => {
  const sliceMs = 100;
  const slow = await startTestServer({ ...options, webhookTimes: { ...options.webhookTimes, sliceMs } });
  const { db, clock } = slow.context;
  const held: ServerResponse[] = [];
  const receiver = await startReceiver((_, response) => {
    held.push(response);
    return null;
  });
  const { id } = (await slow.client.post("/v1/webhooks", { url: receiver.url })).json;
  const turn = async (): Promise<number | undefined> =>
    (await db.queryOne<{ turn: number }>(sql`SELECT turn FROM webhooks WHERE id = ${id}`))?.turn;
  // Two of each of two machines.
  await db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
    SELECT 'ev-' || n, t.id, 'machine', 'mach-' || n % 2, 'machine.started', '{}', 'info', 'slow', now()
    FROM tenants t, generate_series(1, 4) n WHERE t.name = 'default'`);
  await until(() => held.length === 2, { what: "the first of each machine" });
  const begunAt = clock.monotonic();
  const first = await turn();
  await until(() => clock.monotonic() - begunAt > sliceMs, { what: "the turn to be over" });
  for (const response of held.splice(0)) response.writeHead(200).end();
  await until(() => held.length === 2, { what: "the second of each machine" });
  assert.ok((await turn()) !== first, "they were sent in the same turn");
  for (const response of held) response.writeHead(200).end();
});

test("410 disables a webhook with an event that says so, and enabling it continues where it ended", async () => {
  const tenant = await newTenant();
  const receiver = await startReceiver(() => 410);
  const watching = await startReceiver();
  const { id, path } = await newWebhook(tenant, receiver.url);
  await newWebhook(tenant, watching.url, { types: ["webhook.*"] });
  await emit(tenant.id, { count: 3 });
  await arrived(watching.accepted, 1);
  const event = watching.accepted[0]?.event;
  assert.deepEqual(
    [event.type, event.data.subject, event.data.data],
    ["webhook.disabled", { kind: "webhook", id }, { webhookId: id, reason: "its receiver answered 410 Gone" }],
  );
  assert.match(event.data.message, /disabled: its receiver answered 410 Gone; repair the receiver/);
  const disabled = (await tenant.caller.get(path)).json;
  assert.deepEqual([disabled.enabled, disabled.disabledReason], [false, "its receiver answered 410 Gone"]);
  assert.equal((await tenant.caller.post(`${path}/test`)).status, 409);
  receiver.behave = () => 200;
  await emit(tenant.id, { count: 2 });
  assert.equal((await tenant.caller.patch(path, { enabled: true })).json.disabledReason, null);
  await arrived(receiver.accepted, 6);
  const numbers = receiver.accepted.filter(({ event: one }) => one.type === "machine.started");
  assert.equal(numbers.length, 5);
  for (const [, of] of firstByMachine(numbers)) assert.deepEqual(of, sorted(of));
});

test("a webhook is disabled when no delivery has succeeded for three days", async () => {
  const tenant = await newTenant();
  const { id, path } = await newWebhook(tenant, "http://127.0.0.1:9/closed");
  await emit(tenant.id, { count: 1 });
  await until(async () => (await tenant.caller.get(path)).json.failures > 0, {
    what: "a failure",
    deadlineMs: DEADLINE_MS,
  });
  const long = new Date(context.clock.now() - DISABLE_AFTER_MS).toISOString();
  await context.db.execute(
    sql`UPDATE webhooks SET failing_since = ${long}, failures = 80, due_at = now() WHERE id = ${id}`,
  );
  const info = await until(
    async () => {
      const { json } = await tenant.caller.get(path);
      return json.enabled === false && json;
    },
    { what: "the webhook to be disabled", deadlineMs: DEADLINE_MS },
  );
  assert.match(info.disabledReason, /^no delivery has succeeded since 20/);
});

test("addresses that are not public are refused when they are given, and http is refused by default", async () => {
  const strict = await startTestServer();
  for (const url of [
    "http://example.com/",
    "https://127.0.0.1/",
    "https://2130706433/",
    "https://LOCALHOST/",
    "https://database.localhost./",
    "https://[::1]/",
    "https://169.254.169.254/latest",
    "https://[::ffff:10.0.0.1]/",
    "ftp://example.com/",
    "https://user:password@example.com/",
    "nonsense",
  ]) {
    const answer = await strict.client.post("/v1/webhooks", { url });
    assert.equal(answer.status, 400, `${url}: ${answer.text}`);
    assert.match(answer.text, /^url cannot be used for a webhook: /);
  }
  assert.equal((await client.post("/v1/webhooks", { url: "http://10.0.0.1/" })).status, 400);
  assert.equal((await client.post("/v1/webhooks", { url: "https://a.example/", types: ["x"] })).status, 422);
});

test("after a rotation both secrets sign until the previous one ends, and answers do not show them", async () => {
  const tenant = await newTenant();
  const receiver = await startReceiver();
  const { id, path, secret } = await newWebhook(tenant, receiver.url);
  const rotated = await tenant.caller.post(`${path}/secret`);
  const info = (await tenant.caller.get(path)).json;
  assert.ok(Math.abs(Date.parse(info.previousSecretUntil) - context.clock.now() - 24 * 3_600_000) < 600_000);
  await emit(tenant.id, { count: 1 });
  await arrived(receiver.accepted, 1);
  assertSigned(receiver.accepted[0] as Received, [rotated.json.secret, secret]);
  const last = await tenant.caller.post(`${path}/secret`, { keepPreviousHours: 0 });
  await emit(tenant.id, { count: 1 });
  await arrived(receiver.accepted, 2);
  assertSigned(receiver.accepted.at(-1) as Received, [last.json.secret]);
  const stored = await context.db.query(sql`SELECT row_to_json(w)::text AS text FROM webhooks w WHERE id = ${id}`);
  const shown = JSON.stringify([stored, (await tenant.caller.get("/v1/webhooks")).json]);
  for (const one of [secret, rotated.json.secret, last.json.secret]) {
    assert.ok(!shown.includes(one.slice(6)), "a secret is shown");
    assert.ok(!shown.includes(Buffer.from(one.slice(6), "base64").toString("hex")), "a secret is stored in plain");
  }
});

test("a redelivery that is asked for during an attempt is another attempt", async () => {
  const tenant = await newTenant();
  const held: ServerResponse[] = [];
  const receiver = await startReceiver((_, response) => {
    if (held.length > 0) return 200;
    held.push(response);
    return null;
  });
  const { path } = await newWebhook(tenant, receiver.url);
  await emit(tenant.id, { count: 1 });
  await until(() => held.length === 1, { what: "the first attempt", deadlineMs: DEADLINE_MS });
  const again = await tenant.caller.post(`${path}/deliveries/${receiver.requests[0]?.id}/redeliver`);
  assert.equal(again.status, 202, again.text);
  held[0]?.writeHead(200).end();
  await until(() => receiver.requests.length === 2, { what: "the redelivery", deadlineMs: DEADLINE_MS });
  assert.equal(receiver.requests[1]?.id, receiver.requests[0]?.id);
});

test("tests, redeliveries and replays arrive with the ids of their events", async () => {
  const tenant = await newTenant();
  const receiver = await startReceiver();
  const { path } = await newWebhook(tenant, receiver.url);
  const tried = await tenant.caller.post(`${path}/test`);
  assert.deepEqual([tried.status, tried.json.type, tried.json.status], [202, "webhook.test", "pending"]);
  await arrived(receiver.accepted, 1);
  assert.equal(receiver.accepted[0]?.body, tried.json.body);
  await emit(tenant.id, { count: 4 });
  await arrived(receiver.accepted, 5);
  const [, , second] = receiver.accepted;
  const again = await tenant.caller.post(`${path}/deliveries/${second?.id}/redeliver`);
  assert.equal(again.status, 202, again.text);
  await until(() => receiver.accepted.length === 6, { what: "the redelivery", deadlineMs: DEADLINE_MS });
  assert.deepEqual([receiver.accepted[5]?.id, receiver.accepted[5]?.body], [second?.id, second?.body]);
  const replayed = await tenant.caller.post(`${path}/replay`, { cursor: second?.event.data.cursor });
  assert.equal(replayed.status, 202, replayed.text);
  await until(() => receiver.accepted.length === 8, { what: "the replay", deadlineMs: DEADLINE_MS });
  assert.deepEqual(
    receiver.accepted.slice(6).map(({ id }) => id),
    receiver.accepted.slice(3, 5).map(({ id }) => id),
  );
  assert.equal((await tenant.caller.post(`${path}/replay`)).status, 202);
  await until(() => receiver.accepted.length === 12, { what: "the whole replay", deadlineMs: DEADLINE_MS });
  assert.equal((await tenant.caller.post(`${path}/replay`, { cursor: "999999999" })).status, 404);
  const wrong = await tenant.caller.post(`${path}/replay`, { cursor: "none" });
  assert.deepEqual(
    [wrong.status, wrong.text],
    [422, "cursor is not valid; take it from an event; GET /v1/events lists them"],
  );
  assert.equal((await tenant.caller.post(`${path}/deliveries/ev-none/redeliver`)).status, 404);
  const listed = await until(
    async () => {
      const { json } = await tenant.caller.get(`${path}/deliveries?status=delivered`);
      return json.length === 5 && json;
    },
    { what: "five delivered events", deadlineMs: DEADLINE_MS },
  );
  const first = await tenant.caller.get(`${path}/deliveries?limit=3`);
  const next = /^<([^>]+)>; rel="next"$/.exec(first.headers.get("link") ?? "")?.[1] ?? "";
  const rest = await tenant.caller.get(next);
  assert.deepEqual([...first.json, ...rest.json], listed);
});

test("a webhook is changed, limited to types, paused and deleted by its tenant alone", async () => {
  const [tenant, stranger] = [await newTenant(), await newTenant()];
  const receiver = await startReceiver();
  const { id, path } = await newWebhook(tenant, receiver.url, { types: ["machine.failed"], description: "a" });
  await emit(tenant.id, { count: 2 });
  assert.equal((await stranger.caller.get(path)).status, 404);
  assert.equal((await stranger.caller.patch(path, { enabled: false })).status, 404);
  assert.equal((await stranger.caller.delete(path)).status, 404);
  assert.deepEqual((await stranger.caller.get("/v1/webhooks")).json, []);
  await until(
    async () =>
      (await tenant.caller.get(path)).json.cursor === (await tenant.caller.get("/v1/events")).json.at(-1).cursor,
    {
      what: "the events to be read",
      deadlineMs: DEADLINE_MS,
    },
  );
  const last = (await tenant.caller.get("/v1/events")).json.at(-1).cursor;
  await until(async () => (await tenant.caller.get(path)).json.cursor === last, {
    what: "the events to be read",
    deadlineMs: DEADLINE_MS,
  });
  const changed = (await tenant.caller.patch(path, { types: null, description: null, enabled: false })).json;
  assert.deepEqual(
    [changed.types, changed.description, changed.enabled, changed.url],
    [null, null, false, receiver.url],
  );
  await emit(tenant.id, { count: 1 });
  await tenant.caller.patch(path, { enabled: true });
  await arrived(receiver.accepted, 1);
  assert.equal(receiver.accepted.length, 1);
  assert.equal((await tenant.caller.delete(path)).status, 204);
  assert.equal((await tenant.caller.get(path)).status, 404);
  assert.deepEqual(await context.db.query(sql`SELECT FROM webhook_deliveries WHERE webhook_id = ${id}`), []);
});

test("a tenant has at most its number of webhooks, however many are made at the same time on two servers", async () => {
  const { id, caller } = await newTenant();
  const other = replica.client.withKey(caller.key);
  const answers = await Promise.all(
    Array.from({ length: WEBHOOKS_MAX * 2 }, (_, n) =>
      (n % 2 === 0 ? caller : other).post("/v1/webhooks", { url: `https://a.example/${n}` }),
    ),
  );
  const statuses = answers.map(({ status }) => status);
  assert.equal(statuses.filter((status) => status === 201).length, WEBHOOKS_MAX, statuses.join(" "));
  assert.equal(statuses.filter((status) => status === 422).length, WEBHOOKS_MAX, statuses.join(" "));
  assert.equal((await caller.get("/v1/webhooks")).json.length, WEBHOOKS_MAX);
  await context.db.execute(sql`DELETE FROM webhooks WHERE tenant_id = ${id}`);
});

test("nothing is delivered for a suspended tenant until it is reactivated", async () => {
  const tenant = await newTenant();
  const receiver = await startReceiver();
  await newWebhook(tenant, receiver.url);
  await client.post(`/v1/tenants/${tenant.id}/suspend`);
  await emit(tenant.id, { count: 1 });
  const other = await newTenant();
  const proof = await startReceiver();
  await newWebhook(other, proof.url);
  await emit(other.id, { count: 1 });
  await arrived(proof.accepted, 1);
  assert.equal(receiver.requests.length, 0);
  await client.post(`/v1/tenants/${tenant.id}/reactivate`);
  await arrived(receiver.accepted, 1);
});

test("a server without the key of a webhook's secret leaves it to the others", async () => {
  const own = await startTestServer(options);
  // Its data directory has no secrets.key, or another one.
  const stranger = await startTestServer({ ...options, databaseUrl: own.databaseUrl });
  const machine = { source: { type: "image", reference: "local/busybox" }, secretEnv: { A: "makes a key" } };
  assert.equal((await stranger.client.post("/v1/machines", machine)).status, 201);
  const receiver = await startReceiver();
  const { id } = (await own.client.post("/v1/webhooks", { url: receiver.url })).json;
  assert.equal((await own.client.post("/v1/machines", { source: machine.source })).status, 201);
  await arrived(receiver.accepted, 1);
  await own.stop();
  assert.equal((await stranger.client.post("/v1/machines", { source: machine.source })).status, 201);
  assert.equal((await stranger.client.post(`/v1/webhooks/${id}/test`)).status, 202);
  const turn = async (): Promise<unknown> =>
    await stranger.context.db.queryOne(sql`SELECT turn, due_at <= now() AS "isDue" FROM webhooks WHERE id = ${id}`);
  const before = await turn();
  // Its loop has run since: it delivers for its own webhook.
  const proof = await startReceiver();
  await stranger.client.post("/v1/webhooks", { url: proof.url });
  assert.equal((await stranger.client.post("/v1/machines", { source: machine.source })).status, 201);
  await arrived(proof.accepted, 1);
  assert.deepEqual(await turn(), before);
  assert.equal((before as { isDue: boolean }).isDue, true);
});
