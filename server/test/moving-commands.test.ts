/**
 * Commands whose machine moves: they continue where the move ends, also for callers of a server that does not
 * move the machine. In the pause they end with their authorization, and new commands wait.
 *
 * The scripted guest begins a kept command again and leaves out what was received.
 * test/vm/moving-commands.test.ts moves real ones.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { WebSocket } from "ws";
import { httpGuest } from "./support/guest.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer, type TestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const PATIENT = { deadlineMs: 60_000 };
/** The promise is one second; the rest is for a busy host. */
const DENIED = { deadlineMs: 2_500 };

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const nodes = { "node-a": await startTestNode(server, "node-a"), "node-b": await startTestNode(server, "node-b") };
/** Has most of the callers; either may move a machine. */
const other = await startTestServer({ databaseUrl: server.databaseUrl });
const { client } = server;
type NodeId = keyof typeof nodes;

interface Placed {
  readonly id: string;
  readonly tenantId: string;
  readonly key: string;
  readonly keyId: string;
  readonly to: NodeId;
}

let tenants = 0;

// Its files are sent when it has stopped, so the pause is as long as the target is away.
const UNWATCHED = { FAKE_UNWATCHED: "1" };

async function machine(env: Record<string, string> = UNWATCHED): Promise<Placed> {
  const tenantId = (await client.post("/v1/tenants", { name: `mover-${(tenants += 1)}` })).json.id as string;
  const { id: keyId, key } = (await client.post("/v1/apikeys", { tenantId })).json;
  const own = client.withKey(key);
  const faults = { FAKE_KEEPS_COMMANDS: "1", ...env };
  const { id } = (
    await own.post("/v1/machines", { source: { type: "image", reference: "local/busybox" }, env: faults })
  ).json;
  const answer = await own.post(`/v1/machines/${id}/start`);
  assert.equal(answer.status, 200, answer.text);
  return { id, tenantId, key, keyId, to: answer.json.nodeId === "node-a" ? "node-b" : "node-a" };
}

const read = async (id: string) => (await client.get(`/v1/operations/${id}`)).json;
const ended = (id: string) =>
  until(async () => {
    const operation = await read(id);
    return operation.status !== "running" && operation;
  }, PATIENT);

/** Begins a move whose target is away: the machine's memory is saved, and it waits to be copied. */
async function paused({ id, to }: Placed): Promise<string> {
  await nodes[to].kill();
  const asked = await client.post(`/v1/machines/${id}/move`, { nodeId: to });
  assert.equal(asked.status, 202, asked.text);
  await until(async () => (await read(asked.json.id)).steps[2].status === "running", PATIENT);
  return asked.json.id;
}

async function arrive({ to }: Placed, operation: string): Promise<void> {
  await nodes[to].restart();
  const done = await ended(operation);
  assert.equal(done.status, "succeeded", done.error);
  assert.match(done.steps[4].message, /its processes continued/);
}

/** A streamed command that has printed its first line. */
class Command {
  text = "";
  isOver = false;

  static async begin(at: TestServer, { id, key }: Placed, command: string): Promise<Command> {
    const begun = new Command();
    const response = await fetch(`${at.url}/v1/machines/${id}/exec/stream`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ command, timeoutSeconds: 600 }),
    });
    void begun.#read(response);
    await until(() => begun.text.includes("begun"), { what: "the first line", ...PATIENT });
    return begun;
  }

  async #read({ body }: Response): Promise<void> {
    const decoder = new TextDecoder();
    try {
      for await (const chunk of body as unknown as AsyncIterable<Uint8Array>)
        this.text += decoder.decode(chunk, { stream: true });
    } catch (error) {
      this.text += String(error);
    }
    this.isOver = true;
  }

  /** Without keep-alives. */
  async end(limit = PATIENT): Promise<string> {
    await until(() => this.isOver, { what: `the end of a command: ${this.text}`, ...limit });
    return this.text.replaceAll(/^:.*\n+/gm, "");
  }
}

async function terminal(at: TestServer, { id, key }: Pick<Placed, "id" | "key">) {
  const headers = { authorization: `Bearer ${key}` };
  const socket = new WebSocket(`${at.url.replace("http", "ws")}/v1/machines/${id}/exec/interactive`, { headers });
  const seen = { text: "", closed: "" };
  socket.on("message", (data: Buffer) => void (seen.text += data.toString()));
  socket.on("close", (code, reason) => void (seen.closed = `${code} ${reason.toString()}`));
  await once(socket, "open");
  return { socket, seen };
}

test("commands and terminals of any server continue where their machine is moved", async () => {
  const placed = await machine();
  const command = "echo begun; sleep 2; echo done; exit 3";
  const commands = [await Command.begin(server, placed, command), await Command.begin(other, placed, command)];
  const { socket, seen } = await terminal(other, placed);
  socket.send("echo before\n");
  await until(() => seen.text === "before\n", { what: "the terminal", ...PATIENT });
  const operation = await paused(placed);
  socket.send("echo in the pause\n");
  const waited = client.withKey(placed.key).post(`/v1/machines/${placed.id}/exec`, { command: "echo new" });
  await arrive(placed, operation);
  for (const each of commands) {
    const said = await each.end();
    assert.match(
      said,
      /^event: stdout\ndata: begun\ndata: ?\n\nevent: stdout\ndata: done\ndata: ?\n\nevent: exit\n.*3.*\n\n$/,
    );
  }
  await until(() => seen.text === "before\nin the pause\n", { what: `the terminal: ${seen.text}`, ...PATIENT });
  socket.send("exit 4\n");
  await once(socket, "close");
  assert.match(seen.text, /"code":4/);
  assert.equal((await waited).json.stdout, "new\n");
});

test("commands continue where their machine is moved while it runs", async () => {
  const placed = await machine({});
  for (const to of [placed.to, placed.to === "node-a" ? "node-b" : "node-a"]) {
    const command = "echo begun; sleep 2; echo done; exit 3";
    const streamed = await Command.begin(other, placed, command);
    const plain = client.withKey(placed.key).post(`/v1/machines/${placed.id}/exec`, { command });
    const asked = await client.post(`/v1/machines/${placed.id}/move`, { nodeId: to });
    const done = await ended(asked.json.id);
    assert.equal(done.steps[1].message, "it was paused, and its memory is on the other node");
    assert.match(await streamed.end(), /^event: stdout\ndata: begun\n[^]*data: done\n[^]*event: exit\n.*3/);
    const { status, json, text: body } = await plain;
    assert.deepEqual([status, json.stdout, json.exitCode], [200, "begun\ndone\n", 3], body);
  }
});

test("short commands have their result while their machine moves back and forth", async () => {
  const placed = await machine({});
  const away = placed.to === "node-a" ? "node-b" : "node-a";
  let isOver = false;
  const failures: string[] = [];
  const lanes = [server, server, other, other].map(async (at) => {
    const own = at.client.withKey(placed.key);
    let count = 0;
    for (; !isOver; count += 1) {
      const { status, text: body, json } = await own.post(`/v1/machines/${placed.id}/exec`, { command: "echo done" });
      if (status !== 200 || json.stdout !== "done\n") failures.push(`${status} ${body}`);
    }
    return count;
  });
  const since = systemClock.monotonic();
  // A connection that the bodies of one move have left unfit would be closed ten seconds later.
  for (let to = placed.to; systemClock.monotonic() - since < 15_000; to = to === placed.to ? away : placed.to) {
    const asked = await client.post(`/v1/machines/${placed.id}/move`, { nodeId: to });
    const done = await ended(asked.json.id);
    assert.equal(done.status, "succeeded", done.error);
  }
  isOver = true;
  const counts = await Promise.all(lanes);
  assert.deepEqual(failures, []);
  assert.ok(
    counts.every((count) => count > 10),
    counts.join(", "),
  );
});

test("commands continue where they were when the move is canceled", async () => {
  const placed = await machine();
  const command = await Command.begin(other, placed, "echo begun; sleep 1; echo done");
  const operation = await paused(placed);
  assert.equal((await client.post(`/v1/operations/${operation}/cancel`)).status, 202);
  await nodes[placed.to].restart();
  assert.match(await command.end(), /begun[^]*done[^]*event: exit/);
});

test("a key that is revoked in the pause ends its commands at once, and in the machine when that has moved", async () => {
  const placed = await machine({ ...UNWATCHED, FAKE_EXECS_MAX: "2" });
  const second = (await client.post("/v1/apikeys", { tenantId: placed.tenantId })).json.key as string;
  const command = await Command.begin(other, placed, "echo begun; sleep 3600");
  const { seen } = await terminal(other, placed);
  const operation = await paused(placed);
  assert.equal((await client.delete(`/v1/apikeys/${placed.keyId}`)).status, 204);
  assert.match(await command.end(DENIED), /event: error\ndata: .*its API key was revoked/);
  await until(() => seen.closed !== "", { what: "the end of the terminal", ...DENIED });
  assert.match(seen.closed, /^1008 .*its API key was revoked/);
  await arrive(placed, operation);
  // There is room for two commands again.
  const both = async () => {
    const answers = await Promise.all(
      [1, 2].map(() => client.withKey(second).post(`/v1/machines/${placed.id}/exec`, { command: "sleep 0.2" })),
    );
    return answers.every(({ status }) => status === 200);
  };
  await until(both, { what: "the commands to end", ...PATIENT });
});

test("a machine that is deleted or stopped in the pause ends its commands", async () => {
  const deleted = await machine();
  const command = await Command.begin(other, deleted, "echo begun; sleep 3600");
  const operation = await paused(deleted);
  assert.equal((await client.withKey(deleted.key).delete(`/v1/machines/${deleted.id}`)).status, 204);
  assert.match(await command.end(DENIED), /event: error\ndata: .*was deleted/);
  await nodes[deleted.to].restart();
  await ended(operation);

  const stopped = await machine();
  const second = await Command.begin(other, stopped, "echo begun; sleep 3600");
  const moving = await paused(stopped);
  assert.equal((await client.withKey(stopped.key).post(`/v1/machines/${stopped.id}/stop`)).status, 200);
  await nodes[stopped.to].restart();
  await ended(moving);
  assert.match(await second.end(), /event: error\ndata: .*was stopped while it ran/);
});

test("a request to a port whose answer has not begun when its machine leaves is sent again, if that is safe", async () => {
  const asked: string[] = [];
  const guest = await httpGuest(({ method = "" }, response) => {
    asked.push(method);
    if (asked.filter((each) => each === "GET").length === 2) response.end("answered");
  });
  const { id } = (
    await client.post("/v1/machines", {
      source: { type: "image", reference: "local/busybox" },
      ports: [{ port: 80 }],
      env: { FAKE_KEEPS_COMMANDS: "1", FAKE_PORTS: `80=${guest.port}` },
    })
  ).json;
  const { nodeId } = (await client.post(`/v1/machines/${id}/start`)).json;
  const reading = client.get(`/v1/machines/${id}/connect/80/read`);
  const writing = client.post(`/v1/machines/${id}/connect/80/write`, {});
  await until(() => asked.length === 2, { what: "both requests", ...PATIENT });
  const move = await client.post(`/v1/machines/${id}/move`, { nodeId: nodeId === "node-a" ? "node-b" : "node-a" });
  assert.equal((await ended(move.json.id)).status, "succeeded");
  const [answer, refused] = [await reading, await writing];
  assert.deepEqual([answer.status, answer.text], [200, "answered"]);
  assert.deepEqual([refused.status, asked.toSorted()], [502, ["GET", "GET", "POST"]]);
});

test("a file transfer that a move interrupts is to be repeated", async () => {
  const placed = await machine();
  const path = `${other.url}/v1/machines/${placed.id}/files?path=/workspace/file`;
  const sent = request(path, { method: "POST", headers: { authorization: `Bearer ${placed.key}` }, agent: false });
  sent.on("error", () => undefined);
  const answered = once(sent, "response");
  sent.write(Buffer.alloc(1_000_000));
  const own = client.withKey(placed.key);
  // It waits for the upload to have begun.
  await until(async () => (await own.get(`/v1/machines/${placed.id}`)).json.lastActivityAt !== null, PATIENT);
  const operation = await paused(placed);
  const [answer] = await answered;
  assert.equal(answer.statusCode, 503);
  assert.match(await text(answer), /which interrupted the transfer; repeat it/);
  await arrive(placed, operation);
  assert.equal((await own.get(`/v1/machines/${placed.id}/files?path=/workspace/file`)).status, 404);
});

test("a new command waits five minutes for the end of a move, and is then refused", async () => {
  const placed = await machine();
  const operation = await paused(placed);
  let aheadMs = 0;
  const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs };
  // Started when another server has the move, which would fail by such a clock.
  const late = await startTestServer({ databaseUrl: server.databaseUrl, clock });
  const own = late.client.withKey(placed.key);
  let isAnswered = false;
  const waiting = own
    .post(`/v1/machines/${placed.id}/exec`, { command: "echo new" })
    .finally(() => (isAnswered = true));
  // Any change of the machine is a reason to look.
  const look = async () => {
    aheadMs += 6 * 60_000;
    for (const disruption of ["restart", "migrate"]) await own.patch(`/v1/machines/${placed.id}`, { disruption });
    return isAnswered;
  };
  await until(look, { what: "the refusal", ...PATIENT });
  const { status, text } = await waiting;
  assert.equal(status, 503, text);
  assert.match(text, /is being moved to another node by operation op-[0-9a-f]+; try again when that has ended/);
  await nodes[placed.to].restart();
  await ended(operation);
});

test("commands and terminals that begin while the node's agent restarts wait for the next one", async () => {
  const { id, key, to } = await machine();
  const node = nodes[to === "node-a" ? "node-b" : "node-a"];
  await node.kill();
  const answer = client.withKey(key).post(`/v1/machines/${id}/exec`, { command: "echo waited" });
  const opening = terminal(server, { id, key });
  await node.restart();
  assert.equal((await answer).json.stdout, "waited\n");
  const { socket, seen } = await opening;
  socket.send("exit 0\n");
  await until(() => seen.text.includes('"code":0'), PATIENT);
});
