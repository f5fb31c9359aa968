/**
 * A machine whose agent does not answer its node, as its users see it: it is not ready, a start of it is a
 * new request to its node, and no pool gives it away.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import type { DesiredMachine } from "@flotilla/contract/link/link";
import { SOURCE } from "./support/machine-server.ts";
import { listenAtSocket, RESOURCES, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const { client } = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const SINCE = Date.now();

/** What the node was asked for. */
const asked: DesiredMachine[] = [];

/** A request may be sent more than once. */
const generations = (): readonly number[] => [...new Set(asked.map(({ generation }) => generation))];

const observed = (machineId: string, generation: number, more: object = {}): object => ({
  ...{ machineId, generation, state: "running", bootId: `boot-${generation}` },
  ...{ runningSince: Date.now(), readySince: Date.now() },
  ...more,
});

const node = createServer((request, response) => {
  void text(request).then((body) => {
    const machineId = request.url?.split("/").at(-1)?.split("?")[0] ?? "";
    const desired = JSON.parse(body) as DesiredMachine;
    asked.push(desired);
    response.end(JSON.stringify(observed(machineId, desired.generation)));
  });
});
const { json } = await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", {
  id: "played",
  address: await listenAtSocket(node),
  ...{ totalCpus: 8, totalMemoryMb: 16_384, totalDiskGb: 100 },
});

async function beat(machines: readonly object[] = []): Promise<void> {
  const body = { bootId: "agent-1", isComplete: false, resources: RESOURCES, machines, events: [] };
  const answer = await client.withKey(json.credential).post("/v1/nodes/played/heartbeat", body);
  assert.equal(answer.status, 200, answer.text);
}

test("a machine whose agent does not answer is started, not ready, and is requested again by a start only", async () => {
  await beat();
  const { id } = (await client.post("/v1/machines", { source: SOURCE })).json;
  const path = `/v1/machines/${id}`;
  const started = (await client.post(`${path}/start`)).json;
  assert.deepEqual([started.state, started.ready, started.unresponsiveSince], ["started", true, null]);
  const [first] = asked;
  assert.ok(first !== undefined);
  assert.deepEqual((await client.post(`${path}/start`)).json.ready, true);
  assert.deepEqual(generations(), [first.generation], "it runs, and its agent answers");

  await beat([observed(id, first.generation, { unresponsiveSince: SINCE })]);
  const silent = (await client.get(path)).json;
  assert.deepEqual(
    [silent.state, silent.ready, silent.readyAt, silent.unresponsiveSince],
    ["started", false, null, new Date(SINCE).toISOString()],
  );
  await beat([observed(id, first.generation)]);
  const back = (await client.get(path)).json;
  assert.deepEqual([back.ready, back.unresponsiveSince], [true, null]);

  await beat([observed(id, first.generation, { unresponsiveSince: SINCE })]);
  const restarted = (await client.post(`${path}/start`)).json;
  assert.deepEqual([restarted.state, restarted.ready, restarted.unresponsiveSince], ["started", true, null]);
  assert.deepEqual(generations(), [first.generation, first.generation + 1]);
  // What its node wrote before that.
  await beat([observed(id, first.generation, { unresponsiveSince: SINCE })]);
  assert.equal((await client.get(path)).json.ready, true);
});

test("a pool gives away no machine whose agent does not answer", async () => {
  await beat();
  const pool = (await client.post("/v1/pools", { image: SOURCE.reference, memoryMb: 256, cpus: 1, targetSize: 1 }))
    .json;
  const waiting = async (): Promise<number | undefined> =>
    ((await client.get("/v1/pools")).json as { id: string; idleCount: number }[]).find(({ id }) => id === pool.id)
      ?.idleCount;
  await until(async () => (await waiting()) === 1, { what: "a machine to wait" });
  const [{ id }] = (await client.get(`/v1/machines?label=flotilla-pool=${pool.id}`)).json;
  const { generation = 0 } = asked.find(({ spec }) => spec?.machineId === id) ?? {};
  await beat([observed(id, generation, { unresponsiveSince: SINCE })]);
  assert.equal(await waiting(), 0);
  const claimed = await client.post(`/v1/pools/${pool.id}/claim`);
  assert.deepEqual([claimed.status, claimed.json.ready, claimed.json.id === id], [200, true, false], claimed.text);
  await beat([observed(id, generation)]);
  assert.equal(await waiting(), 1);
  assert.equal((await client.post(`/v1/pools/${pool.id}/claim`)).json.id, id);
});
