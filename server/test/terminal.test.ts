/**
 * Interactive terminals over WebSocket, through a real node agent and a scripted guest.
 *
 * The scripted guest has no echo: input is lines for its small shell.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { test } from "node:test";
import { WebSocket } from "ws";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const { server, node, client, machine } = await startMachineServer();
const MIB = 1024 * 1024;

const shared = await machine();

interface Terminal {
  readonly socket: WebSocket;
  output(): string;
  bytes(): number;
  type(text: string): void;
  /** The received texts, in order. */
  readonly texts: string[];
  /** Resolves with the close code. */
  readonly closed: Promise<number>;
  headers(): Record<string, string | string[] | undefined>;
}

interface OpenOptions {
  readonly id?: string;
  readonly query?: string;
  readonly headers?: Record<string, string>;
}

function address({ id = shared, query = "" }: OpenOptions): string {
  return `${server.url.replace("http", "ws")}/v1/machines/${id}/exec/interactive${query}`;
}

function dial(options: OpenOptions = {}): Terminal {
  const headers = options.headers ?? { authorization: `Bearer ${server.adminKey.key}` };
  const socket = new WebSocket(address(options), { headers });
  const chunks: Buffer[] = [];
  const texts: string[] = [];
  let bytes = 0;
  let answered: Record<string, string | string[] | undefined> = {};
  socket.on("upgrade", (response) => {
    answered = response.headers;
  });
  socket.on("message", (data, isBinary) => {
    bytes += (data as Buffer).byteLength;
    if (!isBinary) texts.push((data as Buffer).toString());
    else if (bytes < MIB) chunks.push(data as Buffer);
  });
  socket.on("error", () => undefined);
  const closed = new Promise<number>((resolve) => {
    socket.on("close", resolve);
  });
  return {
    socket,
    texts,
    closed,
    bytes: () => bytes,
    output: () => Buffer.concat(chunks).toString(),
    type: (text) => socket.send(Buffer.from(text)),
    headers: () => answered,
  };
}

async function open(options: OpenOptions = {}): Promise<Terminal> {
  const terminal = dial(options);
  await once(terminal.socket, "open");
  return terminal;
}

/** The answer to a refused handshake. */
function refusal(options: OpenOptions & { readonly raw?: Record<string, string> }): Promise<{
  readonly status: number;
  readonly text: string;
  readonly headers: Record<string, unknown>;
}> {
  const headers = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
    ...(options.headers ?? { authorization: `Bearer ${server.adminKey.key}` }),
    ...options.raw,
  };
  return new Promise((resolve, reject) => {
    const sent = httpRequest(address(options).replace("ws", "http"), { headers });
    sent.on("error", reject);
    sent.on("upgrade", (_, socket) => {
      socket.destroy();
      reject(new Error("it was not refused"));
    });
    sent.on("response", async (response) => {
      let text = "";
      for await (const chunk of response) text += chunk;
      resolve({ status: response.statusCode ?? 0, text, headers: response.headers });
    });
    sent.end();
  });
}

const seen = (terminal: Terminal, text: string) =>
  until(() => terminal.output().includes(text), { what: `"${text}" in ${JSON.stringify(terminal.output())}` });

test("a stopped machine is started, lines are run, and the exit code comes before the close", async () => {
  const terminal = await open();
  assert.equal((await client.get(`/v1/machines/${shared}`)).json.state, "started");
  assert.match(String(terminal.headers()["x-request-id"]), /^req-/);
  terminal.type("echo one\n");
  await seen(terminal, "one\n");
  terminal.type("exit 7\n");
  assert.equal(await terminal.closed, 1000);
  assert.deepEqual(terminal.texts, ['{"type":"exit","code":7}']);
});

test("text frames type, resize, or are typed unchanged", async () => {
  const terminal = await open({ query: "?cols=120&rows=40" });
  terminal.socket.send('{"type":"stdin","data":"stty size\\n"}');
  await seen(terminal, "40 120\n");
  terminal.socket.send('{"type":"resize","cols":99,"rows":33}');
  terminal.socket.send("stty size\n");
  await seen(terminal, "33 99\n");
  terminal.socket.send('{"type":"resize","cols":0,"rows":0}');
  terminal.socket.send("echo still; stty size\n");
  await seen(terminal, "still\n33 99\n");
  terminal.socket.close();
  await terminal.closed;
});

test("the default size is 80 by 24, and other programs run by their path", async () => {
  // A client whose own terminal has no size yet sends zeros.
  for (const query of ["", "?cols=0&rows=0"]) {
    const sized = await open({ query });
    sized.type("stty size\nexit\n");
    await sized.closed;
    assert.equal(sized.output(), "24 80\n", query);
  }
  for (const name of ["cmd", "command"]) {
    const missing = await open({ query: `?${name}=${encodeURIComponent("/bin/no such -l")}` });
    await missing.closed;
    assert.match(missing.output(), /executable file '\/bin\/no such -l' not found/);
    assert.deepEqual(missing.texts, ['{"type":"exit","code":255}']);
  }
});

test("the key may be in the query, and the header is preferred", async () => {
  const { key } = server.adminKey;
  const terminal = await open({ query: `?access_token=${key}`, headers: {} });
  terminal.type("exit\n");
  assert.equal(await terminal.closed, 1000);
  const refused = await refusal({ query: `?access_token=${key}`, headers: { authorization: "Bearer smk_wrong" } });
  assert.equal(refused.status, 401);
});

test("refusals are plain answers before the upgrade, each with its request id", async () => {
  const made = await client.post("/v1/apikeys", { scopes: ["machine:read"] });
  const reader = { authorization: `Bearer ${made.json.key}` };
  const stranger = await client.post("/v1/tenants", { name: "terminal-stranger" });
  const foreign = (await client.post("/v1/apikeys", { tenantId: stranger.json.id })).json.key;
  const broken = await machine({ env: { FAKE_BOOT_FAIL: "1" } });
  const cases: readonly [Parameters<typeof refusal>[0], number, RegExp][] = [
    [{ headers: {} }, 401, /^$/],
    [{ headers: { authorization: "Bearer smk_wrong" } }, 401, /unknown API key/],
    [{ headers: reader }, 403, /^missing scope: machine:exec$/],
    [{ headers: { authorization: `Bearer ${foreign}` } }, 404, /was not found/],
    [{ id: "mach-none" }, 404, /mach-none was not found/],
    [{ query: "?cols=-1" }, 422, /cols/],
    [{ query: "?rows=x" }, 422, /rows/],
    [{ id: broken }, 503, /FAKE_BOOT_FAIL/],
    [{ raw: { "sec-websocket-version": "8" } }, 400, /version 13/],
    [{ raw: { "sec-websocket-key": "short" } }, 400, /needs a key/],
    [{ raw: { "sec-websocket-protocol": "a,,b" } }, 400, /list of different names/],
    [{ raw: { "sec-websocket-protocol": "a, a" } }, 400, /list of different names/],
  ];
  for (const [options, status, text] of cases) {
    const answer = await refusal(options);
    assert.equal(answer.status, status, answer.text);
    assert.match(answer.text, text);
    assert.match(String(answer.headers["x-request-id"]), /^req-/);
    assert.equal(answer.headers["connection"], "close");
  }
  const named = await refusal({ headers: { "x-request-id": "mine-1" } });
  assert.equal(named.headers["x-request-id"], "mine-1");
});

test("a request that is not a handshake is refused with what to do, and other paths ignore an offered upgrade", async () => {
  const plain = await client.get(`/v1/machines/${shared}/exec/interactive`);
  assert.equal(plain.status, 400);
  assert.match(plain.text, /WebSocket/);
  const offered = { connection: "Upgrade", upgrade: "websocket", authorization: `Bearer ${server.adminKey.key}` };
  const answer = await new Promise<number>((resolve, reject) => {
    const sent = httpRequest(`${server.url}/v1/machines/${shared}`, { headers: offered }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    sent.on("error", reject);
    sent.end();
  });
  assert.equal(answer, 200);
});

test("closing the socket ends the program, and a dead node ends the terminal", async () => {
  const id = await machine();
  const closing = await open({ id });
  closing.type("sleep 600\n");
  closing.socket.terminate();
  await closing.closed;
  const left = await open({ id });
  left.type("echo here\n");
  await seen(left, "here");
  await node.kill();
  assert.equal(await left.closed, 1011);
  assert.deepEqual(left.texts, ['{"type":"exit","code":-1}']);
  await node.restart();
});

test("many concurrent terminals, beside commands, do not wait for each other", async () => {
  const terminals = await Promise.all(Array.from({ length: 40 }, () => open()));
  for (const terminal of terminals.slice(0, 20)) terminal.type("sleep 600\n");
  for (const [index, terminal] of terminals.entries()) terminal.type(`echo number ${index}\n`);
  await Promise.all(terminals.slice(20).map((terminal, index) => seen(terminal, `number ${index + 20}\n`)));
  assert.equal((await client.post(`/v1/machines/${shared}/exec`, { command: "echo beside" })).json.stdout, "beside\n");
  for (const terminal of terminals) terminal.socket.terminate();
  await Promise.all(terminals.map(({ closed }) => closed));
});

test("a client that does not read blocks its own program only, and the server buffers little for it", async () => {
  const flooded = await Promise.all(Array.from({ length: 5 }, () => open({ query: "?cmd=/bin/yes" })));
  await Promise.all(flooded.map((terminal) => until(() => terminal.bytes() > 0, { what: "output" })));
  for (const terminal of flooded) terminal.socket.pause();
  for (let call = 0; call < 50; call++) {
    const answer = await client.post(`/v1/machines/${shared}/exec`, { command: "echo beside" });
    assert.equal(answer.json.stdout, "beside\n");
  }
  const { arrayBuffers } = process.memoryUsage();
  assert.ok(arrayBuffers < 100 * MIB, `${arrayBuffers} bytes are held`);
  for (const terminal of flooded) terminal.socket.resume();
  await Promise.all(flooded.map(({ closed }) => closed));
  // The scripted `yes` ends after about this much.
  for (const terminal of flooded) assert.ok(terminal.bytes() >= 64 * MIB - 2, String(terminal.bytes()));
});

test("a program that does not read makes its client wait, and nothing is lost", async () => {
  const terminal = await open();
  terminal.type("sleep 1\n");
  const line = Buffer.from(`true ${"x".repeat(1018)}\n`);
  for (let sent = 0; sent < 4096; sent++) terminal.socket.send(line);
  terminal.type("echo end\nexit 3\n");
  await terminal.closed;
  assert.equal(terminal.output(), "end\n");
  assert.deepEqual(terminal.texts, ['{"type":"exit","code":3}']);
});

test("a message that is too large ends the connection, not the server", async () => {
  const terminal = await open();
  terminal.socket.send(Buffer.alloc(2 * MIB));
  assert.equal(await terminal.closed, 1009);
});

test("a terminal counts as use of its machine", async () => {
  const id = await machine();
  const terminal = await open({ id });
  terminal.type("exit 0\n");
  await terminal.closed;
  await until(async () => (await client.get(`/v1/machines/${id}/usage`)).json.usage.execCount === 1, { what: "usage" });
  assert.notEqual((await client.get(`/v1/machines/${id}`)).json.lastActivityAt, null);
});

test("arguments and variables are passed to the program; invalid ones are refused before the upgrade", async () => {
  const terminal = await open({ query: "?cmd=sh&arg=-c&arg=echo+%22%24A+%24B%22&env=A=1&env=B=x=y" });
  assert.equal(await terminal.closed, 1000);
  assert.equal(terminal.output(), "1 x=y\n");
  const refused = dial({ query: "?cmd=sh&env=nothing" });
  let status = 0;
  refused.socket.on("unexpected-response", (_, answer) => {
    status = answer.statusCode ?? 0;
    refused.socket.terminate();
  });
  await refused.closed;
  assert.equal(status, 400);
});

test("a server that stops ends its terminals", async () => {
  const other = await startTestServer({ databaseUrl: server.databaseUrl, dataDirectory: server.dataDirectory });
  const url = address({}).replace(server.url.replace("http", "ws"), other.url.replace("http", "ws"));
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${other.adminKey.key}` } });
  await once(socket, "open");
  const closed = once(socket, "close");
  await other.stop();
  assert.equal((await closed)[0], 1012);
});
