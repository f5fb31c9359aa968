/**
 * Nodes and join tokens over HTTP: registering, reporting, becoming unreachable, coming back, being revoked.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { absentMachine } from "@flotilla/contract/link/absent";
import { LINK_VERSION } from "@flotilla/contract/link/version";
import type { FleetFinding } from "@flotilla/contract/nodes";
import { RELEASE } from "@flotilla/contract/release";
import { sql } from "../src/db/database.ts";
import { nodeReconciler } from "../src/nodes/nodes-loop.ts";
import { MACHINE_ID } from "./support/machine.ts";
import { listenAtSocket, RESOURCES, startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { Client } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client } = server;
const own = client.withKey(TEST_JOIN_TOKEN);
const source = { type: "image", reference: "local/busybox" };
/** Nothing listens there. */
const ADDRESS = "unix:/nowhere/agent.sock";

const heartbeat = (fields: object = {}) => ({
  bootId: "agent-1",
  isComplete: false,
  resources: RESOURCES,
  machines: [],
  events: [],
  ...fields,
});

const observed = (machineId: string, fields: object) => ({
  ...absentMachine(machineId, 2),
  state: "running",
  bootId: "boot-1",
  runningSince: Date.now(),
  readySince: Date.now(),
  ...fields,
});

const nodeOf = async (id: string) =>
  ((await client.get("/v1/nodes")).json as { id: string }[]).find((node) => node.id === id) as Record<string, unknown>;

test("a node without a valid token is refused", async () => {
  const body = { id: "ghost", address: ADDRESS };
  assert.equal((await client.withKey(null).post("/v1/nodes/register", body)).status, 401);
  assert.equal((await client.withKey("guess").post("/v1/nodes/register", body)).status, 401);
  assert.equal((await client.post("/v1/nodes/register", body)).status, 401);
  assert.equal((await own.post("/v1/nodes/ghost/heartbeat", heartbeat())).status, 401);
  assert.equal((await own.get("/v1/nodes")).status, 401);
});

test("a node cannot have an id whose address answers something else", async () => {
  for (const id of ["servers", "placement", "authorities", "register"]) {
    const { status, text } = await own.post("/v1/nodes/register", { id, address: ADDRESS });
    assert.equal(status, 422, text);
    assert.match(text, /choose another id/);
  }
});

let ghost = client;

test("a node registers with the server's token, gets a credential once and reports with it", async () => {
  const entered = await own.post("/v1/nodes/register", { id: "ghost", address: ADDRESS, labels: { arch: "amd64" } });
  assert.equal(entered.status, 200, entered.text);
  assert.match(entered.json.credential, /^node_/);
  ghost = client.withKey(entered.json.credential);
  const back = await ghost.post("/v1/nodes/register", { id: "ghost", address: ADDRESS, totalCpus: 8 });
  assert.deepEqual([back.status, back.json.credential], [200, null]);
  assert.equal((await ghost.post("/v1/nodes/ghost/heartbeat", heartbeat())).status, 200);
  const node = await nodeOf("ghost");
  assert.deepEqual([node["status"], node["availableMemoryMb"], node["usedCpus"]], ["ready", 8_000, 1.5]);
  assert.deepEqual(node["labels"], { arch: "amd64" });
  assert.equal((await ghost.post("/v1/nodes/ghost/heartbeat")).status, 200);
  assert.equal((await ghost.post("/v1/nodes/ghost/heartbeat", {})).status, 200, "as without a body");
  assert.equal((await ghost.post("/v1/nodes/other/heartbeat", heartbeat())).status, 404);
  assert.equal((await ghost.post("/v1/nodes/register", { id: "other", address: ADDRESS })).status, 409);
  assert.equal((await ghost.get("/v1/machines")).status, 401);
});

test("an invalid heartbeat is refused with an explanation, and nothing of it is applied", async () => {
  for (const body of [[], { bootId: 1 }, heartbeat({ machines: [{ machineId: "x" }] }), heartbeat({ resources: {} })]) {
    const answer = await ghost.post("/v1/nodes/ghost/heartbeat", body);
    assert.equal(answer.status, 422, answer.text);
    assert.match(answer.text, /heartbeat does not fit/);
  }
});

test("a node's report is shown, fenced by the generation, and its events are written once", async () => {
  const { id } = (await client.post("/v1/machines", { source })).json;
  const get = async () => (await client.get(`/v1/machines/${id}`)).json;
  assert.equal((await client.post(`/v1/machines/${id}/start?detach=true`)).status, 202);
  assert.equal((await get()).state, "creating");
  const tell = async (fields: object, rest: object = {}) => {
    const answer = await ghost.post(
      "/v1/nodes/ghost/heartbeat",
      heartbeat({ machines: [observed(id, fields)], ...rest }),
    );
    assert.equal(answer.status, 200, answer.text);
  };
  await tell({ generation: 1, state: "stopped", bootId: null });
  assert.equal((await get()).state, "creating");
  await tell({ state: "booting" });
  assert.equal((await get()).state, "creating");
  await tell({});
  assert.deepEqual([(await get()).state, (await get()).ready], ["started", true]);
  await tell({ state: "booting" });
  await tell({ generation: 1, state: "failed", reason: "old news" });
  assert.equal((await get()).state, "started");
  const events = [
    { sequence: 1, machineId: id, type: "machine.fenced", data: { reason: "from the node" }, at: Date.now() },
    {
      sequence: 2,
      machineId: MACHINE_ID,
      type: "machine.fenced",
      data: { reason: "an unknown machine's" },
      at: Date.now(),
    },
    { sequence: 4, machineId: id, type: "machine.unheardOf", data: {}, at: Date.now() },
    { sequence: 5, machineId: id, type: "machine.fenced", data: { reason: 1 }, at: Date.now() },
    { sequence: 6, machineId: id, type: "webhook.disabled", data: { webhookId: "h", reason: "r" }, at: Date.now() },
  ];
  for (const isComplete of [false, true, false]) await tell({}, { events, isComplete });
  const messages = (await client.get(`/v1/machines/${id}/events`)).json.map(
    (event: { message: string }) => event.message,
  );
  assert.deepEqual(messages, ["machine created", "machine started", "from the node"]);
  await saidLate(id);
  await tell({ state: "failed", reason: "the VMM was killed" });
  assert.deepEqual([(await get()).state, (await get()).error], ["error", "the VMM was killed"]);
  const refused = await client.post(`/v1/machines/${id}/exec`, { command: "true" });
  assert.equal(refused.status, 409);
});

/** An event that arrives after a later one is listed before it, on every page. */
async function saidLate(id: string): Promise<void> {
  const list = async (path: string) => (await client.get(path)).json as { message: string; createdAt: string }[];
  const path = `/v1/machines/${id}/events`;
  const at = Date.parse((await list(path))[0]?.createdAt ?? "") + 1;
  const events = [{ sequence: 3, machineId: id, type: "machine.imagePullBegun", data: { reference: "x" }, at }];
  assert.equal((await ghost.post("/v1/nodes/ghost/heartbeat", heartbeat({ events }))).status, 200);
  const expected = ["machine created", "pulling image x", "machine started", "from the node"];
  assert.deepEqual(
    (await list(path)).map(({ message }) => message),
    expected,
  );
  const paged: string[] = [];
  for (let next: string | undefined = `${path}?limit=1`; next !== undefined; ) {
    const page = await client.get(next);
    paged.push(...page.json.map((event: { message: string }) => event.message));
    next = /<([^>]+)>/.exec(page.headers.get("link") ?? "")?.[1];
  }
  assert.deepEqual(paged, expected);
}

test("a node that does not answer is named, with what to do", async () => {
  const { id } = (await client.post("/v1/machines", { source })).json;
  await client.post(`/v1/machines/${id}/start?detach=true`);
  const beat = heartbeat({ machines: [observed(id, {})] });
  assert.equal((await ghost.post("/v1/nodes/ghost/heartbeat", beat)).status, 200);
  const answer = await client.post(`/v1/machines/${id}/exec`, { command: "true" });
  assert.equal(answer.status, 503);
  assert.match(answer.text, /node ghost does not answer; check that its agent runs/);
});

test("a node's own error text is passed on", async () => {
  const failing = createServer((request, response) => {
    request.resume();
    response.writeHead(500, { "content-type": "application/json" }).end('{"message":"no space left on the disk"}');
  });
  const address = await listenAtSocket(failing);
  await ghost.post("/v1/nodes/register", { id: "ghost", address, totalCpus: 8 });
  const { id } = (await client.post("/v1/machines", { source })).json;
  const answer = await client.post(`/v1/machines/${id}/start`);
  assert.equal(answer.status, 503);
  assert.match(answer.text, /node ghost could not accept machine mach-.*: no space left on the disk/);
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
});

test("revoking a credential makes the node's next call fail and its machines say so", async () => {
  assert.equal((await client.delete("/v1/nodes/ghost/credential")).status, 204);
  assert.equal((await client.delete("/v1/nodes/absent/credential")).status, 404);
  assert.equal((await ghost.post("/v1/nodes/ghost/heartbeat", heartbeat())).status, 401);
  assert.equal((await nodeOf("ghost"))["status"], "revoked");
  const machines = (await client.get("/v1/machines")).json as { state: string; error: string | null }[];
  assert.equal(
    machines.some(({ error }) => error?.includes("ghost was revoked")),
    true,
  );
});

test("a join token is shown once, and admits no node that has no key, wherever it says it is", async () => {
  const made = await client.post("/v1/tokens", { description: "rack 2", maxUses: 1, labels: { rack: "2" } });
  assert.match(made.json.token, new RegExp(`^join_${made.json.prefix}_`));
  const listed = (await client.get("/v1/tokens")).json;
  assert.equal(JSON.stringify(listed).includes(made.json.token), false);
  assert.equal(listed[0].description, "rack 2");
  const addresses = [
    ...["http://169.254.169.254:80", "http://127.0.0.1:18301", "http://[::1]:5432", "https://10.0.0.1:8443"],
    ...["unix:/run/docker.sock", "parked:far", "ftp://x:1"],
  ];
  for (const caller of [client, new Client(server.url, null)].map((each) => each.withKey(made.json.token)))
    for (const address of addresses) {
      const { status, text } = await caller.post("/v1/nodes/register", { id: "far", address });
      assert.equal(status, 422, `${address}: ${text}`);
    }
  assert.equal((await client.get("/v1/tokens")).json[0].uses, 0);
  await server.context.db.execute(sql`UPDATE join_tokens SET uses = max_uses WHERE prefix = ${made.json.prefix}`);
  const late = { id: "far", address: "https://10.0.0.1:8443" };
  const refused = await client.withKey(made.json.token).post("/v1/nodes/register", late);
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [401, "unknown_key"], refused.text);
});

test("the node of this host is one only at its socket: its credential and its token are refused elsewhere", async () => {
  const address = "unix:/run/flotilla/own.sock";
  const { credential } = (await own.post("/v1/nodes/register", { id: "own", address })).json;
  const anywhere = new Client(server.url, credential);
  const nothing = heartbeat({ isComplete: true });
  assert.equal((await anywhere.post("/v1/nodes/own/heartbeat", nothing)).status, 401);
  const body = { id: "own", address: "http://127.0.0.1:18390" };
  for (const bearer of [credential, TEST_JOIN_TOKEN])
    assert.equal((await anywhere.withKey(bearer).post("/v1/nodes/register", body)).status, 401);
  // The same calls at the socket.
  for (const bearer of [credential, TEST_JOIN_TOKEN])
    assert.equal((await client.withKey(bearer).post("/v1/nodes/register", body)).status, 422);
  assert.equal((await nodeOf("own"))["address"], address);
  // Whatever became of its address, the server's own token takes it back.
  await server.context.db.execute(sql`UPDATE nodes SET address = 'http://127.0.0.1:18390' WHERE id = 'own'`);
  for (const bearer of [credential, TEST_JOIN_TOKEN]) {
    const back = await client.withKey(bearer).post("/v1/nodes/register", { id: "own", address });
    assert.deepEqual([back.status, back.json.address], [200, address]);
  }
  assert.equal((await client.delete("/v1/nodes/own/credential")).status, 204);
});

test("a token says where servers listen for nodes on other hosts: here nowhere", async () => {
  assert.deepEqual((await client.post("/v1/tokens", {})).json.nodeAddresses, []);
});

test("an operator sees each server and node with its version, and the last error of each node", async () => {
  await until(async () => (await client.get("/v1/nodes/servers")).json.length === 1);
  const [running] = (await client.get("/v1/nodes/servers")).json;
  assert.deepEqual([running.release, running.linkVersion], [RELEASE, LINK_VERSION]);
  const other = await startTestServer({ databaseUrl: server.databaseUrl });
  await until(async () => (await client.get("/v1/nodes/servers")).json.length === 2);
  await other.stop();
  assert.deepEqual(
    (await client.get("/v1/nodes/servers")).json.map(({ id }: { id: string }) => id),
    [running.id],
    "one that has stopped is not listed",
  );
  const registered = await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", { id: "told", address: ADDRESS });
  const beat = async (more: object) => {
    const body = { bootId: "agent-1", link: { version: 3, lowest: 1 }, isComplete: false, machines: [], events: [] };
    const sent = await client
      .withKey(registered.json.credential)
      .post("/v1/nodes/told/heartbeat", { ...body, resources: RESOURCES, ...more });
    assert.equal(sent.status, 200, sent.text);
    const { release, lastError } = (await nodeOf("told")) as { release: unknown; lastError: unknown };
    return { release, lastError };
  };
  assert.deepEqual(await beat({}), { release: null, lastError: null });
  const at = Date.parse("2030-01-01T00:00:00Z");
  assert.deepEqual(await beat({ release: "0.1.0", lastError: { at, message: "a disk is damaged" } }), {
    release: "0.1.0",
    lastError: { at: "2030-01-01T00:00:00.000Z", message: "a disk is damaged" },
  });
  // A node that cuts what a guest wrote may leave half of a character.
  assert.deepEqual(await beat({ lastError: { at, message: "half a \ud83d, and a \0" } }), {
    release: null,
    lastError: { at: "2030-01-01T00:00:00.000Z", message: "half a \ufffd, and a " },
  });
  const found = async () => {
    const answer = await client.get("/v1/nodes/findings");
    assert.equal(answer.status, 200, answer.text);
    const all = answer.json as FleetFinding[];
    assert.ok(all.some(({ subject, code }) => subject.kind === "server" && code === "server_runs"));
    return all.filter(({ subject }) => subject.id === "told");
  };
  const reporting = await found();
  assert.ok(
    reporting.some(({ code, action }) => code === "node_does_not_answer" && action !== ""),
    "it reports, but nothing listens at its address",
  );
  assert.ok(reporting.some(({ code, data }) => code === "node_error" && String(data["error"]).startsWith("half a")));
  assert.equal((await client.delete("/v1/nodes/told/credential")).status, 204);
  assert.deepEqual((await found())[0]?.code, "node_revoked");
});

test("a revoked join token registers no node", async () => {
  const { prefix, token } = (await client.post("/v1/tokens")).json;
  assert.equal((await client.delete(`/v1/tokens/${prefix}`)).status, 204);
  assert.equal((await client.delete(`/v1/tokens/${prefix}`)).status, 404);
  assert.equal((await client.withKey(token).post("/v1/nodes/register", { id: "x", address: ADDRESS })).status, 401);
});

test("a machine outlives its node's agent, and the agent's silence shows and passes", async () => {
  const node = await startTestNode(server, "node-a");
  const { id } = (await client.post("/v1/machines", { source })).json;
  const get = async () => (await client.get(`/v1/machines/${id}`)).json;
  const started = await client.post(`/v1/machines/${id}/start`);
  assert.equal(started.status, 200, started.text);
  const running = client.post(`/v1/machines/${id}/exec`, { command: ["sleep", "600"] });
  await until(async () => (await get()).lastActivityAt !== null);
  await node.kill();
  const cut = await running;
  assert.equal(cut.status, 503);
  assert.match(cut.text, /the connection to node node-a broke while the command ran/);
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 503);
  const loop = nodeReconciler(server.context, 200);
  await until(async () => (await loop.activate(AbortSignal.timeout(1000))).counts["lost"] === 1);
  assert.equal((await nodeOf("node-a"))["status"], "unreachable");
  assert.deepEqual([(await get()).state, (await get()).ready], ["error", false]);
  assert.match((await get()).error, /node node-a does not report/);
  assert.equal((await client.post("/v1/nodes/node-a/maintenance")).status, 200);
  await until(async () => /node node-a is under maintenance; .*shown again/.test((await get()).error));
  assert.equal((await client.post("/v1/nodes/node-a/uncordon")).json.maintenanceAt, null);
  await until(async () => /node node-a does not report/.test((await get()).error));
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 503);
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 503);
  await node.restart();
  await until(async () => (await get()).ready);
  assert.equal((await get()).readyAt, started.json.readyAt);
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "echo on" })).json.stdout, "on\n");
  const messages = (await client.get(`/v1/machines/${id}/events`)).json.map(
    (event: { message: string }) => event.message,
  );
  assert.equal(messages.filter((message: string) => message === "machine started").length, 1);
  assert.equal(
    messages.some((message: string) => /node-a does not report/.test(message)),
    true,
  );
  assert.equal(
    messages.some((message: string) => /node-a reports again/.test(message)),
    true,
  );
});

test("a start waits for an agent that restarts", async () => {
  const node = await startTestNode(server, "node-b");
  const { id } = (await client.post("/v1/machines", { source })).json;
  await client.post(`/v1/machines/${id}/start`);
  const holder = (await client.get(`/v1/machines/${id}`)).json.nodeId;
  assert.equal(holder, "node-b");
  await client.post(`/v1/machines/${id}/stop`);
  await node.kill();
  const starting = client.post(`/v1/machines/${id}/start`);
  await node.restart();
  const answer = await starting;
  assert.deepEqual([answer.status, answer.json.state], [200, "started"], answer.text);
});
