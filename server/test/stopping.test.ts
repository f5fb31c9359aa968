/**
 * A server that stops: with a delay it serves on while it is not ready; endless answers end with an
 * explanation, and nothing waits for them.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, get } from "node:http";
import { test } from "node:test";
import { WebSocket } from "ws";
import { startTestIngress } from "./support/ingress.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

/** The longest time a stopping server waits for requests that end by themselves. */
const PATIENCE_MS = 30_000;

test("a server that stops ends streams with an explanation, and lets an awaited command finish", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  await startTestNode(server);
  const { client } = server;
  const source = { type: "image", reference: "local/busybox" };
  const { id } = (await client.post("/v1/machines", { source })).json;
  await client.post(`/v1/machines/${id}/exec`, { command: "true" });

  const texts: string[] = [];
  const read = async (path: string, body?: object): Promise<void> => {
    const headers = { authorization: `Bearer ${client.key}` };
    const init = body === undefined ? { headers } : { headers, method: "POST", body: JSON.stringify(body) };
    const { body: stream } = await fetch(`${server.url}/v1/machines/${id}/${path}`, init);
    const index = texts.push("") - 1;
    for await (const chunk of stream ?? []) texts[index] += Buffer.from(chunk).toString();
  };
  const streams = [
    read("exec/stream", { command: "echo begun; sleep 600" }),
    read("exec", { command: "sleep 600", stream: true }),
    read("logs?follow=true"),
    read("logs?follow=true&format=json"),
  ];
  await until(() => texts.length === streams.length && texts.some((text) => text.includes("begun")));
  const waited = client.post(`/v1/machines/${id}/exec`, { command: "echo >/begun; sleep 1; echo done" });
  const hasBegun = async () =>
    (await client.post(`/v1/machines/${id}/exec`, { command: ["cat", "/begun"] })).json.exitCode === 0;
  await until(hasBegun, { what: "the command that is waited for to begin" });

  const startedAt = performance.now();
  const stopped = server.stop();
  await Promise.all(streams);
  assert.equal((await waited).json.stdout, "done\n");
  await stopped;
  assert.ok(performance.now() - startedAt < PATIENCE_MS / 2, "it waited for streams");
  const told = texts.filter((text) => /the server stops/.test(text));
  assert.equal(told.length, streams.length, JSON.stringify(texts));
  assert.equal(texts.filter((text) => /^event: error\ndata: the server stops/m.test(text)).length, 2);
});

test("an ingress that stops ends streams of events and WebSockets cleanly, and waits for neither", async () => {
  const { client, server, machine } = await startMachineServer();
  const ingress = await startTestIngress(server);
  const id = await machine({ ports: [{ port: 80 }], public: true, env: { FAKE_LISTEN: "80=200" } });
  await client.post(`/v1/machines/${id}/start`);
  const url = `${ingress.url}/proxy/${id}`;
  const events = await fetch(`${url}/events`, { headers: { accept: "text/event-stream" } });
  const socket = new WebSocket(`${url.replace("http", "ws")}/talk`);
  const errors: Error[] = [];
  socket.on("error", (error) => errors.push(error));
  await once(socket, "open");
  socket.send("there and back");
  assert.equal(String((await once(socket, "message"))[0]), "there and back");

  const startedAt = performance.now();
  const closed = once(socket, "close");
  const stopped = ingress.stop();
  // What was cut would be refused here.
  assert.match(await events.text(), /^(data: \S+ \d+\n\n)+$/);
  await closed;
  await stopped;
  assert.deepEqual(errors, []);
  assert.ok(performance.now() - startedAt < PATIENCE_MS / 2, "it waited for what has no end");
});

test("a server that stops with a delay answers on new and on kept connections, is not ready, and keeps no connection alive", async () => {
  const server = await startTestServer();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const ask = (path: string, using?: Agent) => {
    const headers = { authorization: `Bearer ${server.client.key}` };
    const answered = Promise.withResolvers<{ status: number; connection: string; isKept: boolean }>();
    const request = get(`${server.url}${path}`, { headers, ...(using && { agent: using }) }, (answer) => {
      const { statusCode: status = 0, headers: given } = answer;
      answer.resume();
      answer.once("end", () =>
        answered.resolve({ status, connection: given.connection ?? "", isKept: request.reusedSocket }),
      );
    });
    request.once("error", answered.reject);
    return answered.promise;
  };
  assert.equal((await ask("/v1/machines", agent)).connection, "keep-alive");

  const hurry = new AbortController();
  const stopped = server.stop({ delayMs: 3_600_000, hurry: hurry.signal });
  try {
    assert.deepEqual(await ask("/v1/machines", agent), { status: 200, connection: "close", isKept: true });
    assert.deepEqual(await ask("/v1/machines"), { status: 200, connection: "close", isKept: false });
    assert.equal((await ask("/readyz")).status, 503);
    assert.equal((await ask("/livez")).status, 200);
  } finally {
    hurry.abort();
  }
  await stopped;
  await assert.rejects(ask("/v1/machines"), { code: "ECONNREFUSED" });
});
