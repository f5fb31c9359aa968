/**
 * Connections to guests that carry more than one request: when they are used again, when they are not, and
 * what is sent twice.
 */
import assert from "node:assert/strict";
import { request as httpRequest, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { httpGuest, machineWithPorts, rawGuest } from "./support/guest.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { onThisHost, until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const { client } = server;
const deadlineMs = 20_000;

interface Seen {
  readonly status: number;
  readonly text: string;
}

/** A request by the machine's address. Rejects when the answer breaks off. */
function visit(id: string, { method = "GET", path = "/", body = "" } = {}): Promise<Seen> {
  const { hostname, port } = new URL(server.url);
  return new Promise((resolve, reject) => {
    const headers = { "content-length": String(body.length) };
    const options = { hostname, port, method, path: `/proxy/${id}${path}`, headers, agent: false } as const;
    const request = httpRequest(options, (answer: IncomingMessage) => {
      text(answer).then((all) => resolve({ status: answer.statusCode ?? 0, text: all }), reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}

/**
 * A guest that reads heads of requests and answers each with what `answer` gives; null: it says nothing
 * itself.
 */
async function scripted(answer: (head: string, socket: Socket, count: number) => string | null) {
  const heads: string[] = [];
  const guest = await rawGuest((socket) => {
    let received = "";
    let count = 0;
    socket.on("data", (chunk) => {
      received += chunk.toString("latin1");
      for (let end = received.indexOf("\r\n\r\n"); end !== -1; end = received.indexOf("\r\n\r\n")) {
        const head = received.slice(0, end);
        received = received.slice(end + 4);
        heads.push(head);
        count += 1;
        const bytes = answer(head, socket, count);
        if (bytes !== null) socket.write(bytes, "latin1");
      }
    });
  });
  const id = await machineWithPorts(client, { 80: guest.port }, { public: true });
  // What looked whether the port answers has closed its connection.
  const before = guest.sockets.length;
  return { id, heads, connections: () => guest.sockets.slice(before) };
}

const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const methodsOf = (heads: readonly string[]): readonly string[] => heads.map((head) => head.split(" ", 1)[0] ?? "");

test("requests one after the other use one connection to the guest, by address and by the bridge", async () => {
  const guest = await scripted(() => OK);
  for (let round = 0; round < 4; round += 1) assert.deepEqual(await visit(guest.id), { status: 200, text: "ok" });
  assert.equal((await client.get(`/v1/machines/${guest.id}/connect/80/`)).text, "ok");
  assert.equal((await visit(guest.id, { method: "OPTIONS" })).status, 200);
  assert.equal(guest.connections().length, 1);
  assert.match(guest.heads[0] ?? "", /^connection: keep-alive$/m);
});

test("a connection is not used again after an answer that did not end exactly", async () => {
  const answers: Readonly<Record<string, string>> = {
    "bytes after the end": `${OK}HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nstolen`,
    "a line end after the end": `${OK}\r\n`,
    "a close": "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    "HTTP/1.0": "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
    "a trailer": "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-more: 1\r\n\r\n",
    "lines without a carriage return": "HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
    "a body with 204": "HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\nok",
    "a body after 304": "HTTP/1.1 304 No\r\n\r\nok",
    "a short keep-alive": "HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok",
  };
  for (const [what, answer] of Object.entries(answers)) {
    const guest = await scripted(() => answer);
    for (let round = 0; round < 2; round += 1) {
      const { status, text: body } = await visit(guest.id);
      assert.equal(body, status === 200 ? "ok" : "", what);
    }
    const connections = guest.connections();
    assert.equal(connections.length, 2, what);
    await until(() => connections.every((socket) => socket.destroyed || socket.readableEnded), { deadlineMs, what });
  }
});

test("a connection is used again after chunks, an empty answer and answers before the final one", async () => {
  const answers = [
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\n\r\n",
    `HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n${OK}`,
  ];
  const guest = await scripted((_head, _socket, count) => answers[count - 1] ?? OK);
  const statuses: number[] = [];
  for (let round = 0; round < 6; round += 1) statuses.push((await visit(guest.id)).status);
  assert.deepEqual(statuses, [200, 204, 304, 200, 200, 200]);
  assert.equal(guest.connections().length, 1);
});

test("unrequested bytes close a waiting connection, and no request gets them", async () => {
  const guest = await scripted(() => OK);
  await visit(guest.id);
  const [first] = guest.connections();
  first?.write("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nstolen");
  await until(() => first?.destroyed === true || first?.readableEnded === true, { deadlineMs, what: "its end" });
  assert.equal((await visit(guest.id)).text, "ok");
  assert.equal(guest.connections().length, 2);
});

test("a GET is sent again when the guest closes a waiting connection at the moment of its use", async () => {
  const guest = await scripted((_head, socket, count) => {
    if (count === 1) return OK;
    socket.resetAndDestroy();
    return null;
  });
  assert.equal((await visit(guest.id)).text, "ok");
  assert.equal((await visit(guest.id)).text, "ok", "on another connection");
  assert.equal(guest.connections().length, 2);
  assert.equal(guest.heads.length, 3);
});

test("a GET is sent again once only, and not after a byte of its answer", async () => {
  let breaksAlways = false;
  const guest = await scripted((_head, socket, count) => {
    if (count === 1 && !breaksAlways) return OK;
    socket.end();
    return null;
  });
  assert.equal((await visit(guest.id)).status, 200);
  breaksAlways = true;
  assert.equal((await visit(guest.id)).status, 502);
  assert.equal(guest.heads.length, 3, "on the connection that waited, and on a new one");

  const begun = await scripted((_head, socket, count) => {
    if (count === 1) return OK;
    socket.end("HTTP/1.1 2");
    return null;
  });
  assert.equal((await visit(begun.id)).status, 200);
  assert.equal((await visit(begun.id)).status, 502);
  assert.equal(begun.heads.length, 2);
});

test("a POST is sent once, on a separate connection, whatever waits and however it breaks", async () => {
  const guest = await scripted((head, socket) => {
    if (head.startsWith("GET")) return OK;
    socket.resetAndDestroy();
    return null;
  });
  for (const [method, body] of [
    ["POST", "body"],
    ["POST", ""],
    ["PUT", ""],
    ["PATCH", "body"],
    ["DELETE", ""],
  ] as const) {
    guest.heads.length = 0;
    const before = guest.connections().length;
    assert.equal((await visit(guest.id)).status, 200);
    assert.equal((await visit(guest.id, { method, body })).status, 502, method);
    assert.deepEqual(methodsOf(guest.heads), ["GET", method]);
    assert.equal(guest.connections().length, before + (before === 0 ? 2 : 1), `${method} used a waiting connection`);
  }
});

test("a HEAD and a GET with a body use separate connections", async () => {
  const guest = await scripted((head) => (head.startsWith("HEAD") ? OK.slice(0, -2) : OK));
  assert.equal((await visit(guest.id)).status, 200);
  assert.deepEqual(await visit(guest.id, { method: "HEAD" }), { status: 200, text: "" });
  assert.equal((await visit(guest.id, { body: "x" })).status, 200);
  assert.equal(guest.connections().length, 3);
});

test("an upgrade uses a separate connection, which is never used again", async () => {
  const guest = await httpGuest((_, response) => response.end("ok"));
  let connections = 0;
  guest.server.on("connection", () => (connections += 1));
  const id = await machineWithPorts(client, { 80: guest.port }, { public: true });
  connections = 0;
  assert.equal((await visit(id)).text, "ok");
  const { hostname, port } = new URL(server.url);
  const headers = { connection: "upgrade", upgrade: "mine" };
  const upgrading = httpRequest({ hostname, port, path: `/proxy/${id}/`, headers, agent: false });
  const socket = await new Promise<Socket>((resolve, reject) => {
    upgrading.on("upgrade", (_answer, upgraded: Socket) => resolve(upgraded));
    upgrading.on("error", reject);
    upgrading.end();
  });
  assert.equal((await visit(id)).text, "ok");
  assert.equal(connections, 2);
  socket.destroy();
  assert.equal((await visit(id)).text, "ok");
  assert.equal(connections, 2);
});

test("callers at the same time get their own answers", async () => {
  const guest = await httpGuest((request, response) => response.end(request.url));
  let connections = 0;
  guest.server.on("connection", () => (connections += 1));
  const id = await machineWithPorts(client, { 80: guest.port }, { public: true });
  connections = 0;
  const caller = async (name: number): Promise<void> => {
    for (let round = 0; round < 30; round += 1)
      assert.equal((await visit(id, { path: `/${name}/${round}` })).text, `/${name}/${round}`);
  };
  await Promise.all(Array.from({ length: 8 }, (_, name) => caller(name)));
  assert.ok(connections <= 16, `${connections} connections for 240 requests`);
});

test("a caller who leaves in the middle of an answer closes the guest's connection", async () => {
  const guest = await scripted((_head, _socket, count) =>
    count === 1 ? OK : "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
  );
  await visit(guest.id);
  const { hostname, port } = new URL(server.url);
  const leaving = httpRequest({ hostname, port, path: `/proxy/${guest.id}/`, agent: false });
  leaving.on("error", () => undefined);
  leaving.on("response", (answer) => answer.once("data", () => leaving.destroy()));
  leaving.end();
  const [first] = guest.connections();
  await until(() => first?.destroyed === true || first?.readableEnded === true, { deadlineMs, what: "its end" });
  assert.equal((await visit(guest.id)).text, "ok");
});

test("a waiting connection is closed within seconds, is not activity, and ends with its boot", async () => {
  const guest = await scripted(() => OK);
  await visit(guest.id);
  const [first] = guest.connections();
  const visitedAt = Date.now();
  const isOver = () => first?.destroyed === true || first?.readableEnded === true;
  await until(isOver, { deadlineMs, what: "its end" });
  const waitedMs = Date.now() - visitedAt;
  assert.ok(waitedMs > 2_000, `it was closed after ${waitedMs} ms`);
  const activityAt = async (): Promise<string | undefined> =>
    (await client.get(`/v1/machines/${guest.id}`)).json.lastActivityAt ?? undefined;
  const usedAt = Date.parse(await until(activityAt, { deadlineMs, what: "activity" }));
  assert.ok(usedAt - visitedAt < 1_000, "its wait was not activity");

  await visit(guest.id);
  const second = guest.connections().at(-1);
  await client.post(`/v1/machines/${guest.id}/stop`);
  await until(() => second?.destroyed === true || second?.readableEnded === true, {
    deadlineMs: 3_000,
    what: "its end",
  });
  await client.post(`/v1/machines/${guest.id}/start`);
  await until(async () => (await visit(guest.id)).status === 200, { deadlineMs });
});

test("a guest that serves one connection at a time answers a second caller soon after the first", async () => {
  // A connection is read only when every one before it is closed.
  const queue: Socket[] = [];
  const serveFirst = (): void => {
    const [first] = queue;
    if (first === undefined || first.listenerCount("data") > 0) return;
    first.on("data", () => void setImmediate(() => first.write(OK)));
    first.on("end", () => first.end());
    first.resume();
  };
  const guest = await rawGuest((socket) => {
    socket.once("close", () => {
      queue.splice(queue.indexOf(socket), 1);
      serveFirst();
    });
    setImmediate(() => {
      socket.pause();
      queue.push(socket);
      serveFirst();
    });
  });
  const id = await machineWithPorts(client, { 80: guest.port }, { public: true });
  const startedAt = performance.now();
  const seen = await Promise.all([visit(id), visit(id), visit(id, { method: "POST" }), visit(id)]);
  for (const { status } of seen) assert.equal(status, 200);
  const tookMs = performance.now() - startedAt;
  assert.ok(
    tookMs < onThisHost(3_000),
    `${tookMs} ms: a waiting connection kept the guest busy until it was closed as idle`,
  );
});

test("after the guest's port has moved to another process no answer is lost", async () => {
  const guest = await httpGuest((_, response) => response.end("ok"));
  const id = await machineWithPorts(client, { 80: guest.port }, { public: true });
  for (let round = 0; round < 20; round += 1) {
    assert.equal((await visit(id)).status, 200);
    if (round % 3 === 0) guest.server.closeAllConnections();
  }
});
