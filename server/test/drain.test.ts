/**
 * Draining a node: what may start, what is moved, what is stopped and when, what stays on it, and how it
 * becomes ready again.
 *
 * The first tests have one node, so nothing can be moved; node-b joins later. test/cluster/moves.test.ts
 * kills the server meanwhile.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { DrainPlan } from "@flotilla/contract/nodes";
import { sql } from "../src/db/database.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client, context } = server;
const node = await startTestNode(server, "node-a");
const PATIENT = { deadlineMs: 60_000 };
interface Operation {
  readonly id: string;
  readonly status: string;
  readonly resource: { readonly id: string };
  readonly steps: readonly { readonly status: string }[];
}

async function started(env: Record<string, string> = {}): Promise<string> {
  const source = { type: "image", reference: "local/busybox" };
  const { id } = (await client.post("/v1/machines", { source, env })).json;
  const answer = await client.post(`/v1/machines/${id}/start`);
  assert.equal(answer.status, 200, answer.text);
  return id;
}

const drain = (body?: object) => client.post(`/v1/nodes/${node.id}/drain`, body);
const read = async (id: string) => (await client.get(`/v1/operations/${id}`)).json;
const stateOf = async (id: string) => (await client.get(`/v1/machines/${id}`)).json.state;
const statusOf = async () =>
  ((await client.get("/v1/nodes")).json as { id: string; status: string }[]).find(({ id }) => id === node.id)?.status;
const ended = (id: string) =>
  until(async () => {
    const operation = await read(id);
    if (operation.status === "running") throw new Error(JSON.stringify(operation.steps));
    return operation;
  }, PATIENT);

test("of many callers at once one drain and one upgrade begin", async () => {
  const drains = await Promise.all(Array.from({ length: 8 }, () => drain()));
  assert.deepEqual(
    drains.map(({ status }) => status),
    drains.map(() => 200),
  );
  assert.equal(new Set(drains.map(({ json }) => json.operationId)).size, 1);
  await ended(drains[0]?.json.operationId);
  assert.equal((await client.delete(`/v1/nodes/${node.id}/drain`)).status, 200);
  await until(async () => (await statusOf()) === "ready", PATIENT);
  const upgrades = await Promise.all(Array.from({ length: 8 }, () => client.post("/v1/nodes/upgrade", {})));
  const begun = upgrades.filter(({ status }) => status === 200 || status === 202);
  assert.deepEqual([begun.length, upgrades.filter(({ status }) => status === 409).length], [1, 7]);
  await ended(begun[0]?.json.operationId ?? begun[0]?.json.id);
});

test("a draining node starts nothing, waits for its machines, and is ready again when its agent is back", async () => {
  const [first, second] = [await started(), await started()];
  const asked = await drain();
  assert.equal(asked.status, 200, asked.text);
  assert.deepEqual([asked.json.id, asked.json.status], [node.id, "draining"]);
  const { operationId } = asked.json;
  assert.equal((await drain({ deadlineSeconds: 1 })).json.operationId, operationId, "it is drained once");
  const waiting =
    /2 machines run and cannot be moved; at 2.* they are stopped; cannot be moved: .*: there is no other node/;
  await until(async () => waiting.test((await read(operationId)).steps[1].message), PATIENT);
  const other = (await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } })).json.id;
  const nowhere = await client.post(`/v1/machines/${other}/start`);
  assert.deepEqual([nowhere.status, nowhere.headers.get("x-error-code")], [422, "no_capacity"]);
  assert.equal((await client.post("/v1/images/pull", { reference: "alpine" })).status, 503);
  // Running machines are left alone, and their owner may stop them; then they stay stopped.
  assert.equal((await client.post(`/v1/machines/${first}/start`)).status, 200);
  assert.equal((await client.post(`/v1/machines/${first}/exec`, { command: "true" })).status, 200);
  await client.post(`/v1/machines/${first}/stop`);
  const again = await client.post(`/v1/machines/${first}/start`);
  assert.match(again.text, /node node-a is draining, and the machine's disk is there; try again when the node is back/);
  await client.post(`/v1/machines/${second}/stop`);
  const done = await ended(operationId);
  assert.deepEqual([done.status, done.kind, done.resource.id], ["succeeded", "node drain", node.id]);
  assert.equal(done.steps[1].message, "0 of 2 machines moved; none runs there");
  assert.match(
    done.steps[2].message,
    /^node node-a still has the disks of 2 machines: .*: there is no other node\. The host may be switched off for a time/,
  );
  assert.equal(await statusOf(), "drained");
  assert.match((await client.post(`/v1/machines/${first}/start`)).text, /node node-a is drained/);
  await node.kill();
  await node.restart();
  assert.equal(await statusOf(), "ready");
  assert.equal((await client.post(`/v1/machines/${first}/start`)).status, 200);
  await client.delete(`/v1/machines/${first}`);
});

test("machines still running at the deadline are stopped, with an event, and keep their disks", async () => {
  const id = await started();
  await client.call("PUT", `/v1/machines/${id}/files/workspace/kept`, { raw: "kept" });
  const { operationId } = (await drain({ deadlineSeconds: 1 })).json;
  const done = await ended(operationId);
  assert.equal(done.status, "succeeded", done.error);
  assert.equal(done.steps[1].message, "0 of 2 machines moved; 1 machine stopped; none runs there");
  assert.equal(await stateOf(id), "stopped");
  const lines = async () => (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  await until(async () =>
    (await lines()).some(({ message }) => message.startsWith("stopped because node node-a is drained")),
  );
  await node.kill();
  await node.restart();
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  await client.delete(`/v1/machines/${id}`);
});

test("a node that stops reporting during its drain is not drained, and can be drained again", async () => {
  const id = await started();
  const { operationId } = (await drain()).json;
  await until(async () => (await read(operationId)).steps[1].status === "running", PATIENT);
  await node.kill();
  await context.db.execute(sql`UPDATE nodes SET last_heartbeat_at = now() - interval '1 minute' WHERE id = ${node.id}`);
  const failed = await ended(operationId);
  assert.match(failed.error, /stopped reporting during its drain/);
  assert.notEqual(await statusOf(), "draining");
  await context.db.execute(sql`UPDATE nodes SET status = 'unreachable' WHERE id = ${node.id}`);
  const refused = await drain();
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [503, "unavailable"]);
  await node.restart();
  assert.equal(await statusOf(), "ready");
  const second = (await drain({ deadlineSeconds: 0 })).json.operationId;
  assert.equal((await ended(second)).status, "succeeded");
  assert.equal(await stateOf(id), "stopped");
  assert.equal(
    (await ended((await drain()).json.operationId)).status,
    "succeeded",
    "a drained node is drained at once",
  );
});

test("a node whose drain is being canceled is not drained again before that has ended", async () => {
  // Leased, so that no server works on it.
  const id = `op-${"0".repeat(32)}`;
  await context.db.execute(sql`
    INSERT INTO operations (id, tenant_id, kind, status, resource_kind, resource_id, input, steps, created_at, updated_at,
      deadline_at, attempt, leased_until, cancel_requested_at)
    SELECT ${id}, id, 'node drain', 'running', 'node', ${node.id}, '{}', '[]', now(), now(), now() + interval '1 hour', 1,
      now() + interval '1 hour', now() FROM tenants LIMIT 1`);
  const refused = await drain();
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [409, "conflict"]);
  assert.match(refused.text, /the drain of node node-a is being canceled; try again in a few seconds/);
  await context.db.execute(sql`DELETE FROM operations WHERE id = ${id}`);
});

test("draining a node that does not exist is refused", async () => {
  assert.equal((await client.post("/v1/nodes/absent/drain")).status, 404);
});

/** Machines on node-a, while node-b is cordoned. */
async function onNodeA(work: () => Promise<void>): Promise<void> {
  await client.post("/v1/nodes/node-b/cordon");
  await work();
  await client.post("/v1/nodes/node-b/uncordon");
}

const undrain = async (): Promise<void> => {
  await node.kill();
  await node.restart();
};
/** Its state and node. A drain does not wait until what has moved runs again. */
const placeOf = (id: string) =>
  until(async () => {
    const { state, nodeId } = (await client.get(`/v1/machines/${id}`)).json;
    return state !== "creating" && [state, nodeId];
  }, PATIENT);

test("of two nodes", async (t) => {
  await undrain();
  for (const { id } of (await client.get("/v1/machines")).json) await client.delete(`/v1/machines/${id}`);
  const other = await startTestNode(server, "node-b");
  await t.test("a drain moves running and stopped machines with their disks, and says that none is left", async () => {
    const ids: string[] = [];
    await onNodeA(async () => {
      while (ids.length < 3) ids.push(await started());
    });
    const [first = "", second = "", stopped = ""] = ids;
    await client.post(`/v1/machines/${stopped}/stop`);
    const { operationId } = (await drain()).json;
    const done = await ended(operationId);
    assert.equal(done.status, "succeeded", done.error);
    assert.equal(done.steps[1].message, "3 of 3 machines moved; none runs there");
    assert.match(
      done.steps[2].message,
      /^node node-a has no machine's disk: its host may be switched off or decommissioned/,
    );
    assert.deepEqual(
      [await placeOf(first), await placeOf(second), await placeOf(stopped)],
      [
        ["started", "node-b"],
        ["started", "node-b"],
        ["stopped", "node-b"],
      ],
    );
    const operations = (await client.get("/v1/operations")).json as { kind: string; resource: { id: string } }[];
    const moved = operations.filter(({ kind }) => kind === "machine move").map(({ resource }) => resource.id);
    assert.deepEqual(moved.toSorted(), ids.toSorted());
    await undrain();
    for (const id of ids) await client.delete(`/v1/machines/${id}`);
  });

  await t.test("a machine that no other node admits stays, and the drain says which and why", async () => {
    await context.db.execute(sql`UPDATE nodes SET labels = labels || '{"zone":"east"}' WHERE id = ${node.id}`);
    const source = { type: "image", reference: "local/busybox" };
    const bound = (await client.post("/v1/machines", { source, name: "bound", nodeLabels: { zone: "east" } })).json.id;
    assert.equal((await client.post(`/v1/machines/${bound}/start`)).json.nodeId, node.id);
    let free = "";
    await onNodeA(async () => void (free = await started()));
    const { operationId } = (await drain({ deadlineSeconds: 1 })).json;
    const done = await ended(operationId);
    assert.equal(done.status, "succeeded", done.error);
    assert.equal(done.steps[1].message, "1 of 2 machines moved; 1 machine stopped; none runs there");
    const why = `bound (${bound}): node node-b does not have the label zone=east`;
    assert.ok(
      done.steps[2].message.startsWith(`node node-a still has the disk of 1 machine: ${why}. `),
      done.steps[2].message,
    );
    assert.deepEqual(
      [await placeOf(free), await placeOf(bound)],
      [
        ["started", "node-b"],
        ["stopped", "node-a"],
      ],
    );
    assert.equal(await statusOf(), "drained");
    await undrain();
    for (const id of [free, bound]) await client.delete(`/v1/machines/${id}`);
  });

  await t.test("a plan says what would move where, what would stay and why, and changes nothing", async () => {
    const source = { type: "image", reference: "local/busybox" };
    const bound = (await client.post("/v1/machines", { source, name: "bound", nodeLabels: { zone: "east" } })).json.id;
    await client.post(`/v1/machines/${bound}/start`);
    const ids: string[] = [];
    await onNodeA(async () => {
      while (ids.length < 2) ids.push(await started());
    });
    await client.post(`/v1/machines/${ids[1]}/stop`);
    const { status, json: plan } = await client.get(`/v1/nodes/${node.id}/drain`);
    assert.equal(status, 200);
    type Planned = DrainPlan["moves"][number];
    const moves = plan.moves as Planned[];
    assert.deepEqual(
      moves.map(({ machineId, state, toNodeId, disruption, reason }) => [
        machineId,
        state,
        toNodeId,
        disruption,
        reason,
      ]),
      [
        [ids[0], "started", "node-b", "migrate", null],
        [ids[1], "stopped", "node-b", "none", null],
      ],
    );
    const setFormat = (format: string) =>
      context.db.execute(sql`
        UPDATE nodes SET labels = labels || jsonb_build_object('memoryFormat', ${format}::text) WHERE id = 'node-b'`);
    const firstMove = async (): Promise<Planned> => (await client.get(`/v1/nodes/${node.id}/drain`)).json.moves[0];
    await setFormat("other");
    const isLost = async () => (await firstMove()).disruption === "restart" && (await firstMove());
    const lost = await until(isLost, PATIENT);
    assert.match(lost.reason ?? "", /^node node-b cannot load it: /);
    await setFormat("fake");
    await client.patch(`/v1/machines/${ids[0]}`, { disruption: "stop" });
    assert.deepEqual([(await firstMove()).disruption, (await firstMove()).reason], ["stop", null]);
    const stays = {
      machineId: bound,
      name: "bound",
      state: "started",
      reason: "node node-b does not have the label zone=east",
    };
    assert.partialDeepStrictEqual(plan.blocked, [stays]);
    assert.equal(plan.bytes, (moves[0]?.bytes ?? 0) + (moves[1]?.bytes ?? 0));
    assert.match(plan.estimate, /^10 s for each machine and 50 MB\/s for each copy, 2 machines at a time$/);
    assert.equal(plan.seconds, Math.max(...moves.map(({ seconds }) => seconds)));
    assert.deepEqual([await statusOf(), await placeOf(ids[0] ?? "")], ["ready", ["started", "node-a"]]);
    assert.equal((await client.get("/v1/nodes/absent/drain")).status, 404);
    for (const id of [...ids, bound]) await client.delete(`/v1/machines/${id}`);
  });

  await t.test(
    "a canceled drain ends its moves and opens the node, and machines that have moved stay there",
    async () => {
      let moved = "";
      let held = "";
      await onNodeA(async () => {
        moved = await started();
        // Stopped before its files are sent.
        held = await started({ FAKE_UNWATCHED: "1" });
      });
      const first = (await client.post(`/v1/machines/${moved}/move`, { nodeId: "node-b" })).json.id;
      assert.equal((await ended(first)).status, "succeeded");
      await other.kill();
      const { operationId } = (await drain()).json;
      const move = await until(async () => {
        const operations = (await client.get("/v1/operations")).json as Operation[];
        const found = operations.find(({ resource, status }) => resource.id === held && status === "running");
        return found?.steps[2]?.status === "running" && found.id;
      }, PATIENT);
      const canceled = await client.delete(`/v1/nodes/${node.id}/drain`);
      assert.deepEqual([canceled.status, canceled.json.status, canceled.json.operationId], [200, "ready", operationId]);
      assert.equal((await ended(operationId)).status, "canceled");
      assert.equal((await ended(move)).status, "canceled");
      await until(async () => (await placeOf(held)).join() === "started,node-a", PATIENT);
      assert.deepEqual((await placeOf(moved))[1], "node-b");
      assert.equal(await statusOf(), "ready");
      await other.restart();
      // One that has ended is undone as well.
      assert.equal((await ended((await drain()).json.operationId)).status, "succeeded");
      const reopened = await client.delete(`/v1/nodes/${node.id}/drain`);
      assert.deepEqual([reopened.json.status, reopened.json.operationId], ["ready", null]);
      assert.equal((await client.delete(`/v1/nodes/${node.id}/drain`)).json.status, "ready", "it may be repeated");
      assert.equal((await client.delete("/v1/nodes/absent/drain")).status, 404);
      for (const id of [moved, held]) await client.delete(`/v1/machines/${id}`);
    },
  );
});
