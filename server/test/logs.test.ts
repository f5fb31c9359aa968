/**
 * Logs of machines over HTTP, through a real node agent and a scripted guest: framing, tails, stopped
 * machines, and followers: across stops, across a killed node agent, until the end.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { test } from "node:test";
import { startMachineServer } from "./support/machine-server.ts";
import { until } from "../../test/support/until.ts";

const { server, node, client, machine: create } = await startMachineServer();

const machine = (line: string | null, fields: object = {}) =>
  create({ ...(line === null ? {} : { command: ["sh", "-c", line] }), ...fields });

const logs = (id: string, query = "") => client.get(`/v1/machines/${id}/logs${query}`);
const linesOf = (text: string): readonly string[] =>
  text
    .split("\n\n")
    // A separate empty line keeps a silent stream alive.
    .map((line) => line.replace(/^\n+/, ""))
    .filter((line) => line !== "");

/** A machine whose workload has written this many lines. */
async function started(line: string, count: number): Promise<string> {
  const id = await machine(line);
  await client.post(`/v1/machines/${id}/start`);
  await until(async () => linesOf((await logs(id)).text).length >= count, { what: `${count} lines of ${line}` });
  return id;
}

interface Follower {
  readonly sent: ClientRequest;
  readonly answer: IncomingMessage;
  text: string;
  hasEnded: boolean;
  untilText(part: string): Promise<void>;
}

async function follow(id: string, query = ""): Promise<Follower> {
  const sent = httpRequest(`${server.url}/v1/machines/${id}/logs?follow=true${query}`, {
    headers: { authorization: `Bearer ${server.adminKey.key}` },
    agent: false,
  });
  sent.on("error", () => undefined);
  sent.end();
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  answer.on("error", () => undefined);
  const follower: Follower = {
    sent,
    answer,
    text: "",
    hasEnded: false,
    untilText: async (part) => {
      await until(() => follower.text.includes(part), { what: `"${part}" in ${JSON.stringify(follower.text)}` });
    },
  };
  answer.on("data", (chunk: Buffer) => {
    follower.text += chunk.toString();
  });
  answer.once("end", () => {
    follower.hasEnded = true;
  });
  return follower;
}

test("each line is a data line, and how the workload ended is the last one and on the timeline", async () => {
  const id = await started("echo one; echo two; echo 'data: \\r'; exit 3", 4);
  const answer = await logs(id);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "text/event-stream");
  assert.equal(
    answer.text,
    "data: one\n\ndata: two\n\ndata: data: \\r\n\ndata: flotilla: the workload ended with exit code 3\n\n",
  );
  assert.equal((await client.get(`/v1/machines/${id}`)).json.state, "started");
  const events = async (): Promise<readonly { message: string; level: string }[]> =>
    (await client.get(`/v1/machines/${id}/events`)).json;
  await until(async () => (await events()).some(({ message }) => /ended with exit code 3/.test(message)), {
    what: "the event",
  });
  assert.ok((await events()).some(({ message, level }) => /exit code 3/.test(message) && level === "warn"));
});

test("tail counts lines, and more than 10,000 are refused with 400", async () => {
  const id = await started("echo one; echo two; echo three", 4);
  assert.deepEqual(linesOf((await logs(id, "?tail=2")).text), [
    "data: three",
    "data: flotilla: the workload ended with exit code 0",
  ]);
  assert.equal((await logs(id, "?tail=0")).text, "");
  assert.equal(linesOf((await logs(id, "?tail=10000")).text).length, 4);
  assert.equal((await logs(id, "?tail=10001")).status, 400);
  assert.equal((await logs(id, "?tail=-1")).status >= 400, true);
  const [first = ""] = linesOf((await logs(id, "?tail=4&format=json")).text);
  const { timestamp, ...record } = JSON.parse(first.slice("data: ".length));
  assert.deepEqual(record, { level: "info", message: "one", source: "workload" });
  assert.ok(Math.abs(Date.parse(timestamp) - Date.now()) < 60_000);
});

test("a machine that never ran has an empty log; a missing or deleted one has none", async () => {
  const id = await machine(null);
  assert.deepEqual([(await logs(id)).status, (await logs(id)).text], [200, ""]);
  await client.delete(`/v1/machines/${id}`);
  assert.equal((await logs(id)).status, 404);
  assert.equal((await logs(`mach-${"0".repeat(32)}`)).status, 404);
});

test("a stopped machine's log is readable, and continues with its next start", async () => {
  const id = await started("echo $FAKE_IMAGE; sleep 1000", 1);
  const stopped = await client.post(`/v1/machines/${id}/stop`);
  assert.equal(stopped.json.state, "stopped", stopped.text);
  assert.equal((await client.get(`/v1/machines/${id}`)).json.state, "stopped");
  assert.equal((await logs(id)).text, "data: local/busybox\n\n");
  await client.post(`/v1/machines/${id}/start`);
  await until(async () => linesOf((await logs(id)).text).length === 2, { what: "the second start's line" });
});

test("a follower receives new lines, across stops and starts, until the machine is deleted", async () => {
  const id = await machine("echo first; sleep 0.3; echo second; sleep 1000");
  // Before it ever ran, so before any node has it.
  const follower = await follow(id);
  assert.equal(follower.answer.statusCode, 200);
  await client.post(`/v1/machines/${id}/start`);
  await follower.untilText("data: second\n\n");
  await client.post(`/v1/machines/${id}/stop`);
  await client.post(`/v1/machines/${id}/start`);
  await until(() => follower.text.match(/second/g)?.length === 2, { what: "the second start's lines" });
  assert.deepEqual(linesOf(follower.text), ["data: first", "data: second", "data: first", "data: second"]);
  await client.delete(`/v1/machines/${id}`);
  await until(() => follower.hasEnded, { what: "the end of the answer" });
});

test("a follower of a silent log gets keep-alives", { timeout: 60_000 }, async () => {
  const id = await started("echo one; sleep 1000", 1);
  const follower = await follow(id, "&tail=0");
  await until(() => follower.text === "\n", { what: "an empty line", deadlineMs: 30_000 });
  follower.sent.destroy();
});

test("a follower receives every line once when the node agent is killed and comes back", async () => {
  const id = await started("echo before; sleep 1000", 1);
  const follower = await follow(id);
  await follower.untilText("before");
  await node.kill();
  assert.equal((await logs(id)).status, 503);
  await node.restart();
  await client.post(`/v1/machines/${id}/stop`);
  await client.post(`/v1/machines/${id}/start`);
  await until(() => follower.text.match(/before/g)?.length === 2, { what: "the next start's line" });
  assert.deepEqual(linesOf(follower.text), ["data: before", "data: before"]);
  follower.sent.destroy();
});

test("a follower that does not read blocks nothing, and a disconnected one leaves nothing", async () => {
  const id = await machine("yes 'a line that is written again and again'");
  const blocked = await follow(id, "&tail=10000");
  blocked.answer.pause();
  await client.post(`/v1/machines/${id}/start`);
  const other = await follow(id, "&tail=10000");
  await until(() => other.text.length > 4_000_000, { what: "another reader to get on", deadlineMs: 60_000 });
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "echo fine" })).json.stdout, "fine\n");
  assert.ok(blocked.text.length < 1_000_000, `${blocked.text.length}`);
  // A reader that does not follow comes to an end.
  const last = linesOf((await logs(id, "?tail=5")).text);
  assert.equal(last.length, 5);
  for (const { sent } of [blocked, other]) sent.destroy();
  await client.delete(`/v1/machines/${id}`);
});
