/**
 * Branches that are interrupted: by a server, a node's agent or a caller that goes away, and by ceilings met
 * in the middle. All clones run, or none is left.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { BRANCH_STEPS, type BranchInput, cloneId } from "../src/branches/branch.ts";
import { BranchFigures } from "../src/branches/figures.ts";
import { branchWorker } from "../src/branches/worker.ts";
import type { OperationRecord } from "../src/family.ts";
import type { MachineServices } from "../src/machines/services.ts";
import { branchSource, firstLayer, layersOf, namesOf, untilNoPointIsLeft } from "./support/branches.ts";
import type { Client } from "./support/client.ts";
import { claimedOperation, endOf, letLeaseRunOut, workUntil } from "./support/dying-server.ts";
import { startMachineServer } from "./support/machine-server.ts";

const { server, node, client, context } = await startMachineServer();
const { tenantId } = (await client.get("/v1/me")).json;
const keyId = (await client.get("/v1/apikeys")).json[0].id;
const PATIENT = { deadlineMs: 60_000 };

const source = (fields?: object, owner: Client = client) => branchSource(owner, fields);
const stateOf = async (id: string) => (await client.get(`/v1/machines/${id}`)).json.state;
const operationsOf = async (machineId: string): Promise<readonly { readonly id: string; readonly status: string }[]> =>
  (await client.get("/v1/operations")).json.filter(
    ({ resource }: { resource: { id: string } }) => resource.id === machineId,
  );
const noPointIsLeft = () => untilNoPointIsLeft(context.db);

/** A branch that a server has claimed which does not work on it. */
function claimedBranch(machineId: string, names: readonly string[]): Promise<OperationRecord> {
  const id = context.ids.make("operation");
  const clones = names.map((name, at) => ({ id: cloneId(id, at), name }));
  const input: BranchInput = { machineId, checkpointId: null, clones, ports: null, secretEnv: null, keyId };
  return claimedOperation(context, {
    ...{ id, tenantId, kind: "machine branch", resource: { kind: "machine", id: machineId, name: null }, input },
    steps: Object.values(BRANCH_STEPS),
  });
}

const workerOf = (services: MachineServices) => branchWorker(services, new BranchFigures());

for (const [at, name] of Object.entries(BRANCH_STEPS))
  test(`a server that dies after "${name}" leaves a branch that another one completes, or removes`, async () => {
    const { id } = await source();
    const names = [`${at}-1`, `${at}-2`];
    const completed = await claimedBranch(id, names);
    await workUntil(server, workerOf, { operation: completed, last: name });
    await letLeaseRunOut(context, completed.id);
    assert.equal(await endOf(client, completed.id), "succeeded");
    assert.deepEqual((await namesOf(client, `${at}-`)).toSorted(), names);
    for (const clone of (completed.input as BranchInput).clones) assert.equal(await stateOf(clone.id), "started");
    const canceled = await claimedBranch(id, [`gone-${at}-1`, `gone-${at}-2`]);
    await workUntil(server, workerOf, { operation: canceled, last: name });
    await letLeaseRunOut(context, canceled.id, { isCanceled: true });
    assert.equal(await endOf(client, canceled.id), "canceled");
    assert.deepEqual(await namesOf(client, "gone-"), []);
    assert.equal(await stateOf(id), "started");
    await noPointIsLeft();
  });

test("a caller that goes away leaves its source and nothing else, and the same request makes the branches then", async () => {
  const { id } = await source({ env: { FAKE_POINT_MS: "1500" } });
  const gone = new AbortController();
  const headers = { "idempotency-key": "caller-gone" };
  const send = (signal?: AbortSignal) =>
    client.post(
      `/v1/machines/${id}/branches/batch`,
      { namePrefix: "caller", count: 2 },
      {
        headers,
        ...(signal === undefined ? {} : { signal }),
      },
    );
  const lost = assert.rejects(send(gone.signal));
  const [operation] = await until(async () => {
    const found = await operationsOf(id);
    return found.length > 0 && found;
  });
  assert.equal((await send()).headers.get("x-error-code"), "idempotency_in_progress");
  gone.abort();
  await lost;
  assert.equal(await endOf(client, operation?.id ?? ""), "canceled");
  assert.deepEqual(await namesOf(client, "caller-"), []);
  assert.equal(await stateOf(id), "started");
  const again = await until(async () => {
    const answer = await send();
    return answer.status !== 409 && answer;
  }, PATIENT);
  assert.equal(again.status, 201, again.text);
  assert.deepEqual((await send()).json, again.json);
  assert.deepEqual((await namesOf(client, "caller-")).toSorted(), ["caller-1", "caller-2"]);
  await noPointIsLeft();
});

test("two requests under one idempotency key make one set of branches", async () => {
  const { id } = await source();
  const headers = { "idempotency-key": "branch-once" };
  const send = () => client.post(`/v1/machines/${id}/branches/batch`, { names: ["once-1", "once-2"] }, { headers });
  const both = await Promise.all([send(), send()]);
  const [first, second] = both.toSorted((a, b) => a.status - b.status);
  assert.equal(first?.status, 201, first?.text);
  if (second?.status !== 201) assert.equal(second?.headers.get("x-error-code"), "idempotency_in_progress");
  assert.deepEqual((await send()).json, first?.json);
  assert.deepEqual((await namesOf(client, "once-")).toSorted(), ["once-1", "once-2"]);
});

test("a node's agent that dies while it makes the point makes another one when it is back", async () => {
  const { id } = await source({ env: { FAKE_POINT_MS: "1500" } });
  const branch = client.post(`/v1/machines/${id}/branches/batch`, { namePrefix: "agent", count: 2 });
  const interrupted = await firstLayer(node, id);
  await node.kill();
  await node.restart();
  const { status, text, json } = await branch;
  assert.equal(status, 201, text);
  assert.deepEqual(
    json.clones.map(({ state }: { state: string }) => state),
    ["started", "started"],
  );
  const layers = await layersOf(node, id);
  assert.deepEqual([layers.length, layers[1]], [2, interrupted], "the point has another id");
  await noPointIsLeft();
});

test("a clone that does not confirm that it is one, or cannot start, leaves none of a batch", async () => {
  for (const fails of ["FAKE_CLONE_FAIL", "FAKE_RESUME_FAIL"]) {
    const { id } = await source({ env: { [fails]: "1" } });
    const batch = await client.post(`/v1/machines/${id}/branches/batch`, { namePrefix: "unsure", count: 3 });
    assert.deepEqual([batch.status, batch.headers.get("x-error-code")], [503, "start_failed"], batch.text);
    assert.deepEqual(await namesOf(client, "unsure-"), []);
    assert.equal(await stateOf(id), "started");
  }
  const { id } = await source({ env: { FAKE_FREEZE_FAIL: "1" } });
  const refused = await client.post(`/v1/machines/${id}/branches`, { name: "unfrozen" });
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [409, "conflict"], refused.text);
  assert.equal(await stateOf(id), "started");
});

test("a ceiling that is met in the middle of a batch leaves none of it", async () => {
  for (const ceiling of [{ maxMachines: 3 }, { maxConcurrentMachines: 3 }]) {
    const plan = await client.post("/v1/plans", { name: `branches of ${JSON.stringify(ceiling)}`, ...ceiling });
    const tenant = await client.post("/v1/tenants", { name: `of ${plan.json.id}`, planId: plan.json.id });
    const key = await client.post("/v1/apikeys", { tenantId: tenant.json.id });
    const owner = client.withKey(key.json.key);
    const { id } = await source({}, owner);
    const batch = (count: number) => owner.post(`/v1/machines/${id}/branches/batch`, { namePrefix: "some", count });
    const refused = await batch(3);
    assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "quota_exceeded"], refused.text);
    assert.deepEqual(await namesOf(owner, "some-"), []);
    assert.equal((await owner.get(`/v1/machines/${id}`)).json.state, "started");
    assert.equal((await batch(2)).status, 201);
  }
  await noPointIsLeft();
});
