/**
 * Readiness over HTTP, through a real node agent: a machine without ports is ready when it runs, one with
 * ports when one of them accepts connections.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { after, test } from "node:test";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { portToReturnTo } from "../../test/support/flotilla.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const node = await startTestNode(server);
const { client } = server;

async function listen(port: number): Promise<Server> {
  const listener = createServer((socket) => socket.on("error", () => socket.destroy()));
  await once(listener.listen(port, "127.0.0.1"), "listening");
  after(() => listener.close());
  return listener;
}

const source = { type: "image", reference: "local/busybox" };
const read = async (id: string) => (await client.get(`/v1/machines/${id}`)).json;
const untilReady = (id: string) =>
  until(async () => (await read(id)).ready === true, { what: "the machine to be ready", deadlineMs: 30_000 });

test("a machine without ports is ready in the answer to its start", async () => {
  const { id } = (await client.post("/v1/machines", { source })).json;
  const started = (await client.post(`/v1/machines/${id}/start`)).json;
  assert.deepEqual([started.state, started.ready, started.readyAt !== null], ["started", true, true]);
});

test("a machine with a port is ready from its first accepted connection until it stops, across an agent's death", async () => {
  const port = await portToReturnTo();
  const env = { FAKE_PORTS: `80=${port}` };
  const { id } = (await client.post("/v1/machines", { source, env, ports: [{ port: 80 }, { port: 81 }] })).json;
  const started = (await client.post(`/v1/machines/${id}/start`)).json;
  assert.deepEqual([started.state, started.ready, started.readyAt], ["started", false, null]);
  await node.kill();
  await node.restart();
  assert.deepEqual([(await read(id)).state, (await read(id)).ready], ["started", false]);
  const listener = await listen(port);
  await untilReady(id);
  const { readyAt } = await read(id);
  assert.ok(Math.abs(Date.parse(readyAt) - Date.now()) < 60_000);
  // Once ready it stays so, with or without a listener.
  listener.close();
  await node.kill();
  await node.restart();
  assert.deepEqual([(await read(id)).ready, (await read(id)).readyAt], [true, readyAt]);
  const stopped = (await client.post(`/v1/machines/${id}/stop`)).json;
  assert.deepEqual([stopped.ready, stopped.readyAt], [false, null]);
  await listen(port);
  await client.post(`/v1/machines/${id}/start`);
  await untilReady(id);
  assert.ok((await read(id)).readyAt > readyAt);
});
