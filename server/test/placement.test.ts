/**
 * Where machines are placed: ceilings under races, labels, cached images, and the explanation for operators.
 *
 * The nodes are played: they register and report, and nothing listens at their address.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { startMachine } from "../src/machines/start.ts";
import { openTestServices } from "./support/services.ts";
import { createMachine, SOURCE } from "./support/machine-server.ts";
import { RESOURCES, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer, type TestServer } from "./support/server.ts";

const REPLICAS = 16;
const MACHINES = 64;

/** A node that has reported `resources`, and the images with these names. */
async function playNode(
  server: TestServer,
  id: string,
  { resources = {}, labels = {}, images = [] as readonly string[] } = {},
): Promise<void> {
  const registered = await server.client
    .withKey(TEST_JOIN_TOKEN)
    .post("/v1/nodes/register", { id, address: "unix:/nowhere/agent.sock", labels: { arch: "amd64", ...labels } });
  assert.equal(registered.status, 200, registered.text);
  const tenantId = (await server.client.get("/v1/account")).json.tenantId as string;
  const held = images.map((reference) => ({ reference, architecture: "amd64", tenantId }));
  const reported = await server.client.withKey(registered.json.credential).post(`/v1/nodes/${id}/heartbeat`, {
    bootId: "agent-1",
    link: { version: 2, lowest: 1 },
    isComplete: true,
    resources: { ...RESOURCES, ...resources },
    machines: [],
    events: [],
    images: { sequence: 1, isComplete: true, held, removed: [] },
  });
  assert.equal(reported.status, 200, reported.text);
}

/** Explains a machine with this id, or one with these fields. */
const explain = async ({ client }: TestServer, of: string | object) => {
  const answer =
    typeof of === "string"
      ? await client.get(`/v1/nodes/placement?machineId=${of}`)
      : await client.post("/v1/nodes/placement", of);
  assert.equal(answer.status, 200, answer.text);
  return answer.json as {
    nodeId: string | null;
    hasDisk: boolean;
    reason: string;
    advice: string | null;
    filters: { name: string; left: number }[];
    nodes: { nodeId: string; filter: string | null; reason: string | null; score: { total: number } | null }[];
  };
};

/**
 * Makes the machines and starts all of them at once, over all replicas. Resolves to the reasons of those that
 * were refused.
 */
async function startAll(server: TestServer, cpuOvercommit: number): Promise<readonly string[]> {
  const ids = [];
  for (let n = 0; n < MACHINES; n += 1)
    ids.push(await createMachine(server.client, { resources: { cpus: 4, memoryMb: 512 } }));
  const tenant = await server.context.db.queryOne<{ tenantId: string; keyId: string }>(
    sql`SELECT tenant_id AS "tenantId", created_by AS "keyId" FROM machines LIMIT 1`,
  );
  assert.ok(tenant);
  const replicas = Array.from({ length: REPLICAS }, () => openTestServices(server, { cpuOvercommit }));
  const signal = AbortSignal.timeout(60_000);
  const ends = await Promise.allSettled(
    ids.map((id, n) => {
      const services = replicas[n % REPLICAS];
      assert.ok(services);
      return startMachine(services, { ...tenant, id, isAutomatic: false, isDetached: true, signal });
    }),
  );
  await Promise.all(replicas.map((services) => services.stop()));
  return ends.flatMap((end) => (end.status === "rejected" ? [String(end.reason)] : []));
}

test("16 servers that race never promise more of a node than its ceilings, and use all of it", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const { context } = server;
  for (const id of ["one", "two"]) await playNode(server, id);
  // 8 processors each: 32 may be promised, so 8 machines run on each node.
  const refusals = await startAll(server, 4);
  const promised = await context.db.query(
    sql`SELECT node_id AS "nodeId", sum(cpus)::int AS cpus FROM machines WHERE is_active GROUP BY 1 ORDER BY 1`,
  );
  assert.deepEqual(promised, [
    { nodeId: "one", cpus: 32 },
    { nodeId: "two", cpus: 32 },
  ]);
  assert.equal(refusals.length, MACHINES - 16);
  for (const refusal of refusals)
    assert.match(refusal, /no node has room for machine .* has promised 32 of 32 processors/);
});

test("of 1,000 nodes on which 40 machines fit, racing servers use each free place once, and refuse only the others", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const { context } = server;
  await context.db.execute(sql`
    INSERT INTO nodes (id, address, status, registered_at, last_heartbeat_at, total_cpus, total_memory_mb, available_memory_mb,
      total_disk_gb, available_disk_gb, images_boot_id, credential_hash, cordoned_at)
    SELECT 'node-' || n, 'http://127.0.0.1:9', 'ready', now(), now(), 4, 8192, 8192, 100, 100, 'agent', sha256(n::text::bytea),
      CASE WHEN n > 40 THEN now() END FROM generate_series(1, 1000) n`);
  const refusals = await startAll(server, 1);
  const promised = await context.db.query<{ cpus: number }>(
    sql`SELECT node_id, sum(cpus)::int AS cpus FROM machines WHERE is_active GROUP BY 1`,
  );
  assert.ok(
    promised.every(({ cpus }) => cpus === 4),
    "a node is oversubscribed",
  );
  for (const refusal of refusals) assert.match(refusal, /no node has room for machine/);
  assert.deepEqual([promised.length, refusals.length], [40, MACHINES - 40]);
});

test("while a start is written on a node with ceilings, the next is placed on another", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  for (const id of ["one", "two"]) await playNode(server, id);
  const services = openTestServices(server, { cpuOvercommit: 4 });
  const request = { cpus: 1, memoryMb: 512, arch: null, nodeLabels: {}, holders: null };
  const next = async () => (await services.nodes.place(request)).nodeId;
  // Beyond half of its ceiling a fuller node is preferred.
  for (let n = 0; n < 36; n += 1) await next();
  const fuller = await next();
  assert.ok(fuller);
  assert.equal(await next(), fuller);
  const committed = Promise.withResolvers<void>();
  const writing = services.nodes.whileWriting(fuller, () => committed.promise);
  assert.notEqual(await next(), fuller);
  committed.resolve();
  await writing;
  assert.equal(await next(), fuller);
  await services.stop();
});

test("a node that is cordoned or drained between the choice and the write gets no machine", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const { context, client } = server;
  await playNode(server, "one");
  const admits = async (isNew: boolean) =>
    (
      await context.db.queryOne<{ yes: boolean }>(
        sql`SELECT node_admits_start('one', ${isNew}::boolean, 1, 128, NULL, NULL) AS yes`,
      )
    )?.yes;
  assert.equal(await admits(true), true);
  await client.post("/v1/nodes/one/cordon");
  assert.deepEqual([await admits(true), await admits(false)], [false, true]);
  await client.post("/v1/nodes/one/uncordon");
  await context.db.execute(sql`UPDATE nodes SET status = 'draining'`);
  assert.deepEqual([await admits(true), await admits(false)], [false, false]);
});

test("a machine is placed where its labels fit, and prefers a node that has its image", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const { client } = server;
  const images = ["docker.io/library/alpine:latest"];
  await playNode(server, "east", { labels: { zone: "east" } });
  await playNode(server, "west", { labels: { zone: "west" }, images });
  const placed = async (fields: object): Promise<string> => {
    const id = await createMachine(client, { source: { type: "image", reference: "alpine" }, ...fields });
    const explained = await explain(server, id);
    const started = await client.post(`/v1/machines/${id}/start?detach=true`);
    assert.equal(started.status, 202, started.text);
    assert.deepEqual([explained.nodeId, explained.hasDisk], [started.json.nodeId, false]);
    return started.json.nodeId;
  };
  const resources = { cpus: 1, memoryMb: 512 };
  assert.equal(await placed({ resources }), "west");
  assert.equal(await placed({ resources, nodeLabels: { zone: "east" } }), "east");

  const nowhere = await createMachine(client, { nodeLabels: { zone: "north" } });
  assert.deepEqual((await client.get(`/v1/machines/${nowhere}`)).json.nodeLabels, { zone: "north" });
  const refused = await client.post(`/v1/machines/${nowhere}/start`);
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "no_capacity"], refused.text);
  assert.match(
    refused.text,
    /node east does not have the label zone=north; .*ask the operator to add a node that fits/,
  );
});

test("an operator sees why a machine is placed where it is, for each node and each filter", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const { client } = server;
  const images = [SOURCE.reference];
  for (const id of ["one", "two", "three"]) await playNode(server, id, { images });
  await playNode(server, "busy", { resources: { usedCpus: 8 }, images });
  await client.post("/v1/nodes/two/cordon");
  const request = { source: SOURCE, resources: { memoryMb: 2048 } };
  const explained = await explain(server, request);
  assert.deepEqual([explained.nodeId, explained.reason], ["one", "node one has the lowest score of 3 that fit"]);
  assert.deepEqual(
    explained.nodes.map(({ nodeId, filter }) => [nodeId, filter]),
    [
      ["one", null],
      ["three", null],
      ["busy", null],
      ["two", "cordon"],
    ],
  );
  assert.equal(explained.nodes.at(-1)?.reason, "node two is cordoned");
  assert.equal(explained.filters.find(({ name }) => name === "cordon")?.left, 3);

  const id = await createMachine(client);
  assert.equal((await client.post(`/v1/machines/${id}/start?detach=true`)).json.nodeId, "one");
  const there = await explain(server, id);
  assert.deepEqual(
    [there.nodeId, there.hasDisk, there.reason],
    ["one", true, "the machine is being started on node one, which has its disk"],
  );
  // What it has itself does not count against it.
  const others = there.nodes.filter(({ nodeId }) => nodeId === "three");
  assert.equal(there.nodes.find(({ nodeId }) => nodeId === "one")?.score?.total, others[0]?.score?.total);

  const wrong = await client.post("/v1/nodes/placement", { source: SOURCE, resources: { cpus: 0 } });
  assert.equal(wrong.status, 422, wrong.text);
  const missing = await client.get(`/v1/nodes/placement?machineId=mach-${"0".repeat(32)}`);
  assert.equal(missing.status, 404, missing.text);
});

test("an explanation of a machine with a disk says what its own node admits, and what its tenant may not", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const { client, context } = server;
  await playNode(server, "home", { labels: { zone: "east" } });
  const plan = { name: "one", rateCpuHourMicros: 0, rateMemoryGbHourMicros: 0, maxConcurrentMachines: 1 };
  const { id: planId } = (await client.post("/v1/plans", plan)).json;
  const tenantId = (await client.post("/v1/tenants", { name: "theirs", planId })).json.id;
  const scopes = ["machine:read", "machine:create", "machine:exec"];
  const theirs = client.withKey((await client.post("/v1/apikeys", { tenantId, scopes })).json.key);
  const fields = { resources: { cpus: 1, memoryMb: 512 }, nodeLabels: { zone: "east" } };
  const id = await createMachine(theirs, fields);
  assert.equal((await theirs.post(`/v1/machines/${id}/start?detach=true`)).json.nodeId, "home");
  await playNode(server, "other", { labels: { arch: "arm64", zone: "east" } });
  const said = async () => {
    const { reason, advice, nodes } = await explain(server, id);
    return [reason, advice, Object.fromEntries(nodes.map(({ nodeId, filter }) => [nodeId, filter]))] as const;
  };
  await context.db.execute(sql`
    UPDATE machines SET desired_state = 'stopped', observed_state = 'stopped', observed_generation = generation`);
  const starts = "the machine is stopped, and its disk is on node home, so it starts there";
  // Its disk holds programs of the architecture on which it ran. A cordon is only for machines without a disk
  // there.
  for (const verb of ["uncordon", "cordon"]) {
    await client.post(`/v1/nodes/home/${verb}`);
    assert.deepEqual(await said(), [starts, null, { home: null, other: "architecture" }]);
  }
  await context.db.execute(sql`UPDATE nodes SET status = 'unreachable' WHERE id = 'home'`);
  const [lost, advice, verdicts] = await said();
  assert.match(lost, /^the machine's disk is on node home, which does not report; it cannot be started/);
  assert.match(advice ?? "", /check the host of node home/);
  assert.deepEqual(verdicts, { home: "status", other: "architecture" });
  await client.post("/v1/nodes/home/maintenance");
  assert.match((await said())[0], /which is away under maintenance/);
  await client.post("/v1/nodes/home/uncordon");
  await context.db.execute(sql`UPDATE nodes SET status = 'ready'`);

  const second = await createMachine(theirs, fields);
  assert.equal((await theirs.post(`/v1/machines/${second}/start?detach=true`)).status, 202);
  const [reason, more] = await said();
  assert.match(reason, /so it starts there; its tenant may not start it now: concurrency limit reached: your one plan/);
  assert.match(more ?? "", new RegExp(`flotilla tenant update ${tenantId} --plan`));
  await client.post(`/v1/tenants/${tenantId}/suspend`);
  assert.match((await said())[0], /its tenant may not start it now: tenant .* is suspended/);
  // One that is active counts already.
  assert.doesNotMatch((await explain(server, second)).reason, /tenant/);
});

test("a node reports the pressure of its host, which operators see and placement respects, until it reports none", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const { client } = server;
  const images = [SOURCE.reference];
  const none = { some: 0, full: 0 };
  const pressure = { cpu: { some: 62.5, full: 0 }, memory: { some: 31, full: 20 }, io: none };
  await playNode(server, "a-pressed", { images, resources: { pressure } });
  await playNode(server, "older", { images, resources: { pressure: undefined } });
  const shown = async () =>
    ((await client.get("/v1/nodes")).json as { id: string; pressure: object | null }[]).map((node) => node.pressure);
  assert.deepEqual(await shown(), [pressure, null]);
  const explained = await explain(server, { source: SOURCE });
  assert.deepEqual(
    explained.nodes.map(({ nodeId, filter }) => [nodeId, filter]),
    [
      ["older", null],
      ["a-pressed", "pressure"],
    ],
  );
  const metrics = async () =>
    [...(await client.get("/metrics")).text.matchAll(/^flotilla_node_pressure_ratio(.*)$/gm)].map(([, each]) => each);
  const labels = (resource: string, kind: string) => `{node="a-pressed",resource="${resource}",kind="${kind}"}`;
  assert.deepEqual((await metrics()).toSorted(), [
    ...[`${labels("cpu", "full")} 0`, `${labels("cpu", "some")} 0.625`],
    ...[`${labels("io", "full")} 0`, `${labels("io", "some")} 0`],
    ...[`${labels("memory", "full")} 0.2`, `${labels("memory", "some")} 0.31`],
  ]);
  // Its agent was replaced by one of the release before, or its kernel measures it no more.
  await playNode(server, "a-pressed", { images, resources: { pressure: undefined } });
  assert.deepEqual(await shown(), [null, null]);
  assert.deepEqual(await metrics(), []);
  assert.equal((await explain(server, { source: SOURCE })).nodes.filter(({ filter }) => filter !== null).length, 0);
});

test("an image that no node has, and that a start does not fetch, is named as the reason", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  await playNode(server, "one");
  const explained = await explain(server, { source: { type: "image", reference: "local/tools" } });
  assert.match(explained.reason, /^no node has the image local\/tools/);
  assert.match(explained.advice ?? "", /flotilla image import/);
  const fetched = await explain(server, { source: { type: "image", reference: "alpine" } });
  assert.deepEqual([fetched.reason, fetched.advice], ["node one is the only one that fits", null]);
});
