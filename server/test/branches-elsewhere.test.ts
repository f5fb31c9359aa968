/**
 * Branches whose source's node has no room: the instant is copied once to each other node on which clones
 * begin. All clones run, or none is left, on any node.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { listFiles } from "../../node/test/support/in-process.ts";
import { until } from "../../test/support/until.ts";
import { BRANCH_STEPS, type BranchInput, cloneId } from "../src/branches/branch.ts";
import { BranchFigures } from "../src/branches/figures.ts";
import { branchWorker } from "../src/branches/worker.ts";
import { sql } from "../src/db/database.ts";
import type { MachineServices } from "../src/machines/services.ts";
import { branchSource, namesOf, untilNoPointIsLeft } from "./support/branches.ts";
import { claimedOperation, endOf, letLeaseRunOut, workUntil } from "./support/dying-server.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

/** What the fake driver reports. */
const CPUS_OF_FAKE_NODE = 65_536;
/** Machines of one processor that a node has room for. */
const ROOM = 4;

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN, cpuOvercommit: (ROOM + 0.5) / CPUS_OF_FAKE_NODE });
const { client, context } = server;
const nodes = { "node-a": await startTestNode(server, "node-a"), "node-b": await startTestNode(server, "node-b") };
type NodeId = keyof typeof nodes;
const PATIENT = { deadlineMs: 60_000 };

interface Source {
  readonly id: string;
  readonly home: NodeId;
  readonly other: NodeId;
}

async function sourceOf(fields: object = {}): Promise<Source> {
  await clear();
  const { id } = await branchSource(client, fields);
  const home = (await client.get(`/v1/machines/${id}`)).json.nodeId as NodeId;
  return { id, home, other: home === "node-a" ? "node-b" : "node-a" };
}

const batch = (id: string, namePrefix: string, count: number) =>
  client.post(`/v1/machines/${id}/branches/batch`, { namePrefix, count });
const stateOf = async (id: string) => (await client.get(`/v1/machines/${id}`)).json.state;
const wasBranched = async (id: string): Promise<boolean> =>
  (await client.get(`/v1/machines/${id}/events?type=machine.branched`)).json.length > 0;
const noPointIsLeft = () => untilNoPointIsLeft(context.db, PATIENT);
/** The files of points that a node has. */
const filesOf = async (nodeId: NodeId, room: string): Promise<readonly string[]> =>
  (await listFiles(join(nodes[nodeId].directory, "node", room))).filter((path) => path.includes("/"));

/** Deletes all machines, so that both nodes have room. */
async function clear(): Promise<void> {
  for (const { id } of (await client.get("/v1/machines")).json) await client.delete(`/v1/machines/${id}`);
  await noPointIsLeft();
  for (const nodeId of ["node-a", "node-b"] as const)
    await until(async () => (await filesOf(nodeId, "points")).length === 0, {
      what: `no layer on ${nodeId}`,
      ...PATIENT,
    });
}

const setFormat = (id: string, format: string) =>
  context.db.execute(sql`
    UPDATE nodes SET labels = labels || jsonb_build_object('memoryFormat', ${format}::text) WHERE id = ${id}`);

test("clones fill the source's node, and the others begin on another one, from one copy", async () => {
  const { id, home, other } = await sourceOf();
  await client.call("PUT", `/v1/machines/${id}/files/tmp/note`, { raw: "as it was" });
  const made = await batch(id, "many", ROOM + 1);
  assert.equal(made.status, 201, made.text);
  const clones: readonly { readonly id: string; readonly nodeId: NodeId; readonly state: string }[] = made.json.clones;
  assert.deepEqual(
    clones.map(({ nodeId, state }) => [nodeId, state]),
    [...Array(ROOM - 1).fill([home, "started"]), ...Array(2).fill([other, "started"])],
  );
  for (const clone of clones)
    assert.equal((await client.get(`/v1/machines/${clone.id}/files/tmp/note`)).text, "as it was");
  await noPointIsLeft();
  const layers = await until(async () => {
    const files = await filesOf(other, "points");
    return files.every((path) => path.endsWith("/disk.qcow2")) && files;
  }, PATIENT);
  assert.equal(layers.length, 1, "one copy for both");
  assert.deepEqual(await filesOf(other, "incoming"), []);
  // A clone there is branched, stopped and started as any machine.
  const last = clones.at(-1)?.id ?? "";
  assert.equal((await client.post(`/v1/machines/${last}/branches`, { name: "young" })).json.nodeId, other);
  await client.post(`/v1/machines/${last}/stop`);
  assert.equal((await client.post(`/v1/machines/${last}/start`)).status, 200);
});

test("clones of a machine whose node is cordoned begin on another one", async () => {
  const { id, home, other } = await sourceOf();
  await client.post(`/v1/nodes/${home}/cordon`);
  const made = await client.post(`/v1/machines/${id}/branches`, { name: "away" });
  await client.post(`/v1/nodes/${home}/uncordon`);
  assert.deepEqual([made.status, made.json.nodeId], [201, other], made.text);
});

test("a batch for which no nodes have room is refused before the source is paused", async () => {
  const { id, home, other } = await sourceOf();
  const refused = await batch(id, "none", 2 * ROOM);
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "no_capacity"], refused.text);
  for (const nodeId of [home, other]) assert.match(refused.text, new RegExp(`node ${nodeId} has promised`));
  assert.deepEqual([await namesOf(client, "none-"), await wasBranched(id)], [[], false]);
  await noPointIsLeft();
});

test("memory goes to no node that cannot load it", async () => {
  const { id, other } = await sourceOf();
  const format = (
    await context.db.queryOne<{ format: string }>(
      sql`SELECT labels ->> 'memoryFormat' AS format FROM nodes WHERE id = ${other}`,
    )
  )?.format;
  await setFormat(other, "another");
  const refused = await batch(id, "unloadable", ROOM);
  assert.deepEqual([refused.status, /no other node can load the memory/.test(refused.text)], [422, true], refused.text);
  assert.equal(await wasBranched(id), false);
  // Both nodes say that they have a format which the memory does not have.
  for (const nodeId of ["node-a", "node-b"]) await setFormat(nodeId, "another");
  const differs = await until(async () => {
    const answer = await batch(id, "unloadable", ROOM);
    return answer.headers.get("x-error-code") !== "no_capacity" && answer;
  }, PATIENT);
  assert.deepEqual([differs.status, /cannot load the memory/.test(differs.text)], [409, true], differs.text);
  for (const nodeId of ["node-a", "node-b"]) await setFormat(nodeId, format ?? "");
  assert.deepEqual([await namesOf(client, "unloadable-"), await stateOf(id)], [[], "started"]);
  await noPointIsLeft();
});

test("a copy whose target goes away continues when it is back, or leaves nothing", async () => {
  const { id, other } = await sourceOf({ env: { FAKE_POINT_MS: "1500" } });
  const [gone, caller] = [nodes[other], new AbortController()];
  const planned = (prefix: string) =>
    until(async () => (await namesOf(client, prefix)).length === ROOM, {
      what: "the clones to be planned",
      ...PATIENT,
    });
  const branching = batch(id, "patient", ROOM);
  await planned("patient-");
  await gone.kill();
  await until(() => wasBranched(id), PATIENT);
  await gone.restart();
  const made = await branching;
  assert.equal(made.status, 201, made.text);
  assert.equal(made.json.clones.at(-1).nodeId, other);
  for (const clone of made.json.clones) await client.delete(`/v1/machines/${clone.id}`);
  const lost = assert.rejects(
    client.post(`/v1/machines/${id}/branches/batch`, { namePrefix: "lost", count: ROOM }, { signal: caller.signal }),
  );
  await planned("lost-");
  await gone.kill();
  caller.abort();
  await lost;
  await until(async () => (await namesOf(client, "lost-")).length === 0, PATIENT);
  await gone.restart();
  assert.equal(await stateOf(id), "started");
  await noPointIsLeft();
  assert.deepEqual(await filesOf(other, "incoming"), []);
});

const workerOf = (services: MachineServices) => branchWorker(services, new BranchFigures());

for (const [at, last] of Object.entries(BRANCH_STEPS))
  test(`a server that dies after "${last}" leaves a copy that another one completes, or removes`, async () => {
    const { id, home, other } = await sourceOf();
    const { tenantId } = (await client.get("/v1/me")).json;
    const keyId = (await client.get("/v1/apikeys")).json[0].id;
    const claimed = (prefix: string) => {
      const operationId = context.ids.make("operation");
      const clones = [1, 2].map((number) => ({ id: cloneId(operationId, number), name: `${prefix}-${number}` }));
      const input: BranchInput = { machineId: id, checkpointId: null, clones, ports: null, secretEnv: null, keyId };
      const resource = { kind: "machine", id, name: null };
      const request = { id: operationId, tenantId, kind: "machine branch", resource, input } as const;
      return claimedOperation(context, { ...request, steps: Object.values(BRANCH_STEPS) });
    };
    await client.post(`/v1/nodes/${home}/cordon`);
    const completed = await claimed(`whole-${at}`);
    await workUntil(server, workerOf, { operation: completed, last });
    await letLeaseRunOut(context, completed.id);
    assert.equal(await endOf(client, completed.id), "succeeded");
    for (const clone of (completed.input as BranchInput).clones) {
      const { state, nodeId } = (await client.get(`/v1/machines/${clone.id}`)).json;
      assert.deepEqual([state, nodeId], ["started", other]);
    }
    const canceled = await claimed(`gone-${at}`);
    await workUntil(server, workerOf, { operation: canceled, last });
    await letLeaseRunOut(context, canceled.id, { isCanceled: true });
    assert.equal(await endOf(client, canceled.id), "canceled");
    await client.post(`/v1/nodes/${home}/uncordon`);
    assert.deepEqual([await namesOf(client, "gone-"), await stateOf(id)], [[], "started"]);
    await noPointIsLeft();
    assert.deepEqual(await filesOf(other, "incoming"), []);
  });
