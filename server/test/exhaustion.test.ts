/**
 * Resources of a server that callers may hold: bodies, connections, open requests and queries, each up to its
 * bound, and released afterwards.
 */
import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { test } from "node:test";
import { endpoints } from "@flotilla/contract/endpoints";
import { EXEC_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import { commonErrors } from "@flotilla/contract/openapi";
import { ALL_BODY_BYTES_MAX, TENANT_BODY_BYTES_MAX } from "../src/fairness/bounds.ts";
import type { Client } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";
import { countStatements } from "./support/statements.ts";
import { until } from "../../test/support/until.ts";
import { fastClock } from "../../test/support/fast-clock.ts";
import { head, type Wire, wire } from "../../test/support/wire.ts";

const server = await startTestServer();
const { client } = server;
const source = { type: "image", reference: "local/busybox" };

/** A tenant with a machine that never runs. */
async function tenant(name: string): Promise<{ key: string; client: Client; machineId: string }> {
  const made = await client.post("/v1/tenants", { name });
  const { key } = (await client.post("/v1/apikeys", { tenantId: made.json.id })).json;
  const own = client.withKey(key);
  return { key, client: own, machineId: (await own.post("/v1/machines", { source })).json.id };
}

const execPath = (id: string): string => `/v1/machines/${id}/exec`;

test("a half-sent head, and a silent connection, are closed completely, also for a client that never closes", async () => {
  const own = await startTestServer({ headMs: 2_000 });
  const half = await wire(own.url, { isDeaf: true });
  half.send("GET /livez HTTP/1.1\r\nhost: x");
  const silent = await wire(own.url, { isDeaf: true });
  const areClosed = () => half.isClosed() && silent.isClosed();
  await until(areClosed, { what: "both connections to be closed", deadlineMs: 20_000 });
  assert.match(half.received(), /^HTTP\/1\.1 408 .*x-request-id: req-/s);
  assert.equal(silent.received(), "");
});

test("a request that is not HTTP is answered and then closed, whatever its client does", async () => {
  const broken = await wire(server.url, { isDeaf: true });
  broken.send("GARBAGE\r\n\r\n");
  await until(() => broken.isClosed(), { what: "the connection to be closed" });
  assert.match(broken.received(), /^HTTP\/1\.1 400 /);
});

test("a refused handshake is closed completely, also for a client that never closes", async () => {
  const refused = await wire(server.url, { isDeaf: true });
  refused.send("GET /v1/me HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n");
  await until(() => refused.isClosed(), { what: "the connection to be closed", deadlineMs: 20_000 });
  assert.match(refused.received(), /^HTTP\/1\.1 401 /);
});

test("silent connections do not keep other clients out", async () => {
  const own = await startTestServer({ descriptorLimit: 128 + 2 * 40 });
  const silent = await Promise.all(Array.from({ length: 120 }, () => wire(own.url)));
  for (let count = 0; count < 50; count += 1) {
    const answer = await own.client.get("/v1/me", { headers: { connection: "close" } });
    assert.equal(answer.status, 200);
  }
  assert.ok(silent.filter(({ isClosed }) => !isClosed()).length <= 40);
});

test("one address has a share of the connections, and a refusal beyond it says so", async () => {
  const own = await startTestServer({ connectionsPerAddress: 3, trustedProxies: [] });
  const held: Wire[] = [];
  for (let count = 0; count < 3; count += 1) held.push(await wire(own.url));
  const fourth = await wire(own.url);
  await until(() => fourth.isClosed(), { what: "the connection to be refused" });
  assert.match(fourth.received(), /^HTTP\/1\.1 429 .*retry-after: 1.*x?/s);
  held[0]?.socket.destroy();
  await until(async () => {
    const again = await wire(own.url);
    again.send(head("GET", "/livez", null, { connection: "close" }));
    await until(() => again.isClosed());
    return again.received().startsWith("HTTP/1.1 200 ");
  });
});

test("when each connection has a running request, a new one is answered 503", async () => {
  const own = await startTestServer({ descriptorLimit: 128 + 2 * 16 });
  const { id } = (await own.client.post("/v1/tenants", { name: "other" })).json;
  const { key } = (await own.client.post("/v1/apikeys", { tenantId: id })).json;
  const busy: Wire[] = [];
  for (let count = 0; count < 16; count += 1) {
    const one = await wire(own.url);
    // One tenant may hold at most half of them. The server says when it waits for the body.
    const more = { "content-length": "10", expect: "100-continue" };
    one.send(head("POST", "/v1/apikeys", count < 8 ? key : own.adminKey.key, more));
    await until(() => one.received().includes(" 100 "));
    busy.push(one);
  }
  const isFull = async (): Promise<string | false> => {
    const next = await wire(own.url);
    next.send(head("GET", "/livez", null));
    await until(() => next.isClosed() || next.received() !== "");
    next.socket.destroy();
    return next.received().includes(" 503 ") && next.received();
  };
  assert.match(await until(isFull, { what: "a refusal" }), /retry-after: 1/);
  for (const { socket } of busy) socket.destroy();
  await until(async () => (await own.client.get("/livez")).status === 200);
});

test("a tenant's bodies are bounded, another tenant's are accepted, and the memory is released", async () => {
  const greedy = await tenant("greedy");
  const modest = await tenant("modest");
  const almost = Buffer.alloc(EXEC_BODY_BYTES_MAX - 1024, 0x20);
  const length = { "content-length": String(EXEC_BODY_BYTES_MAX) };
  const wires: Wire[] = [];
  for (let sent = 0; sent < ALL_BODY_BYTES_MAX + TENANT_BODY_BYTES_MAX; sent += almost.byteLength) {
    const one = await wire(server.url);
    one.send(head("POST", execPath(greedy.machineId), greedy.key, length));
    one.send(almost);
    wires.push(one);
  }
  const refused = () => wires.filter((one) => one.received().startsWith("HTTP/1.1 429 "));
  const kept = Math.floor(TENANT_BODY_BYTES_MAX / EXEC_BODY_BYTES_MAX);
  await until(() => refused().length === wires.length - kept, {
    what: "all but a few to be refused",
    deadlineMs: 30_000,
  });
  assert.match(refused()[0]?.received() ?? "", /retry-after: 1.*send fewer at once/s);
  const other = await modest.client.post("/v1/machines", { source });
  assert.equal(other.status, 201);
  for (const { socket } of wires) socket.destroy();
  const large = { command: "true", stdin: "x".repeat(3 * 1024 * 1024) };
  await until(async () => (await greedy.client.post(execPath(greedy.machineId), large)).status !== 429);
});

test("a body in a million pieces uses no more memory than its bytes", async () => {
  const own = await tenant("pieces");
  const one = await wire(server.url);
  one.send(
    head("POST", "/v1/apikeys", own.key, { "transfer-encoding": "chunked", "content-type": "application/json" }),
  );
  const before = process.memoryUsage().heapUsed;
  one.send(Buffer.from("1\r\n \r\n".repeat(1_000_000)));
  one.send('10\r\n{"expiresInDays"\r\n4\r\n: 1}\r\n0\r\n\r\n');
  await until(() => one.received() !== "", { deadlineMs: 60_000, what: "the answer" });
  assert.match(one.received(), /^HTTP\/1\.1 200 /);
  assert.ok(process.memoryUsage().heapUsed - before < 200 * 1024 * 1024);
});

test("a body for a machine that does not exist is refused before it is read", async () => {
  const own = await tenant("early");
  const foreign = await tenant("owner");
  for (const id of [`mach-${"0".repeat(32)}`, foreign.machineId]) {
    const one = await wire(server.url);
    one.send(head("POST", execPath(id), own.key, { "content-length": String(EXEC_BODY_BYTES_MAX) }));
    one.send(" ".repeat(1000));
    await until(() => one.received() !== "", { what: "the answer" });
    assert.match(one.received(), /^HTTP\/1\.1 404 /);
  }
});

test("a body that arrives too slowly is refused with 408, and an endless one after a refusal is cut off", async () => {
  const own = await startTestServer({ clock: fastClock(60) });
  const slow = await wire(own.url, { isDeaf: true });
  slow.send(head("POST", "/v1/tenants", own.adminKey.key, { "content-length": "500000" }));
  slow.send("{");
  const endless = await wire(own.url, { isDeaf: true });
  endless.send(head("POST", "/v1/tenants", "wrong", { "transfer-encoding": "chunked" }));
  const areClosed = (): boolean => {
    endless.send("1\r\n \r\n");
    slow.send(" ");
    return slow.isClosed() && endless.isClosed();
  };
  await until(areClosed, { what: "both connections to be closed" });
  assert.match(slow.received(), /^HTTP\/1\.1 408 .*x-error-code: body_too_slow/s);
  assert.ok(commonErrors(endpoints.createTenant).includes("body_too_slow"), "the API's description has it");
  assert.match(endless.received(), /^HTTP\/1\.1 401 /);
});

test("an upload that stops half-way times out", async () => {
  const own = await startTestServer({ clock: fastClock(100) });
  const machine = (await own.client.post("/v1/machines", { source })).json;
  const one = await wire(own.url, { isDeaf: true });
  one.send(head("POST", `/v1/machines/${machine.id}/files?path=/a`, own.adminKey.key, { "content-length": "1000" }));
  one.send("half");
  await until(() => one.isClosed(), { what: "the connection to be closed" });
});

test("unknown keys cost no query beyond a rate for their address, and other callers nothing", async () => {
  const own = await startTestServer({ trustedProxies: [] });
  const { db } = own.context;
  const ask = (count: number) => own.client.withKey(`smk_${String(count).padStart(43, "0")}`).get("/v1/me");
  // Keys are cached once the server receives notifications.
  const isKept = async () => (await countStatements(db, () => own.client.get("/v1/me"), /key_hash/)) === 0;
  await until(isKept, { what: "the key to be kept in memory" });
  const statuses = new Set<number>();
  const askAll = async (): Promise<void> => {
    for (let count = 0; count < 600; count += 20) {
      const answers = await Promise.all(Array.from({ length: 20 }, (_, index) => ask(count + index)));
      for (const { status } of answers) statuses.add(status);
    }
  };
  const asked = await countStatements(db, askAll, /key_hash/);
  assert.deepEqual([...statuses], [401, 429]);
  assert.ok(asked < 500, String(asked));
  assert.equal((await own.client.get("/v1/me")).status, 200, "a key that is known in memory");
  await until(async () => (await ask(1_000)).status === 401, { what: "the address to be accepted again" });
  assert.equal(await countStatements(db, () => ask(1_000), /key_hash/), 0, "asked for once");
});

test("callers behind a trusted proxy are counted separately", async () => {
  const own = await startTestServer();
  const from = (address: string, count: number) =>
    own.client
      .withKey(`smk_${String(count).padStart(43, "0")}`)
      .get("/v1/me", { headers: { "x-forwarded-for": address } });
  let status = 401;
  for (let count = 0; status === 401 && count < 500; count += 1) status = (await from("203.0.113.1", count)).status;
  assert.equal(status, 429);
  assert.equal((await from("203.0.113.2", 1_000)).status, 401);
});

test("a tenant's concurrent requests are bounded", async () => {
  const own = await startTestServer({ descriptorLimit: 128 + 2 * 40 });
  const { id } = (await own.client.post("/v1/tenants", { name: "holder" })).json;
  const { key } = (await own.client.post("/v1/apikeys", { tenantId: id })).json;
  const held: Wire[] = [];
  // A few more than there is room for, because a checking request takes a place for a moment.
  for (let count = 0; count < 25; count += 1) {
    const one = await wire(own.url);
    one.send(head("POST", "/v1/apikeys", key, { "content-length": "10" }));
    held.push(one);
  }
  const holder = own.client.withKey(key);
  const refused = await until(async () => {
    const answer = await holder.get("/v1/me");
    return answer.status === 429 && answer;
  });
  assert.match(refused.text, /has 20 requests open.*end some of them/);
  assert.equal((await own.client.get("/v1/me")).status, 200);
  for (const { socket } of held) socket.destroy();
  await until(async () => (await holder.get("/v1/me")).status === 200);
});

test("a request with two hosts, or none, is refused with an id, and so is an unknown expectation", async () => {
  const exchange = async (text: string): Promise<string> => {
    const one = await wire(server.url);
    one.send(text);
    return until(() => one.received() !== "" && one.received());
  };
  assert.match(
    await exchange("GET /livez HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n"),
    /^HTTP\/1\.1 400 .*x-request-id: req-/s,
  );
  assert.match(await exchange("GET /livez HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 400 .*x-request-id: req-/s);
  const expecting = "GET /livez HTTP/1.1\r\nhost: a\r\nexpect: tea\r\nx-request-id: mine\r\n\r\n";
  assert.match(await exchange(expecting), /^HTTP\/1\.1 417 .*x-request-id: mine/s);
});

test("only nodes use the listener for nodes, also when the public one is full", async () => {
  const own = await startTestServer({ descriptorLimit: 128 + 2 * 16, joinToken: "join-me" });
  const socketPath = own.nodeUrls[0]?.slice("unix:".length) ?? "";
  const call = (method: string, path: string, token: string, body: string) =>
    new Promise<number>((resolve, reject) => {
      const headers = { host: "x", authorization: `Bearer ${token}` };
      const request = httpRequest({ socketPath, method, path, headers }, (answer) => {
        answer.resume();
        answer.on("end", () => resolve(answer.statusCode ?? 0));
      });
      request.on("error", reject);
      request.end(body);
    });
  const crowd = await Promise.all(Array.from({ length: 30 }, () => wire(own.url)));
  assert.equal(await call("POST", "/v1/nodes/register", "join-me", '{"id":"n","address":"unix:/x"}'), 200);
  assert.equal(await call("GET", "/v1/machines", own.adminKey.key, ""), 404);
  assert.ok(crowd.some(({ isClosed }) => !isClosed()));
});

test("a cursor with an impossible time is refused, and lists continue by pages", async () => {
  const cursor = Buffer.from(`999999999999999.mach-${"0".repeat(32)}`).toString("base64url");
  assert.equal((await client.get(`/v1/machines?cursor=${cursor}`)).status, 422);
  const { id } = (await client.post("/v1/machines", { source })).json;
  for (let each = 0; each < 3; each += 1) {
    await client.post(`/v1/machines/${id}/sessions`, {});
    await client.post("/v1/pools", { image: "local/busybox", targetSize: 0 });
    await client.post("/v1/tokens", {});
  }
  const lists = ["tenants", "plans", "apikeys", "nodes", "tokens", "images", "pools", "billing/meters"];
  for (const path of [...lists.map((name) => `/v1/${name}`), `/v1/machines/${id}/sessions`]) {
    assert.equal((await client.get(`${path}?limit=0`)).status, 422, path);
    const all = (await client.get(path)).json as unknown[];
    const seen: unknown[] = [];
    let next: string | undefined = `${path}?limit=1`;
    while (next !== undefined && seen.length <= all.length) {
      const answer = await client.get(next);
      assert.equal(answer.status, 200, answer.text);
      assert.ok(answer.json.length <= 1, path);
      seen.push(...answer.json);
      next = /<([^>]+)>; rel="next"/.exec(answer.headers.get("link") ?? "")?.[1];
    }
    assert.equal(seen.length, all.length, path);
    assert.equal(new Set(seen.map((item) => JSON.stringify(item))).size, all.length, path);
    const ids = (items: unknown[]) => items.map((item) => Object.values(item as object)[0]);
    if (path !== "/v1/images") assert.deepEqual(ids(seen), ids(all), `${path} has the same order in pages`);
  }
});

test("a suspended tenant learns of it before anything else", async () => {
  const own = await tenant("suspended");
  const { tenantId } = (await own.client.get("/v1/me")).json;
  assert.equal((await client.post(`/v1/tenants/${tenantId}/suspend`)).status, 204);
  for (const path of ["/v1/nope", "/v1/nodes", "/v1/machines"])
    assert.equal((await own.client.get(path)).status, 402, path);
});

test("requests to a public machine count for its tenant, but not against the tenant's own limit", async () => {
  const plan = await client.post("/v1/plans", { name: "slow-pages", rateRequestsPerSecond: 1, rateBurst: 10 });
  const made = await client.post("/v1/tenants", { name: "pages", planId: plan.json.id });
  const own = client.withKey((await client.post("/v1/apikeys", { tenantId: made.json.id })).json.key);
  const machine = (await own.post("/v1/machines", { source, public: true, ports: [{ port: 80 }] })).json;
  const statuses: number[] = [];
  for (let count = 0; count < 12; count += 1)
    statuses.push((await client.withKey(null).get(`/proxy/${machine.id}/`)).status);
  assert.deepEqual([statuses[0], statuses.at(-1)], [503, 429]);
  assert.equal((await own.get(`/v1/machines/${machine.id}`)).status, 200);
});
