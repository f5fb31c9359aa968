/**
 * Certificates of nodes and servers over time, with a server whose clock the test sets: renewal long before
 * expiry, expired certificates, and clocks that differ. OpenSSL verifies with the host's clock, which is the
 * nodes' here.
 */
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "node:tls";
import { after, test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { authorityServerName } from "@flotilla/contract/link/fleet";
import { readRegistrationAnswer } from "@flotilla/contract/link/generated";
import { LINK_VERSION, OWN_LINK_VERSIONS } from "@flotilla/contract/link/version";
import { Membership } from "../../node/src/link/membership.ts";
import { RemoteServer } from "../../node/src/link/remote-server.ts";
import { Program } from "../../test/support/flotilla.ts";
import { until } from "../../test/support/until.ts";
import { RESOURCES } from "./support/node.ts";
import { startTestServer, type TestServer } from "./support/server.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DEADLINE_MS = 60_000;

const directory = await mkdtemp(join(tmpdir(), "flotilla-clocks-"));
const nodes: Program[] = [];
after(async () => {
  for (const node of nodes) await node.kill();
  await rm(directory, { recursive: true, force: true });
});

/** A server whose clock is `offsetMs` ahead of the host's; it can be set. */
async function startServer(offsetMs: number): Promise<TestServer & { set(offsetMs: number): void }> {
  let offset = offsetMs;
  const clock: Clock = { ...systemClock, now: () => Date.now() + offset };
  const server = await startTestServer({ clock, nodeListen: { host: "127.0.0.1", port: 0 } });
  const set = (next: number): void => {
    offset = next;
  };
  return { ...server, set };
}

const fleetUrl = ({ nodeUrls }: TestServer): URL => new URL(nodeUrls.find((each) => each.startsWith("https:")) ?? "");

async function makeToken({ client }: TestServer): Promise<string> {
  return (await client.post("/v1/tokens")).json.token;
}

/** When the certificate that a server shows to nodes expires, in epoch milliseconds. */
async function shownUntil(server: TestServer, token: string): Promise<number> {
  const { hostname: host, port } = fleetUrl(server);
  const servername = authorityServerName(token.slice(-64));
  const socket = connect({ host, port: Number(port), servername, rejectUnauthorized: false });
  await once(socket, "secureConnect");
  const { validTo = "" } = socket.getPeerX509Certificate() ?? {};
  socket.destroy();
  return Date.parse(validTo);
}

/** A node, as far as it calls the server. */
async function joinAs(id: string, server: TestServer, token: string, serverUrl = fleetUrl(server).origin) {
  const membership = await Membership.open(await mkdtemp(join(directory, "node-")), id, token);
  assert.ok(membership !== null);
  const remote = new RemoteServer({ serverUrl, joinToken: token, membership, clock: systemClock });
  after(() => remote.close());
  const post = async (path: string, bearer: string, body: object) => {
    const answer = await remote.post({
      path,
      token: bearer,
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    const { fleet = null, credential = null } = answer.status === 200 ? JSON.parse(answer.text) : {};
    if (fleet !== null) await membership.accept(fleet, null);
    return { status: answer.status, text: answer.text, credential, certificate: fleet?.certificate ?? null };
  };
  const register = (bearer = token) =>
    post("/v1/nodes/register", bearer, { id, address: `parked:${id}`, ...membership.proofFor(bearer) });
  const { credential } = await register();
  const link = OWN_LINK_VERSIONS;
  const heartbeat = { bootId: "agent-1", link, isComplete: false, resources: RESOURCES, machines: [], events: [] };
  const beat = () => post(`/v1/nodes/${id}/heartbeat`, String(credential), { ...heartbeat, sentAt: Date.now() });
  const validTo = (): number => Date.parse(new X509Certificate(membership.identity?.cert ?? "").validTo);
  return { register, beat, validTo, credential: String(credential) };
}

test("certificates of nodes and servers are renewed when half of their day has passed, and not before", async () => {
  const server = await startServer(-13 * HOUR_MS);
  const token = await makeToken(server);
  const node = await joinAs("renewed", server, token);
  const first = { node: node.validTo(), server: await shownUntil(server, token) };
  server.set(-2 * HOUR_MS);
  assert.equal((await node.beat()).certificate, null);
  assert.equal(await shownUntil(server, token), first.server);
  server.set(0);
  assert.notEqual((await node.beat()).certificate, null);
  assert.ok(node.validTo() - first.node > 12 * HOUR_MS, "the node's certificate was not replaced");
  assert.ok((await shownUntil(server, token)) - first.server > 12 * HOUR_MS, "the server's was not replaced");
  assert.deepEqual([(await node.beat()).status, (await node.beat()).certificate], [200, null]);
  readRegistrationAnswer(JSON.parse((await node.register(node.credential)).text));
});

test("certificates that were issued by a clock that was ahead are replaced when it is set back", async () => {
  const server = await startServer(5 * HOUR_MS);
  const token = await makeToken(server);
  await assert.rejects(
    joinAs("early", server, token),
    /the server's certificate is not valid yet by this host's clock, which shows .*: set the clocks of this host and of the server/,
  );
  const node = await joinAs("early", server, token, server.url);
  server.set(0);
  assert.equal((await node.beat()).status, 401);
  assert.equal((await node.register(node.credential)).status, 200);
  assert.equal((await node.beat()).status, 200);
});

test("an authority that was made by a wrong clock is replaced by an operator, as the refusal says", async () => {
  const server = await startServer(-Date.now());
  assert.equal((await server.client.get("/v1/nodes/authorities")).status, 200);
  server.set(0);
  await assert.rejects(
    joinAs("later", server, await makeToken(server)),
    /has expired by this host's clock.* If both are right, .*: `flotilla authority rotate` makes another one$/,
  );
  assert.equal((await server.client.post("/v1/nodes/authorities")).status, 200);
  const node = await joinAs("later", server, await makeToken(server));
  assert.equal((await node.beat()).status, 200);
});

test("a node whose certificate has expired renews it by itself, with its credential and its key", async () => {
  const server = await startServer(-30 * HOUR_MS);
  const home = join(directory, "expired");
  const node = new Program("expired", "node/src/main.ts", home, {
    FLOTILLA_DATA_DIR: home,
    FLOTILLA_NODE_ID: "expired",
    FLOTILLA_DRIVER: "fake",
    FLOTILLA_LOG_LEVEL: "debug",
    FLOTILLA_URL: server.url,
    FLOTILLA_JOIN_TOKEN: await makeToken(server),
  });
  nodes.push(node);
  await node.start();
  await until(async () => /certificate has expired by this host's clock/.test(await node.log()), {
    what: "the node to refuse a server whose certificate has expired",
    deadlineMs: DEADLINE_MS,
  });
  server.set(0);
  const hasReported = async (): Promise<boolean> => {
    await node.mustRun();
    const [view] = (await server.client.get("/v1/nodes")).json as { lastHeartbeatAt: string | null }[];
    return (view?.lastHeartbeatAt ?? null) !== null;
  };
  await until(hasReported, { what: "a report", deadlineMs: DEADLINE_MS });
});

test("clocks that differ by less than an hour are tolerated, and by more are named in the refusal", async () => {
  for (const offsetMs of [-59 * MINUTE_MS, 59 * MINUTE_MS]) {
    const server = await startServer(offsetMs);
    const node = await joinAs("near", server, await makeToken(server));
    const { status, certificate } = await node.beat();
    assert.deepEqual([status, certificate], [200, null], `${offsetMs}`);
    const [view] = (await server.client.get("/v1/nodes")).json;
    assert.ok(Math.abs(view.clockAheadMs + offsetMs) < MINUTE_MS, `${view.clockAheadMs}`);
    assert.equal(Date.parse(view.certificateExpiresAt), node.validTo());
    assert.equal(view.linkVersion, LINK_VERSION);
  }
  const server = await startServer(61 * MINUTE_MS);
  await assert.rejects(joinAs("far", server, await makeToken(server)), /they may differ by an hour/);
});
