/**
 * The client against a test server: what it sends, what it returns, what it retries, and the error of every
 * kind of failure.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { Flotilla, FlotillaError } from "../src/client.ts";
import { reply, replyJson, startPeer } from "./peer.ts";

const refusalOf = async (call: Promise<unknown>): Promise<FlotillaError> => {
  const error = await call.then(
    () => assert.fail("the call was expected to fail"),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof FlotillaError, String(error));
  return error;
};

test("a call sends the key, the body as JSON and the idempotency key, and returns the parsed answer", async (t) => {
  const peer = await startPeer(t, replyJson({ id: "mach-1" }, 201));
  const flotilla = new Flotilla({ url: `${peer.url}/`, apiKey: "smk_x" });
  const machine = await flotilla.createMachine(
    { source: { type: "image", reference: "alpine" } },
    { idempotencyKey: "once" },
  );
  assert.equal(machine.id, "mach-1");
  const [call] = peer.arrived;
  assert.equal(`${call?.method} ${call?.url}`, "POST /v1/machines");
  assert.equal(call?.headers.authorization, "Bearer smk_x");
  assert.equal(call?.headers["idempotency-key"], "once");
  assert.equal(call?.headers["content-type"], "application/json");
  assert.deepEqual(JSON.parse(String(call?.body)), { source: { type: "image", reference: "alpine" } });
});

test("query parameters are escaped, repeated for lists and left out when undefined", async (t) => {
  const peer = await startPeer(t, replyJson([]));
  const flotilla = new Flotilla({ url: peer.url });
  await flotilla.listMachines({ query: { label: ["a=b c", "d=&"], limit: undefined } });
  assert.equal(peer.arrived[0]?.url, "/v1/machines?label=a%3Db+c&label=d%3D%26");
});

test("a path parameter cannot lead to another endpoint", async (t) => {
  const peer = await startPeer(t, replyJson({}));
  const flotilla = new Flotilla({ url: peer.url });
  await flotilla.getMachine("a/b?c");
  assert.equal(peer.arrived[0]?.url, "/v1/machines/a%2Fb%3Fc");
  for (const id of ["", ".", ".."]) assert.throws(() => flotilla.getMachine(id), /is not an identifier/);
  assert.throws(() => flotilla.readFileAt("mach-1", "/tmp/../../x"), TypeError);
  assert.equal(peer.arrived.length, 1);
});

test("the rest of a path keeps its slashes and escapes each part", async (t) => {
  const peer = await startPeer(t, reply(200, "bytes"));
  const flotilla = new Flotilla({ url: peer.url });
  const answer = await flotilla.readFileAt("mach-1", "/tmp/a b%.txt");
  assert.equal(await answer.text(), "bytes");
  assert.equal(peer.arrived[0]?.url, "/v1/machines/mach-1/files/tmp/a%20b%25.txt");
});

test("bytes are sent unchanged, from memory and from a stream", async (t) => {
  const peer = await startPeer(t, reply(204));
  const flotilla = new Flotilla({ url: peer.url });
  const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => index % 256);
  await flotilla.putFileAt("mach-1", "x", bytes);
  await flotilla.putFileAt("mach-1", "x", new Blob([bytes]).stream());
  for (const call of peer.arrived) {
    assert.deepEqual(new Uint8Array(call.body), bytes);
    assert.equal(call.headers["content-type"], "application/octet-stream");
  }
  assert.equal(peer.arrived.length, 2);
});

test("an answer without a body is undefined, with or without includeUsage's body", async (t) => {
  const peer = await startPeer(t, reply(204), replyJson({ machineId: "mach-1" }));
  const flotilla = new Flotilla({ url: peer.url });
  assert.equal(await flotilla.deleteMachine("mach-1"), undefined);
  assert.equal((await flotilla.deleteMachine("mach-1", { query: { includeUsage: true } }))?.machineId, "mach-1");
});

test("a refusal has status, code, text and request id, in each of the forms that servers use", async (t) => {
  const headers = { "x-error-code": "name_taken", "x-request-id": "req-7" };
  const peer = await startPeer(
    t,
    reply(409, "create machine: the name web is taken", headers),
    reply(409, JSON.stringify({ title: "Conflict", detail: "the name web is taken" }), headers),
    reply(401, JSON.stringify({ code: "unknown_key", error: "unknown API key" })),
    reply(401),
    reply(500, "<html>"),
  );
  const flotilla = new Flotilla({ url: peer.url });
  const facts = [];
  for (let count = 0; count < 5; count++) {
    const { status, code, text, requestId, call } = await refusalOf(flotilla.stopMachine("mach-1"));
    facts.push([status, code, text, requestId, call]);
  }
  const call = "POST /v1/machines/mach-1/stop";
  assert.deepEqual(facts, [
    [409, "name_taken", "create machine: the name web is taken", "req-7", call],
    [409, "name_taken", "the name web is taken", "req-7", call],
    [401, "unknown_key", "unknown API key", null, call],
    [401, "missing_key", "the call needs an API key", null, call],
    [500, "http_500", "<html>", null, call],
  ]);
});

test("a GET is retried while the server says not now", async (t) => {
  const peer = await startPeer(t, reply(503), reply(429, "", { "retry-after": "0" }), replyJson([{ id: "mach-1" }]));
  const flotilla = new Flotilla({ url: peer.url });
  assert.equal((await flotilla.listMachines()).length, 1);
  assert.equal(peer.arrived.length, 3);
});

test("before a retry, a GET waits as long as the server asks, else a moment", async (t) => {
  for (const headers of [{}, { "retry-after": "5" }, { "retry-after": new Date(Date.UTC(2100, 0)).toUTCString() }]) {
    const date = new Date(Date.UTC(2100, 0) - 5000).toUTCString();
    const peer = await startPeer(t, reply(503, "", { ...headers, date }), replyJson([]));
    const error = await refusalOf(new Flotilla({ url: peer.url }).listMachines({ timeoutMs: 100 }));
    assert.deepEqual([error.code, peer.arrived.length], ["timeout", 1], JSON.stringify(headers));
  }
});

test("a GET fails after its retries, at once when the server asks for a long pause, and a 500 is not retried", async (t) => {
  const gone = await startPeer(t, reply(502));
  assert.equal((await refusalOf(new Flotilla({ url: gone.url, retries: 1 }).listMachines())).status, 502);
  assert.equal(gone.arrived.length, 2);
  const busy = await startPeer(t, reply(429, "", { "retry-after": "3600" }));
  assert.equal((await refusalOf(new Flotilla({ url: busy.url }).listMachines())).status, 429);
  assert.equal(busy.arrived.length, 1);
  const broken = await startPeer(t, reply(500));
  assert.equal((await refusalOf(new Flotilla({ url: broken.url }).listMachines())).status, 500);
  assert.equal(broken.arrived.length, 1);
});

test("a GET that was refused only after long is not retried", async (t) => {
  const peer = await startPeer(t, reply(502, "the machine's agent made no progress for 120 s"));
  let clockMs = Date.now();
  t.mock.method(Date, "now", () => clockMs);
  const slow = async (url: string, init: RequestInit): Promise<Response> => {
    const answer = await fetch(url, init);
    clockMs += 120_000;
    return answer;
  };
  const refused = await refusalOf(new Flotilla({ url: peer.url, fetch: slow }).readFileAt("mach-1", "x"));
  assert.deepEqual([refused.status, peer.arrived.length], [502, 1]);
});

test("without an idempotency key only GET is retried", async (t) => {
  const peer = await startPeer(t, reply(503, "", { "retry-after": "0" }));
  const flotilla = new Flotilla({ url: peer.url });
  await refusalOf(flotilla.startMachine("mach-1"));
  await refusalOf(flotilla.deleteMachine("mach-1"));
  assert.equal(peer.arrived.length, 2);
});

test("a POST with an idempotency key is sent again until it is answered, with the same key", async (t) => {
  const peer = await startPeer(
    t,
    (_arrived, answer) => answer.destroy(),
    reply(409, "the first still runs", { "x-error-code": "idempotency_in_progress", "retry-after": "0" }),
    reply(503, "", { "retry-after": "0" }),
    replyJson({ id: "mach-1" }, 201),
  );
  const flotilla = new Flotilla({ url: peer.url });
  const body = { source: { type: "image", reference: "alpine" } } as const;
  assert.equal((await flotilla.createMachine(body, { idempotencyKey: "once" })).id, "mach-1");
  assert.deepEqual(
    peer.arrived.map((call) => [call.headers["idempotency-key"], JSON.parse(String(call.body))]),
    Array.from({ length: 4 }, () => ["once", body]),
  );
});

test("a refusal that no pause changes, and a stream, are not sent again with their key", async (t) => {
  const peer = await startPeer(t, reply(409, "", { "x-error-code": "name_taken" }), reply(503));
  const flotilla = new Flotilla({ url: peer.url });
  const body = { source: { type: "image", reference: "alpine" } } as const;
  assert.equal((await refusalOf(flotilla.createMachine(body, { idempotencyKey: "a" }))).code, "name_taken");
  assert.equal((await refusalOf(flotilla.execStream("m", { command: "x" }, { idempotencyKey: "b" }))).status, 503);
  assert.equal(peer.arrived.length, 2);
});

test("a refusal has advice for its code, and none for a code of a later release", async (t) => {
  const peer = await startPeer(t, reply(404, "", { "x-error-code": "not_found" }), reply(418));
  const flotilla = new Flotilla({ url: peer.url });
  assert.match((await refusalOf(flotilla.getMachine("m"))).advice ?? "", /lists show/);
  assert.equal((await refusalOf(flotilla.getMachine("m"))).advice, null);
});

test("a call without an answer says whether nothing listens, the timeout passed or the caller cancelled", async (t) => {
  const silent = await startPeer(t, () => {});
  const flotilla = new Flotilla({ url: silent.url });
  const late = await refusalOf(flotilla.listMachines({ timeoutMs: 50 }));
  assert.deepEqual([late.status, late.code], [0, "timeout"]);
  const controller = new AbortController();
  const given = refusalOf(flotilla.listMachines({ signal: controller.signal }));
  controller.abort();
  assert.equal((await given).code, "aborted");
  const closed = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => closed.once("listening", resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  const unused = await refusalOf(new Flotilla({ url: `http://127.0.0.1:${port}` }).listMachines());
  assert.equal(unused.code, "unreachable");
  assert.match(unused.text, /ECONNREFUSED/);
});

test("a refusal whose text does not end is cut off, and one that stops arriving can be cancelled", {
  timeout: 20_000,
}, async (t) => {
  const endless = await startPeer(t, (_arrived, answer) => {
    answer.writeHead(500);
    const more = (): unknown => !answer.destroyed && answer.write("x".repeat(1024), more);
    more();
  });
  const cut = await refusalOf(new Flotilla({ url: endless.url }).listMachines());
  assert.deepEqual([cut.status, cut.text.length], [500, 10_000]);
  const stuck = await startPeer(t, (_arrived, answer) => void answer.writeHead(500).write("x"));
  const late = await refusalOf(new Flotilla({ url: stuck.url }).listMachines({ timeoutMs: 50 }));
  assert.equal(late.code, "timeout");
  const signal = AbortSignal.timeout(50);
  assert.equal((await refusalOf(new Flotilla({ url: stuck.url }).listMachines({ signal }))).code, "aborted");
});

test("an error says why, also when its cause has no text", async (t) => {
  const peer = await startPeer(t, reply(307, "", { location: "/elsewhere" }));
  const body = new ReadableStream<Uint8Array>({ start: (controller) => controller.close() });
  const error = await refusalOf(new Flotilla({ url: peer.url }).putFileAt("mach-1", "x", body));
  assert.equal(error.text, `${peer.url} gave no usable answer to PUT /v1/machines/mach-1/files/x: fetch failed`);
});

test("a timeout that is longer than a timer can be does not end the call", async (t) => {
  const peer = await startPeer(t, replyJson([]));
  for (const timeoutMs of [Infinity, 2 ** 31, Number.MAX_SAFE_INTEGER])
    assert.deepEqual(await new Flotilla({ url: peer.url, timeoutMs }).listMachines(), []);
});

test("the timeout of a streamed answer ends when the answer begins", async (t) => {
  let end = () => {};
  const peer = await startPeer(
    t,
    (_arrived, answer) => {
      answer.writeHead(200, { "content-type": "text/event-stream" }).write("data: one\n\n");
      end = () => answer.end("data: two\n\n");
    },
    () => {},
  );
  const flotilla = new Flotilla({ url: peer.url });
  const answer = await flotilla.listMachineLogs("mach-1", { timeoutMs: 100 });
  // An unanswered call lasts longer than the first call's timeout.
  assert.equal((await refusalOf(flotilla.listMachines({ timeoutMs: 200 }))).code, "timeout");
  end();
  assert.equal(await answer.text(), "data: one\n\ndata: two\n\n");
});

test("an answer that should be JSON and is not is an error that names the server", async (t) => {
  const peer = await startPeer(t, reply(200, "<html>a proxy's page</html>"));
  const error = await refusalOf(new Flotilla({ url: peer.url }).listMachines());
  assert.equal(error.code, "unreachable");
  assert.match(error.text, /gave no usable answer/);
});

test("an invalid address is refused before any call", () => {
  for (const url of ["", "127.0.0.1:8080", "ftp://x", "http://"]) {
    assert.throws(() => new Flotilla({ url }), /is not an http/, url);
  }
});

test("a key that cannot be sent is refused before any call, and is not in the error", () => {
  for (const apiKey of ["smk_a\nb", "smk_\u20ac"])
    assert.throws(() => new Flotilla({ url: "http://127.0.0.1:1", apiKey }), {
      name: "TypeError",
      message: "the API key has a character that no header can carry, such as a line break",
    });
});

/** A server that accepts the first sockets, as many as given, and leaves the others unanswered. */
async function startSockets(t: TestContext, acceptedMax: number) {
  const server = createServer();
  const asked: (readonly [url: string | undefined, authorization: string | undefined])[] = [];
  server.on("upgrade", ({ url, headers }, socket) => {
    t.after(() => socket.destroy());
    socket.on("error", () => undefined);
    asked.push([url, headers.authorization]);
    if (asked.length > acceptedMax) return;
    const accept = createHash("sha1")
      .update(`${headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest("base64");
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`,
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

const happens = (socket: WebSocket, event: "open" | "close"): Promise<void> =>
  new Promise((resolve) => socket.addEventListener(event, () => resolve()));

test("the terminal's socket carries the key in a header, not in the address", async (t) => {
  const { url, asked } = await startSockets(t, 1);
  const socket = new Flotilla({ url, apiKey: "smk_x" }).openTerminal("mach-1", { query: { cols: 80 } });
  t.after(() => socket.close());
  await happens(socket, "open");
  assert.deepEqual(asked, [["/v1/machines/mach-1/exec/interactive?cols=80", "Bearer smk_x"]]);
});

test("in a page and in a worker of a browser, the key is in the address: their sockets have no headers", async (t) => {
  const { url, asked } = await startSockets(t, 2);
  for (const name of ["document", "importScripts"]) {
    Object.assign(globalThis, { [name]: () => undefined });
    t.after(() => Reflect.deleteProperty(globalThis, name));
    const socket = new Flotilla({ url, apiKey: "smk_x" }).openTerminal("mach-1");
    Reflect.deleteProperty(globalThis, name);
    t.after(() => socket.close());
    await happens(socket, "open");
  }
  const path = "/v1/machines/mach-1/exec/interactive?access_token=smk_x";
  assert.deepEqual(asked, [
    [path, undefined],
    [path, undefined],
  ]);
});

test("no socket is opened to a path that leads out of the machine, and no token is made for it", async (t) => {
  const peer = await startPeer(t, reply(404));
  const flotilla = new Flotilla({ url: peer.url, apiKey: "smk_x" });
  for (const path of ["/../../../mach-2/exec/interactive", "../81/", "/%2e%2e/81/"])
    await assert.rejects(flotilla.openSocketTo("mach-1", 80, path), TypeError);
  assert.equal(peer.arrived.length, 0);
});

test("a socket is closed when its signal is aborted, and when it is not open in time", {
  timeout: 20_000,
}, async (t) => {
  const { url } = await startSockets(t, 1);
  const flotilla = new Flotilla({ url });
  const controller = new AbortController();
  const open = flotilla.openTerminal("mach-1", { signal: controller.signal, timeoutMs: 10_000 });
  await happens(open, "open");
  controller.abort();
  assert.equal(open.readyState, WebSocket.CLOSING);
  assert.throws(() => flotilla.openTerminal("mach-1", { signal: AbortSignal.abort() }), { code: "aborted", status: 0 });
  await happens(flotilla.openTerminal("mach-1", { timeoutMs: 20 }), "close");
  await happens(new Flotilla({ url, timeoutMs: 20 }).openTerminal("mach-1"), "close");
});

const connectToken = (token: string, forMs: number) =>
  replyJson({ token, expiresAt: new Date(Date.now() + forMs).toISOString(), machineId: "mach-1" }, 201);

test("a machine's answer is returned whatever its status, and requested with a token, never with the key", async (t) => {
  const answers = reply(418, "short and stout");
  const gone = reply(401, "", { "x-error-code": "unknown_key" });
  const peer = await startPeer(
    ...([t, connectToken("smc_1", 50_000), answers, connectToken("smc_2", 600_000), answers, answers] as const),
    ...[gone, connectToken("smc_3", 600_000), answers],
  );
  const flotilla = new Flotilla({ url: peer.url, apiKey: "smk_x" });
  assert.equal(flotilla.endpoint("mach-1", 80), `${peer.url}/v1/machines/mach-1/connect/80`);
  const answer = await flotilla.fetchFrom("mach-1", 80, "a//b?c=1", { method: "PUT", body: "x" });
  assert.deepEqual([answer.status, await answer.text()], [418, "short and stout"]);
  for (const headers of [{}, { authorization: "Bearer smc_y" }, {}, {}])
    await flotilla.fetchFrom("mach-1", 80, "/", { headers });
  const [made, first, ...later] = peer.arrived.map(({ method, url, headers }) => [method, url, headers.authorization]);
  const token = ["POST", "/v1/machines/mach-1/connect-token", "Bearer smk_x"];
  const at = "/v1/machines/mach-1/connect/80/";
  assert.deepEqual([made, first], [token, ["PUT", `${at}a//b?c=1`, "Bearer smc_1"]]);
  assert.deepEqual(later, [
    ...[token, ["GET", at, "Bearer smc_2"], ["GET", at, "Bearer smc_y"], ["GET", at, "Bearer smc_2"]],
    ...[token, ["GET", at, "Bearer smc_3"]],
  ]);
  assert.throws(() => flotilla.fetchFrom("mach-1", 80, "/../../../mach-2/exec"), TypeError);
  assert.equal(peer.arrived.length, 8);
});

test("a machine's port is reached through an address that is not in its normal form", async () => {
  const asked: string[] = [];
  const fetch = (url: string): Promise<Response> => {
    asked.push(new URL(url).href);
    return Promise.resolve(new Response("hi"));
  };
  const flotilla = new Flotilla({ url: "https://Fleet.Example:443/base", fetch });
  assert.equal(await (await flotilla.fetchFrom("mach-1", 80, "/x")).text(), "hi");
  assert.deepEqual(asked, ["https://fleet.example/base/v1/machines/mach-1/connect/80/x"]);
  assert.throws(() => flotilla.fetchFrom("mach-1", 80, "/../81/"), TypeError);
});
