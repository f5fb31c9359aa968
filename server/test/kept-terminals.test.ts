/**
 * Terminals that are kept for a minute, through a real node agent and a scripted guest, with the SDK as their
 * client and a network that breaks.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, test } from "node:test";
import { Flotilla, type KeptTerminal, type TerminalState } from "@flotilla/sdk";
import { WebSocket } from "ws";
import { startTcpProxy } from "../../test/support/tcp-proxy.ts";
import { until } from "../../test/support/until.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestServer } from "./support/server.ts";

const { server, client, machine } = await startMachineServer();
const proxy = await startTcpProxy(() => Number(new URL(server.url).port));
after(() => proxy[Symbol.asyncDispose]());
const { key } = server.adminKey;
const flotilla = new Flotilla({ url: `http://127.0.0.1:${proxy.port}`, apiKey: key });
const direct = new Flotilla({ url: server.url, apiKey: key });
const id = await machine();

/** Collects the output of a terminal as it comes. */
function reading(terminal: KeptTerminal) {
  const pieces: Buffer[] = [];
  let bytes = 0;
  const done = (async () => {
    for await (const piece of terminal) {
      pieces.push(Buffer.from(piece));
      bytes += piece.byteLength;
    }
  })();
  const text = (): string => Buffer.concat(pieces).toString();
  const sees = (part: string) => until(() => text().includes(part), { what: `"${part}" in the output` });
  return { done, text, sees, bytes: () => bytes, whole: () => Buffer.concat(pieces) };
}

interface Raw {
  readonly socket: WebSocket;
  readonly messages: readonly Record<string, unknown>[];
  readonly output: () => string;
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
}

function closeOf(socket: WebSocket): Promise<{ readonly code: number; readonly reason: string }> {
  return new Promise((resolve) => {
    socket.on("error", () => undefined);
    socket.on("close", (code, reason) => resolve({ code, reason: String(reason) }));
  });
}

function dial(path: string, apiKey = key): Raw {
  const url = `${server.url.replace("http", "ws")}/v1/machines/${id}/exec/interactive${path}`;
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${apiKey}` } });
  const messages: Record<string, unknown>[] = [];
  const pieces: Buffer[] = [];
  socket.on("message", (data, isBinary) => {
    if (isBinary) pieces.push(data as Buffer);
    else messages.push(JSON.parse((data as Buffer).toString()));
  });
  const closed = closeOf(socket);
  return { socket, messages, output: () => Buffer.concat(pieces).toString(), closed };
}

async function open(path: string, apiKey?: string): Promise<Raw> {
  const raw = dial(path, apiKey);
  await until(() => raw.messages.length > 0, { what: "the first message" });
  return raw;
}

const newId = (): string => randomBytes(16).toString("hex");

test("a terminal whose connection is cut again and again loses and repeats no byte of output", async () => {
  const states: string[] = [];
  const onState = ({ kind }: TerminalState) => states.push(kind);
  const terminal = flotilla.keepTerminal(id, { query: { cmd: "/bin/yes", arg: ["0123456789abcde"] }, onState });
  const output = reading(terminal);
  for (let round = 1; round <= 6; round += 1) {
    const at = output.bytes();
    await until(() => output.bytes() > at + 200_000 + round * 70_001, { what: "output" });
    proxy.cut();
  }
  await output.done;
  const line = "0123456789abcde\n";
  // The scripted `yes` ends after about this much.
  const size = output.bytes();
  assert.ok(size >= 64 * 2 ** 20 - 65_536 && size % line.length === 0, String(size));
  const whole = output.whole();
  const expected = Buffer.alloc(line.length * 4_096, line);
  for (let from = 0; from < size; from += expected.length)
    assert.ok(whole.subarray(from, from + expected.length).equals(expected.subarray(0, size - from)), `at ${from}`);
  assert.deepEqual(await terminal.ended, { exitCode: 0, reason: "" });
  assert.deepEqual(states.slice(0, 3), ["open", "lost", "open"]);
  assert.equal(states.at(-1), "ended");
});

test("input continues where the machine has received it, and what is typed meanwhile is not lost", async () => {
  const terminal = flotilla.keepTerminal(id, { query: { cmd: "cat" } });
  const output = reading(terminal);
  const sent = randomBytes(4_000_000);
  const writing = terminal.write(Uint8Array.from(sent));
  for (let round = 0; round < 4; round += 1) {
    const at = output.bytes();
    await until(() => output.bytes() > at + 100_000, { what: "output" });
    proxy.cut();
  }
  await writing;
  await until(() => output.bytes() >= sent.length, { what: "all of it" });
  assert.ok(output.whole().equals(sent));
  terminal.close();
  await output.done;
  assert.deepEqual(await terminal.ended, { exitCode: null, reason: "it was closed" });
});

test("a terminal continues at another server when its own stops, and after a restart of it", async () => {
  const other = await startTestServer({ databaseUrl: server.databaseUrl, dataDirectory: server.dataDirectory });
  let port = Number(new URL(other.url).port);
  await using both = await startTcpProxy(() => port);
  const terminal = new Flotilla({ url: `http://127.0.0.1:${both.port}`, apiKey: key }).keepTerminal(id);
  const output = reading(terminal);
  await terminal.write("export A=kept; echo begun\n");
  await output.sees("begun");
  port = Number(new URL(server.url).port);
  await other.stop();
  both.cut();
  await terminal.write("echo still\nexit 4\n");
  await output.done;
  assert.match(output.text(), /begun\nstill\n/);
  assert.equal((await terminal.ended).exitCode, 4);
});

test("closing in order ends the program; a lost connection does not, and the end of the program waits", async () => {
  const terminal = newId();
  const first = await open(`?terminal=${terminal}`);
  assert.deepEqual(first.messages[0], { type: "attached", terminal, offset: 0, input: 0 });
  first.socket.send("echo one\n");
  await until(() => first.output() === "one\n", { what: "output" });
  first.socket.terminate();
  const second = await open(`?terminal=${terminal}&offset=2`);
  assert.deepEqual(second.messages[0], { type: "attached", terminal, offset: 2, input: 9 });
  second.socket.send("echo two\nsleep 0.3\nexit 3\n");
  await until(() => second.output() === "e\ntwo\n", { what: "output" });
  second.socket.terminate();
  const third = await open(`?terminal=${terminal}&offset=8`);
  assert.equal((await third.closed).code, 1000);
  assert.deepEqual(third.messages.at(-1), { type: "exit", code: 3 });
  const late = dial(`?terminal=${terminal}&offset=4`);
  assert.match((await late.closed).reason, /the terminal has ended/);
  assert.equal((await late.closed).code, 4004);
  const closing = newId();
  const fourth = await open(`?terminal=${closing}`);
  fourth.socket.close();
  await fourth.closed;
  const isGone = async (): Promise<boolean> => {
    const look = dial(`/${closing}`);
    look.socket.on("message", () => look.socket.terminate());
    return (await look.closed).code === 4004;
  };
  await until(isGone, { what: "the terminal to be gone" });
});

test("a second client takes over; readers come and go, read along, and type, resize and end nothing", async () => {
  const terminal = newId();
  const writer = await open(`?terminal=${terminal}&cols=90&rows=20`);
  writer.socket.send("echo before\n");
  await until(() => writer.output() === "before\n", { what: "output" });
  const reader = await open(`/${terminal}`);
  await until(() => reader.output() === "before\n", { what: "what was printed before" });
  for (const message of ["exit 9\n", '{"type":"resize","cols":1,"rows":1}', '{"type":"stdin","data":"exit 9\\n"}'])
    reader.socket.send(message);
  reader.socket.send(Buffer.from("exit 9\n"));
  reader.socket.send('{"type":"ping"}');
  await until(() => reader.messages.at(-1)?.["type"] === "pong", { what: "an answer" });
  writer.socket.send("stty size\n");
  await until(() => reader.output() === "before\n20 90\n", { what: "the size" });
  reader.socket.close(1000);
  await reader.closed;
  const next = await open(`?terminal=${terminal}&offset=7`);
  assert.deepEqual(await writer.closed, { code: 4001, reason: "another client has taken the terminal over" });
  const last = await open(`/${terminal}?offset=13`);
  next.socket.send("echo after\nexit 0\n");
  assert.equal((await last.closed).code, 1000);
  assert.equal(last.output(), "after\n");
  assert.deepEqual(last.messages.at(-1), { type: "exit", code: 0 });
});

test("the SDK reads along over lost connections, and a reader that does not read slows no other", async () => {
  const writer = direct.keepTerminal(id, { query: { cmd: "/bin/yes" } });
  const seen = reading(writer);
  await until(() => seen.bytes() > 0, { what: "output" });
  const slow = await open(`/${writer.id}`);
  slow.socket.pause();
  const viewer = flotilla.viewTerminal(id, writer.id);
  const viewed = reading(viewer);
  assert.throws(() => viewer.write("x"), TypeError);
  await until(() => viewed.bytes() > 0, { what: "output" });
  proxy.cut();
  const at = viewed.bytes();
  await until(() => viewed.bytes() > at || viewer.state.kind === "ended", { what: "more output" });
  await seen.done;
  assert.ok(seen.bytes() >= 64 * 2 ** 20 - 2);
  await viewed.done;
  slow.socket.resume();
  await slow.closed;
  assert.ok(
    slow.messages.some(({ type }) => type === "offset"),
    "it learns that it missed output",
  );
  assert.ok(slow.output().length < seen.bytes());
});

test("rights: a reader needs machine:read and the id, and a key that ends ends its terminal", async () => {
  const made = await client.post("/v1/apikeys", { scopes: ["machine:read"] });
  const { json: owner } = await client.post("/v1/apikeys", { scopes: ["machine:exec"] });
  const terminal = newId();
  const writer = await open(`?terminal=${terminal}`, owner.key);
  const reader = await open(`/${terminal}`, made.json.key);
  const refused = dial(`?terminal=${terminal}&offset=0`, made.json.key);
  assert.equal((await refused.closed).code, 1006);
  const stranger = await client.post("/v1/tenants", { name: "kept-stranger" });
  const foreign = (await client.post("/v1/apikeys", { tenantId: stranger.json.id })).json.key;
  assert.equal((await dial(`/${terminal}`, foreign).closed).code, 1006);
  assert.equal((await dial(`/${newId()}`).closed).code, 4004);
  assert.equal((await dial("/nonsense").closed).code, 4004);
  await client.delete(`/v1/apikeys/${owner.id}`);
  assert.equal((await writer.closed).code, 1008);
  assert.equal((await reader.closed).code, 4005);
});

test("one id begins one terminal, input beyond its window ends the connection, and a stopped machine has none", async () => {
  const terminal = newId();
  const first = await open(`?terminal=${terminal}&cmd=sleep&arg=600`);
  const second = dial(`?terminal=${terminal}`);
  assert.equal((await second.closed).code, 1006);
  for (let count = 0; count < 3; count += 1) first.socket.send(Buffer.alloc(512 * 1024));
  assert.equal((await first.closed).code, 1008);
  const other = await machine();
  const url = `${server.url.replace("http", "ws")}/v1/machines/${other}/exec/interactive?terminal=${terminal}&offset=0`;
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${key}` } });
  assert.deepEqual(await closeOf(socket), { code: 4004, reason: "the terminal has ended: its machine does not run" });
  assert.equal((await client.get(`/v1/machines/${other}`)).json.state, "stopped");
});
