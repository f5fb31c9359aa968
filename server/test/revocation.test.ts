/**
 * Connections end with their authorization: every kind of long answer, on two servers of one database, for
 * every way in which access ends.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { createConnection } from "node:net";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { WebSocket } from "ws";
import { AccessWatch, type Right } from "../src/auth/access-watch.ts";
import { sql } from "../src/db/database.ts";
import type { Client } from "./support/client.ts";
import { httpGuest, machineWithPorts } from "./support/guest.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer, type TestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

/**
 * The promise is one second; the rest is for a host that is busy with other tests. Without a notification
 * everything is checked after 5 s.
 */
const deadlineMs = 2_500;
const MIB = 1024 * 1024;

/** Runs like the real clock, and can be set ahead. */
let aheadMs = 0;
const clock: Clock = { ...systemClock, now: () => systemClock.now() + aheadMs };
const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN, clock });
await startTestNode(server);
const replica = await startTestServer({ databaseUrl: server.databaseUrl, clock });
const { client } = server;
/** Answers with a beginning and no end. */
const guest = await httpGuest((_, response) => void response.write("begun"));

/** An open connection. `said`: the last data received; preceded by a close code. */
interface Open {
  readonly name: string;
  hasAnswer: boolean;
  isOver: boolean;
  said: string;
}

interface Credentials {
  readonly key: string;
  readonly connectToken: string;
  readonly shareToken: string;
}

/** A tenant with a listening machine, and the credentials that open it. */
async function tenantWithMachine(name: string, more: object = {}) {
  const tenantId = (await client.post("/v1/tenants", { name })).json.id as string;
  const minted = (await client.post("/v1/apikeys", { tenantId, expiresInDays: 10 })).json as {
    id: string;
    key: string;
  };
  const own = client.withKey(minted.key);
  const id = await machineWithPorts(own, { 80: guest.port }, more);
  await own.post(`/v1/machines/${id}/files?path=/workspace/big`, undefined, { raw: new Uint8Array(24 * MIB) });
  const connectToken = (await own.post(`/v1/machines/${id}/connect-token`)).json.token as string;
  const shareToken = (await own.post(`/v1/machines/${id}/share`)).json.token as string;
  return { tenantId, id, keyId: minted.id, own, credentials: { key: minted.key, connectToken, shareToken } };
}

function follow(name: string, sent: ClientRequest): Open {
  const open: Open = { name, hasAnswer: false, isOver: false, said: "" };
  const end = (): void => void (open.isOver = true);
  sent.on("error", end);
  sent.on("close", end);
  sent.on("response", (answer: IncomingMessage) => {
    open.hasAnswer = true;
    answer.on("data", (chunk: Buffer) => (open.said = (open.said + chunk.toString("latin1")).slice(-4096)));
    answer.on("error", end);
    answer.on("close", end);
  });
  return open;
}

function request(at: TestServer, name: string, path: string, options: { key: string; method?: string; body?: string }) {
  const { key, method = "GET", body } = options;
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const sent = httpRequest(`${at.url}${path}`, { method, headers, agent: false });
  const open = follow(name, sent);
  if (body !== undefined) sent.end(body);
  else if (method === "GET") sent.end();
  return { sent, open };
}

async function upgraded(at: TestServer, name: string, path: string, head: string): Promise<Open> {
  const socket = createConnection(Number(new URL(at.url).port), "127.0.0.1");
  const open: Open = { name, hasAnswer: false, isOver: false, said: "" };
  socket.on("error", () => undefined);
  socket.on("close", () => (open.isOver = true));
  socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n${head}\r\n\r\n`);
  assert.match(String((await once(socket, "data")).at(0)), /^HTTP\/1.1 101 /, name);
  socket.resume();
  return open;
}

async function terminal(at: TestServer, id: string, key: string): Promise<Open> {
  const open: Open = { name: "terminal", hasAnswer: false, isOver: false, said: "" };
  const headers = { authorization: `Bearer ${key}` };
  const socket = new WebSocket(`${at.url.replace("http", "ws")}/v1/machines/${id}/exec/interactive`, { headers });
  socket.on("close", (code, reason) => {
    open.isOver = true;
    open.said = `${code} ${reason.toString()}`;
  });
  socket.on("error", () => undefined);
  await once(socket, "open");
  return open;
}

/** Every kind of connection that a key opens, on one server. */
async function openByKey(at: TestServer, id: string, key: string): Promise<readonly Open[]> {
  const machine = `/v1/machines/${id}`;
  const command = (stream: boolean) => JSON.stringify({ command: "echo begun; sleep 600", stream });
  const stream = request(at, "exec stream", `${machine}/exec`, { key, method: "POST", body: command(true) });
  const logs = request(at, "log", `${machine}/logs?follow=true`, { key });
  const events = request(at, "events", "/v1/events?follow=true", { key });
  const waited = request(at, "exec", `${machine}/exec`, { key, method: "POST", body: command(false) });
  const upload = request(at, "upload", `${machine}/files?path=/workspace/up`, { key, method: "POST" });
  upload.sent.write(Buffer.alloc(MIB));
  const bridge = request(at, "bridge", `${machine}/connect/80/`, { key });
  // Left unread: data on its way waits for its reader.
  const download = request(at, "download", `${machine}/files?path=/workspace/big`, { key });
  const [answer] = (await once(download.sent, "response")) as [IncomingMessage];
  answer.pause();
  await until(() => stream.open.said.includes("begun") && bridge.open.said.includes("begun"), { deadlineMs: 20_000 });
  await until(() => logs.open.hasAnswer, { what: "the log's answer" });
  await until(() => events.open.hasAnswer, { what: "the answer with events" });
  return [
    stream.open,
    logs.open,
    events.open,
    waited.open,
    upload.open,
    bridge.open,
    await terminal(at, id, key),
    await upgraded(at, "bridge upgrade", `${machine}/connect/80/`, `authorization: Bearer ${key}`),
    await upgraded(at, "ingress upgrade", `/proxy/${id}/`, `authorization: Bearer ${key}`),
    Object.assign(download.open, { resume: () => answer.resume() }),
  ];
}

const openByToken = (at: TestServer, id: string, token: string): Promise<Open> =>
  upgraded(at, "upgrade by token", `/v1/machines/${id}/connect/80/`, `authorization: Bearer ${token}`);
const openByShare = (at: TestServer, id: string, token: string): Promise<Open> =>
  upgraded(at, "upgrade by share", `/proxy/${id}/`, `cookie: flotilla_share=${token}`);

async function openAll(id: string, { key, connectToken, shareToken }: Credentials) {
  const byKey: Open[] = [];
  const byToken: Open[] = [];
  const byShare: Open[] = [];
  for (const at of [server, replica]) {
    byKey.push(...(await openByKey(at, id, key)));
    byToken.push(await openByToken(at, id, connectToken));
    byShare.push(await openByShare(at, id, shareToken));
  }
  return { byKey, byToken, byShare };
}

async function allOver(opens: readonly Open[]): Promise<void> {
  const resume = (): void => {
    for (const open of opens) (open as { resume?: () => void }).resume?.();
  };
  const left = (): readonly string[] => opens.filter(({ isOver }) => !isOver).map(({ name }) => name);
  // A reader that does not read does not see the end either, so it reads once the connection should have
  // ended.
  const others = opens.filter((open) => !("resume" in open));
  await until(() => others.every(({ isOver }) => isOver), { deadlineMs }).catch((error: unknown) => {
    throw new Error(`still open: ${left().join(", ")}`, { cause: error });
  });
  resume();
  await until(() => left().length === 0, { deadlineMs, what: `the end of ${left().join(", ")}` });
}

const saidBy = (opens: readonly Open[], name: string): readonly string[] =>
  opens.filter((open) => open.name === name).map(({ said }) => said);

function assertTold(opens: readonly Open[], why: RegExp): void {
  for (const said of saidBy(opens, "exec stream"))
    assert.match(said, new RegExp(`event: error\ndata: .*${why.source}`));
  for (const said of saidBy(opens, "events"))
    assert.match(said, new RegExp(`event: error\ndata: the request ended: .*${why.source}`));
  for (const said of saidBy(opens, "log")) assert.match(said, new RegExp(`data: flotilla: .*${why.source}`));
  for (const said of saidBy(opens, "terminal")) assert.match(said, new RegExp(`^1008 .*${why.source}`));
}

test("a revoked key ends the connections of itself and its connect tokens, on every server, and no others", async () => {
  const { id, keyId, tenantId, credentials } = await tenantWithMachine("revoked");
  const other = (await client.post("/v1/apikeys", { tenantId })).json.key as string;
  const opened = await openAll(id, credentials);
  const kept = [await terminal(server, id, other), await terminal(replica, id, other), ...opened.byShare];
  assert.equal((await client.delete(`/v1/apikeys/${keyId}`)).status, 204);
  await allOver([...opened.byKey, ...opened.byToken]);
  assertTold(opened.byKey, /its API key was revoked/);
  for (const said of saidBy(opened.byKey, "exec"))
    assert.equal(said, '{"code":"unknown_key","error":"the command ended: its API key was revoked"}');
  assert.deepEqual(
    kept.filter(({ isOver }) => isOver),
    [],
  );
  await client.delete(`/v1/machines/${id}`);
});

test("a suspended tenant's connections end, however they were opened", async () => {
  const { id, tenantId, credentials } = await tenantWithMachine("suspended", { public: true });
  const { byKey, byToken, byShare } = await openAll(id, credentials);
  const open = [await upgraded(server, "public", `/proxy/${id}/`, "x: y"), ...byKey, ...byToken, ...byShare];
  assert.equal((await client.post(`/v1/tenants/${tenantId}/suspend`)).status, 204);
  await allOver(open);
  assertTold(byKey, /the tenant was suspended/);
});

test("a deleted machine's connections end, however they were opened", async () => {
  const { id, own, credentials } = await tenantWithMachine("deleted");
  const { byKey, byToken, byShare } = await openAll(id, credentials);
  assert.equal((await own.delete(`/v1/machines/${id}`)).status, 204);
  const ofTenant = byKey.filter(({ name }) => name === "events");
  await allOver([...byKey.filter((open) => !ofTenant.includes(open)), ...byToken, ...byShare]);
  for (const said of saidBy(byKey, "exec stream")) assert.match(said, /which was deleted while it ran/);
  assert.ok(ofTenant.length > 0 && ofTenant.every(({ isOver }) => !isOver), "events are the tenant's");
});

test("a command in a machine that was deleted before it began answers 404, also where the machine is still cached", async () => {
  const { id, own } = await tenantWithMachine("remembered");
  assert.equal((await own.get(`/v1/machines/${id}`)).status, 200);
  // As if another server had deleted it and its notification was lost; the node still has the machine.
  const at = new Date(clock.now());
  await server.context.db.execute(
    sql`UPDATE machines SET desired_state = 'absent', deleted_at = ${at} WHERE id = ${id}`,
  );
  const answer = await own.post(`/v1/machines/${id}/exec`, { command: "sleep 600" });
  assert.deepEqual([answer.status, answer.headers.get("x-error-code")], [404, "not_found"], answer.text);
  assert.match(answer.text, /^machine .* was not found; name the machine by its id/);
});

test("a key revoked while no notifications arrive still loses its connections", async () => {
  const { id, keyId, credentials } = await tenantWithMachine("unheard");
  const opens = [await terminal(server, id, credentials.key), await terminal(replica, id, credentials.key)];
  const deafen = () =>
    server.context.db.query(
      sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flotilla listener'
          AND datname = current_database()`,
    );
  await deafen();
  await until(() => !server.context.db.isListening() && !replica.context.db.isListening());
  const at = new Date();
  // Not through a server: no notification is sent.
  await server.context.db.execute(sql`UPDATE api_keys SET revoked_at = ${at} WHERE id = ${keyId}`);
  await allOver(opens);
});

test("a connection accepted just before its key was revoked ends although no notification arrives", async () => {
  let attempts = 0;
  const opened = async () => {
    const { id, keyId, credentials } = await tenantWithMachine(`race ${(attempts += 1)}`);
    // Both servers have the key cached, so it still opens connections for a moment after this.
    for (const one of [client, replica.client] as readonly Client[])
      assert.equal((await one.withKey(credentials.key).get("/v1/me")).status, 200);
    await server.context.db.execute(sql`UPDATE api_keys SET revoked_at = now() WHERE id = ${keyId}`);
    return [await terminal(server, id, credentials.key), await terminal(replica, id, credentials.key)];
  };
  await allOver(await until(opened, { what: "connections opened after the revocation" }));
});

test("a machine that never existed, or is another tenant's, is not reported as deleted", async () => {
  const { id, tenantId, own } = await tenantWithMachine("ghost");
  await own.delete(`/v1/machines/${id}`);
  const watch = new AccessWatch(server.context);
  const right = {
    ...{ what: "it", keyId: null, expiresAt: null, tenantId: null, machineId: null },
    ...{ shareHash: null, publicAppId: null, sessionHash: null },
  };
  const ended: string[] = [];
  const open = (name: string, more: Partial<Right>): void =>
    void watch.open({ ...right, ...more }, { end: () => ended.push(name), cut: () => undefined });
  const other = (await client.get("/v1/me")).json.tenantId as string;
  open("none", { tenantId, machineId: `mach-${"0".repeat(32)}` });
  open("another tenant's", { tenantId: other, machineId: id });
  open("its own", { tenantId, machineId: id });
  await until(() => ended.length > 0, { what: "the end of one" });
  assert.deepEqual(ended, ["its own"]);
  watch.close();
});

test("connections of a key or a connect token end when it expires", async () => {
  const { id, credentials } = await tenantWithMachine("expired");
  const { byKey, byToken, byShare } = await openAll(id, credentials);
  const expiresWithin = async (ms: number, opens: readonly Open[]): Promise<void> => {
    aheadMs = ms;
    await allOver(opens).finally(() => (aheadMs = 0));
  };
  await expiresWithin(3_601_000, byToken);
  assert.deepEqual(
    [...byKey, ...byShare].filter(({ isOver }) => isOver),
    [],
  );
  await expiresWithin(10 * 24 * 3_600_000 + 1_000, byKey);
  assertTold(byKey, /its credential has expired/);
  assert.deepEqual(
    byShare.filter(({ isOver }) => isOver),
    [],
  );
  // Before the database that it shares.
  await replica.stop();
});
