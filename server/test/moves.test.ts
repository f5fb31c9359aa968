/**
 * Moves of machines: what a request, a start, a stop, a delete and a cancellation do, and what is refused.
 *
 * test/cluster/moves.test.ts kills the programs meanwhile, test/vm/moves.test.ts moves real machines.
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { type Queryable, sql } from "../src/db/database.ts";
import { findAnyMachine } from "../src/machines/store.ts";
import { holdMachine, listObsoleteCopies, listRemovableCopies } from "../src/moves/store.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client, context } = server;
const nodes = { "node-a": await startTestNode(server, "node-a"), "node-b": await startTestNode(server, "node-b") };
const PATIENT = { deadlineMs: 60_000 };
/** What the fake driver reports. */
const CPUS_OF_FAKE_NODE = 65_536;
type NodeId = keyof typeof nodes;

interface Placed {
  readonly id: string;
  readonly from: NodeId;
  readonly to: NodeId;
}

async function machine(env: Record<string, string> = {}, more: object = {}): Promise<Placed> {
  const source = { type: "image", reference: "local/busybox" };
  const { id } = (await client.post("/v1/machines", { source, env, ...more })).json;
  const answer = await client.post(`/v1/machines/${id}/start`);
  assert.equal(answer.status, 200, answer.text);
  const from = answer.json.nodeId as NodeId;
  return { id, from, to: from === "node-a" ? "node-b" : "node-a" };
}

const move = (id: string, body?: object) => client.post(`/v1/machines/${id}/move`, body);
const get = async (id: string) => (await client.get(`/v1/machines/${id}`)).json;
async function exec(id: string, command: string): Promise<string> {
  const answer = await client.post(`/v1/machines/${id}/exec`, { command });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.stdout;
}
const read = async (id: string) => (await client.get(`/v1/operations/${id}`)).json;
const ended = (id: string) =>
  until(async () => {
    const operation = await read(id);
    return operation.status !== "running" && operation;
  }, PATIENT);
const code = (answer: { status: number; headers: Headers }) => [answer.status, answer.headers.get("x-error-code")];
const copies = async (id: string) =>
  await context.db.query<{ nodeId: string }>(sql`
    SELECT node_id AS "nodeId" FROM machine_copies WHERE machine_id = ${id}`);

/** Resolves with what the run on the node had sent, when its end is recorded. */
const runEnds = (id: string, nodeId: string): Promise<{ readonly sentBytes: number }> =>
  until(
    () =>
      context.db.queryOne<{ readonly sentBytes: number }>(sql`
        SELECT egress_bytes AS "sentBytes" FROM machine_runs
        WHERE machine_id = ${id} AND node_id = ${nodeId} AND ended_at IS NOT NULL`),
    { what: "the end of the run", ...PATIENT },
  );

/** What a node reports as the format of its memory. */
const setFormat = (id: string, format: string) =>
  context.db.execute(sql`
    UPDATE nodes SET labels = labels || jsonb_build_object('memoryFormat', ${format}::text) WHERE id = ${id}`);

async function untilEvent(id: string, text: RegExp): Promise<void> {
  const lines = async () => (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  await until(async () => (await lines()).some(({ message }) => text.test(message)), { what: `${text}`, ...PATIENT });
}

/** Environment of a machine that is stopped before its files are sent. */
const UNWATCHED = { FAKE_UNWATCHED: "1" };

/** Has the target be away, so that the move waits in its copy. For UNWATCHED machines. */
async function held(placed: Placed): Promise<string> {
  await nodes[placed.to].kill();
  const asked = await move(placed.id, { nodeId: placed.to });
  assert.equal(asked.status, 202, asked.text);
  await until(async () => (await read(asked.json.id)).steps[2].status === "running", PATIENT);
  return asked.json.id;
}

test("a running machine moves with its memory, without a gap or an overlap in its runs", async () => {
  const { id, from, to } = await machine();
  await exec(id, "echo kept >/tmp/file");
  const asked = await move(id);
  assert.equal(asked.status, 202, asked.text);
  assert.deepEqual([asked.json.kind, asked.json.resource.id], ["machine move", id]);
  const done = await ended(asked.json.id);
  assert.equal(done.status, "succeeded", done.error);
  assert.deepEqual(
    done.steps.map(({ message }: { message: string }) => message),
    [
      `${from} → ${to}, with its memory`,
      "it was paused, and its memory is on the other node",
      done.steps[2].message,
      `node ${to} owns it; the former copy is removed`,
      done.steps[4].message,
    ],
  );
  assert.match(done.steps[4].message, /^it runs, and its processes continued after a pause of \d+ ms$/);
  assert.ok(Number.isSafeInteger(done.steps[4].downtimeMs), JSON.stringify(done.steps[4]));
  assert.equal(await exec(id, "cat /tmp/file"), "kept\n");
  const { state, nodeId } = await get(id);
  assert.deepEqual([state, nodeId], ["started", to]);
  assert.deepEqual(await copies(id), []);
  await runEnds(id, from);
  const runs = await context.db.query<{
    nodeId: string;
    isOpen: boolean;
    cause: string | null;
    isOrdered: boolean;
  }>(sql`
    SELECT node_id AS "nodeId", ended_at IS NULL AS "isOpen", end_cause AS cause,
      started_at >= coalesce(lag(ended_at) OVER (ORDER BY started_at), started_at) AS "isOrdered"
    FROM machine_runs WHERE machine_id = ${id} ORDER BY started_at`);
  assert.deepEqual(runs, [
    { nodeId: from, isOpen: false, cause: "stop", isOrdered: true },
    { nodeId: to, isOpen: true, cause: null, isOrdered: true },
  ]);
  await untilEvent(id, /^moving from node/);
  // And back, with what the first move left.
  assert.equal((await ended((await move(id, { nodeId: from })).json.id)).status, "succeeded");
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 200);
  await client.delete(`/v1/machines/${id}`);
});

test("what a machine has sent before it moves with its memory counts", async () => {
  const { id, from } = await machine({ FAKE_SENT_BYTES: "1234567" });
  const done = await ended((await move(id)).json.id);
  assert.match(done.steps[4].message, /its processes continued/, done.error);
  assert.equal((await runEnds(id, from)).sentBytes, 1_234_567);
  await client.delete(`/v1/machines/${id}`);
});

test("the pause of a move is known although the clock of a node was hours ahead until it was put right", async () => {
  const { id, from } = await machine();
  await context.db.execute(sql`UPDATE nodes SET clock_ahead_ms = 3 * 3600 * 1000 WHERE id = ${from}`);
  const { json } = await move(id);
  const done = await ended(json.id);
  assert.equal(done.status, "succeeded", done.error);
  assert.ok(done.steps[4].downtimeMs < 60_000, JSON.stringify(done.steps[4]));
});

test("files are sent while a machine runs, and it is stopped only when its new node has them", async () => {
  const { id, from, to } = await machine();
  await nodes[to].kill();
  const asked = (await move(id, { nodeId: to })).json.id;
  const said = async () => (await read(asked)).steps[0].message;
  await until(
    async () => /^node node-. (is unreachable|does not answer)|^node node-./.test((await said()) ?? ""),
    PATIENT,
  );
  assert.equal((await get(id)).state, "started");
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 200);
  const [{ nodeId }] = (await copies(id)) as [{ nodeId: string }];
  assert.equal(nodeId, to, "what may have arrived there is known");
  await nodes[to].restart();
  const done = await ended(asked);
  assert.equal(done.status, "succeeded", done.error);
  assert.match(done.steps[2].message, /^\d+\.\d MB were copied, after \d+\.\d MB while it ran$/);
  // A canceled one leaves it as it is.
  await nodes[from].kill();
  const again = (await move(id, { nodeId: from })).json.id;
  await until(async () => /./.test((await read(again)).steps[0].message ?? ""), PATIENT);
  await client.post(`/v1/operations/${again}/cancel`);
  assert.equal((await ended(again)).status, "canceled");
  assert.deepEqual([(await get(id)).state, (await get(id)).nodeId], ["started", to]);
  await nodes[from].restart();
  await client.delete(`/v1/machines/${id}`);
});

test("a machine whose writes cannot be watched is stopped first, and then sent", async () => {
  for (const env of [UNWATCHED, { FAKE_WATCH_FAIL: "1" }]) {
    const { id } = await machine(env);
    const done = await ended((await move(id)).json.id);
    assert.equal(done.status, "succeeded", done.error);
    assert.match(done.steps[2].message, /^\d+\.\d MB were copied$/);
    await client.delete(`/v1/machines/${id}`);
  }
});

test("a stopped machine stays stopped, and starts where its disk is", async () => {
  const { id, to } = await machine();
  await client.post(`/v1/machines/${id}/stop`);
  const done = await ended((await move(id)).json.id);
  assert.deepEqual([done.status, done.steps[4].message], ["succeeded", "it stays stopped"]);
  const { state, nodeId } = await get(id);
  assert.deepEqual([state, nodeId], ["stopped", to]);
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  await client.delete(`/v1/machines/${id}`);
});

test("a start meanwhile waits for the end of the move, and a stop is a stop", async () => {
  const placed = await machine(UNWATCHED);
  const { id, to } = placed;
  const operation = await held(placed);
  assert.equal((await get(id)).state, "creating");
  assert.equal((await move(id)).json.id, operation, "it is moved once");
  assert.deepEqual(code(await move(id, { nodeId: placed.from })), [409, "conflict"]);
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).status, 200);
  assert.equal((await get(id)).state, "stopped");
  const starting = client.post(`/v1/machines/${id}/start`);
  await until(async () => (await get(id)).state === "creating", PATIENT);
  await nodes[to].restart();
  const started = await starting;
  assert.deepEqual([started.status, started.json.nodeId], [200, to]);
  assert.equal((await ended(operation)).status, "succeeded");
  await client.delete(`/v1/machines/${id}`);
});

test("a canceled move leaves the machine where it was, running, and nothing on the target", async () => {
  const placed = await machine(UNWATCHED);
  const { id, from, to } = placed;
  await exec(id, "echo kept >/tmp/file");
  const operation = await held(placed);
  const canceled = await client.post(`/v1/operations/${operation}/cancel`);
  assert.equal(canceled.status, 202, canceled.text);
  const done = await ended(operation);
  assert.deepEqual([done.status, done.error], ["canceled", null]);
  await until(async () => (await get(id)).state === "started", PATIENT);
  assert.equal((await get(id)).nodeId, from);
  assert.equal(await exec(id, "cat /tmp/file"), "kept\n");
  await nodes[to].restart();
  assert.equal((await client.post(`/v1/operations/${operation}/cancel`)).json.status, "canceled");
  assert.equal((await client.post("/v1/operations/op-0/cancel")).status, 404);
  // The target may receive it later all the same.
  assert.equal((await ended((await move(id)).json.id)).status, "succeeded");
  await until(async () => (await copies(id)).length === 0, PATIENT);
  await client.delete(`/v1/machines/${id}`);
});

test("what has arrived of a move is removed when its node reports after the end of the move, and not before", async () => {
  const placed = [await machine(UNWATCHED), await machine(UNWATCHED), await machine(UNWATCHED)];
  const [one, other] = placed.filter(({ from }) => placed.filter((each) => each.from === from).length > 1);
  assert.ok(one !== undefined && other !== undefined, "of three machines on two nodes, two are on the same");
  const { from, to } = one;
  const canceled = await held(one);
  await client.post(`/v1/operations/${canceled}/cancel`);
  assert.equal((await ended(canceled)).status, "canceled");
  const moving = await held(other);
  // The target was killed while it received.
  const image = {
    ...{ digest: `sha256:${"0".repeat(64)}`, source: "local/busybox", architecture: "amd64", os: "linux" },
    ...{ layerCount: 1, env: [], workdir: "/", user: "", entrypoint: [], command: [] },
  };
  const root = { bytes: 4_096, size: 4_096, sha256: "0".repeat(64) };
  const request = JSON.stringify({ generation: 1, image, root, files: [], memory: null, memoryBase: null });
  const partsOf = (move: string): string => join(nodes[to].directory, "node/incoming", move);
  for (const move of [moving, canceled]) {
    await mkdir(join(partsOf(move), "machine"), { recursive: true });
    await writeFile(join(partsOf(move), "request.json"), request);
    await writeFile(join(partsOf(move), "machine/disk.part"), "half");
  }
  // The other move cannot continue.
  await nodes[from].kill();
  await nodes[to].restart();
  await until(() => !existsSync(partsOf(canceled)), { what: "the parts of the canceled move are removed", ...PATIENT });
  const lastReport = async () =>
    ((await client.get("/v1/nodes")).json as { id: string; lastHeartbeatAt: string }[]).find(({ id }) => id === to)
      ?.lastHeartbeatAt;
  const before = await lastReport();
  await until(async () => (await lastReport()) !== before, PATIENT);
  assert.ok(existsSync(partsOf(moving)));
  await nodes[from].restart();
  assert.equal((await ended(moving)).status, "succeeded");
  for (const { id } of placed) await client.delete(`/v1/machines/${id}`);
});

test("a delete wins over a move", async () => {
  const placed = await machine(UNWATCHED);
  const { id, to } = placed;
  const operation = await held(placed);
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
  const done = await ended(operation);
  assert.equal(done.status, "failed");
  assert.match(done.error, /was deleted/);
  assert.equal((await client.get(`/v1/machines/${id}`)).status, 404);
  await nodes[to].restart();
});

test("a move that fails because its machine is deleted meanwhile says that, at whatever moment", async () => {
  const moves: string[] = [];
  for (let count = 0; count < 12; count += 1) {
    const { id } = await machine(UNWATCHED);
    const moved = await move(id);
    assert.equal(moved.status, 202, moved.text);
    moves.push(moved.json.id);
    await client.delete(`/v1/machines/${id}`);
  }
  for (const operation of moves) {
    const { status, error } = await ended(operation);
    assert.equal(status, "failed");
    assert.match(error, /^machine mach-\w+ was deleted$/);
  }
});

test("a machine whose memory cannot be kept, moved or loaded boots on the other node, and its events say why", async () => {
  const cases = [
    {
      env: { FAKE_SUSPEND_FAIL: "conflict" },
      event: /^machine is moved without its memory, .*: FAKE_SUSPEND_FAIL is set$/,
    },
    {
      env: { FAKE_RESUME_FAIL: "1" },
      event: /memory of the suspended machine was lost, and it boots: FAKE_RESUME_FAIL/,
    },
    {
      env: {},
      format: "other",
      event: /^the memory of the machine was lost, and it boots: node node-. cannot load it: /,
    },
  ];
  for (const { env, format = "fake", event } of cases) {
    const { id, to } = await machine({ FAKE_NOT_LIVE: "1", ...env });
    await exec(id, "echo lost >/tmp/file");
    await setFormat(to, format);
    const done = await ended((await move(id)).json.id);
    assert.equal(done.status, "succeeded", done.error);
    assert.match(done.steps[4].message, /^it runs; it was down for \d+ ms$/);
    assert.equal(await exec(id, "cat /tmp/file || echo gone"), "gone\n");
    await untilEvent(id, event);
    await setFormat(to, "fake");
    await client.delete(`/v1/machines/${id}`);
  }
});

test("an owner says what a move does to a running machine, and may change it", async () => {
  const { id, to } = await machine({}, { disruption: "restart" });
  await exec(id, "echo lost >/tmp/file");
  const restarted = await ended((await move(id)).json.id);
  assert.match(restarted.steps[0].message, /, without its memory$/);
  assert.match(restarted.steps[4].message, /^it runs; it was down for \d+ ms$/);
  assert.equal(await exec(id, "cat /tmp/file || echo gone"), "gone\n");
  const changed = await client.patch(`/v1/machines/${id}`, { disruption: "stop" });
  assert.deepEqual([changed.status, changed.json.disruption, changed.json.nodeId], [200, "stop", to]);
  assert.equal((await client.patch(`/v1/machines/${id}`, {})).json.disruption, "stop");
  assert.deepEqual(code(await client.patch(`/v1/machines/${id}`, { disruption: "live" })), [422, "invalid_body"]);
  const stopped = await ended((await move(id)).json.id);
  assert.match(stopped.steps[0].message, /, where it stays stopped$/);
  assert.deepEqual([stopped.status, stopped.steps[4].message], ["succeeded", "it stays stopped"]);
  const { state, nodeId, disruption } = await get(id);
  assert.deepEqual([state, nodeId === to, disruption], ["stopped", false, "stop"]);
  await client.delete(`/v1/machines/${id}`);
});

test("a machine that its move stops runs again when the move is canceled, and a start or a stop meanwhile is kept", async () => {
  const placed = await machine(UNWATCHED, { disruption: "stop" });
  const { id, from, to } = placed;
  const canceled = await held(placed);
  assert.equal((await get(id)).state, "stopped");
  await client.post(`/v1/operations/${canceled}/cancel`);
  assert.equal((await ended(canceled)).status, "canceled");
  await until(async () => (await get(id)).state === "started", PATIENT);
  assert.equal((await get(id)).nodeId, from);
  await nodes[to].restart();
  const again = await held(placed);
  const starting = client.post(`/v1/machines/${id}/start`);
  await until(async () => (await get(id)).state === "creating", PATIENT);
  await nodes[to].restart();
  assert.deepEqual([(await starting).json.nodeId, (await ended(again)).status], [to, "succeeded"]);
  const back = { id, from: to, to: from };
  const stopped = await held(back);
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).status, 200);
  await client.post(`/v1/operations/${stopped}/cancel`);
  assert.equal((await ended(stopped)).status, "canceled");
  await until(async () => (await get(id)).state === "stopped", PATIENT);
  await nodes[from].restart();
  await client.delete(`/v1/machines/${id}`);
});

test("a stop during a move discards the memory that is on its way, and a start boots the machine", async () => {
  const placed = await machine(UNWATCHED);
  const { id, to } = placed;
  await exec(id, "echo lost >/tmp/file");
  const operation = await held(placed);
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).json.suspendedAt, null);
  const starting = client.post(`/v1/machines/${id}/start`);
  await until(async () => (await get(id)).state === "creating", PATIENT);
  await nodes[to].restart();
  assert.equal((await starting).status, 200);
  assert.equal((await ended(operation)).status, "succeeded");
  assert.equal(await exec(id, "cat /tmp/file || echo gone"), "gone\n");
  await client.delete(`/v1/machines/${id}`);
});

test("a move that has ended is the answer to the repetition of its request", async () => {
  const { id, to } = await machine();
  const headers = { "idempotency-key": "lost-move" };
  const first = await client.post(`/v1/machines/${id}/move`, { nodeId: to }, { headers });
  assert.equal((await ended(first.json.id)).status, "succeeded");
  // As if the server had died before it kept the answer.
  await context.db.execute(sql`
    UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() - interval '1 second' WHERE idempotency_key = 'lost-move'`);
  const again = await client.post(`/v1/machines/${id}/move`, { nodeId: to }, { headers });
  assert.deepEqual([again.status, again.json.id, again.json.status], [202, first.json.id, "succeeded"], again.text);
});

test("a failed machine stays failed while it moves, and may be started afterwards", async () => {
  const { id, to } = await machine({}, { restart: "never" });
  // The answer may be lost with the guest.
  await client.post(`/v1/machines/${id}/exec`, { command: ["crash"] });
  await until(async () => (await get(id)).state === "error", PATIENT);
  const { error } = await get(id);
  assert.equal((await ended((await move(id)).json.id)).status, "succeeded");
  const moved = await get(id);
  assert.deepEqual([moved.state, moved.error, moved.nodeId], ["error", error, to]);
  await client.delete(`/v1/machines/${id}`);
});

test("a machine that has no disk yet moves, because its first start has failed or was stopped", async () => {
  const create = async (reference: string): Promise<string> =>
    (await client.post("/v1/machines", { source: { type: "image", reference } })).json.id;
  const failed = await create("team/missing");
  assert.equal((await client.post(`/v1/machines/${failed}/start`)).status, 422);
  const stopped = await create("team/slow-2000");
  await client.post(`/v1/machines/${stopped}/start?detach=true`);
  assert.equal((await client.post(`/v1/machines/${stopped}/stop`)).status, 200);
  for (const id of [failed, stopped]) {
    const before = await get(id);
    const to = before.nodeId === "node-a" ? "node-b" : "node-a";
    const operation = await ended((await move(id, { nodeId: to })).json.id);
    assert.equal(operation.status, "succeeded", operation.error);
    const { state, error, nodeId } = await get(id);
    assert.deepEqual([state, error, nodeId], [before.state, before.error, to]);
    await until(async () => (await copies(id)).length === 0, PATIENT);
    // And on, as one that has moved.
    const plan = (await client.get(`/v1/nodes/${to}/drain`)).json;
    assert.deepEqual([plan.blocked, plan.moves.some((one: { machineId: string }) => one.machineId === id)], [[], true]);
    assert.equal((await ended((await move(id)).json.id)).status, "succeeded");
  }
  assert.equal((await client.post(`/v1/machines/${stopped}/start`)).json.state, "started");
  for (const id of [failed, stopped]) assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
});

test("what cannot be moved is refused with the reason", async () => {
  const source = { type: "image", reference: "local/busybox" };
  const { id: fresh } = (await client.post("/v1/machines", { source })).json;
  assert.match((await move(fresh)).text, /was never started, so it has no disk/);
  assert.equal((await move("mach-00000000000000000000000000000000")).status, 404);
  const { id, from, to } = await machine();
  assert.match((await move(id, { nodeId: from })).text, /is on node node-. already/);
  assert.deepEqual(code(await move(id, { nodeId: "absent" })), [422, "no_capacity"]);
  await client.post(`/v1/nodes/${to}/cordon`);
  const cordoned = await move(id);
  assert.match(cordoned.text, /cannot be moved: node node-. is cordoned/);
  assert.deepEqual(code(cordoned), [422, "no_capacity"]);
  await client.post(`/v1/nodes/${to}/uncordon`);
  await client.delete(`/v1/machines/${id}`);
});

test("of callers that move a machine at the same time, one begins the move and the others are answered with it", async () => {
  const { id, to } = await machine();
  const asked = await Promise.all(Array.from({ length: 8 }, () => move(id, { nodeId: to })));
  assert.deepEqual(new Set(asked.map(({ status }) => status)), new Set([202]));
  const [operationId = "", ...others] = new Set(asked.map(({ json }) => json.id as string));
  assert.deepEqual(others, []);
  assert.equal((await ended(operationId)).status, "succeeded");
  assert.equal((await get(id)).nodeId, to);
  await client.delete(`/v1/machines/${id}`);
});

test("two machines leave a node at a time, and the others wait for their turn", async () => {
  const placed: Placed[] = [];
  while (placed.filter(({ from }) => from === "node-a").length < 3) placed.push(await machine());
  const three = placed.filter(({ from }) => from === "node-a").slice(0, 3);
  const [first, second, third] = three.map(({ id }) => id);
  // Two that other operations hold, for as long as the test wants.
  await context.db.execute(sql`
    UPDATE machines SET move_id = 'op-' || id, move_node_id = 'node-b', revision = revision + 1 WHERE id IN (${first}, ${second})`);
  const asked = await move(third ?? "", { nodeId: "node-b" });
  assert.equal(asked.status, 202, asked.text);
  const isWaiting = async () =>
    (await read(asked.json.id)).steps[0].message === "waiting: 2 machines are leaving node node-a";
  await until(isWaiting, PATIENT);
  await context.db.execute(sql`
    UPDATE machines SET move_id = NULL, move_node_id = NULL, revision = revision + 1 WHERE id IN (${first}, ${second})`);
  assert.equal((await ended(asked.json.id)).status, "succeeded");
  for (const { id } of placed) await client.delete(`/v1/machines/${id}`);
});

test("a machine that moves takes its share of both nodes, so neither starts nor other moves exceed a ceiling", async () => {
  // Each node runs two machines of one processor.
  const cpuOvercommit = 2.5 / CPUS_OF_FAKE_NODE;
  const full = await startTestServer({ joinToken: TEST_JOIN_TOKEN, cpuOvercommit });
  for (const id of ["node-a", "node-b"]) await startTestNode(full, id);
  const make = async (): Promise<string> => {
    const source = { type: "image", reference: "local/busybox" };
    const resources = { cpus: 1, memoryMb: 128, diskGb: 1 };
    return (await full.client.post("/v1/machines", { source, resources })).json.id;
  };
  const startOn = async (nodeId: NodeId): Promise<string> => {
    const other = nodeId === "node-a" ? "node-b" : "node-a";
    await full.client.post(`/v1/nodes/${other}/cordon`);
    const id = await make();
    assert.equal((await full.client.post(`/v1/machines/${id}/start`)).json.nodeId, nodeId);
    await full.client.post(`/v1/nodes/${other}/uncordon`);
    return id;
  };
  const moving = [await startOn("node-a"), await startOn("node-a")];
  await startOn("node-b");
  // Two servers that have chosen the same node.
  const hold = async (id: string) => {
    const found = await findAnyMachine(full.context.db, id);
    assert.ok(found !== undefined);
    const overcommit = { cpus: cpuOvercommit, memory: null };
    return await holdMachine(full.context, found, {
      moveId: `op-${id}`,
      nodeId: "node-b",
      keepsMemory: false,
      stops: false,
      isLive: false,
      overcommit,
    });
  };
  const held = await Promise.all(moving.map(hold));
  assert.equal(held.filter((each) => each === "stale").length, 1, "one of two finds room");
  const refused = await full.client.post(`/v1/machines/${await make()}/start`);
  assert.deepEqual(code(refused), [422, "no_capacity"], refused.text);
});

test("a start of a machine that is being moved takes its share of the node where the move ends", async () => {
  // Each node runs one machine of one processor.
  const full = await startTestServer({ joinToken: TEST_JOIN_TOKEN, cpuOvercommit: 1.5 / CPUS_OF_FAKE_NODE });
  const target = await startTestNode(full, "node-b");
  const resources = { cpus: 1, memoryMb: 128, diskGb: 1 };
  const create = async (): Promise<string> =>
    (await full.client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" }, resources })).json
      .id;
  const start = (id: string) => full.client.post(`/v1/machines/${id}/start?detach=true`);
  const other = await create();
  assert.equal((await full.client.post(`/v1/machines/${other}/start`)).status, 200);
  await full.client.post(`/v1/machines/${other}/stop`);
  await startTestNode(full, "node-a");
  await full.client.post("/v1/nodes/node-b/cordon");
  const id = await create();
  assert.equal((await full.client.post(`/v1/machines/${id}/start`)).json.nodeId, "node-a");
  await full.client.post(`/v1/machines/${id}/stop`);
  await full.client.post("/v1/nodes/node-b/uncordon");
  // The target stops answering, so the move waits.
  await target.kill();
  assert.equal((await full.client.post(`/v1/machines/${id}/move`, { nodeId: "node-b" })).status, 202);
  await until(async () => (await findAnyMachine(full.context.db, id))?.moveNodeId === "node-b", PATIENT);
  const [one, two] = [await start(id), await start(other)];
  assert.equal(one.status, 202, one.text);
  assert.deepEqual(code(two), [422, "no_capacity"], two.text);
  await full.client.post(`/v1/machines/${id}/stop?detach=true`);
  assert.equal((await start(other)).status, 202);
  const back = await start(id);
  assert.deepEqual(code(back), [422, "no_capacity"], back.text);
  assert.match(back.text, /node-b has promised 1 of 1 processors/);
});

test("no copy is to be removed that the machine's owner or the target of its move has", async () => {
  const { id, from, to } = await machine();
  const operation = `op-${"0".repeat(32)}`;
  const removable = async (db: Queryable): Promise<readonly string[]> => {
    const ofMachine = await listObsoleteCopies(db, { machineIds: [id], nodeId: null });
    const all = await listRemovableCopies(db, 1_000);
    assert.deepEqual(
      all.filter(({ machineId }) => machineId === id),
      ofMachine,
    );
    return ofMachine.map(({ nodeId }) => nodeId);
  };
  const undone = new Error("undone");
  // In a transaction that is rolled back, so that no loop sees it.
  const tried = context.db.transaction(async (db) => {
    await db.execute(sql`INSERT INTO machine_copies (machine_id, node_id) VALUES (${id}, ${from}), (${id}, ${to})`);
    assert.deepEqual(await removable(db), [to]);
    await db.execute(sql`UPDATE machines SET move_id = ${operation}, move_node_id = ${to} WHERE id = ${id}`);
    assert.deepEqual(await removable(db), []);
    throw undone;
  });
  await assert.rejects(tried, (error) => {
    if (error !== undone) throw error;
    return true;
  });
});
