/**
 * Nodes at the fleet's registry: they push under a lease over the socket of the server, also in spite of
 * connections that break, and read what is theirs to read.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { after, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { CallServer, ServerCall } from "@flotilla/node/images/own-registry";
import { openServerCalls } from "@flotilla/node/link/server-calls";
import { Pusher, type PushedBlob } from "@flotilla/node/packages/push";
import { PushRefused } from "@flotilla/node/packages/registry-answer";
import { sql } from "../src/db/database.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startRegistryServer, tenantWithKey } from "./support/oci.ts";

const server = await startRegistryServer({ joinToken: TEST_JOIN_TOKEN });
const node = await startTestNode(server);
const one = await tenantWithKey(server, "one");
const { db } = server.context;
const calls = openServerCalls({
  ...{ serverUrl: server.url, nodeSocket: server.client.nodeSocket, remote: null },
  nodeDirectory: join(node.directory, "node"),
});
const directory = await mkdtemp(join(tmpdir(), "flotilla-registry-nodes-"));
after(async () => {
  calls[Symbol.dispose]();
  await rm(directory, { recursive: true });
});

const LAYER_BYTES = 4_000_000;

async function newBlob(size = LAYER_BYTES): Promise<PushedBlob> {
  const content = randomBytes(size);
  const digest = `sha256:${createHash("sha256").update(content).digest("hex")}`;
  const path = join(directory, digest.slice(-16));
  await writeFile(path, content);
  return { digest, size, path };
}

async function leased(name: string): Promise<string> {
  const repository = `tenants/${one.id}/${name}`;
  await db.execute(sql`
    INSERT INTO registry_leases (holder, repository, node_id, tenant_id, expires_at)
    VALUES (${`test ${name}`}, ${repository}, ${node.id}, ${one.id}, now() + interval '10 minutes')`);
  return repository;
}

const pusherOf = (repository: string, callServer: CallServer = calls.call): Pusher =>
  new Pusher({
    ...{ callServer, repository, clock: systemClock, signal: new AbortController().signal },
    ...{ retryDelayMs: 20, silenceMs: 10_000 },
  });

test("a node pushes a blob under a lease, and nothing without one", async () => {
  const blob = await newBlob();
  const isRefusal = (error: Error): boolean => error instanceof PushRefused && /has no lease/.test(error.message);
  await assert.rejects(pusherOf(`tenants/${one.id}/unleased`).blob(blob), isRefusal);
  const repository = await leased("web");
  assert.equal(await pusherOf(repository).blob(blob), true);
  assert.equal(await pusherOf(repository).blob(blob), false);
});

/** The beginning of a body, after which its connection breaks. */
async function* beginningOf(body: Readable, bytes: number): AsyncGenerator<Buffer, void> {
  let left = bytes;
  for await (const part of body as AsyncIterable<Buffer>) {
    yield part.subarray(0, left);
    left -= part.byteLength;
    if (left <= 0) break;
  }
  throw new Error("the cable was pulled");
}

test("an upload that is cut at 40 % continues at what the registry has", async () => {
  const sent: { readonly method: string; readonly bytes: number }[] = [];
  const callServer: CallServer = async (call: ServerCall) => {
    const isFirst = call.method === "PATCH" && !sent.some(({ method }) => method === "PATCH");
    sent.push({ method: call.method, bytes: Number(call.headers["content-length"] ?? 0) });
    if (!isFirst || !(call.body instanceof Readable)) return await calls.call(call);
    return await calls.call({ ...call, body: Readable.from(beginningOf(call.body, LAYER_BYTES * 0.4)) });
  };
  const blob = await newBlob();
  assert.equal(await pusherOf(await leased("cut"), callServer).blob(blob), true);
  const parts = sent.filter(({ method }) => method === "PATCH");
  assert.equal(parts[0]?.bytes, LAYER_BYTES);
  const last = parts.at(-1)?.bytes ?? 0;
  // What was in buffers when the connection broke may not have arrived.
  assert.ok(last < LAYER_BYTES && last >= LAYER_BYTES * 0.6, `${last} bytes`);
});

test("a lost answer to each request of an upload is made good", async () => {
  for (const method of ["POST", "PATCH", "PUT"]) {
    let isLost = false;
    const callServer: CallServer = async (call) => {
      const answer = await calls.call(call);
      if (isLost || call.method !== method) return answer;
      isLost = true;
      answer.resume();
      throw new Error("the answer was lost");
    };
    const blob = await newBlob(100_000);
    const repository = await leased(`lost-${method.toLowerCase()}`);
    assert.equal(await pusherOf(repository, callServer).blob(blob), true);
    assert.equal(await pusherOf(repository).blob(blob), false);
  }
});
