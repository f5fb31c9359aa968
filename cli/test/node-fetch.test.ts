/**
 * Streams through Node's own HTTP modules, and the same through `fetch`: both must behave alike.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { EXEC_FRAME_HEAD_BYTES, EXEC_FRAMES, EXEC_FRAMES_TYPE as TYPE } from "@flotilla/contract/exec-frames";
import { type ExecEvent, Flotilla, FlotillaError } from "@flotilla/sdk";
import { makeAuthority } from "../../server/src/link/certificates.ts";
import { until } from "../../test/support/until.ts";
import { reply, replyJson, startPeer } from "../../sdk/test/peer.ts";
import { nodeFetch } from "../src/node-fetch.ts";

const MB = 1024 * 1024;
type Fetch = (url: string, init: RequestInit) => Promise<Response>;

const TRANSPORTS: readonly (readonly [name: string, transport: Fetch])[] = [
  ["Node's HTTP modules", nodeFetch],
  ["fetch", (url, init) => fetch(url, init)],
];

/** A test of the same name for each transport. */
function forBoth(name: string, run: (t: TestContext, transport: Fetch) => Promise<void>): void {
  for (const [by, transport] of TRANSPORTS) test(`${by}: ${name}`, (t) => run(t, transport));
}

function frame(kind: number, payload: Uint8Array | string = ""): Buffer {
  const bytes = Buffer.from(payload as string);
  const head = Buffer.alloc(EXEC_FRAME_HEAD_BYTES);
  head.writeUInt8(kind, 0);
  head.writeUInt32BE(bytes.length, 4);
  return Buffer.concat([head, bytes]);
}

const EXIT = frame(EXEC_FRAMES.exit, '{"exitCode":0}');
const begin = (answer: ServerResponse): ServerResponse => answer.writeHead(200, { "content-type": TYPE });

async function failureOf(work: Promise<unknown>): Promise<FlotillaError> {
  const error = await work.then(
    () => assert.fail("it was expected to fail"),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof FlotillaError, String(error));
  return error;
}

async function outputOf(events: AsyncIterable<ExecEvent>): Promise<Buffer> {
  const found: Uint8Array[] = [];
  for await (const event of events) if (event.kind === "stdout") found.push(event.bytes);
  return Buffer.concat(found);
}

const command = { command: "x" };

forBoth("method, headers and body are sent, and every byte of a long answer arrives in order", async (t, transport) => {
  const output = randomBytes(20 * MB);
  const peer = await startPeer(t, (_arrived, answer) => {
    begin(answer);
    for (let at = 0; at < output.length; at += 99_991)
      answer.write(frame(EXEC_FRAMES.stdout, output.subarray(at, at + 99_991)));
    answer.end(EXIT);
  });
  const flotilla = new Flotilla({ url: peer.url, apiKey: "smk_test", fetch: transport });
  for (let time = 0; time < 2; time += 1) {
    const got = await outputOf(await flotilla.streamExec("m", command, { headers: { "x-mine": "1" } }));
    assert.equal(createHash("sha256").update(got).digest("hex"), createHash("sha256").update(output).digest("hex"));
  }
  const [call] = peer.arrived;
  assert.equal(`${call?.method} ${call?.url}`, "POST /v1/machines/m/exec/stream");
  assert.deepEqual(
    [call?.headers.authorization, call?.headers["x-mine"], call?.headers["prefer"]],
    ["Bearer smk_test", "1", "processing"],
  );
  assert.equal(String(call?.body), JSON.stringify(command));
});

forBoth("pieces that a reader keeps do not change when more is read", async (t, transport) => {
  const wave = (value: number): Buffer => frame(EXEC_FRAMES.stdout, Buffer.alloc(300_000, value));
  const peer = await startPeer(t, (_arrived, answer) => {
    begin(answer);
    for (let value = 0; value < 40; value += 1) answer.write(wave(value));
    answer.end(EXIT);
  });
  const flotilla = new Flotilla({ url: peer.url, fetch: transport });
  const got = await outputOf(await flotilla.streamExec("m", command));
  for (let value = 0; value < 40; value += 1)
    assert.ok(
      got.subarray(value * 300_000, (value + 1) * 300_000).every((byte) => byte === value),
      `piece ${value}`,
    );
});

test("an answer whose status no Response may have is an error of its call", { timeout: 20_000 }, async (t) => {
  const peer = await startPeer(t, reply(700, "odd"));
  const odd = await failureOf(new Flotilla({ url: peer.url, fetch: nodeFetch }).streamExec("m", command));
  assert.deepEqual([odd.code, odd.status], ["unreachable", 0]);
});

test("a body that is refused before it was sent is cancelled, and so is one whose call is", {
  timeout: 20_000,
}, async (t) => {
  const server = createServer((request, answer) => {
    // Nothing is read of it.
    if (request.url?.endsWith("/refused")) answer.writeHead(422, { "x-error-code": "invalid_request" }).end("no");
  }).listen(0, "127.0.0.1");
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const flotilla = new Flotilla({ url, fetch: nodeFetch });
  for (const [name, timeoutMs, code] of [
    ["refused", 20_000, "invalid_request"],
    ["unanswered", 500, "timeout"],
  ] as const) {
    let isCancelled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(MB)),
      cancel: () => {
        isCancelled = true;
      },
    });
    const failure = await failureOf(flotilla.putFileAt("m", name, endless, { timeoutMs }));
    assert.equal(failure.code, code);
    await until(() => isCancelled, { what: `the end of the body that is ${name}` });
  }
});

forBoth("the body of a call that is cancelled is cancelled too", async (t, transport) => {
  const peer = await startPeer(t, reply(200));
  const cancelled = new AbortController();
  let reason: unknown;
  const slow = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      await new Promise((resolve) => setImmediate(resolve));
      controller.enqueue(new Uint8Array(1));
    },
    cancel: (why) => {
      reason = why;
    },
  });
  const failing = failureOf(
    new Flotilla({ url: peer.url, fetch: transport }).putFileAt("m", "f", slow, { signal: cancelled.signal }),
  );
  await new Promise((resolve) => setImmediate(resolve));
  cancelled.abort();
  assert.equal((await failing).code, "aborted");
  assert.equal(reason, cancelled.signal.reason);
});

forBoth(
  "bytes of every kind are sent, and a stream that is read elsewhere opens no connection",
  async (t, transport) => {
    let connections = 0;
    const server = createServer(async (request, answer) => {
      answer.end(JSON.stringify([Buffer.concat(await request.toArray()).toString()]));
    }).listen(0, "127.0.0.1");
    server.on("connection", () => (connections += 1));
    t.after(() => server.closeAllConnections());
    t.after(() => server.close());
    await once(server, "listening");
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const read = new ReadableStream<Uint8Array>();
    read.getReader();
    const flotilla = new Flotilla({ url, fetch: transport });
    assert.equal((await failureOf(flotilla.putFileAt("m", "f", read))).code, "unreachable");
    const bytes = new TextEncoder().encode("bytes");
    const stream = new Blob([bytes]).stream();
    for (const body of ["bytes", bytes, bytes.buffer, new Blob([bytes]), stream]) {
      const answer = await transport(url, { method: "PUT", body, ...(body === stream ? { duplex: "half" } : {}) });
      assert.deepEqual(await answer.json(), ["bytes"]);
      if (body === "bytes") assert.equal(connections, 1);
    }
  },
);

forBoth("a reader that does not read stops the sender, and gets everything when it reads", async (t, transport) => {
  let answer: ServerResponse | undefined;
  const peer = await startPeer(t, (_arrived, reply) => {
    answer = begin(reply);
  });
  const flotilla = new Flotilla({ url: peer.url, fetch: transport });
  const streaming = flotilla.streamExec("m", command);
  await until(() => answer !== undefined, { what: "the call" });
  answer?.flushHeaders();
  const events = await streaming;
  const piece = frame(EXEC_FRAMES.stdout, Buffer.alloc(MB, 7));
  let sent = 0;
  // The kernel's buffers of a loopback connection take some megabytes.
  while (sent < 64 && (answer?.writableLength ?? 0) < 4 * MB) {
    answer?.write(piece);
    sent += 1;
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(sent < 64, "nothing stopped the sender");
  answer?.end(EXIT);
  const got = await outputOf(events);
  assert.equal(got.length, sent * MB);
  assert.ok(got.every((byte) => byte === 7));
});

forBoth("ending the iteration early breaks the connection", async (t, transport) => {
  let isBroken = false;
  const peer = await startPeer(t, (_arrived, answer) => {
    begin(answer).write(frame(EXEC_FRAMES.stdout, "begun"));
    answer.on("close", () => (isBroken = true));
  });
  const flotilla = new Flotilla({ url: peer.url, fetch: transport });
  for await (const event of await flotilla.streamExec("m", command)) {
    assert.equal(event.kind, "stdout");
    break;
  }
  await until(() => isBroken, { what: "the end of the connection" });
  isBroken = false;
  const unread = await flotilla.streamExec("m", command);
  assert.deepEqual(await unread.return(), { done: true, value: undefined });
  await until(() => isBroken, { what: "the end of the connection, of which nothing was read" });
  assert.equal((await unread.next()).done, true);
});

forBoth("ending the iteration early discards what has arrived already", async (t, transport) => {
  const peer = await startPeer(t, (_arrived, answer) => {
    begin(answer);
    for (let piece = 0; piece < 50; piece += 1) answer.write(frame(EXEC_FRAMES.stdout, "in pieces"));
    answer.end(EXIT);
  });
  const flotilla = new Flotilla({ url: peer.url, fetch: transport });
  for (let time = 0; time < 20; time += 1)
    for await (const event of await flotilla.streamExec("m", command)) {
      assert.equal(event.kind, "stdout");
      break;
    }
});

forBoth("an answer that changes the protocol is an error", async (t, transport) => {
  const server = createServer().listen(0, "127.0.0.1");
  server.on("request", (request) =>
    request.socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
  );
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const failure = await failureOf(new Flotilla({ url, fetch: transport }).streamExec("m", command));
  assert.deepEqual([failure.code, failure.status], ["unreachable", 0]);
});

forBoth("a call can be cancelled and times out before its answer, and cancelled during it", async (t, transport) => {
  const peer = await startPeer(t, (arrived, answer) => {
    if (arrived.url.includes("/during/")) begin(answer).write(frame(EXEC_FRAMES.stdout, "begun"));
  });
  const flotilla = new Flotilla({ url: peer.url, fetch: transport });
  const late = await failureOf(flotilla.streamExec("late", command, { timeoutMs: 30 }));
  assert.deepEqual([late.code, late.status], ["timeout", 0]);
  const cancelled = new AbortController();
  const waiting = failureOf(flotilla.streamExec("cancelled", command, { signal: cancelled.signal }));
  await until(() => peer.arrived.some(({ url }) => url.includes("/cancelled/")), { what: "the second call" });
  cancelled.abort();
  assert.equal((await waiting).code, "aborted");
  const early = await failureOf(flotilla.streamExec("early", command, { signal: AbortSignal.abort() }));
  assert.equal(early.code, "aborted");
  const during = new AbortController();
  const events = await flotilla.streamExec("during", command, { signal: during.signal });
  assert.equal((await events.next()).value?.kind, "stdout");
  during.abort();
  const broken = await failureOf(events.next());
  assert.deepEqual(
    [broken.code, broken.text],
    ["aborted", "its caller cancelled the call while the command ran; its result is unknown"],
  );
});

forBoth("a connection that breaks in the middle is an error, whatever was read of it", async (t, transport) => {
  const peer = await startPeer(t, (_arrived, answer) => {
    begin(answer).write(frame(EXEC_FRAMES.stdout, "begun"), () => answer.destroy());
  });
  const flotilla = new Flotilla({ url: peer.url, fetch: transport });
  const error = await failureOf(outputOf(await flotilla.streamExec("m", command)));
  assert.deepEqual(
    [error.code, error.text],
    ["unreachable", "the connection broke while the command ran; its result is unknown"],
  );
});

forBoth(
  "a refusal, a server that does not listen and one that hangs up are errors with the same codes",
  async (t, transport) => {
    const peer = await startPeer(
      t,
      replyJson({ title: "conflict", detail: "it is being deleted" }, 409),
      reply(503, "not now", { "x-error-code": "unavailable", "x-request-id": "req-1" }),
      (_arrived, answer) => answer.destroy(),
    );
    const flotilla = new Flotilla({ url: peer.url, fetch: transport });
    const refused = await failureOf(flotilla.streamExec("m", command));
    assert.deepEqual([refused.status, refused.text], [409, "it is being deleted"]);
    const busy = await failureOf(flotilla.streamExec("m", command));
    assert.deepEqual([busy.status, busy.code, busy.text, busy.requestId], [503, "unavailable", "not now", "req-1"]);
    assert.deepEqual((({ code, status }) => [code, status])(await failureOf(flotilla.streamExec("m", command))), [
      "unreachable",
      0,
    ]);
    const free = createServer().listen(0, "127.0.0.1");
    await once(free, "listening");
    const { port } = free.address() as AddressInfo;
    await new Promise((resolve) => free.close(resolve));
    const nowhere = new Flotilla({ url: `http://127.0.0.1:${port}`, fetch: transport });
    const silent = await failureOf(nowhere.streamExec("m", command));
    assert.equal(silent.code, "unreachable");
    assert.match(silent.text, new RegExp(`gave no usable answer to POST .*: connect ECONNREFUSED 127.0.0.1:${port}`));
  },
);

forBoth("a redirect is followed with the body, and not with the key to another host", async (t, transport) => {
  const target = await startPeer(t, (_arrived, answer) => void begin(answer).end(EXIT));
  const peer = await startPeer(t, (arrived, answer) => {
    answer.writeHead(307, { location: `${target.url.replace("127.0.0.1", "localhost")}${arrived.url}` }).end();
  });
  const flotilla = new Flotilla({ url: peer.url, apiKey: "smk_test", fetch: transport });
  await outputOf(await flotilla.streamExec("m", command));
  const [call] = target.arrived;
  assert.equal(String(call?.body), JSON.stringify(command));
  assert.equal(call?.headers.authorization, undefined);
});

forBoth("a server whose certificate no authority has issued is refused", async (t, transport) => {
  const { certificate, key } = makeAuthority(randomBytes, Date.now());
  const own = { cert: certificate, key: key.export({ type: "pkcs8", format: "pem" }) };
  const server = createTlsServer(own, (_request, answer) => answer.end("x")).listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const error = await failureOf(new Flotilla({ url, fetch: transport }).streamExec("m", command));
  assert.equal(error.code, "unreachable");
  assert.match(error.text, /gave no usable answer to POST .*: unsuitable certificate purpose/);
});

test("Node's HTTP modules: a connection is used again after an answer that was read to its end", async (t) => {
  const ports = new Set<number | undefined>();
  const peer = await startPeer(t, (_arrived, answer) => {
    ports.add(answer.req.socket.remotePort);
    begin(answer).end(EXIT);
  });
  const flotilla = new Flotilla({ url: peer.url, fetch: nodeFetch });
  for (let time = 0; time < 5; time += 1) await outputOf(await flotilla.streamExec("m", command));
  assert.equal(ports.size, 1);
});

test("a proxy that the environment configures is used, by the SDK and by Node's HTTP modules", async (t) => {
  const target = await startPeer(t, (_arrived, answer) => void begin(answer).end(EXIT));
  const asked: string[] = [];
  const proxy = createServer((request, answer) => {
    asked.push(`${request.method} ${request.url}`);
    begin(answer).end(EXIT);
  });
  proxy.on("connect", (request, socket: Socket) => {
    asked.push(`CONNECT ${request.url}`);
    socket.on("error", () => undefined);
    const through = connect(Number(new URL(target.url).port), "127.0.0.1", () =>
      socket.write("HTTP/1.1 200 OK\r\n\r\n"),
    );
    through.on("error", () => undefined);
    socket.pipe(through).pipe(socket);
  });
  t.after(() => proxy.closeAllConnections());
  t.after(() => proxy.close());
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const program = `
    const { Flotilla } = await import("@flotilla/sdk");
    const { nodeFetch } = await import(${JSON.stringify(import.meta.resolve("../src/node-fetch.ts"))});
    for (const fetch of [undefined, nodeFetch])
      for await (const event of await new Flotilla({ url: "http://fleet.invalid", fetch }).streamExec("m", { command: "x" })) event;
    process.exit(0);
  `;
  const proxyUrl = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const env = {
    ...process.env,
    NODE_USE_ENV_PROXY: "1",
    HTTP_PROXY: proxyUrl,
    http_proxy: proxyUrl,
    NO_PROXY: "",
    no_proxy: "",
  };
  await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], {
    env,
    cwd: import.meta.dirname,
  });
  assert.deepEqual(asked, ["CONNECT fleet.invalid:80", "POST http://fleet.invalid/v1/machines/m/exec/stream"]);
});
