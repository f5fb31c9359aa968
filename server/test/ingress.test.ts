/**
 * Public access to machines: public machines, share links and their cookies, keys; by host and by path.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, type IncomingMessage, type OutgoingHttpHeaders, request as httpRequest } from "node:http";
import { createConnection, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { httpGuest, machineWithPorts } from "./support/guest.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer, type TestServer } from "./support/server.ts";
import { untilStatements } from "./support/statements.ts";
import { onThisHost, until } from "../../test/support/until.ts";

const deadlineMs = 20_000;
const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN, machinesUrl: "https://apps.example.com:8443" });
await startTestNode(server);
/** Another replica, which shows paths. */
const other = await startTestServer({ databaseUrl: server.databaseUrl, dataDirectory: server.dataDirectory });
const { client } = server;
const guest = await httpGuest((request, response) => {
  const { method, url, headers } = request;
  response.writeHead(200, { "set-cookie": "mine=1; Domain=example.com; Path=/app", location: "/login" });
  response.end(JSON.stringify({ method, url, headers }));
});

interface Seen {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly text: string;
}

async function visit(
  { url }: Pick<TestServer, "url">,
  path: string,
  { method = "GET", ...headers }: OutgoingHttpHeaders & { method?: string } = {},
): Promise<Seen> {
  const { hostname, port } = new URL(url);
  const request = httpRequest({ hostname, port, path, method, headers, agent: false });
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return { status: response.statusCode ?? 0, headers: response.headers, text: await text(response) };
}

const seenRequest = (seen: Seen): { url: string; headers: Record<string, string> } => JSON.parse(seen.text) as never;
const infoOf = async (id: string, of = client) => (await of.get(`/v1/machines/${id}`)).json as { url: string | null };
const bearer = `Bearer ${client.key}`;

test("a machine shows its address while it is started and publishes a port, by host where there is a domain", async () => {
  const id = await machineWithPorts(client, { 80: guest.port }, { name: "Web" });
  assert.equal((await infoOf(id)).url, "https://web.apps.example.com:8443/");
  assert.equal((await infoOf(id, other.client.withKey(client.key))).url, `${other.url}/proxy/${id}/`);
  const portless = await machineWithPorts(client, {});
  assert.equal((await infoOf(portless)).url, null);
  await client.post(`/v1/machines/${id}/stop`);
  assert.equal((await infoOf(id)).url, null);
});

test("host names are first come, first served, and a name that is not a valid host name is replaced by the id", async () => {
  const tenant = await client.post("/v1/tenants", { name: "second" });
  const second = client.withKey((await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json.key);
  const name = "shop";
  const one = await machineWithPorts(client, { 80: guest.port }, { name });
  const two = await machineWithPorts(second, { 80: guest.port }, { name });
  assert.equal((await infoOf(one)).url, "https://shop.apps.example.com:8443/");
  assert.equal((await infoOf(two, second)).url, `https://shop-${two.slice(5, 13)}.apps.example.com:8443/`);
  for (const odd of ["a.b", "x-", "x_y", `mach-${"0".repeat(32)}`]) {
    const id = await machineWithPorts(client, { 80: guest.port }, { name: odd });
    assert.equal((await infoOf(id)).url, `https://${id}.apps.example.com:8443/`, odd);
  }
  const host = "shop.apps.example.com";
  assert.equal((await visit(server, "/", { host, authorization: bearer })).status, 200);
  await client.delete(`/v1/machines/${one}`);
  assert.equal((await visit(server, "/", { host, authorization: bearer })).status, 404);
  const three = await machineWithPorts(second, { 80: guest.port }, { name: "Shop" });
  assert.equal((await infoOf(three, second)).url, `https://shop-${three.slice(5, 13)}.apps.example.com:8443/`);
  const four = await machineWithPorts(client, { 80: guest.port }, { name: "Shop" });
  assert.equal((await infoOf(four)).url, "https://shop.apps.example.com:8443/", "the name stayed its tenant's");
});

test("a host name that was freed leads to the machine that has it next, on every server, also without a notification", async () => {
  const { databaseUrl, dataDirectory } = server;
  const replica = await startTestServer({ databaseUrl, dataDirectory, machinesUrl: "https://apps.example.com" });
  const host = "next.apps.example.com";
  const made = async (name: string): Promise<string> => {
    const { port } = await httpGuest((_, response) => response.end(name));
    return await machineWithPorts(client, { 80: port }, { name: "next", public: true });
  };
  const [here, there] = [server, replica].map((on) => async () => (await visit(on, "/", { host })).text);
  assert.ok(here && there);
  const one = await made("one");
  assert.deepEqual([await here(), await there()], ["one", "one"]);
  await client.delete(`/v1/machines/${one}`);
  assert.equal(await here(), "", "401");
  const two = await made("two");
  assert.equal(await here(), "two");
  await until(async () => (await there()) === "two", { what: "the second machine", deadlineMs: 1_000 });
  // As a server that dies between the statement and the notification.
  await server.context.db.execute(sql`
    UPDATE machines SET desired_state = 'absent', deleted_at = now(), revision = revision + 1 WHERE id = ${two}`);
  await made("three");
  for (const each of [here, there])
    await until(async () => (await each()) === "three", { what: "the third machine", deadlineMs: 1_000 });
  await replica.stop();
});

test("machines of one name that are made concurrently have different hosts", async () => {
  const keys = await Promise.all(
    Array.from({ length: 8 }, async (_, index) => {
      const tenant = await client.post("/v1/tenants", { name: `racer-${index}` });
      return (await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json.key as string;
    }),
  );
  const ids = await Promise.all(
    keys.map((key) => machineWithPorts(client.withKey(key), { 80: guest.port }, { name: "race" })),
  );
  const urls = await Promise.all(
    ids.map(async (id, index) => (await infoOf(id, client.withKey(keys[index] ?? ""))).url),
  );
  assert.equal(new Set(urls).size, 8);
  assert.ok(urls.includes("https://race.apps.example.com:8443/"));
});

test("a public machine is open to everyone, by host and by path, and foreign headers are forwarded", async () => {
  const id = await machineWithPorts(client, { 80: guest.port }, { name: "open", public: true });
  const host = "OPEN.apps.example.com:8443";
  const byHost = await visit(server, "/a//b?t=own&x", {
    host,
    authorization: "Basic eDp5",
    cookie: "a=1; flotilla_share=x",
  });
  assert.equal(byHost.status, 200);
  assert.equal(seenRequest(byHost).url, "/a//b?t=own&x");
  assert.equal(seenRequest(byHost).headers["authorization"], "Basic eDp5");
  assert.equal(seenRequest(byHost).headers["cookie"], "a=1");
  assert.equal(seenRequest(byHost).headers["host"], host);
  assert.equal(byHost.headers["content-security-policy"], undefined);
  assert.deepEqual(byHost.headers["set-cookie"], ["mine=1; Path=/app"]);
  assert.equal(byHost.headers["location"], "/login");
  const stale = await visit(server, `/a?t=sms_${"y".repeat(43)}&x=1`, { host });
  assert.equal(stale.status, 200, "a link that does not work any more");
  assert.equal(seenRequest(stale).url, "/a?x=1");
  const byPath = await visit(other, `/proxy/${id}/a?x=1`, { authorization: bearer });
  assert.equal(seenRequest(byPath).url, "/a?x=1");
  assert.equal(
    seenRequest(byPath).headers["authorization"],
    undefined,
    "a key of ours is none of the guest's business",
  );
  assert.match(String(byPath.headers["content-security-policy"]), /^sandbox (?!.*same-origin)/);
  assert.deepEqual(byPath.headers["set-cookie"], [`mine=1; Path=/proxy/${id}/app`]);
  assert.equal(byPath.headers["location"], `/proxy/${id}/login`);
  const bare = await visit(other, `/proxy/${id}?x=1`);
  assert.deepEqual([bare.status, bare.headers["location"]], [308, `/proxy/${id}/?x=1`]);
  for (const method of ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
    assert.equal((await visit(server, "/", { host, method, "content-length": "0" })).status, 200, method);
  await client.post(`/v1/machines/${id}/stop`);
  assert.equal((await visit(server, "/", { host })).status, 503);
  assert.equal((await visit(server, "/v1/machines", { host, authorization: bearer })).status, 503, "no API there");
});

test("a caller of HTTP/1.0, which names no host, is answered", async () => {
  const id = await machineWithPorts(client, { 80: guest.port }, { public: true });
  const socket = createConnection(Number(new URL(server.url).port), "127.0.0.1");
  socket.write(`GET /proxy/${id}/a HTTP/1.0\r\n\r\n`);
  const answer = await text(socket);
  assert.match(answer, /^HTTP\/1\.1 200 OK\r\n/);
  const { headers } = JSON.parse(answer.slice(answer.indexOf("\r\n\r\n"))) as { headers: Record<string, string> };
  assert.deepEqual([headers["host"], headers["x-forwarded-host"]], ["localhost", undefined]);
});

test("a target that begins with an origin leads to the same place", async () => {
  const id = await machineWithPorts(client, { 80: guest.port }, { name: "whole", public: true });
  const host = "whole.apps.example.com";
  for (const [target, headers, path] of [
    [`https://${host}/a?x=1`, { host }, "/a?x=1"],
    [`HTTP://${host}?x=1`, { host }, "/?x=1"],
    [`http://127.0.0.1/proxy/${id}/a?x=1`, {}, "/a?x=1"],
  ] as const) {
    const seen = await visit(server, target, headers);
    assert.equal(seen.status, 200, target);
    assert.equal(seenRequest(seen).url, path, target);
  }
  const { token } = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
  const shared = await visit(server, `http://evil.example/a?t=${token}`, { host });
  assert.deepEqual([shared.status, shared.headers["location"]], [302, "/a"]);
});

test("a request that comes while its machine starts waits for it", async () => {
  const made = await client.post("/v1/machines", {
    source: { type: "image", reference: "local/busybox" },
    public: true,
    ports: [{ port: 80 }],
    env: { FAKE_BOOT_MS: String(onThisHost(750)), FAKE_PORTS: `80=${guest.port}` },
  });
  const { id } = made.json;
  assert.equal((await visit(server, `/proxy/${id}/`)).status, 503, "a request starts nothing");
  const starting = client.post(`/v1/machines/${id}/start`);
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.state === "creating", { deadlineMs });
  const visits = [server, other].map((each) => visit(each, `/proxy/${id}/`));
  const unpublished = await client.get(`/v1/machines/${id}/connect/81/`);
  assert.equal(
    (await client.get(`/v1/machines/${id}`)).json.state,
    "creating",
    "no wait for a port that it does not publish",
  );
  assert.equal(unpublished.status, 404);
  assert.deepEqual(
    (await Promise.all(visits)).map(({ status }) => status),
    [200, 200],
  );
  assert.equal((await starting).status, 200);
});

test("a request that waits for a start is refused when that fails or is canceled", async () => {
  for (const [env, end] of [
    [{ FAKE_BOOT_MS: String(onThisHost(500)), FAKE_BOOT_FAIL: "1" }, () => undefined],
    [{ FAKE_BOOT_MS: "60000" }, (id: string) => client.post(`/v1/machines/${id}/stop`)],
    [{ FAKE_BOOT_MS: "60000" }, (id: string) => client.delete(`/v1/machines/${id}`)],
  ] as const) {
    const source = { type: "image", reference: "local/busybox" };
    const { id } = (await client.post("/v1/machines", { source, public: true, ports: [{ port: 80 }], env })).json;
    const starting = client.post(`/v1/machines/${id}/start`);
    await until(async () => (await client.get(`/v1/machines/${id}`)).json.state === "creating", { deadlineMs });
    const visiting = visit(other, `/proxy/${id}/`);
    await end(id);
    const { status } = await visiting;
    assert.ok(status === 503 || status === 404 || status === 401, String(status));
    assert.notEqual((await starting).status, 200);
  }
});

test("callers without access learn nothing, and a key opens its own tenant's machines", async () => {
  const id = await machineWithPorts(client, { 80: guest.port }, { name: "closed" });
  const places: readonly [string, OutgoingHttpHeaders][] = [
    ["/", { host: "closed.apps.example.com" }],
    ["/", { host: "nowhere.apps.example.com" }],
    [`/proxy/${id}/`, {}],
    [`/proxy/mach-${"0".repeat(32)}/`, {}],
  ];
  const cookie = `flotilla_share=sms_${"x".repeat(43)}`;
  for (const [path, headers] of places) {
    for (const more of [{}, { authorization: "Basic eDp5" }, { cookie }]) {
      const seen = await visit(server, path, { ...headers, ...more });
      assert.deepEqual([seen.status, seen.text, seen.headers["x-error-code"]], [401, "", "missing_key"], path);
    }
    const stale = await visit(server, `${path}?t=sms_${"y".repeat(43)}`, headers);
    assert.deepEqual([stale.status, stale.headers["x-error-code"]], [401, "unknown_key"]);
    const unknown = await visit(server, path, { ...headers, authorization: `Bearer smk_${"x".repeat(43)}` });
    assert.equal(unknown.headers["x-error-code"], "unknown_key");
  }
  const own = await visit(server, "/", { host: "closed.apps.example.com", authorization: bearer });
  assert.equal(own.status, 200);
  assert.equal(seenRequest(own).headers["authorization"], undefined);
  const tenant = await client.post("/v1/tenants", { name: "foreign" });
  const foreign = (await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json.key as string;
  const reader = (await client.post("/v1/apikeys", { scopes: ["machine:read"] })).json.key as string;
  const status = async (key: string): Promise<number> =>
    (await visit(server, `/proxy/${id}/`, { authorization: `Bearer ${key}` })).status;
  assert.deepEqual([await status(foreign), await status(reader)], [404, 403]);
  const foreignly = (path: string, host = "x") => visit(server, path, { host, authorization: `Bearer ${foreign}` });
  const theirs = [await foreignly(`/proxy/${id}/`), await foreignly("/", "closed.apps.example.com")];
  const none = [await foreignly(`/proxy/mach-${"0".repeat(32)}/`), await foreignly("/", "nowhere.apps.example.com")];
  const shown = ({ status, text, headers }: Seen) => [status, text, headers["x-error-code"]];
  assert.deepEqual(theirs.map(shown), none.map(shown), "a machine of another tenant is answered like none");
  assert.equal((await visit(server, "/", { host: "a.b.apps.example.com" })).status, 401, "only one label");
  assert.equal(
    (await visit(server, "/health", { host: "apps.example.com" })).status,
    200,
    "the domain itself is not a machine",
  );
});

test("a share link becomes a cookie, and a revoked one opens nothing, on any server", async () => {
  const id = await machineWithPorts(client, { 80: guest.port }, { name: "shared" });
  const host = "shared.apps.example.com";
  const made = await client.post(`/v1/machines/${id}/share`);
  assert.equal(made.status, 200, made.text);
  const { token } = made.json as { token: string };
  assert.equal(made.json.url, `https://${host}:8443/?t=${token}`);

  const first = await visit(server, `//evil.example/\\a?x=1&t=${token}&y=2`, { host });
  assert.deepEqual([first.status, first.headers["location"]], [302, "/evil.example/\\a?x=1&y=2"]);
  const [set = ""] = first.headers["set-cookie"] ?? [];
  assert.match(set, /^flotilla_share=sms_\S+; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Lax; Secure$/);
  const cookie = set.split(";", 1)[0] ?? "";
  const page = await visit(server, "/page", {
    host,
    cookie: `a=1; flotilla_share=sms_${"z".repeat(43)}; ${cookie}; b=2`,
  });
  assert.equal(page.status, 200);
  assert.equal(seenRequest(page).headers["cookie"], "a=1; b=2");
  const posted = await visit(server, `/form?t=${token}`, { host, method: "POST", "content-length": "0" });
  assert.deepEqual([posted.status, seenRequest(posted).url], [200, "/form"]);

  const byPath = await visit(other, `/proxy/${id}/a?t=${token}`);
  assert.deepEqual([byPath.status, byPath.headers["location"]], [302, `/proxy/${id}/a`]);
  assert.match(
    byPath.headers["set-cookie"]?.[0] ?? "",
    new RegExp(`; Path=/proxy/${id}/; Max-Age=\\d+; HttpOnly; SameSite=Lax$`),
  );
  const elsewhere = await machineWithPorts(client, { 80: guest.port });
  assert.equal((await visit(other, `/proxy/${elsewhere}/`, { cookie })).status, 401);

  const again = await client.post(`/v1/machines/${id}/share`);
  assert.equal((await visit(server, `/?t=${token}`, { host })).status, 401, "the old one is gone with the new one");
  // The other server may not have received the notification yet.
  const refuses = (one: TestServer, cookie: string) => async () =>
    (await visit(one, `/proxy/${id}/`, { cookie })).status === 401;
  await until(refuses(other, cookie), { what: "the end of the old one", deadlineMs: 1_000 });
  const newCookie = `flotilla_share=${again.json.token}`;
  assert.equal((await visit(other, `/proxy/${id}/`, { cookie: newCookie })).status, 200);
  assert.equal((await client.delete(`/v1/machines/${id}/share`)).status, 204);
  assert.equal((await client.delete(`/v1/machines/${id}/share`)).status, 204);
  assert.ok(await refuses(server, newCookie)());
  await until(refuses(other, newCookie), { what: "its end", deadlineMs: 1_000 });
  const { json: events } = await client.get(`/v1/machines/${id}/events`);
  const messages = (events as { message: string }[]).map(({ message }) => message);
  assert.ok(!messages.join().includes("sms_"));

  const portless = await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } });
  assert.equal((await client.post(`/v1/machines/${portless.json.id}/share`)).json.url, null);
});

test("visits by a share link that works do not count as those of strangers", async () => {
  const { databaseUrl, dataDirectory } = server;
  const own = await startTestServer({ databaseUrl, dataDirectory, trustedProxies: [] });
  const id = await machineWithPorts(client, { 80: guest.port });
  const { token } = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
  for (let round = 0; round < 6; round += 1) {
    const visits = Array.from({ length: 50 }, () => visit(own, `/proxy/${id}/?t=${token}`));
    const statuses = new Set((await Promise.all(visits)).map(({ status }) => status));
    assert.deepEqual([...statuses], [302], `round ${round}`);
  }
});

test("a request to a recently used machine makes no query", async () => {
  const id = await machineWithPorts(client, { 80: guest.port }, { name: "used", public: true });
  const { db } = server.context;
  await untilStatements(db, 0, () => visit(server, `/proxy/${id}/`));
  await untilStatements(db, 0, () => visit(server, "/", { host: "used.apps.example.com" }));
  await untilStatements(db, 0, () => client.get(`/v1/machines/${id}/connect/80/`));
});

test("those who visit a tenant's machines do not wait for each other while it is the only tenant, however busy the server is", async () => {
  const id = await machineWithPorts(client, { 80: guest.port }, { public: true });
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  const ask = async (path: string): Promise<void> => {
    const request = httpRequest(new URL(path, server.url), { agent, headers: { authorization: bearer } }).end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    assert.equal(response.statusCode, 200, await text(response));
  };
  const askOften = async (path: string): Promise<number> => {
    const startedAt = performance.now();
    await Promise.all(Array.from({ length: 400 }, () => ask(path)));
    return performance.now() - startedAt;
  };
  // The server's thread is this test's, so the requests keep it busy.
  const [callsMs, visitsMs]: [number[], number[]] = [[], []];
  for (let round = 0; round < 4; round += 1) {
    callsMs.push(await askOften(`/v1/machines/${id}/connect/80/`));
    visitsMs.push(await askOften(`/proxy/${id}/`));
  }
  agent.destroy();
  const [calls, visits] = [Math.min(...callsMs), Math.min(...visitsMs)];
  assert.ok(visits < 2.5 * calls, `400 visits took ${visits} ms, and 400 calls ${calls}`);
});

test("a share link opens at once on every server, also where its notification has not arrived", async () => {
  const id = await machineWithPorts(client, { 80: guest.port });
  const { token } = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
  const { db } = server.context;
  // Only what the database says changes: no server is notified.
  await db.execute(sql`CREATE TABLE kept_shares AS SELECT * FROM machine_shares WHERE machine_id = ${id}`);
  await db.execute(sql`DELETE FROM machine_shares WHERE machine_id = ${id}`);
  const cookie = `flotilla_share=${token}`;
  const status = async (): Promise<number> => (await visit(other, `/proxy/${id}/`, { cookie })).status;
  await until(async () => (await status()) === 401, { what: "the end of the link" });
  await db.execute(sql`INSERT INTO machine_shares SELECT * FROM kept_shares`);
  let refused = 0;
  const isOpen = async () => (await status()) === 200 || void (refused += 1);
  // Longer than a wrong link is answered from memory, shorter than a right one.
  await until(isOpen, { what: "the link", everyMs: 100 });
  assert.ok(refused <= 1, `it was refused ${refused} times`);
});

test("a share link revoked without a notification opens nothing a second later", async () => {
  const id = await machineWithPorts(client, { 80: guest.port });
  const { token } = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
  const cookie = `flotilla_share=${token}`;
  const status = async (one: TestServer): Promise<number> => (await visit(one, `/proxy/${id}/`, { cookie })).status;
  for (const one of [server, other]) assert.equal(await status(one), 200);
  // As a server that dies between the statement and the notification.
  await server.context.db.execute(sql`DELETE FROM machine_shares WHERE machine_id = ${id}`);
  for (const one of [server, other])
    await until(async () => (await status(one)) === 401, { what: "the end of the link", deadlineMs: 1_000 });
});

test("connections of a revoked share link end, on the other server too; those of a key do not", async () => {
  const id = await machineWithPorts(client, { 80: guest.port });
  const { token } = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
  const open = async (one: TestServer, credential: string): Promise<Socket> => {
    const socket = createConnection(Number(new URL(one.url).port), "127.0.0.1");
    socket.write(
      `GET /proxy/${id}/socket HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n${credential}\r\n\r\n`,
    );
    assert.match(String((await once(socket, "data")).at(0)), /^HTTP\/1.1 101 /);
    return socket.resume();
  };
  const shared = [
    await open(server, `cookie: flotilla_share=${token}`),
    await open(other, `cookie: flotilla_share=${token}`),
  ];
  const keyed = await open(server, `authorization: ${bearer}`);
  await client.delete(`/v1/machines/${id}/share`);
  await until(() => shared.every((socket) => socket.readableEnded || socket.destroyed), {
    deadlineMs,
    what: "their end",
  });
  keyed.write("still here");
  assert.equal(String((await once(keyed, "data")).at(0)), "still here");
  for (const socket of [...shared, keyed]) socket.destroy();
});

test("a suspended tenant's machines are not reachable, not even public ones", async () => {
  const tenant = await client.post("/v1/tenants", { name: "late payer" });
  const key = (await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json.key as string;
  const id = await machineWithPorts(client.withKey(key), { 80: guest.port }, { public: true });
  assert.equal((await visit(server, `/proxy/${id}/`)).status, 200);
  await client.patch(`/v1/tenants/${tenant.json.id}`, { status: "suspended" });
  assert.equal((await visit(server, `/proxy/${id}/`)).status, 402);
  // Before the database that it shares.
  await other.stop();
});
