/**
 * Callers that ask before they send a body, on the API, and on a port of a machine through the API and the
 * ingress.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { head, type Wire, wire } from "../../test/support/wire.ts";
import { until } from "../../test/support/until.ts";
import { DRAIN_BYTES_MAX } from "../src/fairness/bounds.ts";
import { httpGuest, machineWithPorts } from "./support/guest.ts";
import { startTestIngress } from "./support/ingress.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n";
const LARGE = String(50 * 1024 * 1024);

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const ingress = await startTestIngress(server);
const { key } = server.client;
/** Echoes what it is sent, and refuses /large with a status alone. */
const guest = await httpGuest((request, response) => {
  if (request.url !== "/large") return void request.pipe(response);
  response.writeHead(413).end();
});
const machine = await machineWithPorts(server.client, { 80: guest.port });

async function asks(url: string, path: string, secret: string | null, length: string): Promise<Wire> {
  const caller = await wire(url);
  caller.send(head("POST", path, secret, { expect: "100-continue", "content-length": length }));
  return caller;
}

async function statusOf(caller: Wire): Promise<string> {
  await until(() => caller.received().includes("\r\n\r\n"), { what: "an answer" });
  return caller.received().slice(9, 12);
}

test("a bad key is refused before the body is asked for, and the connection ends", async () => {
  for (const path of ["/v1/tenants", "/v1/nowhere", `/v1/machines/mach-${"0".repeat(32)}/connect/80/`]) {
    const caller = await asks(server.url, path, "smk_bad", LARGE);
    assert.equal(await statusOf(caller), "401", path);
    await until(() => caller.isClosed(), { what: "the end of the connection" });
    assert.ok(!caller.received().includes(CONTINUE), caller.received());
  }
});

test("the ingress refuses as well before the body is asked for", async () => {
  const caller = await asks(ingress.url, `/v1/machines/mach-${"0".repeat(32)}/connect/80/`, "smk_bad", LARGE);
  assert.match(await statusOf(caller), /^4\d\d$/);
  assert.ok(!caller.received().includes(CONTINUE), caller.received());
});

test("through the ingress the body is asked for, and answered by the machine", async () => {
  for (const url of [ingress.url, server.url]) {
    const caller = await asks(url, `/v1/machines/${machine}/connect/80/echo`, key, "5");
    await until(() => caller.received() === CONTINUE, { what: "the request for the body" });
    caller.send("hello");
    await until(() => caller.received().includes("hello"), { what: "the answer" });
    assert.match(caller.received().slice(CONTINUE.length), /^HTTP\/1\.1 200 /);
  }
});

test("the refusal of a body by a machine, with 413, arrives through the ingress before the body is sent", async () => {
  for (const url of [ingress.url, server.url]) {
    const caller = await asks(url, `/v1/machines/${machine}/connect/80/large`, key, LARGE);
    const final = () => caller.received().replace(CONTINUE, "");
    await until(() => final().includes("\r\n\r\n"), { what: "an answer" });
    assert.match(final(), /^HTTP\/1\.1 413 /);
  }
});

test("the connection of a body that is refused in the middle ends", async () => {
  const caller = await wire(server.url);
  caller.send(head("POST", "/v1/tenants", key, { "transfer-encoding": "chunked" }));
  const piece = Buffer.alloc(256 * 1024, " ");
  const chunk = Buffer.concat([Buffer.from(`${piece.byteLength.toString(16)}\r\n`), piece, Buffer.from("\r\n")]);
  for (let sent = 0; sent < 2 * DRAIN_BYTES_MAX; sent += piece.byteLength) caller.send(chunk);
  assert.equal(await statusOf(caller), "413");
  assert.match(caller.received(), /\r\nconnection: close\r\n/i);
  await until(() => caller.isClosed(), { what: "the end of the connection" });
});

test("a body that is declared too large is refused before it is asked for", async () => {
  const caller = await asks(server.url, "/v1/tenants", key, LARGE);
  assert.equal(await statusOf(caller), "413");
  await until(() => caller.isClosed(), { what: "the end of the connection" });
});

test("with a good key the body is asked for, then answered, and the connection continues", async () => {
  const caller = await wire(server.url);
  const body = JSON.stringify({ name: "asked-before" });
  const more = { expect: "100-continue", "content-length": String(body.length) };
  caller.send(head("POST", "/v1/tenants", key, more));
  await until(() => caller.received() === CONTINUE, { what: "the request for the body" });
  caller.send(body);
  await until(() => caller.received().includes("asked-before"), { what: "the answer" });
  assert.match(caller.received().slice(CONTINUE.length), /^HTTP\/1\.1 201 /);
  caller.send(head("GET", "/v1/me", key));
  await until(() => caller.received().includes("HTTP/1.1 200 "), { what: "the answer to another request" });
});
