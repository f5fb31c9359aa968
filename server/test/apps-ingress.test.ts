/**
 * Apps through a server and an ingress process: who gets a request, what is sent again, what an ingress
 * confirms, and what happens without its lease.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, type OutgoingHttpHeaders, request as httpRequest } from "node:http";
import { createConnection, type Socket } from "node:net";
import { buffer, text } from "node:stream/consumers";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import type { AppInfo } from "@flotilla/contract/apps";
import { sql } from "../src/db/database.ts";
import { LEASE_MS } from "../src/ingress/apps/lease.ts";
import { insertTestApp, routeTestApp, serveTestApp, testLeases, untilConfirmed } from "./support/app.ts";
import { httpGuest, machineWithPorts, rawGuest } from "./support/guest.ts";
import { startTestIngress } from "./support/ingress.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { onThisHost, until } from "../../test/support/until.ts";

const deadlineMs = 20_000;
/** The ingress's; it can be set ahead. */
let aheadMs = 0;
const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs };
const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const { client } = server;
const { db } = server.context;
// The test is one visitor with many requests.
await db.execute(sql`UPDATE plans SET rate_requests_per_second = 100000, rate_burst = 100000`);
const ingress = await startTestIngress(server, { clock });
const WAYS = { server: server.url, ingress: ingress.url };
const INGRESSES = Object.keys(WAYS).length;
const tenantId = (await db.queryOne<{ id: string }>(sql`SELECT id FROM tenants`))?.id ?? "";

interface Seen {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly text: string;
}

interface Asked extends OutgoingHttpHeaders {
  readonly host: string;
}

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly body?: string | Buffer;
}

let addresses = 0;
/** Each request is from another address, so that the rate of one is not reached. */
function ask(url: string, headers: Asked, { method = "GET", path = "/" }: Sent = {}) {
  const { hostname, port } = new URL(url);
  addresses += 1;
  const from = { "x-forwarded-for": `10.${(addresses >> 16) & 255}.${(addresses >> 8) & 255}.${addresses & 255}` };
  return httpRequest({ hostname, port, path, method, headers: { ...from, ...headers }, agent: false });
}

/** Rejects when the answer breaks off. */
async function visit(url: string, headers: Asked, sent: Sent = {}): Promise<Seen> {
  const { body } = sent;
  // Node frames no body of a GET or a DELETE by itself.
  const length = body === undefined ? {} : { "content-length": Buffer.byteLength(body) };
  const request = ask(url, { ...headers, ...length }, sent);
  request.end(body);
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return { status: response.statusCode ?? 0, headers: response.headers, text: await text(response) };
}

/** A machine whose program answers with its name, and counts. */
async function named(name: string) {
  const requests: { method: string; headers: IncomingMessage["headers"] }[] = [];
  const guest = await httpGuest((request, response) => {
    requests.push({ method: request.method ?? "", headers: request.headers });
    // A server that closes a connection before it has read all of it may take its answer back (RFC 9112, 9.6).
    request.resume().once("end", () => response.end(name));
  });
  return { name, requests, id: await machineWithPorts(client, { 80: guest.port }) };
}

/** A machine whose program closes each connection when the head, or the body, of a request has come. */
async function closing() {
  const heads: string[] = [];
  const guest = await rawGuest((socket) =>
    socket.on("data", (chunk) => {
      heads.push(chunk.toString("latin1").split("\r\n", 1)[0] ?? "");
      socket.destroy();
    }),
  );
  const id = await machineWithPorts(client, { 80: guest.port });
  heads.length = 0;
  return { id, heads };
}

/** A machine that runs, and on whose port nothing listens any more. */
async function refusing() {
  const guest = await httpGuest((_, response) => void response.end("early"));
  const id = await machineWithPorts(client, { 80: guest.port });
  const closed = once(guest.server, "close");
  guest.server.close();
  guest.server.closeAllConnections();
  await closed;
  return { id };
}

const [one, two, three] = [await named("one"), await named("two"), await named("three")];
const common = { tenantId, ingresses: INGRESSES };

test("an app is served by its name and its domain, by its tenant's key where it is not public, and forwards no key", async () => {
  await serveTestApp(db, { ...common, name: "open", domain: "open.example.org", machineIds: [one.id] });
  await serveTestApp(db, {
    ...common,
    name: "closed",
    domain: "closed.example.org",
    machineIds: [two.id],
    isPublic: false,
  });
  const tenant = await client.post("/v1/tenants", { name: "foreign" });
  const foreign = (await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json.key as string;
  const authorization = `Bearer ${client.key}`;
  for (const [way, url] of Object.entries(WAYS)) {
    for (const host of ["open.localhost", "OPEN.localhost:8080", "open.example.org", "Open.Example.org.:443"])
      assert.deepEqual(
        await visit(url, { host }).then((seen) => [seen.status, seen.text]),
        [200, "one"],
        `${way} ${host}`,
      );
    for (const host of ["closed.localhost", "closed.example.org"]) {
      assert.deepEqual(
        [(await visit(url, { host })).status, (await visit(url, { host })).text],
        [401, ""],
        `${way} ${host}`,
      );
      assert.equal((await visit(url, { host, authorization: `Bearer ${foreign}` })).status, 404, `${way} ${host}`);
      assert.equal((await visit(url, { host, authorization })).text, "two", `${way} ${host}`);
    }
    assert.equal((await visit(url, { host: "open.localhost", authorization, cookie: "mine=1" })).text, "one");
    const seen = one.requests.at(-1)?.headers;
    assert.deepEqual([seen?.authorization, seen?.cookie, seen?.host], [undefined, "mine=1", "open.localhost"]);
    assert.equal((await visit(url, { host: "none.example.org" })).status, 401, way);
  }
});

test("requests are spread over the instances, one after the other and at the same time", async () => {
  const host = "spread.localhost";
  await serveTestApp(db, { ...common, name: "spread", machineIds: [one.id, two.id, three.id] });
  for (const url of Object.values(WAYS)) {
    for (const all of [
      await inTurn(30, () => visit(url, { host })),
      await Promise.all(Array.from({ length: 30 }, () => visit(url, { host }))),
    ]) {
      const counts = new Map<string, number>();
      for (const { text: name } of all) counts.set(name, (counts.get(name) ?? 0) + 1);
      // A request is open until its connection is, which may be after the next one began.
      for (const { name } of [one, two, three])
        assert.ok((counts.get(name) ?? 0) >= 6, `${url} ${name} of 30: ${counts.get(name)}`);
    }
  }
});

async function inTurn<T>(times: number, work: () => Promise<T>): Promise<readonly T[]> {
  const results: T[] = [];
  for (let time = 0; time < times; time += 1) results.push(await work());
  return results;
}

test("once every ingress has confirmed a table, an instance that is not in it gets no request, and none fails", async () => {
  const host = "moving.localhost";
  const all = [one, two, three];
  const { id } = await serveTestApp(db, { ...common, name: "moving", machineIds: all.map((each) => each.id) });
  let isOver = false;
  const failures: string[] = [];
  let count = 0;
  const client = async (url: string): Promise<void> => {
    while (!isOver) {
      const { status, text: said } = await visit(url, { host });
      if (status !== 200) failures.push(`${status} ${said}`);
      count += 1;
    }
  };
  const clients = Object.values(WAYS).flatMap((url) => [client(url), client(url)]);
  for (let change = 0; change < 40; change += 1) {
    const out = all[change % 3];
    const left = all.filter((each) => each !== out);
    await untilConfirmed(
      db,
      await routeTestApp(
        db,
        id,
        left.map((each) => each.id),
      ),
      INGRESSES,
    );
    await untilNoneOpen(out?.id ?? "");
    const before = out?.requests.length;
    const { length } = left[0]?.requests ?? [];
    await until(() => (left[0]?.requests.length ?? 0) > length, { what: "further requests", deadlineMs });
    assert.equal(out?.requests.length, before, `change ${change}`);
  }
  isOver = true;
  await Promise.all(clients);
  assert.deepEqual(failures, []);
  assert.ok(count >= 40);
});

async function untilNoneOpen(machineId: string): Promise<void> {
  const isNone = async (): Promise<boolean> =>
    (await testLeases(db)).every(({ open }) => open[machineId] === undefined);
  await until(isNone, { what: `no open request in ${machineId}`, deadlineMs });
}

test("what is open at an instance that left the table is confirmed until it has ended, upgrades included", async () => {
  const answers: (() => void)[] = [];
  const guest = await httpGuest((_, response) => void answers.push(() => response.end("late")));
  const slow = await machineWithPorts(client, { 80: guest.port });
  answers.length = 0;
  const host = "slow.localhost";
  const { id } = await serveTestApp(db, { ...common, name: "slow", machineIds: [slow] });
  const request = ask(ingress.url, { host });
  request.end();
  const upgrade = ask(ingress.url, { host, connection: "Upgrade", upgrade: "echo" });
  upgrade.end();
  const [, socket] = (await once(upgrade, "upgrade")) as [IncomingMessage, Socket];
  await until(() => answers.length === 1, { what: "the request", deadlineMs });
  await untilConfirmed(db, await routeTestApp(db, id, []), INGRESSES);
  const openIn = async (): Promise<readonly number[]> => (await testLeases(db)).flatMap(({ open }) => open[slow] ?? []);
  assert.deepEqual(await openIn(), [2]);
  assert.equal((await visit(ingress.url, { host })).status, 503);
  answers[0]?.();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  assert.equal(await text(response), "late");
  await until(async () => (await openIn())[0] === 1, { what: "the end of one", deadlineMs });
  socket.write("still here");
  assert.equal(String((await once(socket, "data"))[0]), "still here");
  socket.destroy();
  await untilNoneOpen(slow);
});

test("a request whose instance accepts no connection is sent to another, whatever it is", async () => {
  const gone = await refusing();
  const host = "refused.localhost";
  await serveTestApp(db, { ...common, name: "refused", machineIds: [gone.id, one.id] });
  for (const url of Object.values(WAYS))
    for (const sent of [{}, { method: "POST", body: "x".repeat(100_000) }, { method: "DELETE" }, { method: "HEAD" }])
      for (let round = 0; round < 3; round += 1) assert.equal((await visit(url, { host }, sent)).status, 200);
  await serveTestApp(db, { ...common, name: "alone", machineIds: [gone.id] });
  const { status, headers, text: said } = await visit(server.url, { host: "alone.localhost" });
  assert.deepEqual([status, headers["retry-after"]], [503, "1"], said);
});

test("only GET, HEAD and OPTIONS without a body are sent again when an instance closes without an answer, and once", async () => {
  const [first, second] = [await closing(), await closing()];
  const host = "closing.localhost";
  await serveTestApp(db, { ...common, name: "closing", machineIds: [first.id, second.id, one.id] });
  const received = () => first.heads.length + second.heads.length;
  for (const method of ["GET", "HEAD", "OPTIONS"]) {
    for (let round = 0; round < 6; round += 1) {
      const before = received();
      const { status } = await visit(server.url, { host }, { method });
      assert.ok(
        status === 200 ? received() - before <= 1 : status === 502 && received() - before === 2,
        `${method} ${status}`,
      );
    }
  }
  for (const sent of [
    { method: "POST", body: "x" },
    { method: "PUT", body: "x" },
    { method: "DELETE" },
    { method: "POST" },
    { method: "GET", body: "x" },
  ]) {
    for (let round = 0; round < 6; round += 1) {
      const before = received();
      const { status } = await visit(server.url, { host }, sent);
      assert.deepEqual([status, received() - before], status === 200 ? [200, 0] : [502, 1], sent.method);
    }
  }
});

test("an app without instances in its table answers 503, and one that is destroyed is not there", async () => {
  const id = await insertTestApp(db, { tenantId, name: "empty", domain: "empty.example.org" });
  await untilConfirmed(db, await routeTestApp(db, id, []), INGRESSES);
  for (const url of Object.values(WAYS))
    for (const host of ["empty.localhost", "empty.example.org"]) {
      const { status, headers, text: said } = await visit(url, { host });
      assert.deepEqual([status, headers["retry-after"]], [503, "1"], said);
      assert.match(said, /no healthy instance/);
    }
  const version = await db.transaction(async (transaction) => {
    const next = sql`UPDATE app_routes_version SET version = version + 1 RETURNING version`;
    const row = await transaction.queryOne<{ version: number }>(next);
    await transaction.execute(
      sql`UPDATE apps SET deleted_at = now(), route_version = ${row?.version} WHERE id = ${id}`,
    );
    return row?.version ?? 0;
  });
  await db.notify("routes", id);
  await untilConfirmed(db, version, INGRESSES);
  for (const url of Object.values(WAYS))
    for (const host of ["empty.localhost", "empty.example.org"])
      await until(async () => (await visit(url, { host })).status === 401, { what: `${host} to be gone`, deadlineMs });
});

test("an ingress whose lease is not renewed serves no app until it is, by its own clock", async () => {
  const host = "leased.localhost";
  await serveTestApp(db, { ...common, name: "leased", machineIds: [one.id] });
  assert.equal((await visit(ingress.url, { host })).status, 200);
  await db.transaction(async (transaction) => {
    await transaction.execute(sql`LOCK TABLE ingress_leases IN EXCLUSIVE MODE`);
    aheadMs += LEASE_MS;
    assert.equal((await visit(server.url, { host })).status, 200, "the server's lease still runs");
    const { status, headers, text: said } = await visit(ingress.url, { host });
    assert.deepEqual([status, headers["retry-after"]], [503, "1"], said);
    assert.match(said, /lease/);
  });
  await until(async () => (await visit(ingress.url, { host })).status === 200, { what: "its lease", deadlineMs });
});

test("a lost notification is made good by the next look, and a stopped ingress is not waited for", async () => {
  const host = "quiet.localhost";
  const { id } = await serveTestApp(db, { ...common, name: "quiet", machineIds: [one.id] });
  const third = await startTestIngress(server);
  await until(async () => (await testLeases(db)).length === INGRESSES + 1, { what: "its lease", deadlineMs });
  assert.equal((await visit(third.url, { host })).text, "one");
  await third.stop();
  assert.equal((await testLeases(db)).length, INGRESSES);
  // As a server that dies between the commit and the notification.
  const version = await db.transaction(async (transaction) => {
    const next = sql`UPDATE app_routes_version SET version = version + 1 RETURNING version`;
    const row = await transaction.queryOne<{ version: number }>(next);
    await transaction.execute(sql`
      UPDATE app_instances SET is_routed = false, unrouted_at = now(), route_version = ${row?.version} WHERE app_id = ${id}`);
    await transaction.execute(sql`UPDATE apps SET route_version = ${row?.version} WHERE id = ${id}`);
    return row?.version ?? 0;
  });
  await untilConfirmed(db, version, INGRESSES);
  for (const url of Object.values(WAYS)) assert.equal((await visit(url, { host })).status, 503);
});

test("bodies of both directions, event streams and upgrades are streamed", async () => {
  const guest = await httpGuest((request, response) => {
    if (request.url === "/events") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write("data: first\n\n");
      return void request.on("close", () => response.end());
    }
    void buffer(request).then((body) => {
      response.setHeader("x-sha256", createHash("sha256").update(body).digest("hex"));
      response.end(body);
    });
  });
  const host = "stream.localhost";
  const machineId = await machineWithPorts(client, { 80: guest.port });
  await serveTestApp(db, { ...common, name: "stream", machineIds: [machineId] });
  const body = Buffer.alloc(8 * 1024 * 1024, "0123456789");
  for (const url of Object.values(WAYS)) {
    const request = ask(url, { host }, { method: "POST" });
    request.end(body);
    const [response] = (await once(request, "response")) as [IncomingMessage];
    const digest = createHash("sha256").update(body).digest("hex");
    assert.equal(response.headers["x-sha256"], digest);
    assert.equal(
      createHash("sha256")
        .update(await buffer(response))
        .digest("hex"),
      digest,
    );
    const events = ask(url, { host, accept: "text/event-stream" }, { path: "/events" });
    events.end();
    const [stream] = (await once(events, "response")) as [IncomingMessage];
    assert.equal(String((await once(stream, "data"))[0]), "data: first\n\n");
    events.destroy();
    const upgrade = ask(url, { host, connection: "Upgrade", upgrade: "echo" });
    upgrade.end();
    const [, socket] = (await once(upgrade, "upgrade")) as [IncomingMessage, Socket];
    socket.write("there and back");
    assert.equal(String((await once(socket, "data"))[0]), "there and back");
    socket.destroy();
  }
});

test("answers before the final one, and fields after a body, are passed on", async () => {
  const guest = await httpGuest((request, response) => {
    response.writeEarlyHints({ link: "</style.css>; rel=preload; as=style", "x-hint": "soon" }, () => {
      request.resume().once("end", () => {
        response.writeHead(200, { trailer: "x-sum" });
        response.write("body");
        response.addTrailers({ "x-sum": "42", "x-sent": String(request.trailers["x-sent"]) });
        response.end();
      });
    });
  });
  const host = "hints.localhost";
  const machineId = await machineWithPorts(client, { 80: guest.port });
  await serveTestApp(db, { ...common, name: "hints", machineIds: [machineId] });
  for (const url of Object.values(WAYS)) {
    const request = ask(url, { host, "transfer-encoding": "chunked" }, { method: "POST" });
    const hints: unknown[] = [];
    request.on("information", ({ statusCode, headers }) =>
      hints.push([statusCode, headers["link"], headers["x-hint"]]),
    );
    request.write("sent");
    request.addTrailers({ "x-sent": "1" });
    request.end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    assert.equal(await text(response), "body");
    assert.deepEqual(hints, [[103, "</style.css>; rel=preload; as=style", "soon"]], url);
    assert.deepEqual({ ...response.trailers }, { "x-sum": "42", "x-sent": "1" }, url);
    const old = createConnection(Number(new URL(url).port), "127.0.0.1");
    old.write(`GET / HTTP/1.0\r\nhost: ${host}\r\n\r\n`);
    assert.match(await text(old), /^HTTP\/1\.1 200 [^]*body/, "a caller of HTTP/1.0 understands no hints");
  }
});

test("what is open at an app ends when a deploy closes it to its callers, or their share link ends, and not before", async () => {
  const guest = await httpGuest((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write("data: first\n\n");
  });
  const [host, authorization] = ["private.localhost", `Bearer ${client.key}`];
  const deploy = async (isPublic: boolean): Promise<AppInfo> => {
    const env = [{ key: "FAKE_PORTS", value: `8080=${guest.port}` }];
    const app = { name: "private", image: "local/busybox", env, publicIngress: isPublic };
    const answer = await client.post("/v1/apps", app);
    assert.equal(answer.status, 200, answer.text);
    return answer.json as AppInfo;
  };
  await deploy(true);
  await until(async () => (await client.get("/v1/apps/private")).json.status === "running", { what: "it to serve" });

  const streamed = async (url: string, headers: OutgoingHttpHeaders) => {
    const request = ask(url, { ...headers, host }).end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    assert.equal(response.statusCode, 200);
    await once(response, "data");
    return response.on("error", () => undefined).resume();
  };
  const upgraded = async (url: string, headers: OutgoingHttpHeaders) => {
    const request = ask(url, { ...headers, host, connection: "Upgrade", upgrade: "echo" }).end();
    const [, socket] = (await once(request, "upgrade")) as [IncomingMessage, Socket];
    return socket.on("error", () => undefined).resume();
  };
  const open = async (headers: OutgoingHttpHeaders) =>
    (
      await Promise.all(Object.values(WAYS).map((url) => Promise.all([streamed(url, headers), upgraded(url, headers)])))
    ).flat();
  const isOver = (each: IncomingMessage | Socket): boolean => each.destroyed || each.readableEnded;
  const end = (all: readonly (IncomingMessage | Socket)[]): Promise<unknown> =>
    until(() => all.every(isOver), { what: "their end", deadlineMs: onThisHost(2_500) });

  const anonymous = await open({});
  assert.equal((await deploy(true)).rollout, null);
  assert.ok(!anonymous.some(isOver));
  const closed = await deploy(false);
  assert.deepEqual([closed.rollout, closed.release], [null, 1], "who may reach it is not part of a release");
  await end(anonymous);
  const keyed = await open({ authorization });
  const { token } = (await client.post("/v1/apps/private/share")).json as { token: string };
  const shared = await open({ cookie: `flotilla_share=${token}` });
  await deploy(false);
  assert.ok(![...keyed, ...shared].some(isOver), "a key and a share link give access still");
  assert.equal((await client.delete("/v1/apps/private/share")).status, 204);
  await end(shared);
  for (const socket of keyed) {
    assert.ok(!isOver(socket));
    socket.destroy();
  }
  assert.equal((await client.delete("/v1/apps/private")).status, 204);
});

test("requests of apps are counted by app: their class, their time, what is open, and what was sent again", async () => {
  const waiting = await httpGuest((request, response) => void (request.url === "/wait" || response.end("ok")));
  const machineIds = [await machineWithPorts(client, { 80: waiting.port }), (await refusing()).id];
  const host = "counted.localhost";
  const { id } = await serveTestApp(db, { ...common, name: "counted", machineIds });
  for (const url of Object.values(WAYS)) {
    const read = async (): Promise<string> =>
      await (await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${client.key}` } })).text();
    const becomes = (what: string, holds: (metrics: string) => boolean): Promise<unknown> =>
      until(async () => holds(await read()), { what, deadlineMs: onThisHost(2_000) });
    const open = ask(url, { host }, { path: "/wait" }).end();
    open.on("error", () => undefined);
    const isOpen = `flotilla_app_open_requests{app="${id}"} 1`;
    await becomes(isOpen, (metrics) => metrics.includes(isOpen));
    // The other instance has fewer open requests, and accepts no connection.
    await inTurn(3, () => visit(url, { host }));
    for (const line of [
      `flotilla_app_requests_total{app="${id}",class="2xx"} 3`,
      `flotilla_app_request_seconds_count{app="${id}"} 3`,
      `flotilla_app_retried_requests_total{app="${id}"} `,
    ])
      await becomes(line, (metrics) => metrics.includes(line));
    open.destroy();
    await becomes("nothing open", (metrics) => !metrics.includes(`flotilla_app_open_requests{app="${id}"}`));
  }
});
