/**
 * Concurrent requests, to one server and to two.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { requestStart, requestStop } from "../src/machines/change.ts";
import { findAnyMachine, writeChanges } from "../src/machines/store.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { NO_CEILINGS } from "../src/placement/place.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const node = await startTestNode(server);
const replica = await startTestServer({ joinToken: TEST_JOIN_TOKEN, databaseUrl: server.databaseUrl });
const { client } = server;
const other = client.withKey(client.key);
Object.assign(other, { url: replica.url });
const source = { type: "image", reference: "local/busybox" };

const created = async (fields: object = {}): Promise<string> =>
  (await client.post("/v1/machines", { source, ...fields })).json.id;

async function tenantWith(ceilings: object) {
  const name = `plan ${JSON.stringify(ceilings)}`;
  const plan = (await client.post("/v1/plans", { name, ...ceilings })).json;
  const tenant = (await client.post("/v1/tenants", { name, planId: plan.id })).json.id;
  const scopes = ["machine:read", "machine:create", "machine:delete", "machine:exec"];
  const key = (await client.post("/v1/apikeys", { tenantId: tenant, scopes })).json.key;
  return [client.withKey(key), other.withKey(key)] as const;
}

/** A rate that two hundred requests at once do not reach. */
const FAST = { rateRequestsPerSecond: 1_000, rateBurst: 1_000 };

const times = <T>(count: number, work: (n: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, n) => work(n)));

const countOf = (answers: readonly { status: number }[], status: number): number =>
  answers.filter((answer) => answer.status === status).length;

async function startsOf(id: string): Promise<number> {
  const events = (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  return events.filter(({ message }) => message === "machine started").length;
}

test("two hundred creates at once on two servers give exactly the ceiling", async () => {
  const [mine, theirs] = await tenantWith({ maxMachines: 10, ...FAST });
  const answers = await times(200, (n) => (n % 2 === 0 ? mine : theirs).post("/v1/machines", { source }));
  assert.deepEqual([countOf(answers, 201), countOf(answers, 422)], [10, 190]);
  assert.equal((await mine.get("/v1/machines")).json.length, 10);
});

test("two hundred starts at once on two servers give exactly the ceiling, and the refused ones cost nothing", async () => {
  const [mine, theirs] = await tenantWith({ maxConcurrentMachines: 10, ...FAST });
  const ids = await times(50, async () => (await mine.post("/v1/machines", { source })).json.id as string);
  const start = (n: number) => (n % 2 === 0 ? mine : theirs).post(`/v1/machines/${ids[n % 50]}/start`);
  const answers = await times(200, start);
  const started = new Set(answers.flatMap(({ status }, n) => (status === 200 ? [ids[n % 50]] : [])));
  assert.equal(started.size, 10);
  const others = answers.filter(({ status }) => status !== 200 && status !== 422);
  assert.deepEqual(
    others.map(({ text }) => text),
    [],
  );
  const states = (await mine.get("/v1/machines")).json.map((machine: { state: string }) => machine.state);
  assert.equal(states.filter((state: string) => state === "started").length, 10);
  assert.equal(states.filter((state: string) => state === "stopped").length, 40);
  const runs = await server.context.db.query<{ id: string }>(
    sql`SELECT machine_id AS id FROM machine_runs WHERE machine_id = ANY (${ids})`,
  );
  assert.deepEqual(runs.map(({ id }) => id).toSorted(), [...started].toSorted());
});

test("fifty creates at once on two servers take no more disk together than the plan allows", async () => {
  const [mine, theirs] = await tenantWith({ maxTotalDiskGb: 100 });
  const machine = { source, resources: { diskGb: 15 } };
  const answers = await times(50, (n) => (n % 2 === 0 ? mine : theirs).post("/v1/machines", machine));
  assert.deepEqual([countOf(answers, 201), countOf(answers, 422)], [6, 44]);
  const refused = await mine.post("/v1/machines", machine);
  assert.equal(refused.headers.get("x-error-code"), "quota_exceeded");
  assert.match(
    refused.text,
    /^disk limit reached: your .+ plan allows 100 GB of disk for all machines together, 90 are in use and 15 were requested; request less, delete a machine, or ask the operator/,
  );
  assert.equal((await mine.post("/v1/machines", { source, resources: { diskGb: 10 } })).status, 201);
  const [{ id }] = (await mine.get("/v1/machines")).json as [{ id: string }];
  await mine.delete(`/v1/machines/${id}`);
  assert.equal((await mine.post("/v1/machines", { source, resources: { diskGb: 10 } })).status, 201);
});

test("fifty starts at once on two servers take no more memory or processors together than the plan allows", async () => {
  const kinds = [
    [
      { maxTotalMemoryMb: 1_100 },
      "memory limit reached: your .+ plan allows 1100 MB of memory .*, 1024 are in use .* needs 256",
    ],
    [
      { maxTotalCpus: 9 },
      "vCPU limit reached: your .+ plan allows 9 vCPUs .*, 8 are in use and this one needs 2; stop a machine",
    ],
  ] as const;
  for (const [plan, text] of kinds) {
    const [mine, theirs] = await tenantWith(plan);
    const machine = { source, resources: { cpus: 2, memoryMb: 256 } };
    const ids = await times(50, async () => (await mine.post("/v1/machines", machine)).json.id as string);
    const answers = await times(50, (n) => (n % 2 === 0 ? mine : theirs).post(`/v1/machines/${ids[n]}/start`));
    assert.deepEqual([countOf(answers, 200), countOf(answers, 422)], [4, 46]);
    for (const answer of answers.filter(({ status }) => status === 422))
      assert.match(answer.text, new RegExp(`^${text}`));
    const place = (state: number): number => answers.findIndex(({ status }) => status === state);
    assert.equal((await mine.post(`/v1/machines/${ids[place(200)]}/stop`)).status, 200);
    assert.equal(
      (await mine.post(`/v1/machines/${ids[place(422)]}/start`)).status,
      200,
      "what a stop frees can be taken",
    );
  }
});

test("a place freed by a stop can be used", async () => {
  const [mine] = await tenantWith({ maxConcurrentMachines: 1 });
  const ids = await times(2, async () => (await mine.post("/v1/machines", { source })).json.id as string);
  assert.equal((await mine.post(`/v1/machines/${ids[0]}/start`)).status, 200);
  assert.equal((await mine.post(`/v1/machines/${ids[1]}/start`)).status, 422);
  assert.equal((await mine.post(`/v1/machines/${ids[0]}/stop`)).status, 200);
  assert.equal((await mine.post(`/v1/machines/${ids[1]}/start`)).status, 200);
  // Starting a started machine uses no second place.
  assert.equal((await mine.post(`/v1/machines/${ids[1]}/start`)).status, 200);
});

test("of many machines with one name one is created", async () => {
  const answers = await times(20, (n) => (n % 2 === 0 ? client : other).post("/v1/machines", { source, name: "only" }));
  assert.deepEqual([countOf(answers, 201), countOf(answers, 409)], [1, 19]);
});

test("ten starts at once on two servers lead to one boot", async () => {
  const id = await created({ env: { FAKE_BOOT_MS: "200" } });
  const answers = await times(10, (n) => (n % 2 === 0 ? client : other).post(`/v1/machines/${id}/start`));
  assert.equal(countOf(answers, 200), 10);
  assert.equal(new Set(answers.map(({ json }) => json.readyAt)).size, 1);
  assert.equal(await startsOf(id), 1);
});

test("a delete during a start wins, and the start says so", async () => {
  const id = await created({ env: { FAKE_BOOT_MS: "20000" } });
  const starting = client.post(`/v1/machines/${id}/start`);
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.state === "creating");
  assert.equal((await other.delete(`/v1/machines/${id}`)).status, 204);
  assert.equal((await starting).status, 404);
  const answers = await times(4, () => client.post(`/v1/machines/${id}/start`));
  assert.equal(countOf(answers, 404), 4);
});

test("a delete and a start at the same moment leave nothing behind on the node", async () => {
  const ids = await times(10, () => created());
  await times(20, (n) => {
    const id = ids[n >> 1];
    return n % 2 === 0 ? client.post(`/v1/machines/${id}/start`) : other.delete(`/v1/machines/${id}`);
  });
  for (const id of ids) assert.equal((await client.get(`/v1/machines/${id}`)).status, 404);
  await until(async () => {
    const row = await server.context.db.queryOne<{ left: number }>(sql`
      SELECT count(*)::int AS left FROM machines WHERE id = ANY(${ids}) AND NOT (
        node_id IS NULL OR (observed_state = 'absent' AND observed_generation = generation))`);
    return row?.left === 0;
  });
});

test("a stop during a start wins, and the start says so", async () => {
  const id = await created({ env: { FAKE_BOOT_MS: "20000" } });
  const starting = client.post(`/v1/machines/${id}/start`);
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.state === "creating");
  const stopped = await other.post(`/v1/machines/${id}/stop`);
  assert.deepEqual([stopped.status, stopped.json.state], [200, "stopped"]);
  const answer = await starting;
  assert.deepEqual([answer.status, answer.headers.get("x-error-code")], [409, "conflict"]);
});

test("whatever the order of requests, the last desired state is reached and no machine runs twice", async () => {
  const ids = await times(4, () => created());
  const verbs = ["start", "stop", "start?detach=true"] as const;
  const answers = await times(48, (n) => {
    const verb = verbs[(n * 7 + (n >> 2)) % verbs.length];
    return (n % 3 === 0 ? other : client).post(`/v1/machines/${ids[n % 4]}/${verb}`);
  });
  for (const { status, text } of answers) assert.ok([200, 202, 409].includes(status), `${status} ${text}`);
  for (const id of ids) assert.equal((await client.post(`/v1/machines/${id}/stop`)).json.state, "stopped");
  for (const id of ids) assert.equal((await client.post(`/v1/machines/${id}/start`)).json.state, "started");
  const twice = await server.context.db.query(sql`
    SELECT machine_id FROM machine_runs WHERE machine_id = ANY(${ids}) AND ended_at IS NULL
    GROUP BY machine_id HAVING count(*) > 1`);
  assert.deepEqual(twice, []);
});

test("a machine started on one server takes commands and deletes on the other", async () => {
  const id = await created();
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  assert.equal((await other.post(`/v1/machines/${id}/exec`, { command: "echo hi" })).json.stdout, "hi\n");
  assert.equal((await other.delete(`/v1/machines/${id}`)).status, 204);
  const answer = await client.post(`/v1/machines/${id}/exec`, { command: "echo hi" });
  assert.equal(answer.status, 404, answer.text);
});

test("of two writes from the same revision one is written and one is stale", async () => {
  const id = await created();
  const machine = await findAnyMachine(server.context.db, id);
  assert.ok(machine);
  const options = {
    tenantId: machine.tenantId,
    nodeId: node.id,
    overcommit: NO_CEILINGS,
    activeMax: 100,
    isBudgeted: false,
    isAutomatic: false,
    keyId: "key-a",
    now: Date.now(),
  };
  const start = requestStart(machine, options);
  const stop = requestStop({ ...machine, nodeId: node.id }, Date.now());
  const outcomes = await Promise.all([writeChanges(server.context, [start]), writeChanges(replica.context, [stop])]);
  assert.equal(
    outcomes.reduce((sum, written) => sum + written.size, 0),
    1,
  );
  assert.equal((await writeChanges(server.context, [start])).size, 0);
});

test("a loop finishes a start whose server died before it sent it to the node", async () => {
  const id = await created();
  const machine = await findAnyMachine(server.context.db, id);
  assert.ok(machine);
  const now = Date.now();
  const { next, ...rest } = requestStart(machine, {
    tenantId: machine.tenantId,
    nodeId: node.id,
    overcommit: NO_CEILINGS,
    activeMax: 100,
    isBudgeted: false,
    isAutomatic: false,
    keyId: "key-a",
    now,
  });
  // As a handler writes it, except that it is due for the loop immediately.
  await writeChanges(server.context, [{ ...rest, next: { ...next, reconcileAt: now } }]);
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.ready);
  assert.equal(await startsOf(id), 1);
});
