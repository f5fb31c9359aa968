/**
 * A fleet to look at in the console: machines in every state, apps in the middle of rollouts, pools,
 * webhooks, keys, tenants with months of invoices. Tests of pages and
 * `npm run console:demo` fill theirs with it.
 *
 *     await using flotilla = await startFlotilla({ nodes: 3, serverEnvironment: () => FLEET_SETTINGS });
 *     await using fleet = await fillFleet(flotilla);
 *
 * Always: everything is made through the API, of a real server; only the VMs are scripted (the fake driver).
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import pg from "pg";
import { connectToRunning } from "../../server/src/embedded-postgres/embedded.ts";
import type { Client } from "../../server/test/support/client.ts";
import type { Flotilla } from "./flotilla.ts";
import { until } from "./until.ts";

/** What a server needs so that webhooks reach a receiver on loopback. */
export const FLEET_SETTINGS = { FLOTILLA_WEBHOOK_NETWORKS: "127.0.0.0/8", FLOTILLA_WEBHOOK_HTTP: "yes" } as const;

/** Texts that a page must show as they are. A page that runs one of them changes its title to `run`. */
const HOSTILE_TEXTS = [
  `"><img src=x onerror="document.title='run'"><script>document.title='run'</script>`,
  `'};document.title='run';//\${document.title='run'}{{constructor.constructor("document.title='run'")()}}`,
  `javascript:document.title='run'`,
  "safe\u202Egpj.exe\u2066\u200B\u0007\u001B]0;run\u0007\u001B[31m",
  "long ".repeat(20) + "x".repeat(400),
] as const;
const [MARKUP, TEMPLATE, SCRIPT_URL, BIDI, LONG] = HOSTILE_TEXTS;

const SMALL = { cpus: 1, memoryMb: 128, diskGb: 1 } as const;
const FOREVER = "sleep 1000000";
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export interface FleetOptions {
  /** Also texts that a page must not run. */
  readonly isHostile?: boolean;
}

/** What was made, by the names under which it is shown. */
export interface Fleet extends AsyncDisposable {
  readonly machines: ReadonlyMap<string, string>;
  readonly apps: readonly string[];
  readonly webhooks: readonly string[];
  /** The tenant with a test clock, whose months are over. */
  readonly tenantId: string;
  /** A key of that tenant that may do all but what operators do. */
  readonly ownerKey: string;
  /** The tenant's invoices, the first month first. */
  readonly invoices: readonly string[];
}

/** What a tenant's owner may do: all that is not an operator's. */
const OWNER_SCOPES = [
  ...["machine:read", "machine:create", "machine:delete", "machine:exec", "machine:files", "app:read", "app:write"],
  ...["usage:read", "billing:read", "keys:write", "pool:write", "webhook:write", "audit:read"],
] as const;

/** Fills a Flotilla with nodes of the fake driver. */
export async function fillFleet(flotilla: Flotilla, { isHostile = false }: FleetOptions = {}): Promise<Fleet> {
  const client = flotilla.client();
  const machines = await makeMachines(flotilla, client);
  const apps = await makeApps(client);
  const receiver = await startReceiver();
  const webhooks = await makeWebhooks(client, receiver.port);
  await makeRest(client, machines);
  const tenants = await makeTenants(client);
  if (isHostile) await makeHostile(flotilla, client, machines);
  return { machines, apps, webhooks, ...tenants, [Symbol.asyncDispose]: receiver.stop };
}

/** The addresses of the pages that are different for the owner of the tenant with the test clock. */
export const pagesOfOwner = ({ invoices }: Fleet): readonly string[] => [
  ...["", "machines", "usage", "keys", "audit", "settings"],
  ...invoices.map((id) => `usage/${id}`),
];

/** The address of every page, below `/console/`, with each of its tabs. */
export function pagesOf(fleet: Fleet): readonly string[] {
  const machine = (name: string): string => `machines/${fleet.machines.get(name)}`;
  return [
    ...["", "machines", "machines?q=team%3Dcore", "machines/create", "apps", "apps/deploy", "images", "pools"],
    ...["nodes", "nodes/node-0", "operations", "events", "webhooks", "usage", "keys", "tenants", "audit", "settings"],
    ...fleet.webhooks.map((id) => `webhooks/${id}`),
    ...["", "/terminal", "/logs", "/files", "/timeline", "/usage"].map((tab) => machine("notebook") + tab),
    machine("web-1") + "/logs",
    ...["web-1", "paused-work", "does-not-boot", "waits-for-its-image"].map(machine),
    ...(fleet.machines.has("hostile")
      ? [machine("hostile"), `${machine("hostile")}/logs`, `${machine("hostile")}/files?path=/workspace`]
      : []),
    ...fleet.apps.map((name) => `apps/${name}`),
    "nowhere",
  ];
}

/** The answer's body; throws when it was refused. */
async function made(
  client: Client,
  path: string,
  body?: object,
): Promise<{ readonly id: string; readonly key: string }> {
  const answer = await client.post(path, body);
  assert.ok(answer.status >= 200 && answer.status < 300, `${path}: ${answer.status} ${answer.text}`);
  return answer.json;
}

const WEB = ["sh", "-c", `echo listening on port 80; listen 80 200; echo GET / 200; ${FOREVER}`];
const BUILD = ["sh", "-c", `echo fetching sources; echo 'warning: 2 tests are slow' >&2; echo done; ${FOREVER}`];

const STARTED = [
  { name: "web-1", labels: { team: "shop", role: "web" }, ports: [{ port: 80 }], public: true, command: WEB },
  { name: "web-2", labels: { team: "shop", role: "web" }, ports: [{ port: 80 }], command: WEB },
  { name: "build-runner", labels: { team: "core" }, command: BUILD, env: { CI: "true", CACHE: "/var/cache/build" } },
  { name: "notebook", labels: { team: "research" }, autoStopSeconds: 3600, forkable: true, branchable: true },
  { name: "postgres", labels: { team: "core", keep: "yes" }, restart: "always", command: WEB },
  { name: "agent-of-anna", labels: { team: "research" }, ttlSeconds: 86_400, ephemeral: true },
] as const;

async function makeMachines(flotilla: Flotilla, client: Client): Promise<Map<string, string>> {
  const machines = new Map<string, string>();
  const make = async (name: string, fields: object, reference = "debian:13"): Promise<string> => {
    const source = { type: "image", reference };
    const { id } = await made(client, "/v1/machines", { name, source, resources: SMALL, ...fields });
    machines.set(name, id);
    return id;
  };
  await Promise.all(
    STARTED.map(async ({ name, ...fields }) => await flotilla.start(await make(name, fields, "python:3.13"))),
  );
  const stopped = await make("old-staging", { labels: { team: "shop" } }, "nginx:1.29");
  await flotilla.start(stopped);
  await flotilla.stop(stopped);
  await make("never-started", {});
  const suspended = await make("paused-work", { labels: { team: "research" } });
  await flotilla.start(suspended);
  await client.post(`/v1/machines/${suspended}/stop?keepMemory=true`);
  const failed = await make("does-not-boot", { env: { FAKE_BOOT_FAIL: "1" }, labels: { team: "core" } });
  await client.post(`/v1/machines/${failed}/start?detach=true`);
  const waiting = await make("waits-for-its-image", {}, `ghcr.io/team/slow-${DAY_MS}`);
  await client.post(`/v1/machines/${waiting}/start?detach=true`);
  const absent = await make("image-is-missing", {}, "ghcr.io/team/missing:2");
  await client.post(`/v1/machines/${absent}/start?detach=true`);
  await flotilla.untilState(failed, "error");
  const notebook = machines.get("notebook") ?? "";
  for (const [path, content] of [
    ["/workspace/notes.md", "# Notes\n\n- the first run took 40 s\n"],
    ["/workspace/data/prices.csv", "day,price\n1,12\n2,14\n"],
  ]) {
    const answer = await client.call("PUT", `/v1/machines/${notebook}/files${path}`, { raw: content ?? "" });
    assert.equal(answer.status, 204, answer.text);
  }
  await made(client, `/v1/machines/${notebook}/checkpoints`, { name: "before-the-experiment" });
  const branch = await client.post(`/v1/machines/${notebook}/branches`, { name: "notebook-try" });
  if (branch.status === 201) machines.set("notebook-try", branch.json.id);
  return machines;
}

async function makeApps(client: Client): Promise<readonly string[]> {
  const deploy = async (name: string, fields: object): Promise<void> => {
    await made(client, "/v1/apps", { name, image: "nginx:1.29", memoryMb: 128, cpus: 1, port: 80, ...fields });
  };
  const untilStatus = async (name: string, status: string): Promise<void> => {
    const isSo = async (): Promise<boolean> => (await client.get(`/v1/apps/${name}`)).json.status === status;
    await until(isSo, { what: `app ${name} to be ${status}` });
  };
  await Promise.all([
    deploy("shop", { replicas: 3, env: [{ key: "MODE", value: "production" }] }),
    deploy("api", { replicas: 2 }),
    deploy("broken", { replicas: 1, env: [{ key: "FAKE_BOOT_FAIL", value: "1" }], placingDeadlineSecs: 5 }),
  ]);
  await Promise.all([untilStatus("shop", "running"), untilStatus("api", "running")]);
  const canary = { type: "canary", canaryCount: 1, autoPromote: false };
  await deploy("shop", { image: "nginx:1.30", replicas: 3, strategy: canary });
  await untilStatus("shop", "awaitingPromotion");
  return ["shop", "api", "broken"];
}

/** Accepts every webhook. */
async function startReceiver(): Promise<{ readonly port: number; readonly stop: () => Promise<void> }> {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(204).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return { port: (server.address() as AddressInfo).port, stop };
}

async function makeWebhooks(client: Client, port: number): Promise<readonly string[]> {
  const url = (path: string, at = port): string => `http://127.0.0.1:${at}/${path}`;
  const good = await made(client, "/v1/webhooks", { url: url("deploys"), description: "posts to the chat" });
  const types = ["machine.failed"];
  const bad = await made(client, "/v1/webhooks", { url: url("pager", 9), description: "the pager", types });
  await made(client, `/v1/webhooks/${good.id}/test`);
  await made(client, `/v1/webhooks/${bad.id}/test`);
  return [good.id, bad.id];
}

async function makeRest(client: Client, machines: ReadonlyMap<string, string>): Promise<void> {
  await made(client, "/v1/pools", { image: "python:3.13", targetSize: 2, memoryMb: 128, cpus: 1 });
  await made(client, "/v1/pools", { image: "ghcr.io/team/missing:2", targetSize: 1 });
  for (const reference of ["alpine:3.22", "ghcr.io/team/broken:1"]) await client.post("/v1/images/pull", { reference });
  await made(client, "/v1/apikeys", {
    description: "continuous integration",
    scopes: ["machine:read", "machine:create"],
  });
  await made(client, "/v1/apikeys", { description: "dashboard", scopes: ["machine:read"], expiresInDays: 30 });
  const nodes = (await client.get("/v1/nodes")).json as { readonly id: string }[];
  const free = nodes.at(-1)?.id;
  if (nodes.length > 1 && free !== undefined) {
    await client.post(`/v1/machines/${machines.get("web-2")}/move`, { nodeId: free });
    await made(client, `/v1/nodes/${nodes.at(-2)?.id}/cordon`);
  }
}

/** A tenant whose last two months are over, and one that is suspended. */
async function makeTenants(client: Client): Promise<Pick<Fleet, "tenantId" | "ownerKey" | "invoices">> {
  const rates = { rateCpuHourMicros: 40_000, rateMemoryGbHourMicros: 5_000, rateEgressGbMicros: 90_000 };
  const plan = await made(client, "/v1/plans", { name: "Team", ...rates, monthlyBudgetMicros: 500_000_000 });
  const tenant = await made(client, "/v1/tenants", { name: "Northwind", planId: plan.id, testClock: true });
  const suspended = await made(client, "/v1/tenants", { name: "Fabrikam" });
  await made(client, `/v1/tenants/${suspended.id}/suspend`);
  const { key } = await made(client, "/v1/apikeys", {
    ...{ tenantId: tenant.id, scopes: OWNER_SCOPES, description: "owner of Northwind" },
  });
  const owner = client.withKey(key);
  await made(client, "/v1/billing/ledger", { tenantId: tenant.id, micros: 25_000_000, note: "welcome" });
  for (const name of ["invoices", "reports"]) {
    const source = { type: "image", reference: "python:3.13" };
    const { id } = await made(owner, "/v1/machines", { name, source, resources: SMALL, labels: { team: "books" } });
    await made(owner, `/v1/machines/${id}/start`);
  }
  const { json } = await client.get(`/v1/tenants/${tenant.id}`);
  const from = new Date(json.testClock as string).getTime();
  for (const days of [20, 40, 55]) {
    const to = new Date(from + days * DAY_MS).toISOString();
    await made(client, `/v1/tenants/${tenant.id}/clock`, { to });
  }
  const { json: months } = await owner.get("/v1/billing/invoices");
  const invoices = (months as readonly { readonly id: string }[]).map(({ id }) => id);
  return { tenantId: tenant.id, ownerKey: key, invoices };
}

/** Machines, keys, webhooks, tenants and plans with texts that a page must not run. */
async function makeHostile(flotilla: Flotilla, client: Client, machines: Map<string, string>): Promise<void> {
  const labels = { hostile: MARKUP.slice(0, 63), bidi: BIDI };
  const lines = HOSTILE_TEXTS.map((text) => `echo '${text.replaceAll("'", "’")}'`).join("; ");
  const { id } = await made(client, "/v1/machines", {
    name: "h".repeat(63),
    source: { type: "image", reference: "python:3.13" },
    resources: SMALL,
    labels,
    env: { MARKUP, TEMPLATE, SCRIPT_URL, BIDI, LONG },
    command: ["sh", "-c", `${lines}; listen 80 200; ${FOREVER}`],
    ports: [{ port: 80 }],
  });
  machines.set("hostile", id);
  await flotilla.start(id);
  for (const name of [MARKUP.replaceAll("/", "_"), BIDI, SCRIPT_URL, "x".repeat(200)]) {
    const path = encodeURIComponent(`/workspace/${name}`);
    const answer = await client.post(`/v1/machines/${id}/files?path=${path}`, undefined, { raw: MARKUP });
    assert.ok(answer.status < 300 || answer.status === 422, answer.text);
  }
  for (const description of HOSTILE_TEXTS) {
    await made(client, "/v1/apikeys", { description: description.slice(0, 500), scopes: ["machine:read"] });
    const url = `http://127.0.0.1:9/${encodeURI(description)}`;
    await made(client, "/v1/webhooks", { url, description: description.slice(0, 500) });
    await made(client, "/v1/tenants", { name: description.slice(0, 100) });
    await made(client, "/v1/plans", { name: description.slice(0, 100) });
  }
  await client.post("/v1/images/pull", { reference: `ghcr.io/${"long/".repeat(20)}broken` });
}

/**
 * Makes so many more machines, which never started: one through the API, and the others as copies of its
 * row, because ten thousand calls take a minute. The database is the first server's own.
 */
export async function makeMany(flotilla: Flotilla, count: number, prefix = "many"): Promise<void> {
  if (count === 0) return;
  const source = { type: "image", reference: "debian:13" };
  const first = { name: `${prefix}-0`, source, resources: SMALL, labels: { team: "shop" } };
  const { id } = await made(flotilla.client(), "/v1/machines", first);
  const found = await connectToRunning(join(flotilla.servers[0]?.directory ?? "", "postgres"));
  assert.ok(found !== undefined, "the server runs its own database");
  const database = new pg.Client(found.connection);
  await database.connect();
  try {
    const { rows } = await database.query<{ columns: string }>(COLUMNS);
    const copy = copyOf(rows[0]?.columns ?? "");
    for (let from = 1; from < count; from += COPIES_AT_ONCE)
      await database.query(copy, [id, prefix, from, Math.min(count, from + COPIES_AT_ONCE) - 1]);
  } finally {
    await database.end();
    found.close();
  }
}

const COPIES_AT_ONCE = 1_000;
/** Columns that a row is given; the others are computed. */
const COLUMNS = `
  SELECT string_agg(quote_ident(column_name), ', ') AS columns FROM information_schema.columns
  WHERE table_name = 'machines' AND table_schema = current_schema() AND is_generated = 'NEVER'`;

const copyOf = (columns: string): string => `
  INSERT INTO machines (${columns})
  SELECT ${columns} FROM (SELECT (jsonb_populate_record(m, jsonb_build_object(
    'id', 'mach-' || md5($2::text || n), 'name', $2::text || '-' || n,
    'labels', jsonb_build_object('team', (ARRAY['shop', 'core', 'research'])[n % 3 + 1], 'batch', 'b' || n % 20)))).*
  FROM machines m CROSS JOIN generate_series($3::int, $4::int) n WHERE m.id = $1) copied`;
