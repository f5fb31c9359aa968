/**
 * Tenants never see each other, on every endpoint of the contract: another tenant's resource is answered
 * exactly like one that does not exist, for every kind of key, and no list names it.
 *
 * A new endpoint cannot escape: one with a parameter in its path, or a query parameter that these tables do
 * not know, fails until the table says what it names.
 */
import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { test } from "node:test";
import type { AuditEntry } from "@flotilla/contract/audit";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { type EndpointName, endpointList } from "@flotilla/contract/endpoints";
import { SCOPES, type Scope } from "@flotilla/contract/scopes";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { branchSource } from "./support/branches.ts";
import type { Client } from "./support/client.ts";
import { httpGuest, machineWithPorts } from "./support/guest.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { sampleBody } from "./support/sample.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const guest = await httpGuest((_, response) => response.end("ok"));
const admin = server.client;
const TENANT_SCOPES = SCOPES.filter((scope) => scope !== "*" && scope !== "admin");

/** What a path's first parameter names, by the path before it. */
const RESOURCES: Readonly<Record<string, keyof Resources>> = {
  "/v1/machines/": "machine",
  "/v1/apikeys/": "apiKey",
  "/v1/operations/": "operation",
  "/v1/webhooks/": "webhook",
  "/v1/tenants/": "tenant",
  "/v1/volumes/": "volume",
  "/v1/pools/": "pool",
  "/v1/apps/": "app",
  "/v1/leases/": "lease",
  "/v1/checkpoints/": "checkpoint",
};
/** Months, which every tenant has. */
const OF_EVERY_TENANT = ["/v1/billing/invoices/"];
/** Query parameters that name a resource, and those that do not. */
const NAMING: Readonly<Record<string, keyof Resources>> = {
  tenantId: "tenant",
  machine: "machine",
  keyId: "apiKey",
  resource: "machine",
  app: "app",
};
const HARMLESS =
  /^(limit|cursor|cursors|order|after|before|search|changes|terminal|offset|label|from|to|asOf|month|meter|by|all|cascade|includeUsage|keepMemory|detach|forkable|follow|tail|format|output|path|list|reference|nodeId|cmd|command|arg|cwd|user|env|cols|rows|access_token|status|type)$/;

interface Resources {
  readonly tenant: string;
  readonly machine: string;
  readonly apiKey: string;
  readonly operation: string;
  readonly webhook: string;
  readonly volume: string;
  readonly pool: string;
  /** Its name. */
  readonly app: string;
  /** As its tenant has named it. */
  readonly lease: string;
  readonly checkpoint: string;
  readonly event: string;
  readonly session: string;
}

/** Ids that nothing has, of the same form. */
const NOTHING: Resources = {
  tenant: "tenant_00000000000000000000000000000000",
  machine: `mach-${"0".repeat(32)}`,
  apiKey: `key_${"0".repeat(32)}`,
  operation: `op-${"0".repeat(32)}`,
  webhook: `hook-${"0".repeat(32)}`,
  volume: `vol-${"0".repeat(32)}`,
  pool: `pool-${"0".repeat(32)}`,
  app: "app-that-no-tenant-has",
  lease: "lease-that-no-tenant-has",
  checkpoint: `ckpt-${"0".repeat(32)}`,
  event: "9".repeat(15),
  session: `sess-${"0".repeat(32)}`,
};

interface Tenant {
  readonly client: Client;
  readonly keyId: string;
  readonly resources: Resources;
}

async function keyOf(tenantId: string, scopes: readonly Scope[] = TENANT_SCOPES) {
  const made = await admin.post("/v1/apikeys", { tenantId, scopes });
  assert.equal(made.status, 200, made.text);
  return { id: made.json.id as string, client: admin.withKey(made.json.key) };
}

/** A tenant that has one of everything. */
async function tenantWithEverything(name: string): Promise<Tenant> {
  const tenant = (await admin.post("/v1/tenants", { name })).json.id as string;
  const { id: keyId, client } = await keyOf(tenant);
  const machine = await machineWithPorts(client, { 80: guest.port }, { name: `${name}-machine`, labels: { of: name } });
  const session = await client.post(`/v1/machines/${machine}/sessions`, { name: `${name}-session` });
  assert.equal(session.status < 300, true, session.text);
  assert.equal((await client.post(`/v1/machines/${machine}/share`)).status, 200);
  const pull = await client.post("/v1/images/pull", { reference: `team/${name}` });
  const operations = await until(
    async () => {
      const { json } = await client.get("/v1/operations");
      return json.length > 0 && json;
    },
    { what: `an operation: ${pull.text}` },
  );
  const events = (await client.get("/v1/events")).json as { id: string }[];
  const webhook = await client.post("/v1/webhooks", { url: "https://hooks.example.com/in" });
  assert.equal(webhook.status, 201, webhook.text);
  const volume = await client.post("/v1/volumes", { name: `${name}-volume`, sizeGb: 1 });
  assert.equal(volume.status, 200, volume.text);
  const pool = await client.post("/v1/pools", { image: "local/busybox", targetSize: 0 });
  assert.equal(pool.status, 200, pool.text);
  const app = await client.post("/v1/apps", { name: `app-that-is-of-${name}`, image: "local/busybox", replicas: 0 });
  assert.equal(app.status, 200, app.text);
  const { id: source } = await branchSource(client, { name: `${name}-source` });
  const lease = await client.post(`/v1/machines/${source}/assign`, { leaseId: `lease-that-is-of-${name}` });
  assert.equal(lease.status, 201, lease.text);
  const checkpoint = await client.post(`/v1/machines/${source}/checkpoints`, { name: `${name}-checkpoint` });
  assert.equal(checkpoint.status, 201, checkpoint.text);
  const resources = {
    ...{ tenant, machine, apiKey: keyId, session: session.json.id as string },
    ...{ operation: operations[0].id as string, webhook: webhook.json.id as string },
    volume: volume.json.id as string,
    pool: pool.json.id as string,
    app: app.json.name as string,
    lease: lease.json.leaseId as string,
    checkpoint: checkpoint.json.id as string,
    event: String(events[0]?.id),
  };
  for (const [kind, id] of Object.entries(resources)) assert.ok(id, `${name} has no ${kind}`);
  return { client, keyId, resources };
}

const mine = await tenantWithEverything("mine");
const theirs = await tenantWithEverything("theirs");

/** Declared as always answering 501. */
const SNAPSHOTS: readonly EndpointName[] = ["createSnapshot", "listSnapshots"];
/** What a tenant can still read of a machine that it has deleted. */
const OF_DELETED: readonly EndpointName[] = ["getMachineUsage"];
const isPending = (name: EndpointName): boolean => SNAPSHOTS.includes(name);
const served = endpointList.filter(
  ([name, { access }]) => !isPending(name) && !["public", "joinToken", "nodeCredential"].includes(String(access)),
);
function queryNames({ query = {} }: Endpoint): readonly string[] {
  const { properties = {} } = query as { properties?: object };
  return Object.keys(properties);
}

const title = ({ method, path }: Endpoint): string => `${method} ${path}`;
const isForAdmins = ({ access }: Endpoint): boolean =>
  Array.isArray(access) && access.every((each) => each === "admin");

/** What the path names; null: nothing that one tenant has, or a tenant's key cannot reach it. */
function resourceOf(endpoint: Endpoint): keyof Resources | null {
  const { path } = endpoint;
  const parameter = path.indexOf("{");
  if (parameter === -1) return null;
  const prefix = path.slice(0, parameter);
  const kind = RESOURCES[prefix];
  assert.ok(
    kind !== undefined || isForAdmins(endpoint) || OF_EVERY_TENANT.includes(prefix),
    `say in RESOURCES what the parameter of ${path} names`,
  );
  return kind ?? null;
}

function pathWith({ path }: Endpoint, resources: Resources, id?: string): string {
  const kind = RESOURCES[path.slice(0, path.indexOf("{"))];
  return path.replace(/\{([a-z_]+)(\.\.\.)?\}/g, (_, name: string) => {
    if (name === "session_id") return resources.session;
    if (name === "event") return resources.event;
    if (name === "port") return "80";
    if (name === "path") return "etc";
    return id ?? (kind === undefined ? "none-such" : resources[kind]);
  });
}

/** Status and body, without the ids that the caller itself named. */
async function ask(client: Client, endpoint: Endpoint, path: string): Promise<string> {
  const { status, text } =
    endpoint.isUpgrade === true ? await shakeHands(client, path) : await plain(client, endpoint, path);
  assert.ok(status < 500 || status === 501, `${endpoint.method} ${path}: ${status} ${text}`);
  const named = path.split(/[/?&=]/).filter((part) => part.length > 20 || part === "none-such");
  return `${status} ${named.reduce((all, id) => all.replaceAll(id, "ID"), text)}`;
}

function plain(client: Client, endpoint: Endpoint, path: string) {
  const body = endpoint.body?.kind === "bytes" ? { raw: "bytes" } : { body: sampleBody(endpoint) };
  return client.call(endpoint.method, path, endpoint.body === undefined ? {} : body);
}

/** A WebSocket handshake; an accepted one is closed. */
function shakeHands(client: Client, path: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${client.key}`,
      ...{ connection: "upgrade", upgrade: "websocket", "sec-websocket-version": "13" },
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    };
    const { hostname, port } = new URL(client.url);
    const sent = httpRequest({ hostname, port, path, headers });
    sent.on("upgrade", (response, socket) => {
      socket.destroy();
      resolve({ status: response.statusCode ?? 0, text: "" });
    });
    sent.on("response", (response) => {
      const chunks: string[] = [];
      response.setEncoding("utf8").on("data", (chunk: string) => chunks.push(chunk));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text: chunks.join("") }));
    });
    sent.on("error", reject);
    sent.end();
  });
}

/** What no answer shows whole: links and secrets, and what is to happen. */
async function rowsOf({ tenant }: Resources): Promise<readonly string[]> {
  const rows = await server.context.db.query<{ row: string }>(sql`
    WITH own AS (SELECT id FROM machines WHERE tenant_id = ${tenant})
    SELECT s::text AS row FROM machine_shares s WHERE machine_id IN (SELECT id FROM own)
    UNION ALL SELECT c::text FROM connect_tokens c WHERE machine_id IN (SELECT id FROM own)
    UNION ALL SELECT s::text FROM machine_sessions s WHERE machine_id IN (SELECT id FROM own)
    UNION ALL SELECT v::text FROM volumes v WHERE tenant_id = ${tenant}
    UNION ALL SELECT p::text FROM pools p WHERE tenant_id = ${tenant}
    UNION ALL SELECT concat_ws(' ', id, name, point_id) FROM checkpoints WHERE tenant_id = ${tenant}
    UNION ALL SELECT concat_ws(' ', id, name, count, last_release, is_public, deleted_at) FROM apps WHERE tenant_id = ${tenant}
    UNION ALL SELECT concat_ws(' ', id, url, is_enabled, secret, previous_until) FROM webhooks WHERE tenant_id = ${tenant}
    UNION ALL SELECT concat_ws(' ', id, cancel_requested_at) FROM operations WHERE tenant_id = ${tenant}
    ORDER BY row`);
  return rows.map(({ row }) => row);
}

/** What the tenant sees of itself, and what is stored. */
async function snapshotOf({ client, resources }: Tenant): Promise<unknown> {
  const machine = (await client.get(`/v1/machines/${resources.machine}`)).json;
  const { state, name, labels, url, ports, revision } = machine;
  const keys = ((await client.get("/v1/apikeys")).json as { id: string }[]).map(({ id }) => id);
  const sessions = (await client.get(`/v1/machines/${resources.machine}/sessions`)).json as { id: string }[];
  return [{ state, name, labels, url, ports, revision }, keys, sessions.map(({ id }) => id), await rowsOf(resources)];
}

test("another tenant's resource is answered like one that does not exist, and stays as it is", async () => {
  const before = await snapshotOf(theirs);
  for (const [, endpoint] of served) {
    if (!endpoint.path.includes("{")) continue;
    const kind = resourceOf(endpoint);
    const none = await ask(mine.client, endpoint, pathWith(endpoint, NOTHING));
    assert.equal(none.slice(0, 3), isForAdmins(endpoint) ? "403" : "404", `${title(endpoint)}: ${none}`);
    if (kind === null) continue;
    assert.equal(await ask(mine.client, endpoint, pathWith(endpoint, theirs.resources)), none, title(endpoint));
    for (const malformed of ["x", "mach-", "0", "%00", "..%2f..", "é"]) {
      const odd = await ask(mine.client, endpoint, pathWith(endpoint, NOTHING, encodeURI(decodeURI(malformed))));
      assert.equal(odd.slice(0, 3), none.slice(0, 3), `${title(endpoint)} with ${malformed}`);
    }
  }
  assert.deepEqual(await snapshotOf(theirs), before);
});

test("the cursor of another tenant's event is answered like one that no event has", async () => {
  const cursor = ((await theirs.client.get("/v1/events?limit=1")).json as { cursor: string }[])[0]?.cursor ?? "";
  const none = "9".repeat(15);
  const replay = (from: string) => mine.client.post(`/v1/webhooks/${mine.resources.webhook}/replay`, { cursor: from });
  const list = (from: string) => mine.client.get(`/v1/events?limit=3&cursor=${from}`);
  const [moved, unmoved, listed, unlisted] = [
    await replay(cursor),
    await replay(none),
    await list(cursor),
    await list(none),
  ];
  assert.deepEqual([moved.status, unmoved.status, listed.status], [404, 404, 200], moved.text);
  assert.equal(moved.text.replace(cursor, none), unmoved.text);
  assert.equal(listed.text, unlisted.text);
});

test("a session of another machine is not found in one's own, of whichever tenant it is", async () => {
  const source = { type: "image", reference: "local/busybox" };
  const second = (await mine.client.post("/v1/machines", { source })).json.id as string;
  const own = await mine.client.post(`/v1/machines/${second}/sessions`, {});
  assert.equal(own.status, 200, own.text);
  for (const [, endpoint] of served) {
    if (!endpoint.path.includes("{session_id}")) continue;
    const none = await ask(mine.client, endpoint, pathWith(endpoint, { ...mine.resources, session: NOTHING.session }));
    assert.equal(none.slice(0, 3), "404");
    for (const session of [theirs.resources.session, own.json.id as string]) {
      const mixed = { ...mine.resources, session };
      assert.equal(await ask(mine.client, endpoint, pathWith(endpoint, mixed)), none, title(endpoint));
    }
  }
});

/** The log without the calls that were refused: the tenant named their resources itself. */
function withoutRefused(answer: string): string {
  if (!answer.startsWith("200 ")) return answer;
  const entries = JSON.parse(answer.slice("200 ".length)) as readonly AuditEntry[];
  return JSON.stringify(entries.filter(({ status }) => status < 400));
}

/** The log without the ids that the tenant itself named in calls that were refused. */
function withoutNamed(entries: readonly AuditEntry[]): string {
  const isOwn = ({ tenantId }: AuditEntry): boolean => tenantId === mine.resources.tenant;
  assert.ok(entries.length > 0 && entries.every(isOwn), "the log has calls of other tenants' keys");
  return JSON.stringify(entries.map((entry) => (entry.status < 400 ? entry : { ...entry, resource: "", record: "" })));
}

test("no list, and no answer to a question that names another tenant's resource, contains anything of it", async () => {
  const secrets = [
    ...Object.values(theirs.resources).filter((id) => id.length > 20),
    "theirs-machine",
    "theirs-session",
    "theirs-checkpoint",
    "team/theirs",
  ];
  for (const [, endpoint] of served) {
    const names = queryNames(endpoint);
    if (isForAdmins(endpoint)) continue;
    for (const name of names)
      assert.ok(
        name in NAMING || HARMLESS.test(name),
        `say in NAMING what the parameter ${name} of ${title(endpoint)} is`,
      );
    if (endpoint.method !== "GET" || endpoint.path.includes("{")) continue;
    const answers = [await mine.client.get(endpoint.path)];
    for (const name of names.filter((each) => each in NAMING)) {
      const kind = NAMING[name] ?? "machine";
      const [other, none] = [theirs, { resources: NOTHING }].map(
        ({ resources }) => `${endpoint.path}?${name}=${resources[kind]}`,
      );
      const [ofOther, ofNone] = [
        await ask(mine.client, endpoint, other ?? ""),
        await ask(mine.client, endpoint, none ?? ""),
      ];
      const isLog = endpoint.path === "/v1/audit";
      assert.equal(isLog ? withoutRefused(ofOther) : ofOther, isLog ? withoutRefused(ofNone) : ofNone, other);
    }
    if (names.includes("cursor")) {
      const page = await theirs.client.get(`${endpoint.path}?limit=1`);
      const cursor = /[?&]cursor=([^&>]+)/.exec(page.headers.get("link") ?? "")?.[1];
      if (cursor !== undefined) answers.push(await mine.client.get(`${endpoint.path}?cursor=${cursor}`));
    }
    for (const { text, json } of answers) {
      const shown = endpoint.path === "/v1/audit" ? withoutNamed(json as readonly AuditEntry[]) : text;
      for (const secret of secrets) assert.ok(!shown.includes(secret), `${title(endpoint)} shows ${secret}: ${shown}`);
    }
  }
});

test("a key without the scope, of a suspended tenant, or revoked, learns nothing about what exists", async () => {
  const suspended = await tenantWithEverything("suspended");
  assert.equal((await admin.post(`/v1/tenants/${suspended.resources.tenant}/suspend`)).status, 204);
  const revoked = await keyOf(mine.resources.tenant);
  assert.equal((await admin.delete(`/v1/apikeys/${revoked.id}`)).status, 204);
  for (const [, endpoint] of served) {
    const all = [mine.resources, theirs.resources, suspended.resources, NOTHING];
    const ofAll = (client: Client) => Promise.all(all.map((each) => ask(client, endpoint, pathWith(endpoint, each))));
    for (const answer of await ofAll(suspended.client)) assert.match(answer, /^402 /, title(endpoint));
    for (const answer of await ofAll(revoked.client)) assert.match(answer, /^401 /, title(endpoint));
    if (!Array.isArray(endpoint.access)) continue;
    const others = TENANT_SCOPES.filter((scope) => !(endpoint.access as readonly Scope[]).includes(scope));
    const { id, client } = await keyOf(mine.resources.tenant, others);
    for (const answer of await ofAll(client)) assert.match(answer, /^403 /, title(endpoint));
    await admin.delete(`/v1/apikeys/${id}`);
  }
});

test("what was deleted is answered like what never was", async () => {
  const gone = await tenantWithEverything("gone");
  const { client, resources } = gone;
  const spare = await keyOf(resources.tenant);
  await client.delete(`/v1/machines/${resources.machine}/sessions/${resources.session}`);
  assert.ok((await client.delete(`/v1/machines/${resources.machine}`)).status < 300);
  assert.equal((await admin.delete(`/v1/apikeys/${spare.id}`)).status, 204);
  const deleted = { ...resources, apiKey: spare.id };
  for (const [name, endpoint] of served) {
    const kind = endpoint.path.includes("{") ? resourceOf(endpoint) : null;
    if (kind !== "machine" && kind !== "apiKey") continue;
    const none = await ask(client, endpoint, pathWith(endpoint, NOTHING));
    const own = await ask(client, endpoint, pathWith(endpoint, deleted));
    if (OF_DELETED.includes(name)) assert.match(own, /^200 /, title(endpoint));
    else assert.equal(own, none, title(endpoint));
    assert.equal(await ask(mine.client, endpoint, pathWith(endpoint, deleted)), none, title(endpoint));
  }
});
