/**
 * Suspended machines: what a stop that keeps memory, a start, a stop, a delete and a move do, alone and at
 * the same time, and what is billed.
 *
 * test/vm/suspend.test.ts suspends real machines.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { createMachine } from "./support/machine-server.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client, context } = server;
const node = await startTestNode(server, "node-a");
const PATIENT = { deadlineMs: 60_000 };

async function started(env: Record<string, string> = {}, more: object = {}): Promise<string> {
  const id = await createMachine(client, { env, ...more });
  await start(id);
  return id;
}

async function start(id: string) {
  const answer = await client.post(`/v1/machines/${id}/start`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
}
const stop = (id: string) => client.post(`/v1/machines/${id}/stop`);
const suspend = (id: string) => client.post(`/v1/machines/${id}/stop?keepMemory=true`);
const get = async (id: string) => (await client.get(`/v1/machines/${id}`)).json;
const code = (answer: { status: number; headers: Headers }) => [answer.status, answer.headers.get("x-error-code")];

async function exec(id: string, command: string): Promise<string> {
  const answer = await client.post(`/v1/machines/${id}/exec`, { command });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.stdout;
}

async function untilEvent(id: string, text: string): Promise<void> {
  const lines = async () => (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  await until(async () => (await lines()).some(({ message }) => message.includes(text)), { what: text, ...PATIENT });
}

const runsOf = (id: string) =>
  context.db.query<{ bootId: string; isOpen: boolean; cause: string | null; isOrdered: boolean }>(sql`
    SELECT boot_id AS "bootId", ended_at IS NULL AS "isOpen", end_cause AS cause,
      started_at >= coalesce(lag(ended_at) OVER (ORDER BY started_at), started_at) AS "isOrdered"
    FROM machine_runs WHERE machine_id = ${id} ORDER BY started_at`);

test("a suspended machine is stopped with its memory kept, and a start continues it as another run", async () => {
  const id = await started();
  await exec(id, "echo kept >/tmp/file");
  const answer = await suspend(id);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json.state, "stopped");
  assert.equal(typeof answer.json.suspendedAt, "string");
  assert.equal((await get(id)).suspendedAt, answer.json.suspendedAt);
  assert.deepEqual(
    (await runsOf(id)).map(({ isOpen, cause }) => [isOpen, cause]),
    [[false, "stop"]],
  );
  await untilEvent(id, "machine suspended: its memory is kept");
  const again = await start(id);
  assert.deepEqual([again.state, again.suspendedAt], ["started", null]);
  assert.equal(await exec(id, "cat /tmp/file"), "kept\n");
  await untilEvent(id, "resumed with the memory of");
  const runs = await runsOf(id);
  assert.deepEqual(
    runs.map(({ isOpen, isOrdered }) => [isOpen, isOrdered]),
    [
      [false, true],
      [true, true],
    ],
  );
  assert.equal(new Set(runs.map(({ bootId }) => bootId)).size, 2);
});

test("the memory of a suspended machine takes disk of its plan, also when several are suspended at once", async () => {
  const name = context.ids.make("tenant");
  const plan = await client.post("/v1/plans", { name, maxTotalDiskGb: 3 });
  assert.equal(plan.status, 201, plan.text);
  const tenantId: string = (await client.post("/v1/tenants", { name, planId: plan.json.id })).json.id;
  const scopes = ["machine:create", "machine:read", "machine:delete", "machine:exec"];
  const by = client.withKey((await client.post("/v1/apikeys", { tenantId, scopes })).json.key);
  const resources = { cpus: 1, memoryMb: 512, diskGb: 1 };
  const [one, other] = [await createMachine(by, { resources }), await createMachine(by, { resources })];
  for (const id of [one, other]) assert.equal((await by.post(`/v1/machines/${id}/start`)).status, 200);
  const suspended = (id: string) => by.post(`/v1/machines/${id}/stop?keepMemory=true`);
  const [first, second] = await Promise.all([suspended(one), suspended(other)]);
  const [kept, left, refused] = first.status === 200 ? [one, other, second] : [other, one, first];
  assert.deepEqual(code(refused), [422, "quota_exceeded"]);
  assert.match(refused.text, /allows 3 GB of disk for all machines together, 3 are in use and 1 were requested/);
  assert.equal((await by.get(`/v1/machines/${left}`)).json.state, "started", "it runs on");
  assert.equal((await suspended(kept)).status, 200, "again");
  assert.equal(
    (await by.post("/v1/machines", { source: { type: "image", reference: "local/busybox" }, resources })).status,
    422,
  );
  assert.equal((await by.post(`/v1/machines/${kept}/start`)).status, 200);
  assert.equal((await suspended(left)).status, 200);
  const disks = await context.db.query<{ gb: number; isOpen: boolean; isNext: boolean }>(sql`
    SELECT quantity AS gb, ended_at IS NULL AS "isOpen",
      started_at = coalesce(lag(ended_at) OVER (ORDER BY id), started_at) AS "isNext"
    FROM usage_intervals WHERE machine_id = ${kept} AND meter = 'disk' ORDER BY id`);
  assert.deepEqual(
    disks.map(({ gb, isOpen, isNext }) => [gb, isOpen, isNext]),
    [
      [1, false, true],
      [2, false, true],
      [1, true, true],
    ],
  );
});

test("a suspend is idempotent, a stop discards the memory, and a delete needs nothing of it", async () => {
  const id = await started();
  await exec(id, "echo lost >/tmp/file");
  const first = await suspend(id);
  assert.deepEqual((await suspend(id)).json.suspendedAt, first.json.suspendedAt);
  const stopped = await stop(id);
  assert.deepEqual([stopped.status, stopped.json.state, stopped.json.suspendedAt], [200, "stopped", null]);
  await untilEvent(id, "the memory of the suspended machine was discarded");
  assert.equal((await suspend(id)).json.suspendedAt, null, "it has no memory to keep");
  await start(id);
  assert.equal(await exec(id, "cat /tmp/file || echo gone"), "gone\n");
  assert.equal((await suspend(id)).status, 200);
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
});

test("a machine that cannot be suspended runs on in the same run, and the caller gets the reason", async () => {
  for (const [reason, expected] of [
    ["no_space", [507, "no_space"]],
    ["conflict", [409, "conflict"]],
  ] as const) {
    const id = await started({ FAKE_SUSPEND_FAIL: reason });
    await exec(id, "echo kept >/tmp/file");
    const answer = await suspend(id);
    assert.deepEqual(code(answer), expected, answer.text);
    assert.match(answer.text, /runs and was not suspended: FAKE_SUSPEND_FAIL is set/);
    await until(async () => (await get(id)).state === "started", PATIENT);
    assert.equal(await exec(id, "cat /tmp/file"), "kept\n");
    assert.deepEqual(
      (await runsOf(id)).map(({ isOpen }) => isOpen),
      [true],
    );
    await untilEvent(id, "machine could not be suspended and runs on: FAKE_SUSPEND_FAIL is set");
    assert.equal((await stop(id)).json.state, "stopped");
  }
});

test("memory that cannot be loaded is lost with an event, and the machine boots", async () => {
  const id = await started({ FAKE_RESUME_FAIL: "1" });
  await exec(id, "echo lost >/tmp/file; echo kept >/workspace/file");
  assert.equal((await suspend(id)).status, 200);
  assert.equal((await start(id)).state, "started");
  assert.equal(await exec(id, "cat /workspace/file; cat /tmp/file || echo gone"), "kept\ngone\n");
  await untilEvent(id, "the memory of the suspended machine was lost, and it boots: FAKE_RESUME_FAIL is set");
});

test("an ephemeral machine is not suspended", async () => {
  const id = await started({}, { ephemeral: true });
  assert.deepEqual(code(await suspend(id)), [409, "conflict"]);
  assert.equal((await get(id)).state, "started");
});

test("a start, a stop and a delete during a suspend win", async () => {
  const slow = { FAKE_SUSPEND_MS: "1000" };
  const isStopping = (id: string) =>
    until(
      async () =>
        (await context.db.queryOne(sql`
      SELECT FROM machines WHERE id = ${id} AND desired_state = 'stopped' AND keeps_memory`)) !== undefined,
      PATIENT,
    );
  const restarted = await started(slow);
  await exec(restarted, "echo kept >/tmp/file");
  const ends = [suspend(restarted)];
  await isStopping(restarted);
  assert.equal((await start(restarted)).state, "started");
  assert.equal(await exec(restarted, "cat /tmp/file"), "kept\n");
  const stopped = await started(slow);
  ends.push(suspend(stopped));
  await isStopping(stopped);
  assert.deepEqual((await stop(stopped)).json.suspendedAt, null);
  const deleted = await started(slow);
  ends.push(suspend(deleted));
  await isStopping(deleted);
  assert.equal((await client.delete(`/v1/machines/${deleted}`)).status, 204);
  for (const { status } of await Promise.all(ends)) assert.ok(status < 500, String(status));
});

test("a killed node agent keeps the memory of suspended machines, and finishes a suspend", async () => {
  const [kept, unfinished] = [await started(), await started({ FAKE_SUSPEND_MS: "500" })];
  for (const id of [kept, unfinished]) await exec(id, `echo ${id} >/tmp/file`);
  const { suspendedAt } = (await suspend(kept)).json;
  const answer = suspend(unfinished);
  await node.kill();
  await node.restart();
  await answer;
  await until(async () => (await get(unfinished)).suspendedAt !== null, PATIENT);
  assert.equal((await get(kept)).suspendedAt, suspendedAt);
  for (const id of [kept, unfinished]) assert.equal((await start(id)).state, "started");
});

test("a suspended machine moves with its memory, stays suspended, and continues where it is then", async () => {
  await startTestNode(server, "node-b");
  const id = await started();
  await exec(id, "echo kept >/tmp/file");
  const { suspendedAt, nodeId } = (await suspend(id)).json;
  const to = nodeId === "node-a" ? "node-b" : "node-a";
  const asked = await client.post(`/v1/machines/${id}/move`, { nodeId: to });
  assert.equal(asked.status, 202, asked.text);
  const done = await until(async () => {
    const { json } = await client.get(`/v1/operations/${asked.json.id}`);
    return json.status !== "running" && json;
  }, PATIENT);
  assert.equal(done.status, "succeeded", done.error);
  assert.equal(done.steps[4].message, "it stays suspended, with its memory");
  await until(async () => (await get(id)).suspendedAt === suspendedAt, PATIENT);
  assert.deepEqual([(await get(id)).nodeId, (await get(id)).state], [to, "stopped"]);
  assert.equal((await start(id)).state, "started");
  assert.equal(await exec(id, "cat /tmp/file"), "kept\n");
});
