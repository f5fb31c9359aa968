/**
 * Branches of machines that run: what a branch has of its source, and what is refused.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { branchSource, namesOf, untilNoPointIsLeft } from "./support/branches.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";

const { client, context } = await startMachineServer();

const MEMORY = { FAKE_OWN_BYTES: "9000000", FAKE_SHARED_BYTES: "60000000" };
const source = (fields?: object) => branchSource(client, fields);

test("a branch runs, has what its source has but its name, and both are in one lineage", async () => {
  const { id } = await source({ env: { ...MEMORY, A: "1" }, ports: [{ port: 80 }] });
  const branch = await client.post(`/v1/machines/${id}/branches`, { name: "try-1", shareWeights: true });
  assert.equal(branch.status, 201, branch.text);
  const { name, state, env, labels, ports, branchable, capabilities } = branch.json;
  assert.deepEqual(
    [name, state, env, labels, branchable],
    ["try-1", "started", { ...MEMORY, A: "1" }, { team: "a" }, true],
  );
  assert.equal(ports[0].port, 80);
  assert.deepEqual([capabilities.branch, capabilities.maxBranchBatch], [true, 64]);
  assert.equal((await client.get(`/v1/machines/${id}`)).json.state, "started");
  for (const machine of [id, branch.json.id]) {
    const { rootMachineId, machines, memory } = (await client.get(`/v1/machines/${machine}/lineage`)).json;
    assert.equal(rootMachineId, id);
    const use = { ownBytes: 9e6, sharedBytes: 6e7 };
    assert.deepEqual(
      memory,
      [id, branch.json.id].map((machineId) => ({ machineId, ...use })),
    );
    assert.deepEqual(
      machines.map((each: { id: string }) => each.id),
      [id, branch.json.id],
    );
  }
  const eventOf = (machine: string, type: string) =>
    until(async () => (await client.get(`/v1/machines/${machine}/events?type=${type}`)).json[0]?.data);
  assert.equal((await eventOf(id, "machine.branched")).count, 1);
  assert.deepEqual(await eventOf(branch.json.id, "machine.isBranch"), { from: id });
  const { text } = await client.get("/metrics");
  for (const name of ["branch_pauses_total", "branch_clones_total"])
    assert.match(text, new RegExp(`^flotilla_${name} [1-9]`, "m"));
  for (const name of ["branch_paused_seconds_total", "branch_start_seconds_total", "branch_point_bytes"])
    assert.match(text, new RegExp(`^flotilla_${name} \\d`, "m"));
  await untilNoPointIsLeft(context.db);
});

test("a batch has its names in order, also by the old path", async () => {
  const { id, name } = await source();
  const batch = await client.post(`/v1/machines/${id}/fork-batch`, { count: 3 });
  assert.equal(batch.status, 201, batch.text);
  const names = batch.json.clones.map((clone: { name: string }) => clone.name);
  assert.deepEqual(names, [`${name}-1`, `${name}-2`, `${name}-3`]);
  const named = await client.post(`/v1/machines/${id}/branches/batch`, { names: ["b", "a"], count: 9 });
  assert.deepEqual(
    named.json.clones.map((clone: { name: string; state: string }) => [clone.name, clone.state]),
    [
      ["b", "started"],
      ["a", "started"],
    ],
  );
});

test("what cannot be branched is refused with what to do, and nothing is left", async () => {
  const plain = await createMachine(client, {});
  const refused = await client.post(`/v1/machines/${plain}/branches`, { name: "x" });
  assert.deepEqual([refused.status, /create it with branchable: true/.test(refused.text)], [409, true], refused.text);
  await client.post(`/v1/machines/${plain}/start?forkable=true`);
  const forked = await client.post(`/v1/machines/${plain}/fork`, { name: "forked", ports: null, shareWeights: true });
  assert.deepEqual([forked.status, forked.json.forkable], [201, true], forked.text);
  const { id } = await source({ secretEnv: { TOKEN: "hidden" } });
  const secret = await client.post(`/v1/machines/${id}/branches`, { name: "x" });
  assert.deepEqual([secret.status, /secrets: "inherit"/.test(secret.text)], [409, true], secret.text);
  for (const [body, told] of [
    [{ secrets: "reissue" }, /TOKEN; secretEnv needs new values/],
    [{ secretEnv: { OTHER: "1" } }, /TOKEN; secretEnv needs new values/],
    [{ secretEnv: { TOKEN: "1", OTHER: "1" } }, /no secret variables OTHER/],
    [{ secrets: "inherit", secretEnv: { TOKEN: "1" } }, /secretEnv has values for secrets: "reissue"/],
  ] as const) {
    const refused = await client.post(`/v1/machines/${id}/branches`, { name: "x", ...body });
    assert.deepEqual([refused.status, told.test(refused.text)], [422, true], refused.text);
  }
  const reissued = await client.post(`/v1/machines/${id}/branches`, { name: "new", secretEnv: { TOKEN: "renewed" } });
  assert.deepEqual([reissued.status, reissued.json.secretEnvNames], [201, ["TOKEN"]], reissued.text);
  const tokenOf = async (machine: string): Promise<string> =>
    (await client.post(`/v1/machines/${machine}/exec`, { command: ["env"] })).text;
  assert.match(await tokenOf(reissued.json.id), /TOKEN=renewed/);
  assert.match(await tokenOf(id), /TOKEN=hidden/);
  const inherits = await client.post(`/v1/machines/${id}/branches`, { name: "with-secrets", secrets: "inherit" });
  assert.deepEqual([inherits.status, inherits.json.secretEnvNames], [201, ["TOKEN"]]);
  const taken = await client.post(`/v1/machines/${id}/branches/batch`, {
    ...{ names: ["free-1", "with-secrets"], secrets: "inherit" },
  });
  assert.deepEqual([taken.status, taken.headers.get("x-error-code")], [409, "name_taken"], taken.text);
  const names = (await client.get("/v1/machines")).json.map((machine: { name: string }) => machine.name);
  assert.ok(!names.includes("free-1"), "the first of the batch is left");
  await client.post(`/v1/machines/${id}/stop`);
  const stopped = await client.post(`/v1/machines/${id}/branches`, { name: "y", secrets: "inherit" });
  assert.deepEqual([stopped.status, /start it, then branch it/.test(stopped.text)], [409, true], stopped.text);
  const missing = await client.post(`/v1/machines/mach-${"0".repeat(32)}/branches`, { name: "y" });
  assert.equal(missing.status, 404);
  const counts = [0, -1, 65, 1e9, 1.5, "2"].map((count) => ({ count }));
  for (const body of [{}, ...counts, { names: [] }, { names: ["a", "a"] }, { names: ["not ok"] }])
    assert.equal((await client.post(`/v1/machines/${id}/branches/batch`, body)).status, 422, JSON.stringify(body));
});

test("another tenant's machine is not found", async () => {
  const { id } = await source();
  const other = await client.post("/v1/tenants", { name: "other" });
  const key = await client.post("/v1/apikeys", { tenantId: other.json.id });
  const theirs = client.withKey(key.json.key);
  const answers = [
    await theirs.post(`/v1/machines/${id}/branches`, { name: "theirs" }),
    await theirs.post(`/v1/machines/${id}/fork-batch`, { count: 1 }),
    await theirs.post(`/v1/machines/${id}/assign`, { leaseId: "theirs" }),
    await theirs.get(`/v1/machines/${id}/lineage`),
  ];
  for (const { status, text } of answers)
    assert.deepEqual([status, text.startsWith(`machine ${id} was not found`)], [404, true], text);
  assert.equal((await theirs.get("/v1/leases/theirs")).status, 404);
});

test("branches live on without their source, are branched, stopped and started, and have one lineage", async () => {
  const { id } = await source();
  const first = (await client.post(`/v1/machines/${id}/fork`, { name: "child" })).json.id;
  const second = await client.post(`/v1/machines/${first}/fork`, { name: "grandchild" });
  assert.deepEqual([second.status, second.json.parentMachineId], [201, first], second.text);
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
  for (const machine of [first, second.json.id]) {
    assert.equal((await client.post(`/v1/machines/${machine}/exec`, { command: "true" })).status, 200);
    assert.equal((await client.post(`/v1/machines/${machine}/stop`)).json.state, "stopped");
    assert.equal((await client.post(`/v1/machines/${machine}/start`)).json.state, "started");
  }
  assert.equal((await client.post(`/v1/machines/${first}/stop`)).json.state, "stopped");
  const { rootMachineId, machines, memory } = (await client.get(`/v1/machines/${second.json.id}/lineage`)).json;
  assert.deepEqual(
    memory.map(({ machineId }: { machineId: string }) => machineId),
    [second.json.id],
    "of those that run",
  );
  const names = machines.map(({ name }: { name: string }) => name);
  assert.deepEqual([rootMachineId, names], [id, ["child", "grandchild"]]);
});

test("a branch has the hooks of its source, and its fork hook has run when it is answered", async () => {
  const hooks = { fork: { command: ["sh", "-c", "hostname >/who"] }, stop: { command: ["true"], timeoutSecs: 5 } };
  const { id } = await source({ hooks: { ...hooks, resume: null } });
  const branch = await client.post(`/v1/machines/${id}/branches`, { name: "hooked" });
  assert.equal(branch.status, 201, branch.text);
  assert.deepEqual(branch.json.hooks, hooks);
  const who = (machine: string) => client.post(`/v1/machines/${machine}/exec`, { command: ["cat", "/who"] });
  assert.equal((await who(branch.json.id)).json.stdout, "hooked\n");
  assert.equal((await who(id)).json.exitCode, 1, "the source runs no fork hook");
});

test("a fork hook that fails fails the branch with its output, and leaves no clone", async () => {
  const command = ["sh", "-c", "echo not again >&2; exit 3"];
  const { id, name } = await source({ hooks: { fork: { command, timeoutSecs: 20 } } });
  const failed = await client.post(`/v1/machines/${id}/branches/batch`, { count: 2 });
  assert.deepEqual([failed.status, failed.headers.get("x-error-code")], [503, "start_failed"], failed.text);
  assert.match(failed.text, /its fork hook ended with exit code 3: not again/);
  assert.deepEqual(await namesOf(client, `${name}-`), []);
  assert.equal((await client.get(`/v1/machines/${id}`)).json.state, "started");
  await untilNoPointIsLeft(context.db);
});
