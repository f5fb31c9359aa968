/**
 * The ingress as its own process beside a server, on the same database, with no more rights there than the
 * documentation gives it.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { type AddressInfo, createConnection } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import pg from "pg";
import { Client } from "../../server/test/support/client.ts";
import { sharedDatabaseUrl } from "../support/database.ts";
import { portToReturnTo, Program, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const ROOT = join(import.meta.dirname, "../..");
/** Promised is one second; the rest is for a machine that is busy with other tests. */
const REVOKED_MS = 2_500;

/** Makes the role of the documentation; gives the database's url with it. */
async function asIngressRole(databaseUrl: string): Promise<string> {
  const page = await readFile(join(ROOT, "docs/networking.md"), "utf8");
  const statements = /```sql\n([^`]*CREATE ROLE flotilla_ingress[^`]*)```/.exec(page)?.[1];
  assert.ok(statements);
  const database = new pg.Client({ connectionString: databaseUrl });
  await database.connect();
  const { rowCount } = await database.query("SELECT FROM pg_roles WHERE rolname = 'flotilla_ingress'");
  await database.query(rowCount === 0 ? statements : statements.replace(/^CREATE ROLE.*$/m, ""));
  await database.end();
  return databaseUrl.replace(/\/\/[^@]*@/, `//flotilla_ingress:${encodeURIComponent("change me")}@`);
}

async function urlOf(ingress: Program): Promise<string> {
  const line = /^\{"url":"([^"]+)"\}$/gm;
  return await until(
    async () => {
      await ingress.mustRun();
      return [...(await ingress.log()).matchAll(line)].at(-1)?.[1];
    },
    { what: "the ingress to serve", deadlineMs: 30_000 },
  );
}

test("an ingress process serves machines and no API, revocation takes effect there, and a kill of either is not the other's", async (t) => {
  const guest = createServer((request, response) => response.end(`guest ${request.url}`));
  guest.on("upgrade", (_request, socket) => {
    socket.on("error", () => undefined);
    socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: mine\r\n\r\n");
  });
  guest.listen(0, "127.0.0.1");
  await once(guest, "listening");
  t.after(() => {
    guest.close();
    guest.closeAllConnections();
  });
  const databaseUrl = await sharedDatabaseUrl();
  await using flotilla = await startFlotilla({ databaseUrl });
  const ingress = new Program("ingress", "server/src/ingress-main.ts", join(flotilla.directory, "ingress"), {
    DATABASE_URL: await asIngressRole(databaseUrl),
    FLOTILLA_LISTEN: "127.0.0.1:0",
    FLOTILLA_LOG_LEVEL: "debug",
  });
  t.after(() => ingress.kill());
  await ingress.start();
  let url = await urlOf(ingress);

  const client = flotilla.client();
  const env = { FAKE_PORTS: `80=${(guest.address() as AddressInfo).port}` };
  const { id } = await flotilla.create({ ports: [{ port: 80 }], env });
  await flotilla.start(id);
  const statusOf = async (cookie: string): Promise<number> =>
    (await fetch(`${url}/proxy/${id}/page`, { headers: { cookie } })).status;

  // The bridge and the address, with a key, a connect token and a share link.
  const there = new Client(url, client.key);
  assert.equal((await there.get(`/v1/machines/${id}/connect/80/a`)).text, "guest /a");
  assert.equal((await there.get(`/proxy/${id}/b`)).text, "guest /b");
  const { token: connectToken } = (await client.post(`/v1/machines/${id}/connect-token`)).json;
  assert.equal((await there.withKey(connectToken).get(`/v1/machines/${id}/connect/80/`)).status, 200);
  const { token } = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
  const cookie = `flotilla_share=${token}`;
  assert.equal(await statusOf(""), 401);
  assert.equal(await statusOf(cookie), 200);

  for (const path of ["/v1/machines", `/v1/machines/${id}`, "/v1/me", "/v1/nodes", "/health", "/docs", "/"])
    assert.equal((await there.get(path)).status, 404, path);
  for (const path of ["/v1/machines", `/v1/machines/${id}/exec`, `/v1/machines/${id}/connect-token`, "/v1/apikeys"])
    assert.equal((await there.post(path, {})).status, 404, path);
  for (const path of ["/livez", "/readyz"]) assert.equal((await fetch(url + path)).status, 200, path);

  // What a share link has opened there ends with it, and it opens nothing more.
  const open = createConnection(Number(new URL(url).port), "127.0.0.1");
  open.on("error", () => undefined);
  open.write(
    `GET /proxy/${id}/ HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: mine\r\ncookie: ${cookie}\r\n\r\n`,
  );
  assert.match(String((await once(open, "data")).at(0)), /^HTTP\/1.1 101 /);
  open.resume();
  await client.delete(`/v1/machines/${id}/share`);
  await until(async () => (await statusOf(cookie)) === 401, { what: "the link's end", deadlineMs: REVOKED_MS });
  await until(() => open.readableEnded || open.destroyed, { what: "the connection's end", deadlineMs: REVOKED_MS });

  // The ingress writes activity up to a quarter of a second after it happened; its kill would lose what it
  // has not written.
  const lastActivityAt = async () => (await client.get(`/v1/machines/${id}`)).json.lastActivityAt;
  await until(async () => (await lastActivityAt()) !== null, { what: "what the ingress noted" });

  // Each serves without the other.
  const again = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
  const kept = `flotilla_share=${again.token}`;
  await flotilla.servers[0]?.kill();
  assert.equal(await statusOf(kept), 200, "with its server dead");
  await ingress.kill();
  await flotilla.startServer(0);
  assert.equal((await client.get(`/proxy/${id}/c`)).text, "guest /c");
  await ingress.start();
  const before = url;
  url = await until(async () => ((await urlOf(ingress)) === before ? undefined : await urlOf(ingress)), {
    what: "the new address",
  });
  assert.equal(await statusOf(kept), 200);
  await ingress.stop();
  assert.doesNotMatch(await ingress.log(), /permission denied|"level":(?:"error"|50)/);
  await flotilla.remove(id);
});

test("an ingress process reaches machines on a node of another host, and nothing of the node but their ports", async (t) => {
  const guest = createServer((request, response) => response.end(`guest ${request.url}`));
  guest.listen(0, "127.0.0.1");
  await once(guest, "listening");
  t.after(() => {
    guest.close();
    guest.closeAllConnections();
  });
  const databaseUrl = await sharedDatabaseUrl();
  const [port, ingressPort] = [await portToReturnTo(), await portToReturnTo()];
  const environment = { FLOTILLA_NODE_LISTEN: `127.0.0.1:${port}`, FLOTILLA_JOIN_TOKEN: "" };
  await using flotilla = await startFlotilla({ databaseUrl, nodes: 0, serverEnvironment: () => environment });
  const client = flotilla.client();
  const ingress = new Program("ingress", "server/src/ingress-main.ts", join(flotilla.directory, "ingress"), {
    DATABASE_URL: await asIngressRole(databaseUrl),
    FLOTILLA_LISTEN: "127.0.0.1:0",
    FLOTILLA_NODE_LISTEN: `127.0.0.1:${ingressPort}`,
    FLOTILLA_LOG_LEVEL: "debug",
  });
  const home = join(flotilla.directory, "far");
  const node = new Program("far", "node/src/main.ts", home, {
    FLOTILLA_DATA_DIR: home,
    FLOTILLA_NODE_ID: "far",
    FLOTILLA_DRIVER: "fake",
    FLOTILLA_LOG_LEVEL: "debug",
    FLOTILLA_URL: `https://127.0.0.1:${port}`,
    FLOTILLA_JOIN_TOKEN: (await client.post("/v1/tokens")).json.token,
  });
  t.after(() => Promise.all([ingress.kill(), node.kill()]));
  await Promise.all([node.start(), ingress.start()]);
  const url = await urlOf(ingress);
  const hasReported = async () => (await client.get("/v1/nodes")).json[0]?.lastHeartbeatAt !== null;
  await until(hasReported, { what: "the node's report", deadlineMs: 60_000 });
  const env = { FAKE_PORTS: `80=${(guest.address() as AddressInfo).port}` };
  const { id } = await flotilla.create({ ports: [{ port: 80 }], env });
  await flotilla.start(id);
  const there = new Client(url, client.key);
  const answers = async () => (await there.get(`/v1/machines/${id}/connect/80/far`)).text === "guest /far";
  await until(answers, { what: "the machine through the ingress", deadlineMs: 60_000 });
  const { token } = (await client.post(`/v1/machines/${id}/share`)).json as { token: string };
  const visit = () => fetch(`${url}/proxy/${id}/page`, { headers: { cookie: `flotilla_share=${token}` } });
  assert.equal(await (await visit()).text(), "guest /page");
  // The node comes back after a restart of the ingress, which has another key then, and is not reached once
  // it is revoked.
  await ingress.kill();
  await ingress.start();
  const next = await until(async () => ((await urlOf(ingress)) === url ? undefined : await urlOf(ingress)), {
    what: "the new address",
    deadlineMs: 60_000,
  });
  const again = new Client(next, client.key);
  const reaches = async () => (await again.get(`/v1/machines/${id}/connect/80/`)).status;
  const isReady = async () => (await fetch(`${next}/readyz`)).ok;
  await until(isReady, { what: "the ingress to be ready", deadlineMs: 60_000 });
  assert.equal(await reaches(), 200);
  assert.equal((await client.delete("/v1/nodes/far/credential")).status, 204);
  await until(async () => (await reaches()) === 503, { what: "the end of the node's membership", deadlineMs: 60_000 });
  assert.doesNotMatch(await ingress.log(), /permission denied|"level":(?:"error"|50)/);
});
