/**
 * Slow starts: callers wait until the start has ended, and the connection is kept alive meanwhile.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { test } from "node:test";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

// A node is asked several times during each boot.
const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN, nodeWaitMs: 100, processingMs: 50 });
await startTestNode(server);
const { client } = server;
const BOOT_MS = 800;

async function slowMachine(bootMs = BOOT_MS): Promise<string> {
  const body = { source: { type: "image", reference: "local/busybox" }, env: { FAKE_BOOT_MS: String(bootMs) } };
  const answer = await client.post("/v1/machines", body);
  assert.equal(answer.status, 201, answer.text);
  return answer.json.id;
}

test("a start is awaited until the machine runs, however often its node has to be asked", async () => {
  const answer = await client.post(`/v1/machines/${await slowMachine()}/start`);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json.state, "started");
});

test("a command waits as long for a machine that it starts", async () => {
  const answer = await client.post(`/v1/machines/${await slowMachine()}/exec`, { command: "echo hi" });
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json.stdout, "hi\n");
});

test("a start that is stopped and requested again meanwhile is awaited as well", async () => {
  const id = await slowMachine();
  const first = client.post(`/v1/machines/${id}/start`);
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.state === "creating");
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).status, 200);
  const again = await client.post(`/v1/machines/${id}/start`);
  assert.equal(again.status, 200, again.text);
  assert.ok([200, 409].includes((await first).status), (await first).text);
});

test("a caller that disconnects does not end the start", async () => {
  const id = await slowMachine();
  const gone = new AbortController();
  const asking = client.post(`/v1/machines/${id}/start`, undefined, { signal: gone.signal });
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.state === "creating");
  gone.abort();
  await assert.rejects(asking);
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.state === "started", { deadlineMs: 20_000 });
});

/** Starts a machine, and collects the interim answers before the answer. */
function interimAnswers(id: string, headers: Record<string, string>): Promise<readonly number[]> {
  const interim: number[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<readonly number[]>();
  const asking = request(`${server.url}/v1/machines/${id}/start`, {
    method: "POST",
    headers: { authorization: `Bearer ${client.key}`, ...headers },
  });
  asking.on("information", ({ statusCode }) => interim.push(statusCode));
  asking.on("response", (answer) => {
    answer.resume();
    assert.equal(answer.statusCode, 200);
    answer.on("end", () => resolve(interim));
  });
  asking.on("error", reject);
  asking.end();
  return promise;
}

test("callers that request it get interim answers while their request is processed, and no others", async () => {
  const told = await interimAnswers(await slowMachine(), { prefer: "respond-async, processing" });
  assert.ok(told.length > 1 && told.every((status) => status === 102), String(told));
  assert.deepEqual(await interimAnswers(await slowMachine(), {}), []);
});

test("idle connections are probed by TCP", async () => {
  const id = await slowMachine(3_000);
  const asking = client.post(`/v1/machines/${id}/start`);
  const port = Number(new URL(server.url).port).toString(16).toUpperCase().padStart(4, "0");
  const established = new RegExp(`^ *\\d+: [0-9A-F]+:${port} [0-9A-F]+:[0-9A-F]{4} 01 \\S+ 02:`, "m");
  // Timer 02 of the kernel's table is the probes' timer; 01 is an established connection.
  await until(() => Promise.resolve(established.test(readFileSync("/proc/net/tcp", "utf8"))));
  await client.delete(`/v1/machines/${id}`);
  await asking;
});
