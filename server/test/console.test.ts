/**
 * Sign-in to the console over HTTP: links, sessions, their ends, and the pages that may not use them.
 */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { text } from "node:stream/consumers";
import { brotliCompressSync } from "node:zlib";
import { WebSocket } from "ws";
import { consolePages } from "../src/console/pages.ts";
import { sql } from "../src/db/database.ts";
import type { Answer } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer();
const replica = await startTestServer({ databaseUrl: server.databaseUrl, dataDirectory: server.dataDirectory });
const { client } = server;
const anonymous = client.withKey(null);
const OWN = { "sec-fetch-site": "same-origin" };

const bodyOf = (answer: { readonly body: unknown } | undefined): string =>
  answer?.body instanceof Buffer ? answer.body.toString() : "";
const cookieOf = (answer: Answer): string => answer.headers.get("set-cookie")?.split(";", 1)[0] ?? "";

async function tokenOfLink(): Promise<string> {
  const made = await client.post("/v1/console/links");
  assert.equal(made.status, 201, made.text);
  return /^\/console\/#link=(sml_[\w-]{43})$/.exec(made.json.path)?.[1] ?? assert.fail(made.json.path);
}

const openLink = (token: string, headers: Record<string, string> = OWN, on = anonymous): Promise<Answer> =>
  on.post("/v1/console/sessions/link", { token }, { headers });

async function signIn(key = client.key): Promise<string> {
  const answer = await client.withKey(key).post("/v1/console/sessions");
  assert.equal(answer.status, 201, answer.text);
  return cookieOf(answer);
}

const me = (cookie: string, headers: Record<string, string> = OWN, on = anonymous): Promise<Answer> =>
  on.get("/v1/me", { headers: { cookie, ...headers } });

test("a link signs one browser in, once, and its session has the key's rights on every server", async () => {
  const token = await tokenOfLink();
  const answers = await Promise.all(
    [1, 2, 3].map((turn) => openLink(token, OWN, turn === 2 ? replica.client.withKey(null) : anonymous)),
  );
  assert.deepEqual(answers.map(({ status }) => status).toSorted(), [201, 401, 401]);
  const opened = answers.find(({ status }) => status === 201);
  const header = opened?.headers.get("set-cookie") ?? "";
  assert.match(header, /^flotilla_console=smb_[\w-]{43}; Path=\/v1; Max-Age=60\d{4}; HttpOnly; SameSite=Strict$/);
  const cookie = header.split(";", 1)[0] ?? "";
  const own = (await client.get("/v1/me")).json;
  assert.deepEqual((await me(cookie)).json, own);
  assert.deepEqual((await me(cookie, OWN, replica.client.withKey(null))).json, own);
  assert.match((await openLink(token)).text, /`flotilla console` prints a new one/);
});

test("a link is valid for ten minutes", async () => {
  const token = await tokenOfLink();
  await server.context.db.execute(sql`UPDATE console_links SET expires_at = expires_at - interval '10 minutes'`);
  assert.equal((await openLink(token)).status, 401);
});

test("a link and a session need https or this host", async () => {
  const far = { ...OWN, "x-forwarded-for": "203.0.113.9" };
  const token = await tokenOfLink();
  assert.equal((await openLink(token, far)).status, 400);
  assert.equal((await client.post("/v1/console/sessions", undefined, { headers: far })).status, 400);
  const opened = await openLink(token, { ...far, "x-forwarded-proto": "https" });
  assert.equal(opened.status, 201, opened.text);
  assert.match(opened.headers.get("set-cookie") ?? "", /^__Host-flotilla_console=smb_[\w-]+; Path=\/; Secure; /);
  assert.equal((await me(cookieOf(opened))).status, 200);
});

test("a link cannot be opened, nor a cookie used, by a page of another origin", async () => {
  const token = await tokenOfLink();
  for (const headers of [{}, { "sec-fetch-site": "cross-site" }, { "sec-fetch-site": "same-site" }])
    assert.equal((await openLink(token, headers)).status, 400);
  assert.equal((await openLink(token)).status, 201);
  const cookie = await signIn();
  const origin = "http://page.localhost:8080";
  for (const headers of [
    {},
    { "sec-fetch-site": "same-site" },
    { ...OWN, origin },
    { "x-flotilla-console": "1", origin },
  ])
    assert.equal((await me(cookie, headers)).status, 401, JSON.stringify(headers));
  assert.equal((await me(cookie, { "x-flotilla-console": "1" })).status, 200);
});

test("a session is not a key: as a bearer, a parameter or a made-up cookie it opens nothing", async () => {
  const cookie = await signIn();
  const token = cookie.split("=")[1] ?? "";
  await me(cookie);
  assert.equal((await client.withKey(token).get("/v1/me")).status, 401);
  assert.equal((await client.withKey(token).get("/v1/me", { headers: { cookie, ...OWN } })).status, 401);
  assert.equal((await me(`flotilla_console=smb_${"x".repeat(43)}`)).status, 401);
  assert.equal((await me(`flotilla_console=${client.key}`)).status, 401);
});

async function socketStatus(headers: Record<string, string>): Promise<number> {
  const { json } = await client.post("/v1/machines", { source: { type: "image", reference: "alpine" } });
  const url = `${server.url.replace("http", "ws")}/v1/machines/${json.id}/exec/interactive`;
  const socket = new WebSocket(url, { headers });
  const { promise, resolve } = Promise.withResolvers<number>();
  socket.on("unexpected-response", (_, answer: IncomingMessage) => resolve(answer.statusCode ?? 0));
  socket.on("open", () => resolve(101));
  socket.on("error", () => undefined);
  return await promise.finally(() => socket.terminate());
}

test("a socket with a cookie is refused without the console's origin", async () => {
  const cookie = await signIn();
  assert.equal(await socketStatus({ cookie }), 401);
  assert.equal(await socketStatus({ cookie, ...OWN }), 401);
  assert.equal(await socketStatus({ cookie, origin: "http://page.localhost:8080" }), 401);
  assert.notEqual(await socketStatus({ cookie, origin: server.url }), 401);
});

test("signing out ends the session and what it has open, on every server, and no other session", async () => {
  const [cookie, other] = [await signIn(), await signIn()];
  const follow = (of: string, url: string) =>
    fetch(`${url}/v1/events?follow=true`, { headers: { cookie: of, ...OWN } });
  const streams = await Promise.all([follow(cookie, server.url), follow(cookie, replica.url)]);
  const kept = await follow(other, server.url);
  const left = await anonymous.call("DELETE", "/v1/console/session", { headers: { cookie, ...OWN } });
  assert.deepEqual([left.status, left.text], [204, ""]);
  assert.match(left.headers.get("set-cookie") ?? "", /^flotilla_console=; .*Max-Age=0/);
  for (const stream of streams) assert.match(await text(stream.body ?? assert.fail()), /its browser was signed out/);
  assert.equal((await me(cookie)).status, 401);
  await until(async () => (await me(cookie, OWN, replica.client.withKey(null))).status === 401);
  assert.equal((await me(other)).status, 200);
  await kept.body?.cancel();
});

test("a session ends with its key, when that is revoked or expires", async () => {
  const made = (await client.post("/v1/apikeys", { scopes: ["machine:read"], expiresInSeconds: 3600 })).json;
  const cookie = await signIn(made.key);
  assert.deepEqual((await me(cookie)).json.scopes, ["machine:read"]);
  assert.equal((await anonymous.get("/v1/tenants", { headers: { cookie, ...OWN } })).status, 403);
  const { rows } = {
    rows: await server.context.db.query<{ left: number }>(sql`
    SELECT extract(epoch FROM max(expires_at) - now())::int AS left FROM console_sessions WHERE key_id = ${made.id}`),
  };
  assert.ok((rows[0]?.left ?? 0) <= 3600);
  await client.delete(`/v1/apikeys/${made.id}`);
  assert.equal((await me(cookie)).status, 401);
});

test("what has expired is purged, and a key has a hundred sessions at most", async () => {
  const made = (await client.post("/v1/apikeys", { scopes: ["machine:read"] })).json;
  const first = await signIn(made.key);
  for (let count = 0; count < 100; count += 1) await signIn(made.key);
  const [row] = await server.context.db.query<{ count: number }>(sql`
    SELECT count(*)::int AS count FROM console_sessions WHERE key_id = ${made.id}`);
  assert.equal(row?.count, 100);
  await until(async () => (await me(first)).status === 401);
});

test("the console's files come compressed, are kept for good, and every other path is its page", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-console-"));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const pages = consolePages(directory);
  const get = async (path: string, accepted = "br, gzip") => {
    const page = pages.find(({ url }) => url === (path === "/console/" ? path : "/console/*"));
    return await page?.answer({ url: path, headers: { "accept-encoding": accepted } } as unknown as IncomingMessage);
  };
  await assert.rejects(async () => get("/console/"), /was not built/);
  await mkdir(join(directory, "assets"));
  const script = "a script";
  await writeFile(join(directory, "index.html"), "<!doctype html>");
  await writeFile(join(directory, "assets/a-1.js"), script);
  await writeFile(join(directory, "assets/a-1.js.br"), brotliCompressSync(script));
  const asset = await get("/console/assets/a-1.js?x");
  assert.equal(asset?.headers["cache-control"], "public, max-age=31536000, immutable");
  assert.deepEqual(
    [asset?.headers["content-encoding"], asset?.headers["content-type"]],
    ["br", "text/javascript; charset=utf-8"],
  );
  assert.equal(bodyOf(await get("/console/assets/a-1.js", "br;q=0")), script);
  const page = await get("/console/machines/mach-1");
  assert.match(page?.headers["content-security-policy"] ?? "", /default-src 'none'; script-src 'self';/);
  assert.deepEqual([page?.headers["cache-control"], bodyOf(page)], ["no-cache", "<!doctype html>"]);
  for (const path of ["/console/assets/none.js", "/console/assets/../../package.json", "/console/assets/"])
    await assert.rejects(async () => get(path), /no such file/);
});
