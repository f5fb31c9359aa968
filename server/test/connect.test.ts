/**
 * The connect bridge: requests of every kind to ports of a machine, and guests of every kind.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { request as httpRequest, type IncomingMessage, type OutgoingHttpHeaders } from "node:http";
import { createConnection, type Socket } from "node:net";
import { buffer, text } from "node:stream/consumers";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { WebSocket } from "ws";
import { sql } from "../src/db/database.ts";
import { httpGuest, machineWithPorts, rawGuest } from "./support/guest.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const { client } = server;
const deadlineMs = 20_000;

const seen: IncomingMessage[] = [];
const guest = await httpGuest((request, response) => {
  seen.push(request);
  const { url = "" } = request;
  if (url.startsWith("/echo")) return void request.pipe(response);
  if (url.startsWith("/size")) return void buffer(request).then((body) => response.end(String(body.byteLength)));
  if (url === "/never") return;
  if (url === "/half") {
    response.writeHead(200, { "content-length": "100" });
    response.write("half");
    return void setImmediate(() => response.destroy());
  }
  response.writeHead(url === "/teapot" ? 418 : 200, [
    ...["x-guest", "yes", "set-cookie", "a=1; Path=/; Domain=example.com", "set-cookie", "flotilla_share=stolen"],
    ...[
      "clear-site-data",
      '"*"',
      "location",
      "/next",
      "x-request-id",
      "the guest's",
      "connection",
      "x-hop",
      "x-hop",
      "1",
    ],
  ]);
  response.end(JSON.stringify({ method: request.method, url, headers: request.headers }));
});
const silent = await rawGuest(() => {});
const id = await machineWithPorts(client, { 80: guest.port, 81: silent.port, 82: 1 });
const at = (path: string, port = 80): string => `/v1/machines/${id}/connect/${port}${path}`;

/** Node's own client, for details that fetch hides. */
function send(
  method: string,
  path: string,
  { headers = {}, body }: { headers?: OutgoingHttpHeaders; body?: Buffer | string } = {},
): Promise<IncomingMessage> {
  const { hostname, port } = new URL(server.url);
  return new Promise((resolve, reject) => {
    const all = { authorization: `Bearer ${server.adminKey.key}`, ...headers };
    const request = httpRequest({ hostname, port, method, path, headers: all, agent: false });
    request.on("response", resolve);
    request.on("error", reject);
    request.end(body);
  });
}

test("every method is forwarded with its path, query and body, and the guest's answer is returned", async () => {
  for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "MKCOL"]) {
    const answer = await send(method, at("/a%2Fb//c?q=%20x&q=2"));
    assert.equal(answer.statusCode, 200, method);
    const told = JSON.parse(await text(answer)) as { method: string; url: string };
    assert.deepEqual([told.method, told.url], [method, "/a%2Fb//c?q=%20x&q=2"]);
  }
  for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]) {
    const answer = await send(method, at("/echo"), { body: "the body", headers: { "content-length": "8" } });
    assert.equal(await text(answer), "the body", method);
  }
  const head = await send("HEAD", at("/teapot"));
  assert.deepEqual([head.statusCode, await text(head)], [418, ""]);
  for (const [path, url] of [
    ["", "/"],
    ["/", "/"],
    ["?x=1", "/?x=1"],
    ["/?x=1", "/?x=1"],
  ] as const) {
    assert.equal((await client.get(at(path))).json.url, url, path);
  }
});

test("every request that the parser accepts is forwarded to the guest, and the rest is 400", async () => {
  const { hostname, port } = new URL(server.url);
  const status = async (...lines: readonly string[]): Promise<string> => {
    const socket = createConnection(Number(port), hostname);
    socket.on("error", () => {});
    const key = `authorization: Bearer ${client.key}`;
    socket.write([...lines, "host: x", key, "connection: close", "", ""].join("\r\n"), "latin1");
    return (await text(socket)).slice("HTTP/1.1 ".length, "HTTP/1.1 200".length);
  };
  // All characters except letters and digits.
  const bytes = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte)).filter((byte) => !/\w/.test(byte));
  const places: Readonly<Record<string, (byte: string) => Promise<string>>> = {
    "the path": (byte) => status(`GET ${at(`/a${byte}b`)} HTTP/1.1`),
    "a header": (byte) => status(`GET ${at("/")} HTTP/1.1`, `x-forwarded-for: 1${byte}`, `x-forwarded-host:${byte}`),
    "its name": (byte) => status(`GET ${at("/")} HTTP/1.1`, `x${byte}y: 1`),
  };
  for (const [place, ask] of Object.entries(places)) {
    const met = new Set<string>();
    for (const byte of bytes) {
      const code = await ask(byte);
      assert.match(code, /^(200|400)$/, `byte ${byte.charCodeAt(0)} in ${place}`);
      met.add(code);
    }
    assert.deepEqual([...met].toSorted(), ["200", "400"], place);
  }
});

test("the guest sees its own path however the request writes the way to it", async () => {
  for (const path of [`${server.url}${at("/a?b=1")}`, at("/a?b=1").replace("/connect/80", "/%63onnect/%380")]) {
    const answer = await send("GET", path);
    assert.equal((JSON.parse(await text(answer)) as { url: string }).url, "/a?b=1", path);
  }
});

test("end-to-end headers are forwarded, the key is not, and the guest learns where the request came from", async () => {
  const answer = await send("GET", at("/"), {
    headers: {
      connection: "x-mine",
      "x-mine": "1",
      te: "trailers",
      "x-other": ["1", "2"],
      "x-forwarded-for": "10.0.0.1",
    },
  });
  const { headers } = JSON.parse(await text(answer)) as { headers: Record<string, string> };
  assert.equal(headers["x-mine"], undefined);
  assert.equal(headers["te"], undefined);
  assert.equal(headers["x-other"], "1, 2");
  assert.equal(headers["authorization"], undefined, "no guest gets a key");
  assert.equal(headers["x-forwarded-for"], "10.0.0.1, 127.0.0.1");
  assert.equal(headers["x-forwarded-proto"], "http");
  assert.equal(headers["x-forwarded-host"], new URL(server.url).host);
  assert.equal(headers["x-forwarded-prefix"], at("").replace(/\/$/, ""));
});

test("where no proxy is trusted, a caller does not say from where its request came", async () => {
  const { databaseUrl, dataDirectory } = server;
  const other = await startTestServer({ databaseUrl, dataDirectory, trustedProxies: [] });
  const headers = { "x-forwarded-for": "10.0.0.1", "x-forwarded-host": "evil.example", "x-forwarded-proto": "https" };
  const key = { authorization: `Bearer ${client.key}` };
  const seenBy = async ({ url }: { readonly url: string }) =>
    (await (await fetch(url + at("/"), { headers: { ...key, ...headers } })).json()) as { headers: typeof headers };
  assert.partialDeepStrictEqual((await seenBy(server)).headers, {
    ...headers,
    "x-forwarded-for": "10.0.0.1, 127.0.0.1",
  });
  const { host } = new URL(other.url);
  assert.partialDeepStrictEqual((await seenBy(other)).headers, {
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-host": host,
    "x-forwarded-proto": "http",
  });
});

test("a guest speaks neither for this server nor for its origin", async () => {
  const { headers } = await send("GET", at("/"));
  assert.equal(headers["x-guest"], "yes");
  assert.deepEqual(headers["set-cookie"], [`a=1; Path=${at("/")}`]);
  assert.equal(headers["clear-site-data"], undefined);
  assert.equal(headers["x-hop"], undefined);
  assert.equal(headers["location"], at("/next"));
  assert.match(String(headers["content-security-policy"]), /^sandbox (?!.*allow-same-origin)/);
  assert.notEqual(headers["x-request-id"], "the guest's");
});

test("callers without access, and missing things, are refused", async () => {
  const stranger = await (async () => {
    const tenant = await client.post("/v1/tenants", { name: "stranger" });
    return client.withKey((await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json.key);
  })();
  const reader = client.withKey((await client.post("/v1/apikeys", { scopes: ["machine:read"] })).json.key);
  const status = async (who: typeof client, path: string): Promise<number> => (await who.get(path)).status;
  assert.equal(await status(client.withKey(null), at("/")), 401);
  assert.equal(await status(reader, at("/")), 403);
  assert.equal(await status(stranger, at("/")), 404);
  assert.equal(await status(client, at("/", 8080)), 404);
  for (const port of ["0", "080", "65536", "x", "-1", "8e1"])
    assert.equal(await status(client, `/v1/machines/${id}/connect/${port}/`), 404, port);
  const refused = await client.get(at("/", 82));
  assert.equal(refused.status, 502);
  assert.match(refused.text, /^port 82 of machine mach-\w+ does not answer: ECONNREFUSED$/);
  const idle = await client.post("/v1/machines", {
    source: { type: "image", reference: "local/busybox" },
    ports: [{ port: 80 }],
  });
  const stopped = await client.get(`/v1/machines/${idle.json.id}/connect/80/`);
  assert.equal(stopped.status, 503);
  assert.match(stopped.text, /start it first$/);
  assert.equal((await client.get(`/v1/machines/${idle.json.id}/connect/81/`)).status, 404);
  assert.equal((await client.get(`/v1/machines/${idle.json.id}`)).json.state, "stopped");
  await client.post(`/v1/machines/${idle.json.id}/start`);
  assert.equal((await client.get(`/v1/machines/${idle.json.id}/connect/80/`)).status, 502);
  await client.post(`/v1/machines/${idle.json.id}/stop`);
  assert.equal((await client.get(`/v1/machines/${idle.json.id}/connect/80/`)).status, 503);
});

test("large bodies are streamed both ways, and a slow reader slows the guest", async () => {
  const body = Buffer.alloc(10 * 1024 * 1024, "0123456789abcdef");
  const echoed = await send("POST", at("/echo"), { body });
  assert.ok((await buffer(echoed)).equals(body));
  assert.equal(
    await text(await send("PUT", at("/size"), { body, headers: { "transfer-encoding": "chunked" } })),
    String(body.length),
  );

  let written = 0;
  const flood = await rawGuest((socket) => {
    socket.write("HTTP/1.1 200 OK\r\n\r\n");
    const more = (): void => {
      while (written < 64 && socket.write(Buffer.alloc(1024 * 1024))) written += 1;
    };
    socket.on("drain", more);
    more();
  });
  const flooding = await machineWithPorts(client, { 80: flood.port });
  const answer = await send("GET", `/v1/machines/${flooding}/connect/80/`);
  answer.pause();
  const counts: number[] = [];
  await until(() => counts.push(written) > 30 && counts.at(-30) === written, { deadlineMs, what: "the guest to wait" });
  assert.ok(written < 64, `${written} MiB were taken for a caller who reads nothing`);
  answer.destroy();
  await until(() => flood.sockets.at(-1)?.destroyed, { deadlineMs, what: "the guest to see its caller's end" });
});

test("events arrive as they are sent, and when the caller disconnects the guest's connection ends", async () => {
  const answer = await send("GET", at("/"), {});
  await text(answer);
  const before = silent.sockets.length;
  const { hostname, port } = new URL(server.url);
  const waiting = httpRequest({
    hostname,
    port,
    path: at("/", 81),
    headers: { authorization: `Bearer ${client.key}` },
  });
  waiting.on("error", () => {});
  waiting.end();
  const socket = await until(() => silent.sockets[before], { deadlineMs, what: "the guest's connection" });
  waiting.destroy();
  await until(() => socket.destroyed || socket.readableEnded, { deadlineMs, what: "the guest to see it" });
  const events = await rawGuest((guestSocket) => {
    guestSocket.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n");
  });
  const streaming = await machineWithPorts(client, { 80: events.port });
  const stream = await send("GET", `/v1/machines/${streaming}/connect/80/`);
  assert.equal(String((await once(stream, "data")).at(0)), "data: 1\n\n");
  events.sockets.at(-1)?.write("data: 2\n\n");
  assert.equal(String((await once(stream, "data")).at(0)), "data: 2\n\n");
  events.sockets.at(-1)?.end();
  await once(stream, "end");
});

test("a guest that breaks off breaks the answer, and an invalid answer is reported with 502", async () => {
  const half = await send("GET", at("/half"));
  await assert.rejects(text(half));
  const hostile: Readonly<Record<string, (socket: Socket) => void>> = {
    garbage: (socket) => socket.write("\u0000\u0001 what is this? \r\n\r\n"),
    "an end at once": (socket) => socket.end(),
    "a reset": (socket) => socket.resetAndDestroy(),
    "endless headers": (socket) => {
      socket.write("HTTP/1.1 200 OK\r\n");
      const more = (): void => {
        while (!socket.destroyed && socket.write(`x-${"y".repeat(1000)}: z\r\n`));
      };
      socket.on("drain", more);
      more();
    },
    "one endless header": (socket) => {
      socket.write("HTTP/1.1 200 OK\r\nx: ");
      const more = (): void => {
        while (!socket.destroyed && socket.write("y".repeat(10_000)));
      };
      socket.on("drain", more);
      more();
    },
    "two lengths": (socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"),
    "length and chunks": (socket) =>
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
    "an unexpected upgrade": (socket) =>
      socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
    "an invalid status": (socket) => socket.write("HTTP/1.1 99999 Oh\r\n\r\n"),
    "a status that is none": (socket) => socket.write("HTTP/1.1 000 Oh\r\ncontent-length: 0\r\n\r\n"),
    "early answers and no final one": (socket) => socket.end("HTTP/1.1 100 Continue\r\n\r\n".repeat(50)),
    "early answers without end": (socket) => socket.write("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(200)),
  };
  for (const [what, serve] of Object.entries(hostile)) {
    const { port } = await rawGuest(serve);
    const machine = await machineWithPorts(client, { 80: port });
    const answer = await client.get(`/v1/machines/${machine}/connect/80/`);
    assert.equal(answer.status, 502, `${what}: ${answer.status} ${answer.text}`);
    // A reset may arrive before the connection is reported.
    const text =
      /^(the program that listens in machine mach-\w+ gave no answer|port 80 of machine mach-\w+ does not answer): /;
    assert.match(answer.text, text, what);
  }
  assert.equal((await client.get(at("/"))).status, 200);
});

test("heads whose lines end without a carriage return are read as browsers and curl read them", async () => {
  const cgi = await rawGuest((socket) => {
    socket.end("HTTP/1.1 200 OK\r\nDate: today\r\nContent-type: text/plain\nX-Script: 1\n\nhello from a script");
  });
  const machine = await machineWithPorts(client, { 80: cgi.port });
  const answer = await send("GET", `/v1/machines/${machine}/connect/80/`);
  assert.equal(answer.statusCode, 200);
  assert.deepEqual([answer.headers["content-type"], answer.headers["x-script"]], ["text/plain", "1"]);
  assert.equal(await text(answer), "hello from a script");
});

test("an answer without a length is whole only when the guest ended its connection", async () => {
  const sockets: Socket[] = [];
  const counting = await rawGuest((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    socket.write("HTTP/1.1 200 OK\r\n\r\nhalf");
  });
  const machine = await machineWithPorts(client, { 80: counting.port });
  for (const isWhole of [false, true]) {
    const answer = await send("GET", `/v1/machines/${machine}/connect/80/`);
    await once(answer, "readable");
    if (isWhole) sockets.at(-1)?.end(" and half");
    else sockets.at(-1)?.resetAndDestroy();
    const body = text(answer);
    if (isWhole) assert.equal(await body, "half and half");
    else await assert.rejects(body, /aborted/);
  }
});

test("interim answers are dropped, and an answer before the request is complete is passed on", async () => {
  const early = await rawGuest((socket) => {
    socket.write("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(20));
    socket.end("HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno");
  });
  const machine = await machineWithPorts(client, { 80: early.port });
  const { hostname, port } = new URL(server.url);
  const path = `/v1/machines/${machine}/connect/80/`;
  const headers = { authorization: `Bearer ${server.adminKey.key}` };
  const request = httpRequest({ hostname, port, method: "POST", path, headers, agent: false });
  const interim: unknown[] = [];
  // The answer ends the connection, whose caller still sends.
  request.on("error", () => undefined);
  request.on("information", ({ statusCode }) => interim.push(statusCode)).end(Buffer.alloc(5_000_000));
  const [answer] = (await once(request, "response")) as [IncomingMessage];
  assert.deepEqual([answer.statusCode, await text(answer), interim], [413, "no", []]);
});

const wsUrl = (path: string): string => server.url.replace(/^http/, "ws") + path;

test("a WebSocket and other upgrades go through, with the key in the query where there is no header", async () => {
  for (const [path, headers] of [
    [at("/socket"), { authorization: `Bearer ${client.key}` }],
    [at(`/socket?a=1&access_token=${client.key}`), {}],
  ] as const) {
    // The guest echoes frames as bytes: what comes back is masked, so the connection is looked at from below.
    const socket = createConnection(Number(new URL(server.url).port), "127.0.0.1");
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(
      `GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n` +
        `sec-websocket-protocol: chat\r\nsec-websocket-key: ${Buffer.alloc(16).toString("base64")}\r\n${lines.join("")}\r\nfirst`,
    );
    let received = "";
    socket.on("data", (chunk) => {
      received += String(chunk);
    });
    await until(() => received.endsWith("\r\n\r\nfirst"), {
      deadlineMs,
      what: "the echo of what came with the handshake",
    });
    assert.match(received, /^HTTP\/1\.1 101 Switching Protocols\r\n/);
    assert.match(received, /sec-websocket-protocol: chat\r\n/i);
    assert.match(received, /x-request-id: /);
    socket.write("second");
    await until(() => received.endsWith("firstsecond"), { deadlineMs, what: "the echo" });
    socket.end();
    await once(socket, "close");
  }
  const plain = new WebSocket(wsUrl(at("/socket")));
  const [refused] = (await once(plain, "unexpected-response").then(([, response]) => [response])) as [IncomingMessage];
  assert.equal(refused.statusCode, 401);
  const unpublished = new WebSocket(wsUrl(at("/socket", 9999)), { headers: { authorization: `Bearer ${client.key}` } });
  const [, response] = (await once(unpublished, "unexpected-response")) as [unknown, IncomingMessage];
  assert.equal(response.statusCode, 404);
  for (const socket of [plain, unpublished]) socket.on("error", () => {}).terminate();
  const told = async (query: string): Promise<string> => (await client.get(at(`/${query}`))).json.url;
  assert.equal(await told(`?a=%41&access_token=${client.key}&b`), "/?a=%41&b", "no guest gets a key");
  assert.equal(await told(`?access%5Ftoken=${client.key?.replace("_", "%5F")}`), "/");
  assert.equal(await told("?access_token=the-guests"), "/?access_token=the-guests");
});

test("a caller that leaves before its handshake is answered ends the guest's connection", async () => {
  const before = silent.sockets.length;
  const caller = createConnection(Number(new URL(server.url).port), "127.0.0.1");
  caller.write(
    `GET ${at("/", 81)} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nauthorization: Bearer ${client.key}\r\n\r\n`,
  );
  const socket = await until(() => silent.sockets[before], { deadlineMs, what: "the guest's connection" });
  caller.destroy();
  await until(() => socket.destroyed || socket.readableEnded, { deadlineMs, what: "the guest to see it" });
});

test("a machine has a bounded number of connect tokens, also when made concurrently; expired ones do not count", async () => {
  const { db } = server.context;
  const machine = (await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } })).json
    .id;
  const keyId = (await client.get("/v1/me")).json.subject as string;
  await db.execute(sql`
    INSERT INTO connect_tokens (token_hash, machine_id, key_id, expires_at)
    SELECT sha256(n::text::bytea), ${machine}, ${keyId}, now() + interval '1 hour' FROM generate_series(1, 990) n`);
  const make = () => client.post(`/v1/machines/${machine}/connect-token`);
  const made = await Promise.all(Array.from({ length: 20 }, make));
  assert.equal(made.filter(({ status }) => status === 201).length, 10);
  const refused = made.find(({ status }) => status !== 201);
  assert.equal(refused?.status, 422);
  assert.match(refused.text, /has 1000 connect tokens, the maximum; use one again until it expires/);
  await db.execute(sql`UPDATE connect_tokens SET expires_at = now() - interval '1 s' WHERE machine_id = ${machine}`);
  assert.equal((await make()).status, 201);
  const left = await db.query(sql`SELECT FROM connect_tokens WHERE machine_id = ${machine}`);
  assert.equal(left.length, 1);
});

test("a guest's refusal of the handshake is passed on, and an open connection ends with the machine", async () => {
  const refusing = await rawGuest((socket) => socket.end("HTTP/1.1 403 No\r\ncontent-length: 3\r\n\r\nno\n"));
  const echo = await httpGuest((_, response) => response.end());
  const machine = await machineWithPorts(client, { 80: refusing.port, 81: echo.port });
  const headers = { authorization: `Bearer ${client.key}` };
  const refused = new WebSocket(wsUrl(`/v1/machines/${machine}/connect/80/`), { headers });
  const [, response] = (await once(refused, "unexpected-response")) as [unknown, IncomingMessage];
  assert.deepEqual([response.statusCode, await text(response)], [403, "no\n"]);
  const socket = createConnection(Number(new URL(server.url).port), "127.0.0.1");
  socket.write(
    `GET /v1/machines/${machine}/connect/81/ HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: mine/1\r\nauthorization: Bearer ${client.key}\r\n\r\n`,
  );
  assert.match(String((await once(socket, "data"))[0]), /101 [^]*upgrade: mine\/1/i);
  socket.resume();
  await client.post(`/v1/machines/${machine}/stop`);
  await until(() => socket.readableEnded || socket.destroyed, { deadlineMs, what: "the connection to end" });
  socket.destroy();
});

test("a connect token opens the bridge of its machine, for its time, and nothing else; the guest never sees it", async () => {
  const made = await client.post(`/v1/machines/${id}/connect-token`, { ttlSeconds: 60 });
  assert.equal(made.status, 201, made.text);
  assert.equal(made.json.machineId, id);
  assert.ok(Math.abs(Date.parse(made.json.expiresAt) - Date.now() - 60_000) < 30_000);
  const holder = client.withKey(made.json.token);
  const answer = await holder.get(at("/"));
  assert.equal(answer.status, 200);
  assert.equal(answer.json.headers.authorization, undefined);
  const other = await machineWithPorts(client, { 80: guest.port });
  assert.equal((await holder.get(`/v1/machines/${other}/connect/80/`)).status, 401);
  for (const path of [`/v1/machines/${id}`, "/v1/machines"]) assert.equal((await holder.get(path)).status, 401);
  assert.equal((await holder.post(`/v1/machines/${id}/exec`, { command: ["true"] })).status, 401);
  assert.equal((await holder.post(`/v1/machines/${id}/connect-token`)).status, 401);
  for (const ttlSeconds of [59, 86_401])
    assert.equal((await client.post(`/v1/machines/${id}/connect-token`, { ttlSeconds })).status, 422);
  assert.equal((await client.post(`/v1/machines/mach-${"0".repeat(32)}/connect-token`)).status, 404);

  const key = (await client.post("/v1/apikeys", { scopes: ["machine:exec"] })).json;
  const short = await client.withKey(key.key).post(`/v1/machines/${id}/connect-token`);
  assert.equal((await client.withKey(short.json.token).get(at("/"))).status, 200);
  await client.delete(`/v1/apikeys/${key.id}`);
  assert.equal((await client.withKey(short.json.token).get(at("/"))).status, 401, "it ended with its key");
  const brief = (await client.post("/v1/apikeys", { scopes: ["machine:exec"], expiresInSeconds: 600 })).json;
  const bound = await client.withKey(brief.key).post(`/v1/machines/${id}/connect-token`);
  assert.ok(Date.parse(bound.json.expiresAt) < Date.now() + 630_000, "it does not outlive its key");
  await server.context.db.execute(sql`
    UPDATE connect_tokens SET expires_at = now()
    WHERE token_hash = sha256(convert_to(${made.json.token as string}, 'UTF8'))`);
  assert.equal((await holder.get(at("/"))).status, 401, "its time is over");
});

test("an open connection keeps its machine from being stopped as idle", async () => {
  const { port } = await rawGuest(() => {});
  const idle = await machineWithPorts(client, { 80: port }, { autoStopSeconds: 1 });
  const { hostname, port: serverPort } = new URL(server.url);
  const path = `/v1/machines/${idle}/connect/80/`;
  const waiting = httpRequest({ hostname, port: serverPort, path, headers: { authorization: `Bearer ${client.key}` } });
  waiting.on("error", () => {});
  waiting.end();
  const activityAt = async (): Promise<string | undefined> =>
    (await client.get(`/v1/machines/${idle}`)).json.lastActivityAt ?? undefined;
  const first = await until(activityAt, { deadlineMs, what: "activity" });
  await until(async () => (await activityAt()) !== first, { deadlineMs, what: "activity while it is open" });
  assert.equal((await client.get(`/v1/machines/${idle}`)).json.state, "started");
  waiting.destroy();
});

test("a request to a guest that never answers times out, and a server that stops ends open connections", async () => {
  const { databaseUrl, dataDirectory } = server;
  // Lets five minutes pass immediately.
  const timer: typeof systemClock.timer = (ms, callback) => systemClock.timer(ms === 300_000 ? 100 : ms, callback);
  const other = await startTestServer({ databaseUrl, dataDirectory, clock: { ...systemClock, timer } });
  const never = await fetch(`${other.url}${at("/", 81)}`, {
    method: "POST",
    body: "anyone there?",
    headers: { authorization: `Bearer ${client.key}` },
  });
  assert.equal(never.status, 502);
  assert.match(await never.text(), /gave no answer: none came in 300 s$/);
  const socket = createConnection(Number(new URL(other.url).port), "127.0.0.1");
  socket.write(
    `GET ${at("/socket")} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nauthorization: Bearer ${client.key}\r\n\r\n`,
  );
  assert.match(String((await once(socket, "data")).at(0)), /^HTTP\/1.1 101 /);
  socket.resume();
  // Also before the database that it shares.
  await other.stop();
  await until(() => socket.readableEnded || socket.destroyed, { deadlineMs, what: "the connection to end" });
});
