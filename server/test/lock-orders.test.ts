/**
 * Statements that lock several rows lock them in one order: two that come together, also on two servers, do
 * not wait for each other in a circle.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Run } from "@flotilla/contract/link/link";
import { lockForAdoption } from "../src/branches/adopt-store.ts";
import { type Queryable, sql } from "../src/db/database.ts";
import { touchKeys } from "../src/auth/key-store.ts";
import { writeActivity } from "../src/machines/activity-store.ts";
import { endForgottenRuns, endRunsOfNode, writeRuns } from "../src/machines/run-store.ts";
import { TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const { client, context } = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { db } = context;
const NODE = "ghost";
const register = { id: NODE, address: "unix:/nowhere/agent.sock", totalCpus: 8 };
assert.equal((await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", register)).status, 200);
const MACHINES = 12;

/** The ids of new machines on the node, in their order. */
async function machinesOfNode(): Promise<readonly string[]> {
  const body = { source: { type: "image", reference: "local/busybox" }, resources: { cpus: 1, memoryMb: 256 } };
  const made = await Promise.all(Array.from({ length: MACHINES }, () => client.post("/v1/machines", body)));
  const ids = made.map(({ json }) => String(json.id)).toSorted();
  await db.execute(sql`UPDATE machines SET node_id = ${NODE} WHERE id = ANY(${ids}::text[])`);
  return ids;
}

/**
 * Whether the last of the rows can be locked while `work` waits for the first one: it has locked none out of
 * order.
 */
async function locksInOrder(
  { first, last }: Readonly<Record<"first" | "last", (transaction: Queryable) => Promise<unknown>>>,
  work: () => Promise<unknown>,
): Promise<boolean> {
  let working: Promise<unknown> = Promise.resolve();
  const isFree = await db
    .transaction(async (transaction) => {
      await first(transaction);
      working = work();
      await until(async () => (await waiting()) === 1, { what: "a statement that waits for the lock" });
      return await last(transaction).then(
        () => true,
        () => false,
      );
    })
    .catch(() => false);
  await working;
  return isFree;
}

async function waiting(): Promise<number> {
  const row = await db.queryOne<{ count: number }>(sql`
    SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`);
  return row?.count ?? 0;
}

const lockMachine = (id: string | undefined) => (transaction: Queryable) =>
  transaction.query(sql`SELECT id FROM machines WHERE id = ${id} FOR NO KEY UPDATE NOWAIT`);

test("activity of machines", async () => {
  const ids = await machinesOfNode();
  const activity = ids.toReversed().map((machineId) => ({ machineId, at: context.clock.now(), execs: [] }));
  const rows = { first: lockMachine(ids[0]), last: lockMachine(ids.at(-1)) };
  assert.ok(await locksInOrder(rows, () => writeActivity(context, { activity, lines: [] })));
});

test("a branch that takes the place of its source", async () => {
  const ids = (await machinesOfNode()).slice(0, 2);
  const [source = "", branch = ""] = ids;
  await db.execute(sql`
    UPDATE machines SET origin = jsonb_build_object('machineId', ${source}::text) WHERE id = ${branch}`);
  const { tenantId } = (await client.get("/v1/me")).json;
  const rows = { first: lockMachine(source), last: lockMachine(branch) };
  const lock = () => db.transaction((transaction) => lockForAdoption(transaction, { tenantId, id: branch }));
  assert.ok(await locksInOrder(rows, lock));
});

test("the last use of keys", async () => {
  const made = await Promise.all(
    Array.from({ length: MACHINES }, () => client.post("/v1/apikeys", { scopes: ["machine:read"] })),
  );
  const ids = made.map(({ json }) => String(json.id)).toSorted();
  const lock = (id: string | undefined) => (transaction: Queryable) =>
    transaction.query(sql`SELECT id FROM api_keys WHERE id = ${id} FOR NO KEY UPDATE NOWAIT`);
  const used = new Map(ids.toReversed().map((id) => [id, context.clock.now()]));
  assert.ok(await locksInOrder({ first: lock(ids[0]), last: lock(ids.at(-1)) }, () => touchKeys(db, used)));
});

const lockRun = (machineId: string | undefined) => (transaction: Queryable) =>
  transaction.query(sql`SELECT boot_id FROM machine_runs WHERE machine_id = ${machineId} FOR NO KEY UPDATE NOWAIT`);

test("runs that a node reports", async () => {
  const ids = await machinesOfNode();
  const at = context.clock.now();
  const runs = ids.toReversed().map((machineId, sequence) => ({
    ...{ bootId: `boot-${machineId}`, machineId, sequence, startedAt: at, endedAt: null, cause: null, egressBytes: 0 },
  }));
  assert.deepEqual(await writeRuns(context, NODE, runs), []);
  const ended = runs.map((run) => ({ ...run, endedAt: at, cause: "stop" as const }));
  const rows = { first: lockRun(ids[0]), last: lockRun(ids.at(-1)) };
  assert.ok(await locksInOrder(rows, () => writeRuns(context, NODE, ended)));
});

test("a run whose end the node has lost, while its machine leaves the node", async () => {
  const [id = ""] = await machinesOfNode();
  const at = context.clock.now();
  const [lost, next] = [1, 2].map((sequence) => ({
    ...{ bootId: `boot-${sequence}-${id}`, machineId: id, sequence, startedAt: at + sequence },
    ...{ endedAt: null, cause: null, egressBytes: 0 },
  })) as [Run, Run];
  await writeRuns(context, NODE, [lost]);
  const period = (transaction: Queryable) =>
    transaction.query(sql`SELECT FROM machine_periods WHERE machine_id = ${id} FOR NO KEY UPDATE NOWAIT`);
  assert.ok(await locksInOrder({ first: lockRun(id), last: period }, () => writeRuns(context, NODE, [next])));
});

test("a run that is recorded while a later report of it waits continues", async () => {
  const [id = "", other = ""] = await machinesOfNode();
  const at = context.clock.now();
  const [before, begun] = [other, id].map((machineId, sequence) => ({
    ...{ bootId: `boot-${machineId}`, machineId, sequence, startedAt: at, endedAt: null, cause: null, egressBytes: 0 },
  })) as [Run, Run];
  await writeRuns(context, NODE, [before]);
  const first = async (transaction: Queryable) => {
    await lockRun(other)(transaction);
    await writeRuns({ ...context, db: { ...db, ...transaction } }, NODE, [begun]);
  };
  const ended = { ...before, endedAt: at, cause: "stop" as const };
  const later = { ...begun, sequence: begun.sequence + 1 };
  assert.ok(await locksInOrder({ first, last: async () => null }, () => writeRuns(context, NODE, [ended, later])));
  const open = await db.query(sql`SELECT FROM machine_runs WHERE boot_id = ${begun.bootId} AND ended_at IS NULL`);
  assert.equal(open.length, 1);
});

const endings: Readonly<Record<string, (at: number) => Promise<unknown>>> = {
  "that a node does not know any more": (endedAt) =>
    endForgottenRuns(context, { id: NODE, sequence: MACHINES, bootIds: [], endedAt, isRestored: false }),
  "of a node that leaves": (endedAt) => endRunsOfNode(db, NODE, endedAt),
};
for (const [name, end] of Object.entries(endings))
  test(`runs ${name}`, async () => {
    const ids = await machinesOfNode();
    const at = context.clock.now();
    // One after the other, so that the table has them in another order.
    for (const [sequence, machineId] of ids.toReversed().entries())
      await writeRuns(context, NODE, [
        { bootId: `boot-${machineId}`, machineId, sequence, startedAt: at, endedAt: null, cause: null, egressBytes: 0 },
      ]);
    await db.execute(sql`ANALYZE machine_runs`);
    assert.ok(await locksInOrder({ first: lockRun(ids[0]), last: lockRun(ids.at(-1)) }, () => end(at)));
    const open = await db.query(sql`SELECT FROM machine_runs WHERE node_id = ${NODE} AND ended_at IS NULL`);
    assert.equal(open.length, 0);
  });

test("tenants of a new default plan, while reports of several tenants lock those in the order of their machines", async () => {
  const made = await Promise.all(["one", "two"].map((name) => client.post("/v1/tenants", { name })));
  const ids = made.map(({ json }) => String(json.id)).toSorted();
  const record = (id: string | undefined) => (transaction: Queryable) =>
    transaction.query(sql`SELECT id FROM tenants WHERE id = ${id} FOR KEY SHARE NOWAIT`);
  const plan = async (): Promise<void> => {
    const answer = await client.post("/v1/plans", { name: "new default", isDefault: true });
    assert.equal(answer.status, 201, answer.text);
  };
  assert.ok(await locksInOrder({ first: record(ids[1]), last: record(ids[0]) }, plan));
});
