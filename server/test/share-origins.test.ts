/**
 * The cookie of a share link, in requests that browsers send for pages of the machine itself and of other
 * hosts.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, type OutgoingHttpHeaders, request as httpRequest } from "node:http";
import { createConnection } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { httpGuest, machineWithPorts } from "./support/guest.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN, machinesUrl: "https://apps.example.com" });
await startTestNode(server);
const { client } = server;
const guest = await httpGuest((_request, response) => response.end("guest"));
const id = await machineWithPorts(client, { 80: guest.port }, { name: "shared" });
const openId = await machineWithPorts(client, { 80: guest.port }, { name: "open", public: true });
const { token } = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
const host = "shared.apps.example.com";
const cookie = `flotilla_share=${token}`;
const authorization = `Bearer ${client.key}`;

const OTHER = "https://evil.apps.example.com";
/** What browsers send with a form, a script's request, an image and a frame of another tenant's page. */
const OF_OTHER_PAGES: readonly (OutgoingHttpHeaders & { method?: string })[] = [
  { method: "POST", origin: OTHER },
  { origin: OTHER },
  { origin: "null" },
  { method: "POST", origin: "null", "sec-fetch-site": "same-site", "sec-fetch-mode": "navigate" },
  { "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image" },
  { "sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe" },
  { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script" },
];

interface Seen {
  readonly status: number;
  readonly code: unknown;
  readonly text: string;
}

async function visit(path: string, { method = "GET", ...headers }: OutgoingHttpHeaders & { method?: string }) {
  const { hostname, port } = new URL(server.url);
  const length = method === "POST" ? { "content-length": "0" } : {};
  const request = httpRequest({ hostname, port, path, method, headers: { ...headers, ...length }, agent: false });
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  const code = response.headers["x-error-code"];
  return { status: response.statusCode ?? 0, code, text: await text(response) } satisfies Seen;
}

/** The status of a WebSocket handshake. */
async function handshake(path: string, headers: Readonly<Record<string, string>>): Promise<number> {
  const socket = createConnection(Number(new URL(server.url).port), "127.0.0.1");
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`GET ${path} HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n${lines.join("")}\r\n`);
  const [head] = (await once(socket, "data")) as [Buffer];
  socket.destroy();
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(head.toString("latin1"))?.[1]);
}

test("a share link's cookie opens nothing for another tenant's page, which its browser takes for the same site", async () => {
  for (const headers of OF_OTHER_PAGES) {
    const seen = await visit("/", { host, cookie, ...headers });
    assert.deepEqual([seen.status, seen.code], [401, "unknown_key"], JSON.stringify(headers));
    assert.match(seen.text, /a page of another host sent this request.*open the address in a tab/);
    const stranger = await visit("/", { host, ...headers });
    assert.deepEqual([stranger.status, stranger.text], [401, ""]);
  }
  for (const origin of [OTHER, "null"]) assert.equal(await handshake("/", { host, cookie, origin }), 401);
  assert.equal(await handshake("/", { host, cookie, "sec-fetch-site": "same-site" }), 401);
  const posted = { host: "server", cookie, method: "POST", origin: OTHER, "sec-fetch-site": "same-site" };
  assert.equal((await visit(`/proxy/${id}/`, posted)).status, 401, "by path");
});

test("a share link's cookie opens the machine for its own pages, for links that are followed and for programs", async () => {
  const own = { origin: `https://${host}`, "sec-fetch-site": "same-origin" };
  const accepted: readonly (OutgoingHttpHeaders & { method?: string })[] = [
    {},
    { method: "POST" },
    { ...own, method: "POST", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty" },
    { ...own, origin: "null", method: "POST", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" },
    { origin: `http://${host}` },
    { "sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" },
    { "sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" },
    { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" },
  ];
  for (const headers of accepted) {
    const seen = await visit("/", { host, cookie, ...headers });
    assert.deepEqual([seen.status, seen.text], [200, "guest"], JSON.stringify(headers));
  }
  assert.equal(await handshake("/", { host, cookie }), 101);
  assert.equal(await handshake("/", { host, cookie, origin: `https://${host}` }), 101);
});

test("a sandboxed page by path, which has no origin, continues to load its parts and to connect", async () => {
  const path = `/proxy/${id}/`;
  const site = { host: "server", cookie, "sec-fetch-site": "cross-site" };
  assert.equal((await visit(path, { ...site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "style" })).status, 200);
  assert.equal((await visit(path, { ...site, method: "POST", origin: "null" })).status, 200);
  assert.equal(await handshake(path, { host: "server", cookie, origin: "null" }), 101);
});

test("public machines, keys and tokens in the query are not affected by the page that sends the request", async () => {
  for (const headers of OF_OTHER_PAGES) {
    assert.equal((await visit(`/proxy/${openId}/`, headers)).status, 200);
    assert.equal((await visit("/", { ...headers, host: "open.apps.example.com" })).status, 200);
    assert.equal((await visit("/", { ...headers, host, authorization })).status, 200);
    assert.equal((await visit("/", { ...headers, host, authorization, cookie })).status, 200, "the key gives access");
  }
  assert.equal((await visit(`/?t=${token}`, { host, cookie, origin: OTHER, method: "POST" })).status, 200);
  assert.equal(await handshake(`/?access_token=${client.key}`, { host, cookie, origin: OTHER }), 101);
});
