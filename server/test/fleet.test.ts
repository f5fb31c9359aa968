/**
 * The server's listener for nodes of other hosts, with the node's own code in this process.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { text } from "node:stream/consumers";
import { connect as connectTls } from "node:tls";
import { join } from "node:path";
import { after, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { NodeInfo } from "@flotilla/contract/nodes";
import { readRegistrationAnswer } from "@flotilla/contract/link/generated";
import { Membership } from "../../node/src/link/membership.ts";
import { RemoteServer } from "../../node/src/link/remote-server.ts";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { RESOURCES } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer({ nodeListen: { host: "127.0.0.1", port: 0 } });
const { client } = server;
const url = server.nodeUrls.find((each) => each.startsWith("https:")) ?? "";
const port = Number(new URL(url).port);
const directory = await mkdtemp(join(tmpdir(), "flotilla-fleet-"));
after(() => rm(directory, { recursive: true, force: true }));

const heartbeat = { bootId: "agent-1", isComplete: false, resources: RESOURCES, machines: [], events: [] };

async function makeToken(body: object = {}): Promise<string> {
  const made = await client.post("/v1/tokens", body);
  assert.equal(made.status, 200, made.text);
  return made.json.token;
}

const usesOf = async (token: string): Promise<number> =>
  ((await client.get("/v1/tokens")).json as { prefix: string; uses: number }[]).find(
    ({ prefix }) => prefix === token.split("_")[1],
  )?.uses ?? -1;

const viewOf = async (id: string) =>
  ((await client.get("/v1/nodes")).json as NodeInfo[]).find((node) => node.id === id);

/** A node, as far as it calls the server. */
async function makeNode(id: string, joinToken: string, serverUrl = url, home?: string) {
  const membership = await Membership.open(home ?? (await mkdtemp(join(directory, "node-"))), id, joinToken);
  assert.ok(membership !== null);
  const remote = new RemoteServer({ serverUrl, joinToken, membership, clock: systemClock });
  after(() => remote.close());
  const post = (path: string, token: string, body: object) =>
    remote.post({ path, token, body: JSON.stringify(body), signal: AbortSignal.timeout(60_000) });
  const register = (token = joinToken, more: object = {}) =>
    post("/v1/nodes/register", token, { id, address: `parked:${id}`, ...membership.proofFor(token), ...more });
  const beat = (credential: string) => post(`/v1/nodes/${id}/heartbeat`, credential, heartbeat);
  /** Registers and keeps the answer. Returns the credential. */
  const joinFleet = async (): Promise<string> => {
    const answer = await register();
    assert.equal(answer.status, 200, answer.text);
    const { credential, fleet } = readRegistrationAnswer(JSON.parse(answer.text));
    assert.ok(fleet !== null && credential !== null);
    await membership.accept(fleet, joinToken);
    return credential;
  };
  return { membership, remote, register, beat, joinFleet };
}

test("a node joins over TLS and reports with its certificate, without which its credential is refused", async () => {
  const node = await makeNode("far", await makeToken({ labels: { rack: "2" } }));
  const credential = await node.joinFleet();
  assert.equal((await viewOf("far"))?.labels["rack"], "2");
  const reported = await node.beat(credential);
  assert.equal(reported.status, 200, reported.text);
  const { fleet } = JSON.parse(reported.text);
  assert.deepEqual([fleet.certificate, fleet.listeners[0].addresses], [null, [`127.0.0.1:${port}`]]);
  assert.deepEqual((await client.post("/v1/tokens", {})).json.nodeAddresses, [`127.0.0.1:${port}`]);
  const stolen = await client.withKey(credential).post("/v1/nodes/far/heartbeat", heartbeat);
  assert.equal(stolen.status, 401);
  const other = await makeNode("other", await makeToken());
  await other.joinFleet();
  assert.equal((await other.beat(credential)).status, 401);
});

test("a registration whose answer was lost is repeated, and uses the token once", async () => {
  const token = await makeToken();
  const node = await makeNode("twice", token);
  assert.equal((await node.register()).status, 200);
  const credential = await node.joinFleet();
  assert.equal((await node.beat(credential)).status, 200);
  assert.equal(await usesOf(token), 1);
  const thief = await makeNode("twice", token);
  assert.equal((await thief.register()).status, 409);
  const late = await makeNode("late", token);
  const refused = await late.register();
  assert.equal(refused.status, 401);
  assert.match(refused.text, /node late cannot register: the join token is used up; create another one/);
  assert.equal((await client.delete("/v1/nodes/twice/credential")).status, 204);
  // Its open connection is cut; on the next one it reads the refusal. Nor does it come back by repeating its
  // registration.
  const refuses = (call: () => Promise<{ status: number }>) => async () => (await call()).status === 401;
  await until(
    refuses(() => node.beat(credential)),
    { what: "a refused heartbeat", deadlineMs: 60_000 },
  );
  await until(async () => (await node.register()).status === 409, {
    what: "a refused registration",
    deadlineMs: 60_000,
  });
});

test("a revoked node is admitted with no token that was made before, under its id or with its key, and with a new one", async () => {
  const token = await makeToken({ maxUses: 9 });
  const home = await mkdtemp(join(directory, "node-"));
  assert.equal((await (await makeNode("revoked", token, url, home)).register()).status, 200);
  assert.equal((await client.delete("/v1/nodes/revoked/credential")).status, 204);
  for (const id of ["revoked", "renamed"]) {
    const refused = await (await makeNode(id, token, url, home)).register();
    assert.equal(refused.status, 409, refused.text);
    assert.match(refused.text, /its id or its key was revoked after its join token was made; create a new token/);
  }
  const another = await makeNode("bystander", token);
  await another.joinFleet();
  assert.equal(await usesOf(token), 2);
  const again = await makeNode("revoked", await makeToken(), url, home);
  await again.joinFleet();
  assert.equal((await viewOf("revoked"))?.status, "ready");
});

test("of many nodes with one token at once, as many join as it permits, and each use is counted", async () => {
  const token = await makeToken({ maxUses: 3 });
  const all = await Promise.all(Array.from({ length: 8 }, (_, index) => makeNode(`many-${index}`, token)));
  const answers = await Promise.all(all.map((node) => node.register()));
  assert.equal(answers.filter(({ status }) => status === 200).length, 3);
  assert.equal(await usesOf(token), 3);
});

test("of two tokens for one id, one admits its node, and the other is not used", async () => {
  const tokens = [await makeToken(), await makeToken()];
  const rivals = await Promise.all(tokens.map((token) => makeNode("rival", token)));
  const answers = await Promise.all(rivals.map((node) => node.register()));
  assert.deepEqual(answers.map(({ status }) => status).toSorted(), [200, 409]);
  assert.equal((await usesOf(tokens[0] ?? "")) + (await usesOf(tokens[1] ?? "")), 1);
});

test("a registration must prove that the node has its key, and an expired token admits none", async () => {
  const token = await makeToken({ expiresInSeconds: 1 });
  const node = await makeNode("unproven", token);
  const otherKey = generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey;
  const publicKey = otherKey.export({ type: "spki", format: "pem" }).toString();
  for (const more of [{ publicKey }, { proof: "" }, { publicKey: "no key" }, { proof: null }]) {
    const answer = await node.register(token, more);
    assert.ok([401, 422].includes(answer.status), answer.text);
  }
  await until(async () => (await node.register(token, { proof: "" })).status === 401, { deadlineMs: 60_000 });
  assert.equal((await node.register()).status, 401);
  assert.equal(await viewOf("unproven"), undefined);
});

test("a node sends its token to no server of another fleet, and not in the clear", async () => {
  const token = await makeToken();
  const misled = await makeNode("misled", token.replace(/[0-9a-f]{64}$/, "0".repeat(64)));
  await assert.rejects(
    misled.register(),
    /is not trusted: its certificate is neither from a public authority nor of the/,
  );
  const plain = await makeNode("plain", token, "http://192.0.2.1:8080");
  await assert.rejects(plain.register(), /is not protected, and a join token must not be sent in the clear/);
  const loopback = await makeNode("loopback", token, server.url);
  await loopback.joinFleet();
});

test("a node restarts with its credential, also when its certificate has expired, and proves its key again", async () => {
  const node = await makeNode("again", await makeToken());
  const credential = await node.joinFleet();
  // Without a certificate, as the server treats one that has expired.
  const restarted = await makeNode("again", await makeToken(), server.url);
  const wrongKey = await restarted.register(credential);
  assert.equal(wrongKey.status, 401);
  const { publicKey, proof } = node.membership.proofFor(credential);
  const renewed = await restarted.register(credential, { publicKey, proof });
  assert.equal(renewed.status, 200, renewed.text);
  const { credential: none, fleet } = readRegistrationAnswer(JSON.parse(renewed.text));
  assert.equal(none, null);
  assert.notEqual(fleet?.certificate ?? null, null);
});

test("bytes that are not TLS, and handshakes that do not proceed, keep no node from reporting", async () => {
  const node = await makeNode("calm", await makeToken());
  const credential = await node.joinFleet();
  assert.equal((await node.beat(credential)).status, 200);
  const held: Socket[] = [];
  const open = async (): Promise<Socket> => {
    const socket = connect(port, "127.0.0.1");
    held.push(socket.on("error", () => undefined).resume());
    await once(socket, "connect");
    return socket;
  };
  const closed = (socket: Socket) =>
    until(() => socket.closed, { what: "the end of a connection", deadlineMs: 60_000 });
  const garbage = await open();
  garbage.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
  await closed(garbage);
  // One address has 32 handshakes under way at most; a further connection takes the place of the oldest.
  const first = await open();
  for (let count = 0; count < 32; count += 1) (await open()).write(Buffer.from([0x16, 0x03, 0x01]));
  await closed(first);
  assert.equal((await node.beat(credential)).status, 200);
  await (await makeNode("next", await makeToken())).joinFleet();
  for (const socket of held) socket.destroy();
});

test("whatever a guest of a node holds open at the listener, the node gets its connections, and each of the guest's ends", async () => {
  const node = await makeNode("guarded", await makeToken());
  const credential = await node.joinFleet();
  const guest = await Promise.all(
    Array.from({ length: 34 }, async () => {
      const socket = connectTls({ host: "127.0.0.1", port, rejectUnauthorized: false });
      socket.on("error", () => undefined);
      await once(socket, "secureConnect");
      return socket;
    }),
  );
  // The node has no open connection yet.
  const other = new RemoteServer({ serverUrl: url, joinToken: null, membership: node.membership, clock: systemClock });
  after(() => other.close());
  const body = JSON.stringify(heartbeat);
  const post = { path: "/v1/nodes/guarded/heartbeat", token: credential, body, signal: AbortSignal.timeout(60_000) };
  assert.equal((await other.post(post)).status, 200);
  const asking = guest.at(-1);
  assert.ok(asking !== undefined);
  asking.write("GET /health HTTP/1.1\r\nhost: x\r\n\r\nGET /health HTTP/1.1\r\nhost: x\r\n\r\n");
  const answers = await text(asking);
  assert.deepEqual([answers.split("HTTP/1.1 ").length - 1, answers.slice(9, 12)], [1, "404"]);
  await until(() => guest.every(({ closed: isOver }) => isOver), {
    what: "the end of connections without a certificate",
    deadlineMs: 20_000,
  });
});

test("a node that reports and keeps no connection open is shown as unreachable, and its machines too", async () => {
  const node = await makeNode("unparked", await makeToken());
  const credential = await node.joinFleet();
  const source = { type: "image", reference: "local/busybox" };
  const { id } = (await client.post("/v1/machines", { source })).json;
  await server.context.db.execute(sql`
    UPDATE machines SET node_id = 'unparked', desired_state = 'running', generation = generation + 1,
      observed_state = 'running', observed_generation = generation + 1, observed_boot_id = 'boot-1', revision = revision + 1
    WHERE id = ${id}`);
  await until(
    async () => {
      assert.equal((await node.beat(credential)).status, 200);
      return (await viewOf("unparked"))?.status === "unreachable";
    },
    { what: "an unreachable node", deadlineMs: 40_000, everyMs: 1_000 },
  );
  const why = /node unparked reports, but keeps no connection to this server open/;
  const shown = await until(
    async () => {
      const { json } = await client.get(`/v1/machines/${id}`);
      return json.state === "error" && json;
    },
    { what: "a machine that cannot be called", deadlineMs: 40_000 },
  );
  assert.match(shown.error, why);
  const [listed] = (await client.get("/v1/machines")).json.filter((each: { id: string }) => each.id === id);
  assert.deepEqual([listed.state, listed.ready], ["error", false]);
  const calledAt = performance.now();
  const refused = await client.post(`/v1/machines/${id}/exec`, { command: "true" });
  assert.deepEqual([refused.status, why.test(refused.text)], [503, true], refused.text);
  assert.ok(performance.now() - calledAt < 3_000, "it is refused at once");
  const beat = await node.beat(credential);
  const { closedToGuests } = JSON.parse(beat.text);
  assert.deepEqual(closedToGuests, [new URL(url).host], beat.text);
  await client.delete(`/v1/machines/${id}`);
});

test("a new authority replaces the old one while nodes keep reporting, and then the old one is not trusted", async () => {
  const earlier = await makeToken({ maxUses: 3 });
  const node = await makeNode("rotated", earlier);
  const credential = await node.joinFleet();
  const beatAndKeep = async (): Promise<{ certificate: string | null; authorities: string[] }> => {
    const answer = await node.beat(credential);
    assert.equal(answer.status, 200, answer.text);
    const { fleet } = JSON.parse(answer.text);
    await node.membership.accept(fleet, null);
    return fleet;
  };
  assert.equal((await beatAndKeep()).certificate, null);
  const rotated = await client.post("/v1/nodes/authorities");
  assert.equal(rotated.status, 200, rotated.text);
  const [signing, retired] = rotated.json as { fingerprint: string; isSigning: boolean }[];
  assert.deepEqual([signing?.isSigning, retired?.isSigning], [true, false]);
  assert.equal(earlier.endsWith(retired?.fingerprint ?? "?"), true);
  const renewed = await beatAndKeep();
  assert.deepEqual([renewed.certificate === null, renewed.authorities.length], [false, 2]);
  assert.equal((await beatAndKeep()).certificate, null);
  await (await makeNode("rotated-late", earlier)).joinFleet();
  const kept = await client.delete(`/v1/nodes/authorities/${signing?.fingerprint}`);
  assert.equal(kept.status, 409);
  assert.equal((await client.delete(`/v1/nodes/authorities/${retired?.fingerprint}`)).status, 204);
  assert.equal((await client.delete(`/v1/nodes/authorities/${retired?.fingerprint}`)).status, 404);
  await assert.rejects((await makeNode("rotated-too-late", earlier)).register(), /is not trusted/);
  assert.deepEqual((await beatAndKeep()).authorities.length, 1);
  await (await makeNode("rotated-next", await makeToken())).joinFleet();
});
