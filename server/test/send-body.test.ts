/**
 * The body of an answer that is sent to a slow reader: it is paused, and continues whatever the size of its
 * pieces.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type Server,
  type ServerResponse,
} from "node:http";
import { type AddressInfo, connect } from "node:net";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { endOfTurn } from "@flotilla/base/clock";
import { until } from "../../test/support/until.ts";
import { head, wire } from "../../test/support/wire.ts";
import { sendBody } from "../src/http/send-body.ts";

/** Listens until the test ends. */
async function portOf(t: TestContext, server: Server): Promise<number> {
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

for (const pieceBytes of [1_000, 30_000, 60_000, 70_000, 300_000]) {
  test(`pieces of ${pieceBytes} bytes that fill the connection of a slow reader all arrive, in order`, async (t) => {
    const body = new Readable({ read: () => undefined, highWaterMark: 64 * 1024 });
    const handedOver = Promise.withResolvers<boolean>();
    const server = createServer((_request, response) => {
      response.writeHead(200);
      response.flushHeaders();
      sendBody(body, response).then(handedOver.resolve, handedOver.reject);
    });
    const port = await portOf(t, server);
    const sent = httpRequest({ port, host: "127.0.0.1" }).end();
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    const pieces: Buffer[] = [];
    while (!body.isPaused() && pieces.length < 20_000) {
      const piece = Buffer.alloc(pieceBytes, pieces.length % 251);
      pieces.push(piece);
      body.push(piece);
      await endOfTurn();
    }
    assert.ok(body.isPaused(), "nothing paused the body");
    const got: Buffer[] = [];
    response.on("data", (chunk: Buffer) => got.push(chunk));
    await until(() => !body.isPaused(), { what: "the body to continue" });
    body.push(null);
    await once(response, "end");
    assert.equal(await handedOver.promise, true);
    assert.ok(Buffer.concat(got).equals(Buffer.concat(pieces)));
  });
}

test("a reader of HTTP/1.0 sees that a stream has failed", async (t) => {
  const body = new Readable({ read: () => undefined });
  const server = createServer((_request, response) => {
    response.writeHead(200);
    void sendBody(body, response);
  });
  const reader = connect(await portOf(t, server), "127.0.0.1");
  reader.write("GET / HTTP/1.0\r\n\r\n");
  body.push("a part");
  await once(reader, "readable");
  body.destroy(new Error("the guest has gone"));
  await assert.rejects(text(reader), { code: "ECONNRESET" });
});

test("a stream that is ended early is whole for its reader, with all that had come", async (t) => {
  const body = new Readable({ read: () => undefined });
  const early = new AbortController();
  const sent = Promise.withResolvers<boolean>();
  const server = createServer((_request, response) => {
    response.writeHead(200);
    sendBody(body, response, { early: early.signal }).then(sent.resolve, sent.reject);
    body.push("first, ");
  });
  const request = httpRequest({ port: await portOf(t, server), host: "127.0.0.1" }).end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  body.once("data", () => early.abort());
  body.push("last");
  assert.equal(await text(response), "first, last");
  assert.deepEqual([await sent.promise, response.complete, body.destroyed], [true, true, true]);
});

test("small pieces of an answer that waits for an earlier one on its connection all arrive", async (t) => {
  const body = new Readable({ read: () => undefined });
  const asked = Promise.withResolvers<void>();
  const earlier = Promise.withResolvers<ServerResponse>();
  const server = createServer((request, response) => {
    if (request.url === "/earlier") return earlier.resolve(response);
    response.writeHead(200);
    void sendBody(body, response);
    asked.resolve();
  });
  const port = await portOf(t, server);
  const caller = await wire(`http://127.0.0.1:${port}`);
  caller.send(head("GET", "/earlier", null) + head("GET", "/later", null));
  await asked.promise;
  for (let bytes = 0; !body.isPaused() && bytes < 1024 * 1024; bytes += 30_000) {
    body.push(Buffer.alloc(30_000, "x"));
    await endOfTurn();
  }
  assert.ok(body.isPaused(), "nothing paused the body");
  (await earlier.promise).end();
  body.push("the last piece");
  body.push(null);
  await until(() => caller.received().includes("the last piece"), { what: "the end of the later answer" });
});

test("answers of single bytes take little memory while they wait", async (t) => {
  const bodies: Readable[] = [];
  const server = createServer((request, response) => {
    // Never answered, so that nothing of the others is sent.
    if (request.url === "/earlier") return;
    const body = new Readable({ read: () => undefined });
    response.writeHead(200);
    void sendBody(body, response);
    bodies.push(body);
  });
  const port = await portOf(t, server);
  const caller = await wire(`http://127.0.0.1:${port}`);
  caller.send(head("GET", "/earlier", null) + head("GET", "/later", null).repeat(16));
  await until(() => bodies.length === 16, { what: "the requests to arrive" });
  const before = process.memoryUsage();
  for (const body of bodies) {
    while (!body.isPaused()) {
      // As a chunked body comes: some thousand chunks with each read of its connection.
      const read = Buffer.alloc(10_000, "x");
      for (let at = 0; at < read.byteLength; at += 1) body.push(read.subarray(at, at + 1));
      await endOfTurn();
    }
  }
  const after = process.memoryUsage();
  const bytes = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
  assert.ok(bytes < 100 * 1024 * 1024, `${bytes} bytes for ${bodies.length} answers of 128 KiB`);
});
