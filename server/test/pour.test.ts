/**
 * Streams as bodies of answers, over real connections: how they are written, and how each side's end reaches the other.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, request } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { until } from "../../test/support/until.ts";
import { pour } from "../src/http/pour.ts";

const MIB = 1024 * 1024;

const open = (): Readable => new Readable({ read: () => undefined });

/** Serves the stream once; `poured` resolves with what pour says. */
async function serve(t: TestContext, body: Readable): Promise<{ port: number; poured: Promise<boolean> }> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const server = createServer((_message, response) => {
    response.writeHead(200);
    response.flushHeaders();
    pour(body, response).then(resolve, reject);
  });
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: (server.address() as AddressInfo).port, poured: promise };
}

async function get(port: number): Promise<IncomingMessage> {
  const [answer] = (await once(request({ port, host: "127.0.0.1", agent: false }).end(), "response")) as [
    IncomingMessage,
  ];
  return answer.on("error", () => undefined);
}

test("what a stream gives in one turn is one chunk of the answer, also right before its end", async (t) => {
  const body = open();
  const { port, poured } = await serve(t, body);
  const socket = connect(port, "127.0.0.1", () => socket.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n"));
  body.push("head");
  body.push("payload");
  body.push(null);
  assert.equal(await poured, true);
  let text = "";
  socket.on("data", (piece: Buffer) => (text += piece.toString()));
  await until(() => text.endsWith("0\r\n\r\n"));
  socket.destroy();
  assert.equal(text.slice(text.indexOf("\r\n\r\n") + 4), "b\r\nheadpayload\r\n0\r\n\r\n");
});

test("a reader that does not read pauses the stream, and gets everything when it does", async (t) => {
  let given = 0;
  const body = new Readable({
    read() {
      given += 1;
      this.push(given > 64 ? null : Buffer.alloc(MIB, given));
    },
  });
  const { port, poured } = await serve(t, body);
  const answer = await get(port);
  await until(() => body.isPaused());
  assert.ok(given < 32, `${given} MiB were taken`);
  let bytes = 0;
  for await (const piece of answer) bytes += (piece as Buffer).byteLength;
  assert.equal(bytes, 64 * MIB);
  assert.equal(await poured, true);
});

test("a stream that fails breaks the connection", async (t) => {
  const body = open();
  const { port, poured } = await serve(t, body);
  body.push("begun");
  const answer = await get(port);
  await once(answer, "data");
  body.destroy(new Error("it broke"));
  assert.equal(await poured, false);
  await until(() => answer.closed);
  assert.equal(answer.complete, false);
});

test("a reader that disconnects destroys the stream", async (t) => {
  const body = open();
  const { port, poured } = await serve(t, body);
  body.push("begun");
  const answer = await get(port);
  answer.destroy();
  assert.equal(await poured, false);
  assert.equal(body.destroyed, true);
});

test("a stream that was destroyed before ends the answer as broken", async (t) => {
  const body = open();
  body.destroy();
  const { port, poured } = await serve(t, body);
  const answer = await get(port);
  assert.equal(await poured, false);
  await until(() => answer.closed);
  assert.equal(answer.complete, false);
});
