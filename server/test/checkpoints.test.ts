/**
 * Checkpoints: points of machines that are kept, and what is made from them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { CHECKPOINTS_MAX } from "@flotilla/contract/limits";
import { until } from "../../test/support/until.ts";
import { BRANCH_STEPS, type BranchInput, cloneId } from "../src/branches/branch.ts";
import { CHECKPOINT_STEPS, type CheckpointInput, checkpointIdOf } from "../src/branches/checkpoints/checkpoint.ts";
import { checkpointWorker } from "../src/branches/checkpoints/worker.ts";
import { BranchFigures } from "../src/branches/figures.ts";
import { branchWorker } from "../src/branches/worker.ts";
import { sql } from "../src/db/database.ts";
import { branchSource, firstLayer, layersOf, namesOf, untilNoPointIsLeft } from "./support/branches.ts";
import type { Answer, Client } from "./support/client.ts";
import { claimedOperation, endOf, letLeaseRunOut, workUntil } from "./support/dying-server.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";

const { server, node, client, context } = await startMachineServer();
const { tenantId } = (await client.get("/v1/me")).json;
const keyId = (await client.get("/v1/apikeys")).json[0].id;
const PATIENT = { deadlineMs: 60_000 };

const source = (fields?: object, owner: Client = client) => branchSource(owner, fields);
const stateOf = async (id: string) => (await client.get(`/v1/machines/${id}`)).json.state;
const noPointIsLeft = () => untilNoPointIsLeft(context.db);
const points = async (): Promise<readonly string[]> =>
  (await context.db.query<{ id: string }>(sql`SELECT id FROM branch_points ORDER BY id`)).map(({ id }) => id);
/** How often the loop that removes points has run. */
async function runsOfLoop(): Promise<number> {
  const { loops } = (await client.get("/v1/loops")).json as { loops: { name: string; runs: number }[] };
  return loops.find(({ name }) => name === "points")?.runs ?? 0;
}
/** Whether the next whole run of the loop leaves the points that there are. */
async function arePointsKept(): Promise<boolean> {
  const before = await points();
  const runs = await runsOfLoop();
  await until(async () => (await runsOfLoop()) > runs + 1, PATIENT);
  return (await points()).join() === before.join();
}

async function keep(id: string, body: object = {}, owner: Client = client): Promise<Answer["json"]> {
  const made = await owner.post(`/v1/machines/${id}/checkpoints`, body);
  assert.equal(made.status, 201, made.text);
  assert.equal(made.json.status, "available");
  return made.json;
}

const branch = (checkpoint: string, body: object, owner: Client = client) =>
  owner.post(`/v1/checkpoints/${checkpoint}/branches`, body);

async function remove(checkpoint: string): Promise<void> {
  assert.equal((await client.delete(`/v1/checkpoints/${checkpoint}`)).status, 204);
}

const run = async (id: string, command: string): Promise<string> =>
  (await client.post(`/v1/machines/${id}/exec`, { command })).json.stdout;

const eventOf = (machine: string, type: string) =>
  until(async () => (await client.get(`/v1/machines/${machine}/events?type=${type}`)).json[0]?.data);

test("a checkpoint outlives its machine, and machines continue from it or have its disk", async () => {
  const hooks = { resume: { command: ["true"] } };
  const fields = { env: { A: "1" }, secretEnv: { TOKEN: "hidden" }, ports: [{ port: 80 }], hooks };
  const { id, name } = await source(fields);
  await client.call("PUT", `/v1/machines/${id}/files/run/mark`, { raw: "as it was" });
  const refused = await client.post(`/v1/machines/${id}/checkpoints`, {});
  assert.deepEqual([refused.status, /secrets: "inherit"/.test(refused.text)], [409, true], refused.text);
  const kept = await keep(id, { name: "before", secrets: "inherit" });
  assert.deepEqual(
    [kept.name, kept.machineId, kept.machineName, kept.hasMemory, kept.nodeId, kept.error, kept.sizeBytes > 0],
    ["before", id, name, true, node.id, null, true],
  );
  assert.equal(await stateOf(id), "started");
  assert.equal((await eventOf(id, "machine.checkpointed")).checkpointId, kept.id);
  assert.deepEqual((await client.get(`/v1/machines/${id}/checkpoints`)).json, [kept]);
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
  assert.ok(await arePointsKept(), "the point of a checkpoint was removed");
  assert.equal((await client.get(`/v1/machines/${id}/checkpoints`)).status, 404);
  for (const reference of [kept.id, "before"])
    assert.deepEqual((await client.get(`/v1/checkpoints/${reference}`)).json, kept);

  const first = await branch("before", { count: 2 });
  assert.equal(first.status, 201, first.text);
  const second = await branch(kept.id, { names: ["later"], ports: [] });
  assert.equal(second.status, 201, second.text);
  const clones = [...first.json.clones, ...second.json.clones];
  assert.deepEqual(
    clones.map((clone) => [clone.name, clone.state, clone.ports.length, clone.env, clone.secretEnvNames]),
    ["before-1", "before-2", "later"].map((each, at) => [each, "started", at < 2 ? 1 : 0, { A: "1" }, ["TOKEN"]]),
  );
  for (const clone of clones) {
    assert.deepEqual(clone.hooks, hooks);
    assert.equal(await run(clone.id, "cat /run/mark"), "as it was");
    assert.deepEqual(await eventOf(clone.id, "machine.fromCheckpoint"), { checkpointId: kept.id });
    assert.equal(clone.parentMachineId, id);
  }

  const restored = await client.post("/v1/checkpoints/before/restore", { name: "restored" });
  assert.deepEqual([restored.status, restored.json.state, restored.json.ports.length], [201, "stopped", 1]);
  const again = await client.post("/v1/checkpoints/before/restore", { name: "restored" });
  assert.deepEqual([again.status, again.headers.get("x-error-code")], [409, "name_taken"]);
  await remove("before");
  assert.equal((await client.get("/v1/checkpoints/before")).status, 404);
  assert.ok(await arePointsKept(), "the restored machine has not run yet");
  const started = await client.post(`/v1/machines/${restored.json.id}/start`);
  assert.deepEqual([started.status, started.json.state, started.json.nodeId], [200, "started", node.id], started.text);
  assert.doesNotMatch(String(await run(restored.json.id, "cat /run/mark")), /as it was/, "it has booted");
  await noPointIsLeft();
  for (const { id: clone } of [...clones, restored.json]) {
    assert.equal((await client.post(`/v1/machines/${clone}/stop`)).json.state, "stopped");
    assert.equal((await client.post(`/v1/machines/${clone}/start`)).json.state, "started");
  }
});

test("a machine that is stopped or not branchable is kept by its disk alone, and what is made boots", async () => {
  const plain = await createMachine(client, { name: "plain", env: { FAKE_POINT_MS: "5" } });
  const never = await client.post(`/v1/machines/${plain}/checkpoints`);
  assert.deepEqual([never.status, /start it once/.test(never.text)], [409, true], never.text);
  await client.post(`/v1/machines/${plain}/start`);
  for (const body of [{}, { memory: true }]) {
    const memory = await client.post(`/v1/machines/${plain}/checkpoints`, body);
    assert.deepEqual([memory.status, /memory: false/.test(memory.text)], [409, true], memory.text);
  }
  const running = await keep(plain, { memory: false });
  await client.post(`/v1/machines/${plain}/stop`);
  const stopped = await keep(plain);
  const kept = await until(async () => {
    const { json } = await client.get(`/v1/machines/${plain}/events?type=machine.checkpointed`);
    return json.length === 2 && (json as { message: string }[]).map(({ message }) => message);
  });
  assert.match(kept.join("\n"), /paused for \d+ ms\n.*, without its memory; it did not run$/);
  for (const { id, hasMemory } of [running, stopped]) {
    assert.equal(hasMemory, false);
    const made = await branch(id, { count: 1, namePrefix: `of-${id.slice(5, 13)}` });
    assert.deepEqual([made.status, made.json.clones?.[0].state], [201, "started"], made.text);
  }
  const { id: suspended } = await source();
  assert.equal((await client.post(`/v1/machines/${suspended}/stop?keepMemory=true`)).status, 200);
  const refused = await client.post(`/v1/machines/${suspended}/checkpoints`);
  assert.deepEqual([refused.status, /is suspended/.test(refused.text)], [409, true], refused.text);
  const listed = (await client.get("/v1/checkpoints")).json as { id: string }[];
  assert.deepEqual(
    listed.map(({ id }) => id),
    [running.id, stopped.id],
  );
  const page = await client.get("/v1/checkpoints?limit=1");
  assert.match(page.headers.get("link") ?? "", /rel="next"/);
  for (const { id } of listed) await remove(id);
  await noPointIsLeft();
});

test("of two callers with one name one has the checkpoint, and the other's leaves nothing", async () => {
  const [one, other] = [await source(), await source()];
  const both = await Promise.all(
    [one, other].map(({ id }) => client.post(`/v1/machines/${id}/checkpoints`, { name: "same" })),
  );
  assert.deepEqual(both.map(({ status }) => status).toSorted(), [201, 409], both.map(({ text }) => text).join());
  const lost = both.find(({ status }) => status === 409);
  assert.equal(lost?.headers.get("x-error-code"), "name_taken");
  assert.equal((await client.get("/v1/checkpoints")).json.length, 1);
  const headers = { "idempotency-key": "keep-once" };
  const twice = () => client.post(`/v1/machines/${one.id}/checkpoints`, { name: "once" }, { headers });
  const first = await twice();
  assert.deepEqual((await twice()).json, first.json);
  for (const name of ["same", "once"]) await remove(name);
  await noPointIsLeft();
});

test("another tenant's checkpoint is not found, and each tenant has at most so many", async () => {
  const { id } = await source();
  const { id: checkpoint } = await keep(id, { name: "mine" });
  const other = await client.post("/v1/tenants", { name: "other" });
  const theirs = client.withKey((await client.post("/v1/apikeys", { tenantId: other.json.id })).json.key);
  for (const reference of [checkpoint, "mine"])
    for (const { status, text } of [
      await theirs.get(`/v1/checkpoints/${reference}`),
      await theirs.delete(`/v1/checkpoints/${reference}`),
      await theirs.post(`/v1/checkpoints/${reference}/restore`, { name: "x" }),
      await branch(reference, { count: 1 }, theirs),
    ])
      assert.deepEqual([status, text.startsWith(`checkpoint ${reference} was not found`)], [404, true], text);
  assert.deepEqual((await theirs.get("/v1/checkpoints")).json, []);
  const { id: theirMachine } = await source({}, theirs);
  await keep(theirMachine, { name: "mine" }, theirs);
  assert.equal((await theirs.delete(`/v1/machines/${theirMachine}`)).status, 204);
  await context.db.execute(sql`
    INSERT INTO checkpoints (id, tenant_id, machine_id, machine, has_memory, created_at)
    SELECT 'ckpt-' || md5(n::text), ${tenantId}, ${id}, '{}', false, now() FROM generate_series(2, ${CHECKPOINTS_MAX}::int) n`);
  const full = await client.post(`/v1/machines/${id}/checkpoints`);
  assert.deepEqual([full.status, full.headers.get("x-error-code")], [422, "quota_exceeded"], full.text);
  await context.db.execute(sql`DELETE FROM checkpoints`);
  await noPointIsLeft();
});

test("a checkpoint that is deleted while machines are made from it keeps its point for them, or none is left", async () => {
  const { id } = await source({ env: { FAKE_BOOT_MS: "1500" } });
  const during = await keep(id, { memory: false });
  const making = branch(during.id, { names: ["slow-1", "slow-2"] });
  await until(
    async () => (await namesOf(client, "slow-")).length === 2 && (await stateOfName("slow-2")) === "creating",
  );
  await remove(during.id);
  const made = await making;
  assert.equal(made.status, 201, made.text);
  await noPointIsLeft();

  const before = await keep(id);
  const operation = await claimedBranch(before, ["late-1"]);
  await workUntil(server, (services) => branchWorker(services, new BranchFigures()), {
    operation,
    last: BRANCH_STEPS.make,
  });
  await remove(before.id);
  await letLeaseRunOut(context, operation.id);
  assert.equal(await endOf(client, operation.id), "failed");
  assert.deepEqual(await namesOf(client, "late-"), []);
  await noPointIsLeft();
});

async function stateOfName(name: string): Promise<string | undefined> {
  const machines = (await client.get("/v1/machines")).json as { name: string; state: string }[];
  return machines.find((machine) => machine.name === name)?.state;
}

/** A branch from the checkpoint that a server has claimed which does not work on it. */
function claimedBranch(checkpoint: { readonly id: string; readonly machineId: string }, names: readonly string[]) {
  const id = context.ids.make("operation");
  const clones = names.map((name, at) => ({ id: cloneId(id, at), name }));
  const { machineId, id: checkpointId } = checkpoint;
  const input: BranchInput = { machineId, checkpointId, clones, ports: null, secretEnv: null, keyId };
  return claimedOperation(context, {
    ...{ id, tenantId, kind: "machine branch", input, steps: Object.values(BRANCH_STEPS) },
    resource: { kind: "checkpoint", id: checkpointId, name: null },
  });
}

/** The making of a checkpoint that a server has claimed which does not work on it. */
function claimedCheckpoint(machineId: string, name: string) {
  const id = context.ids.make("operation");
  const input: CheckpointInput = { checkpointId: checkpointIdOf(id), name, machineId, hasMemory: true };
  return claimedOperation(context, {
    ...{ id, tenantId, kind: "machine checkpoint", input, steps: Object.values(CHECKPOINT_STEPS) },
    resource: { kind: "machine", id: machineId, name: null },
  });
}

for (const [at, last] of Object.entries(CHECKPOINT_STEPS))
  test(`a server that dies after "${last}" leaves a checkpoint that another one completes, or removes`, async () => {
    const { id } = await source();
    const completed = await claimedCheckpoint(id, `whole-${at}`);
    await workUntil(server, checkpointWorker, { operation: completed, last });
    if (at === "make") {
      assert.equal((await client.get(`/v1/checkpoints/whole-${at}`)).json.status, "creating");
      const early = await branch(`whole-${at}`, { count: 1 });
      assert.deepEqual([early.status, /is being made/.test(early.text)], [409, true], early.text);
    }
    await letLeaseRunOut(context, completed.id);
    assert.equal(await endOf(client, completed.id), "succeeded");
    assert.equal((await branch(`whole-${at}`, { count: 1 })).status, 201);
    const canceled = await claimedCheckpoint(id, `gone-${at}`);
    await workUntil(server, checkpointWorker, { operation: canceled, last });
    await letLeaseRunOut(context, canceled.id, { isCanceled: true });
    assert.equal(await endOf(client, canceled.id), "canceled");
    assert.equal((await client.get(`/v1/checkpoints/gone-${at}`)).status, 404);
    assert.equal(await stateOf(id), "started");
    await remove(`whole-${at}`);
    await noPointIsLeft();
  });

test("a node's agent that dies while it makes a checkpoint makes another point for it when it is back", async () => {
  const { id } = await source({ env: { FAKE_POINT_MS: "1500" } });
  const keeping = client.post(`/v1/machines/${id}/checkpoints`, { name: "patient" });
  const interrupted = await firstLayer(node, id);
  await node.kill();
  await node.restart();
  const { status, text } = await keeping;
  assert.equal(status, 201, text);
  const layers = await layersOf(node, id);
  assert.deepEqual([layers.length, layers[1]], [2, interrupted], "the point has another id");
  assert.equal((await branch("patient", { count: 1 })).status, 201);
  await remove("patient");
  await noPointIsLeft();
});

test("a checkpoint waits for its node, and has failed when that has left for good", async () => {
  const { id } = await source();
  const { id: checkpoint } = await keep(id);
  await node.kill();
  await context.db.execute(sql`UPDATE nodes SET status = 'unreachable' WHERE id = ${node.id}`);
  await context.db.notify("nodes", node.id);
  const away = await branch(checkpoint, { namePrefix: "away", count: 1 });
  assert.deepEqual([away.status, /does not report/.test(away.text)], [503, true], away.text);
  assert.deepEqual(await namesOf(client, "away-"), []);
  assert.equal((await client.get(`/v1/checkpoints/${checkpoint}`)).json.status, "available");
  await node.restart();
  const back = await until(async () => {
    const answer = await branch(checkpoint, { namePrefix: "back", count: 1 });
    return answer.status === 201 && answer;
  }, PATIENT);
  assert.equal(back.json.clones[0].state, "started");

  await node.kill();
  for (const machine of (await client.get("/v1/machines")).json)
    assert.ok((await client.delete(`/v1/machines/${machine.id}`)).status < 300);
  assert.equal((await client.delete(`/v1/nodes/${node.id}/credential`)).status, 204);
  const gone = await client.delete(`/v1/nodes/${node.id}`);
  assert.equal(gone.status, 204, gone.text);
  const { status, error, nodeId, sizeBytes } = (await client.get(`/v1/checkpoints/${checkpoint}`)).json;
  assert.deepEqual([status, nodeId, sizeBytes, /left for good/.test(error)], ["failed", null, 0, true]);
  for (const answer of [
    await branch(checkpoint, { count: 1 }),
    await client.post(`/v1/checkpoints/${checkpoint}/restore`, { name: "lost" }),
  ])
    assert.deepEqual([answer.status, /has failed/.test(answer.text)], [409, true], answer.text);
  await remove(checkpoint);
});
