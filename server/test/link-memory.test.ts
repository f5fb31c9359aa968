/**
 * What requests to a node leave in this process's memory: next to nothing. The node's end is played by a
 * worker, which has its own.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Worker } from "node:worker_threads";
import { systemClock } from "@flotilla/base/clock";
import { dialOnNode } from "../src/link/dial.ts";
import { Input } from "../src/link/input.ts";
import { NodeLink } from "../src/link/node-link.ts";
import { createLog } from "../src/log.ts";
import { keptOfEach } from "./support/young-collections.ts";

/** Begins each answer at once, and ends it with the request. */
const NODE = `
  const { createServer } = require("node:http");
  const { parentPort, workerData } = require("node:worker_threads");
  createServer((request, response) => {
    response.writeHead(200);
    response.flushHeaders();
    request.resume().on("end", () => response.end("done"));
  }).listen(workerData, () => parentPort.postMessage("listens"));
`;

const directory = await mkdtemp(join(tmpdir(), "flotilla-link-"));
const path = join(directory, "node");
const worker = new Worker(NODE, { eval: true, workerData: path });
await once(worker, "message");
const link = new NodeLink(createLog("silent"), systemClock);
after(async () => {
  await link.close();
  await worker.terminate();
  await rm(directory, { recursive: true });
});
const node = { nodeId: "a", address: `unix:${path}` };
const { signal } = new AbortController();

test("young collections keep next to nothing of answers that were read", async () => {
  const bytes = await keptOfEach(4_000, async () => {
    const gone = new AbortController();
    const body = await link.open(node, { method: "GET", path: "/", headersTimeout: 60_000, signal: gone.signal });
    for await (const _ of body);
    gone.abort();
  });
  // They kept more than 3,000 with undici's `request`.
  assert.ok(bytes < 300, `${Math.round(bytes)} bytes of each answer`);
});

test("young collections keep next to nothing of bodies that were sent", async () => {
  const bytes = await keptOfEach(4_000, async () => {
    const input = new Input();
    input.push("sent");
    const body = await link.open(node, { method: "POST", path: "/", body: input, headersTimeout: 60_000, signal });
    input.push(null);
    for await (const _ of body);
  });
  // They kept more than 6,000 when undici had the stream.
  assert.ok(bytes < 300, `${Math.round(bytes)} bytes of each request`);
});

test("young collections keep little of connections that were closed", async () => {
  const bytes = await keptOfEach(2_000, async () => {
    const socket = await dialOnNode(link, node, { tenantId: "a", machineId: "b", port: 80, signal });
    socket.on("error", () => undefined).resume();
    socket.end("sent");
    await once(socket, "close");
  });
  // They kept about 10,000 when all that a connection had referred to stayed with it, and cannot keep less
  // than Node does of a stream.
  assert.ok(bytes < 3_000, `${Math.round(bytes)} bytes of each connection`);
});
