/**
 * Leases on branches of machines: one machine and one token for each, which end together.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { branchSource } from "./support/branches.ts";
import { startMachineServer } from "./support/machine-server.ts";

const { client, context } = await startMachineServer();
const source = (fields?: object) => branchSource(client, fields);

const machineCount = async (): Promise<number> => (await client.get("/v1/machines")).json.length;

test("a lease is one machine and one token, has its files, and ends with its owner", async () => {
  const { id } = await source();
  const body = {
    ...{ leaseId: "job-1", task: { do: "it" }, secrets: { KEY: "v" }, heartbeatSecs: 60 },
    files: [{ path: "/tmp/in.txt", contentB64: Buffer.from("hello").toString("base64") }],
  };
  const [first, second] = await Promise.all([
    client.post(`/v1/machines/${id}/assign`, body),
    client.post(`/v1/machines/${id}/assign`, body),
  ]);
  assert.deepEqual([first.status, second.status], [201, 201], first.text + second.text);
  const { machineId, ownerToken } = first.json;
  assert.deepEqual([second.json.machineId, second.json.ownerToken], [machineId, ownerToken]);
  assert.equal((await client.get(`/v1/machines/${machineId}/files?path=/tmp/in.txt`)).text, "hello");
  const file = await client.get(`/v1/machines/${machineId}/files?path=/run/smol-task.json`);
  assert.deepEqual(file.json, { do: "it" });
  const beat = (token: string) => client.post("/v1/leases/job-1/heartbeat", { ownerToken: token });
  assert.deepEqual([(await beat("other")).status, (await beat(ownerToken)).json.state], [403, "ready"]);
  const end = { ownerToken, reason: "done", score: 0.5, result: { text: "a\u0000b" } };
  const ended = await client.post("/v1/leases/job-1/complete", end);
  assert.deepEqual([ended.status, ended.json.state, ended.json.result], [200, "completed", { text: "a\u0000b" }]);
  assert.equal((await client.get(`/v1/machines/${machineId}`)).status, 404);
  const again = await client.post("/v1/leases/job-1/complete", { ...end, reason: "cancelled" });
  assert.deepEqual([again.status, again.json], [200, ended.json]);
  assert.equal((await client.post("/v1/leases/job-1/complete", { ...end, ownerToken: "other" })).status, 403);
  assert.equal((await beat(ownerToken)).status, 409);
  assert.equal((await client.post(`/v1/machines/${id}/assign`, body)).status, 409);
  assert.deepEqual((await client.get("/v1/leases/job-1")).json, ended.json);
});

test("a lease whose owner is silent ends with its machine", async () => {
  const { id } = await source();
  const { machineId } = (await client.post(`/v1/machines/${id}/assign`, { leaseId: "silent", heartbeatSecs: 1 })).json;
  await until(async () => (await client.get("/v1/leases/silent")).json.state === "completed", { what: "its end" });
  assert.equal((await client.get("/v1/leases/silent")).json.reason, "heartbeat_lost");
  await until(async () => (await client.get(`/v1/machines/${machineId}`)).status === 404, {
    what: "its machine to go",
  });
});

test("a lease ends when its time is over, or when its machine was deleted, and never with the largest time", async () => {
  const { id } = await source();
  const reasonOf = async (leaseId: string) => (await client.get(`/v1/leases/${leaseId}`)).json.reason;
  const assign = async (leaseId: string, more: object): Promise<string> => {
    const { status, text, json } = await client.post(`/v1/machines/${id}/assign`, { leaseId, ...more });
    assert.equal(status, 201, text);
    return json.machineId;
  };
  await assign("short", { ttlSecs: 1 });
  const deleted = await assign("deleted", { ttlSecs: Number.MAX_SAFE_INTEGER, heartbeatSecs: Number.MAX_SAFE_INTEGER });
  await assign("endless", { ttlSecs: 0, heartbeatSecs: 0 });
  await until(async () => (await reasonOf("short")) === "expired", { what: "the end of its time" });
  assert.equal(await reasonOf("deleted"), null);
  await client.delete(`/v1/machines/${deleted}`);
  await until(async () => (await reasonOf("deleted")) === "infra_failed", { what: "its end without its machine" });
  assert.equal(await reasonOf("endless"), null);
});

test("a lease whose files cannot be written leaves nothing, and can be asked for again", async () => {
  const { id } = await source();
  const before = await machineCount();
  const assign = (path: string, contentB64: string) =>
    client.post(`/v1/machines/${id}/assign`, { leaseId: "files", files: [{ path, contentB64 }] });
  const text = await assign("/tmp/a", "not base64");
  assert.deepEqual([text.status, text.headers.get("x-error-code")], [422, "invalid_body"], text.text);
  const directory = await assign("/tmp", "aGVsbG8=");
  assert.ok(directory.status >= 400 && directory.status < 500, directory.text);
  assert.equal(await machineCount(), before);
  assert.equal((await client.get("/v1/leases/files")).status, 404);
  assert.equal((await assign("/tmp/a", "aGVsbG8=")).status, 201);
});

test("a lease that its server did not finish ends with its machine, or is continued by the same request", async () => {
  const { id } = await source();
  for (const leaseId of ["left", "continued"]) {
    const made = await client.post(`/v1/machines/${id}/assign`, { leaseId });
    assert.equal(made.status, 201, made.text);
    await context.db.execute(sql`UPDATE leases SET state = 'assigning' WHERE id = ${leaseId}`);
  }
  const { machineId } = (await client.get("/v1/leases/left")).json;
  const heartbeat = await client.post("/v1/leases/left/heartbeat", { ownerToken: "other" });
  assert.equal(heartbeat.status, 403);
  const continued = await client.post(`/v1/machines/${id}/assign`, { leaseId: "continued" });
  assert.equal(continued.json.machineId, (await client.get("/v1/leases/continued")).json.machineId);
  await context.db.execute(sql`UPDATE leases SET created_at = now() - interval '11 minutes' WHERE id = 'left'`);
  await until(async () => (await client.get("/v1/leases/left")).json.reason === "infra_failed", { what: "its end" });
  await until(async () => (await client.get(`/v1/machines/${machineId}`)).status === 404, { what: "no machine" });
});
