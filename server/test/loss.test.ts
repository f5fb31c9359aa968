/**
 * Nodes that are lost: what waits in pools is made elsewhere once, what users have is kept, and nothing is
 * replaced when too many are silent.
 *
 * Nodes of the fake driver, whose agents are killed, and nodes that the test plays. That 30 s have passed is
 * written into their rows.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { nodeReconciler } from "../src/nodes/nodes-loop.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";
import { RESOURCES, startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const { client, server, context, node: nodeA } = await startMachineServer();
const nodeB = await startTestNode(server, "node-b");
// Two servers decide and fill.
const second = await startTestServer({ databaseUrl: server.databaseUrl });
const { db } = context;
const LONG = { deadlineMs: 30_000 };
const ID = { "node-a": nodeA, "node-b": nodeB } as const;
type Name = keyof typeof ID;

const loops = () =>
  [server.context, second.context].map((each) => nodeReconciler(each, 30_000, each.clock.monotonic() - 60_000));

/**
 * Two servers look at the nodes at the same time. Those under test do so as well, when they have run for 30
 * s.
 */
async function decide(): Promise<void> {
  await Promise.all(loops().map((loop) => loop.activate(AbortSignal.timeout(10_000))));
}

const decisionOf = async (id: string): Promise<string | undefined> => {
  const node = await nodeOf(id);
  assert.equal(node?.status, "unreachable");
  return node?.replacement?.decision;
};

const silence = (ids: readonly string[], ms = 31_000) =>
  db.execute(sql`
    UPDATE nodes SET last_heartbeat_at = now() - ${ms} * interval '1 millisecond', registered_at = now() - interval '1 hour'
    WHERE id = ANY(${[...ids]}::text[])`);

const LOOKS = 8;

async function cut(name: Name): Promise<void> {
  await ID[name].kill();
  await silence([name]);
  // A report that the agent had sent may still be written.
  for (let looks = 0; looks < LOOKS; looks += 1) {
    const { lastHeartbeatAt = "" } = (await nodeOf(name)) ?? {};
    if (Date.parse(lastHeartbeatAt) <= Date.now() - 30_000) continue;
    await silence([name]);
    looks = 0;
  }
}

const nodeOf = async (id: string) =>
  (
    (await client.get("/v1/nodes")).json as {
      id: string;
      status: string;
      lastHeartbeatAt: string;
      replacement: { decision: string; reason: string } | null;
    }[]
  ).find((each) => each.id === id);

interface Waiting {
  readonly id: string;
  readonly nodeId: Name;
}
const rowsOf = (pool: string) =>
  db.query<Waiting & { fence: string | null; isDeleted: boolean; observed: string }>(sql`
    SELECT m.id, m.node_id AS "nodeId", m.fence, m.deleted_at IS NOT NULL AS "isDeleted", m.observed_state AS observed
    FROM machines m WHERE m.labels ->> 'flotilla-pool' = ${pool} ORDER BY m.id`);

async function poolOf(size: number): Promise<string> {
  const made = await client.post("/v1/pools", { image: "local/busybox", memoryMb: 256, cpus: 1, targetSize: size });
  assert.equal(made.status, 200, made.text);
  await waits(made.json.id, size);
  return made.json.id;
}

/** Half of its machines wait on each node. */
async function spreadPool(size: number): Promise<string> {
  await client.post("/v1/nodes/node-b/cordon");
  const pool = await poolOf(size / 2);
  await client.post("/v1/nodes/node-b/uncordon");
  await client.post("/v1/nodes/node-a/cordon");
  await db.execute(sql`UPDATE pools SET target_size = ${size} WHERE id = ${pool}`);
  await db.notify("pools", "");
  await waits(pool, size);
  await client.post("/v1/nodes/node-a/uncordon");
  return pool;
}

const waits = (pool: string, count: number) =>
  until(
    async () =>
      ((await client.get("/v1/pools")).json as { id: string; idleCount: number }[]).some(
        ({ id, idleCount }) => id === pool && idleCount === count,
      ),
    { what: `${count} machines to wait`, ...LONG },
  );

/** Every fenced machine is reported as such, and none of another kind. */
const fenced = (pool: string) =>
  until(
    async () =>
      (
        await db.query<{ ok: boolean }>(sql`
        SELECT bool_and((observed_details ->> 'isFenced')::boolean) AS ok FROM machines
        WHERE labels ->> 'flotilla-pool' = ${pool} AND deleted_at IS NULL AND fence = 'on'`)
      )[0]?.ok === true,
    { what: "the nodes to confirm the fences", ...LONG },
  );

const removePool = async (pool: string): Promise<void> => {
  await client.call("DELETE", `/v1/pools/${pool}`);
  await until(async () => (await rowsOf(pool)).every(({ isDeleted, fence }) => isDeleted || fence === null), {
    what: "the waiting machines to be deleted",
    ...LONG,
  });
};

test("what waited on a lost node is made elsewhere once, and is ended first when the node is back; other machines are kept", async () => {
  const pool = await spreadPool(4);
  await fenced(pool);
  const lost = (await rowsOf(pool)).filter(({ nodeId }) => nodeId === "node-a");
  assert.equal(lost.length, 2);
  await client.post("/v1/nodes/node-b/cordon");
  const ordinary = await Promise.all([1, 2].map(() => createMachine(client)));
  for (const id of ordinary) assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  await client.post("/v1/nodes/node-b/uncordon");
  await cut("node-a");
  const lastReport = (
    await db.query<{ at: Date }>(
      sql`SELECT last_heartbeat_at - last_late_ms * interval '1 ms' AS at FROM nodes WHERE id = 'node-a'`,
    )
  )[0]?.at;
  await decide();
  await decide();
  await waits(pool, 4);
  const after = (await rowsOf(pool)).filter(({ isDeleted }) => !isDeleted);
  assert.equal(after.length, 4, "racing servers made more than were lost");
  assert.ok(after.every(({ nodeId }) => nodeId === "node-b"));
  assert.equal((await nodeOf("node-a"))?.replacement?.decision, "replaced");
  for (const { id } of lost) assert.equal((await client.get(`/v1/machines/${id}`)).status, 404);
  for (const id of ordinary) assert.equal((await client.get(`/v1/machines/${id}`)).json.state, "error");
  const counted = await db.query<{ at: Date; from: Date }>(sql`
    SELECT counted_until AS at, started_at AS from FROM machine_runs WHERE machine_id = ANY(${lost.map(({ id }) => id)}::text[])`);
  assert.deepEqual(
    counted.map(({ at }) => at.getTime()),
    counted.map(({ from }) => Math.max(from.getTime(), lastReport?.getTime() ?? Number.NaN)),
    "it is billed up to the last report, or not at all if it began after that",
  );
  await nodeA.restart();
  // Before the heartbeat was acknowledged no fenced machine of it ran.
  await until(
    async () => (await rowsOf(pool)).every(({ isDeleted, observed }) => !isDeleted || observed === "absent"),
    {
      what: "the node to end what was replaced",
      ...LONG,
    },
  );
  assert.equal((await nodeOf("node-a"))?.replacement, null);
  for (const id of ordinary) {
    await until(async () => (await client.get(`/v1/machines/${id}`)).json.ready, {
      what: "the ordinary machine",
      ...LONG,
    });
    assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: ["true"] })).json.exitCode, 0);
  }
  await until(async () => (await openRuns(lost)) === 0, { what: "the runs to end", ...LONG });
  for (const id of ordinary) await client.delete(`/v1/machines/${id}`);
  await removePool(pool);
});

const openRuns = async (machines: readonly Waiting[]): Promise<number> =>
  (
    await db.query(sql`
    SELECT 1 AS one FROM machine_runs WHERE machine_id = ANY(${machines.map(({ id }) => id)}::text[]) AND ended_at IS NULL`)
  ).length;

test("a claim lifts the fence, also when its server died before, and a claimed machine is not replaced", async () => {
  const pool = await poolOf(2);
  await fenced(pool);
  const claim = await client.post(`/v1/pools/${pool}/claim`);
  assert.equal(claim.status, 200, claim.text);
  const isLifted = async (id: string): Promise<boolean> =>
    (
      await db.query<{ ok: boolean }>(sql`
      SELECT fence IS NULL AND NOT (observed_details ->> 'isFenced')::boolean AS ok FROM machines WHERE id = ${id}`)
    )[0]?.ok === true;
  await until(() => isLifted(claim.json.id), { what: "the fence to be lifted", ...LONG });
  await waits(pool, 2);
  await fenced(pool);
  const [other] = (await rowsOf(pool)).filter(({ fence }) => fence === "on");
  assert.ok(other);
  // What a server leaves that dies after the claim's statement; and its node is cut off before any other
  // server calls it.
  await ID[other.nodeId].kill();
  await db.execute(sql`
    WITH taken AS (DELETE FROM machine_owners WHERE machine_id = ${other.id} RETURNING machine_id, id)
    INSERT INTO pool_claims (machine_id, pool_id, claimed_at, claim_id) SELECT machine_id, id, now(), 'dead' FROM taken`);
  await silence([other.nodeId]);
  await decide();
  assert.equal(await decisionOf(other.nodeId), "replaced");
  await until(async () => (await rowsOf(pool)).find(({ id }) => id === other.id)?.fence === "lifting", {
    what: "another server to lift the fence",
    ...LONG,
  });
  await waits(pool, 2);
  assert.equal((await client.get(`/v1/machines/${other.id}`)).json.state, "error", "it is not deleted");
  await ID[other.nodeId].restart();
  await until(() => isLifted(other.id), { what: "the fence to be lifted on its node", ...LONG });
  await until(async () => (await client.get(`/v1/machines/${other.id}`)).json.ready, {
    what: "the claimed machine",
    ...LONG,
  });
  for (const id of [claim.json.id, other.id]) await client.delete(`/v1/machines/${id}`);
  await removePool(pool);
});

test("claims that race with the loss of a node get machines that stay, each another one", async () => {
  const pool = await spreadPool(6);
  await fenced(pool);
  await cut("node-a");
  const claims = Array.from({ length: 6 }, () => client.post(`/v1/pools/${pool}/claim`));
  const [, ...claimed] = await Promise.all([decide(), ...claims]);
  for (const each of claimed) assert.equal(each.status, 200, each.text);
  const ids = claimed.map(({ json }) => json.id as string);
  assert.equal(new Set(ids).size, 6);
  await waits(pool, 6);
  const rows = await rowsOf(pool);
  assert.ok(
    ids.every((id) => rows.some((row) => row.id === id && !row.isDeleted)),
    "a claimed machine was replaced",
  );
  assert.equal(rows.filter(({ id, isDeleted }) => !isDeleted && !ids.includes(id)).length, 6);
  await nodeA.restart();
  for (const id of ids) await client.delete(`/v1/machines/${id}`);
  await removePool(pool);
});

test("when a third is silent nothing is replaced: it says so, resumes by itself, and by command", async () => {
  const ghosts = ["ghost-1", "ghost-2", "ghost-3", "ghost-4"];
  const credentials = new Map<string, typeof client>();
  for (const id of ghosts) {
    const made = await client
      .withKey(TEST_JOIN_TOKEN)
      .post("/v1/nodes/register", { id, address: "unix:/nowhere/agent.sock", totalCpus: 1 });
    credentials.set(id, client.withKey(made.json.credential));
    await client.post(`/v1/nodes/${id}/cordon`);
  }
  const beat = async (id: string): Promise<void> => {
    const body = {
      bootId: `agent-of-${id}`,
      isComplete: false,
      resources: RESOURCES,
      machines: [],
      events: [],
      canFence: true,
    };
    const answer = await credentials.get(id)?.post(`/v1/nodes/${id}/heartbeat`, body);
    assert.equal(answer?.status, 200, answer?.text);
  };
  const metric = async (decision: string): Promise<string | undefined> =>
    new RegExp(`flotilla_unreachable_nodes\\{decision="${decision}"\\} (\\d+)`).exec(
      (await client.get("/metrics")).text,
    )?.[1];
  const pool = await spreadPool(4);
  for (const id of ghosts) await beat(id);
  await fenced(pool);
  const before = await rowsOf(pool);
  // It was cut at the same time, and its last heartbeat came later.
  await silence(["ghost-1"], 14_000);
  await cut("node-a");
  await decide();
  // A server that has just started does not know better.
  await nodeReconciler(second.context).activate(AbortSignal.timeout(10_000));
  const held = (await nodeOf("node-a"))?.replacement;
  assert.deepEqual([held?.decision, held?.reason], ["held", "2 of 6 nodes do not report, which is a third or more"]);
  assert.equal(await metric("held"), "1");
  const plan = (await client.get("/v1/nodes/replace-lost")).json;
  assert.deepEqual([plan.isHeld, plan.nodes.length, plan.nodes[0].replaceable, plan.nodes[0].staying], [true, 1, 2, 0]);
  const [someone] = before.filter(({ nodeId }) => nodeId === "node-a");
  const events = (await client.get(`/v1/machines/${someone?.id}/events`)).json as { message: string }[];
  assert.equal(
    events.filter(({ message }) => / is not replaced: /.test(message)).length,
    1,
    "one server says it, once",
  );
  assert.deepEqual(await rowsOf(pool), before, "something was replaced");
  await beat("ghost-1");
  await decide();
  assert.equal(await decisionOf("node-a"), "replaced");
  await waits(pool, 4);
  assert.equal(await metric("held"), "0");
  await nodeA.restart();
  await until(async () => (await nodeOf("node-a"))?.status === "ready", { what: "the node to be back", ...LONG });

  for (const id of ghosts) await beat(id);
  await nodeB.kill();
  await silence(["ghost-1", "ghost-2", "node-b"]);
  await decide();
  for (const id of ["node-b", "ghost-1", "ghost-2"]) assert.equal(await decisionOf(id), "held");
  const kept = await rowsOf(pool);
  assert.equal((await client.post("/v1/nodes/replace-lost", { nodeIds: ["node-a"] })).status, 409);
  const commanded = await client.post("/v1/nodes/replace-lost", { nodeIds: ["node-b"] });
  assert.equal(commanded.status, 200, commanded.text);
  assert.equal((await nodeOf("ghost-1"))?.replacement?.decision, "held");
  const numbers = async () => [Number(await metric("held")), Number(await metric("replaced"))];
  assert.deepEqual(await numbers(), [2, 1]);
  await client.delete("/v1/nodes/ghost-1/credential");
  assert.deepEqual(await numbers(), [1, 1], "a revoked node is still said to be held");
  assert.equal((await nodeOf("ghost-1"))?.replacement, null);
  await waits(pool, 4);
  const gone = kept.filter(({ nodeId, isDeleted }) => nodeId === "node-b" && !isDeleted);
  const rows = await rowsOf(pool);
  assert.ok(gone.length > 0 && gone.every(({ id }) => rows.find((row) => row.id === id)?.isDeleted === true));
  const audited = await db.query(sql`
    SELECT 1 AS one FROM audit_log WHERE type = 'nodes.replaceLostNodes' AND record::jsonb ->> 'status' = '200'`);
  assert.equal(audited.length, 1);
  await nodeB.restart();
  await removePool(pool);
  for (const id of ghosts) await client.delete(`/v1/nodes/${id}/credential`);
});

test("what cannot be fenced is not replaced, nor is anything of a node under maintenance", async () => {
  const pool = await spreadPool(2);
  await fenced(pool);
  await db.execute(sql`
    CREATE FUNCTION without_fence() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.observed_details := NEW.observed_details || '{"isFenced": false}';
      RETURN NEW;
    END $$`);
  // Also what a heartbeat says whose answer the killed agent did not see any more.
  await db.execute(sql`
    CREATE TRIGGER without_fence BEFORE UPDATE ON machines FOR EACH ROW WHEN (NEW.node_id = 'node-a')
    EXECUTE FUNCTION without_fence()`);
  await nodeA.kill();
  await db.execute(sql`UPDATE machines SET fence = fence WHERE labels ->> 'flotilla-pool' = ${pool}`);
  const before = await rowsOf(pool);
  await silence(["node-a"]);
  await decide();
  assert.equal(await decisionOf("node-a"), "replaced");
  const lost = (await client.get("/v1/nodes/replace-lost")).json;
  assert.deepEqual([lost.nodes[0].replaceable, lost.nodes[0].staying], [0, 1]);
  await decide();
  assert.deepEqual(await rowsOf(pool), before);
  await db.execute(sql`DROP TRIGGER without_fence ON machines`);
  await nodeA.restart();
  await fenced(pool);
  await client.post("/v1/nodes/node-a/maintenance");
  await cut("node-a");
  await decide();
  assert.equal(await decisionOf("node-a"), undefined);
  assert.deepEqual(await rowsOf(pool), before);
});

test("what was to be replaced is ended first when its node is back, also when the server died that was to delete it", async () => {
  const made = await client
    .withKey(TEST_JOIN_TOKEN)
    .post("/v1/nodes/register", { id: "ghost-5", address: "unix:/nowhere/agent.sock", totalCpus: 1 });
  await client.post("/v1/nodes/ghost-5/cordon");
  const pool = await poolOf(1);
  await fenced(pool);
  const [waiting] = await rowsOf(pool);
  assert.ok(waiting);
  await db.execute(sql`
    WITH node AS (UPDATE nodes SET status = 'unreachable', lost_at = now(), last_heartbeat_at = now() - interval '31 s' WHERE id = 'ghost-5'),
    machine AS (UPDATE machines SET node_id = 'ghost-5' WHERE id = ${waiting.id})
    UPDATE machine_owners SET discarded_at = now() WHERE machine_id = ${waiting.id}`);
  const answer = await client.withKey(made.json.credential).post("/v1/nodes/ghost-5/heartbeat", {
    ...{ bootId: "agent-of-ghost-5", isComplete: true, resources: RESOURCES, machines: [], events: [], canFence: true },
  });
  assert.equal(answer.status, 200, answer.text);
  const absent = (answer.json.absentMachines ?? []) as { machineId: string }[];
  assert.deepEqual(
    absent.map(({ machineId }) => machineId),
    [waiting.id],
  );
  await removePool(pool);
});

test("a complete report is answered with all that is to be absent on its node, and with what was fenced also when it is gone", async () => {
  const made = await client
    .withKey(TEST_JOIN_TOKEN)
    .post("/v1/nodes/register", { id: "ghost-6", address: "unix:/nowhere/agent.sock", totalCpus: 1 });
  await client.post("/v1/nodes/ghost-6/cordon");
  const absentAfter = async (isComplete: boolean, machines: readonly object[] = []): Promise<readonly string[]> => {
    const answer = await client.withKey(made.json.credential).post("/v1/nodes/ghost-6/heartbeat", {
      ...{ bootId: "agent-of-ghost-6", isComplete, resources: RESOURCES, machines, events: [], canFence: true },
    });
    assert.equal(answer.status, 200, answer.text);
    return ((answer.json.absentMachines ?? []) as { machineId: string }[]).map(({ machineId }) => machineId).toSorted();
  };
  const [fencedOne, ordinary] = [await createMachine(client), await createMachine(client)];
  const both = [fencedOne, ordinary].toSorted();
  await db.execute(sql`UPDATE machines SET node_id = 'ghost-6' WHERE id = ANY(${both}::text[])`);
  await absentAfter(true);
  for (const id of both) await client.delete(`/v1/machines/${id}`);
  // Not before: of a machine that is in no pool the servers lift the fence.
  await db.execute(sql`UPDATE machines SET fence = 'on' WHERE id = ${fencedOne}`);
  // Their starts may wait in the socket of an agent that was stopped, so that its report does not name them.
  assert.deepEqual(await absentAfter(false), []);
  assert.deepEqual(await absentAfter(true), both);
  const generations = await db.query<{ machineId: string; generation: number }>(sql`
    SELECT id AS "machineId", generation FROM machines WHERE id = ANY(${both}::text[])`);
  await absentAfter(
    false,
    generations.map((each) => ({ ...each, state: "absent" })),
  );
  assert.deepEqual(await absentAfter(true), [fencedOne]);
  await db.execute(sql`UPDATE machines SET deleted_at = now() - interval '11 minutes' WHERE id = ${fencedOne}`);
  assert.deepEqual(await absentAfter(true), []);
});
