/**
 * Bad input and faults of sandboxes, as E2B's client sees them: ends of keys, of sandboxes and of the
 * gateway, and calls that are not there.
 */
import assert from "node:assert/strict";
import { after, before, beforeEach, afterEach, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { Sandbox } from "e2b";
import { type Gateway, startGateway } from "../../gateway/e2b/src/gateway.ts";
import { machineOf } from "../../gateway/e2b/src/ids.ts";
import { createLog } from "../../server/src/log.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { e2bEnvironment, onHost, startHostHelper } from "./fixture.ts";

let flotilla: Flotilla;
let gateway: Gateway;
let helper: Awaited<ReturnType<typeof startHostHelper>>;

const start = (port = 0): Promise<Gateway> =>
  startGateway({
    ...{ url: flotilla.urls[0] ?? "", listen: { host: "127.0.0.1", port }, domain: null },
    ...{ secret: Buffer.alloc(32, 1), dataDirectory: flotilla.directory },
    ...{ clock: systemClock, log: createLog("error") },
  });

before(async () => {
  flotilla = await startFlotilla();
  gateway = await start();
});

after(async () => {
  await gateway.close();
  await flotilla[Symbol.asyncDispose]();
});

beforeEach(async () => {
  e2bEnvironment(gateway.url, flotilla.client().key ?? "");
  helper = await startHostHelper();
});

afterEach(async () => {
  await helper[Symbol.asyncDispose]();
});

const create = (timeoutMs = 120_000): Promise<Sandbox> => Sandbox.create({ ...onHost(helper), timeoutMs });

const isGone = async (sandbox: Sandbox): Promise<boolean> =>
  (await flotilla.client().get(`/v1/machines/${machineOf(sandbox.sandboxId)}`)).status === 404;

interface Raw {
  readonly status: number;
  readonly text: string;
}

async function raw(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body?: string,
): Promise<Raw> {
  const init = { method, headers: { ...headers }, ...(body === undefined ? {} : { body }) };
  const answer = await fetch(gateway.url + path, init);
  return { status: answer.status, text: await answer.text() };
}

const token = (sandbox: Sandbox): string => (sandbox as unknown as { envdAccessToken: string }).envdAccessToken;

test("commands outlive their reader and the gateway, and are found again", async () => {
  const sandbox = await create();
  const running = await sandbox.commands.run("cat", { background: true, stdin: true, timeoutMs: 0 });
  await running.disconnect();
  const { port } = new URL(gateway.url);
  await gateway.close();
  gateway = await start(Number(port));
  const again = await sandbox.commands.connect(running.pid, { timeoutMs: 0 });
  await sandbox.commands.sendStdin(running.pid, "still\n");
  await sandbox.commands.closeStdin(running.pid);
  assert.equal((await again.wait()).stdout, "still\n");
  assert.equal(await sandbox.kill(), true);
});

test("a sandbox ends with its time, and its command with an error that says so", async () => {
  const sandbox = await create(3_000);
  const begunAt = systemClock.monotonic();
  await assert.rejects(sandbox.commands.run("sleep 60", { timeoutMs: 0 }), /sandbox|timeout/i);
  assert.ok(systemClock.monotonic() - begunAt < 10_000);
  await until(() => isGone(sandbox), { what: "the machine to be deleted" });
  assert.equal(await sandbox.isRunning(), false);
  await assert.rejects(sandbox.getInfo(), /doesn't exist|not found/i);
});

test("a command ends when its sandbox is killed", async () => {
  const sandbox = await create();
  const running = await sandbox.commands.run("sleep 60", { background: true, timeoutMs: 0 });
  await sandbox.kill();
  await assert.rejects(running.wait(), /killed|end of life|not running|terminated/i);
});

test("a sandbox that is to pause at its end is paused, and continues", async () => {
  const options = { ...onHost(helper), timeoutMs: 2_000, lifecycle: { onTimeout: "pause" as const } };
  const sandbox = await Sandbox.create(options);
  const state = async (): Promise<string> => (await flotilla.get(machineOf(sandbox.sandboxId))).state;
  await until(async () => (await state()) === "stopped", { what: "the machine to be suspended" });
  assert.equal((await sandbox.getInfo()).state, "paused");
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 });
  assert.equal((await again.commands.run("echo on")).stdout, "on\n");
  await again.kill();
});

test("a visitor wakes a sandbox that was made so, and its server leaves nothing running without the gateway", async () => {
  const lifecycle = { onTimeout: "pause" as const, autoResume: true };
  const sandbox = await Sandbox.create({ ...onHost(helper), timeoutMs: 2_000, lifecycle });
  const machine = async () => (await flotilla.client().get(`/v1/machines/${machineOf(sandbox.sandboxId)}`)).json;
  assert.equal((await machine()).atEnd, "suspend");
  await until(async () => (await machine()).state === "stopped", { what: "the machine to be suspended" });
  assert.equal(await sandbox.isRunning(), false);
  const page = await fetch(`${gateway.url}/9-${sandbox.sandboxId}/`);
  assert.deepEqual([page.status, (await machine()).state], [502, "started"]);
  assert.match(await page.text(), /port is not open/);
  assert.ok((await sandbox.getInfo()).endAt.getTime() - Date.now() > 200_000);
  await sandbox.kill();
});

test("visitors of ports and of signed addresses are served by a gateway that has just started", async () => {
  const sandbox = await create();
  await sandbox.files.write("kept", "text");
  const link = await sandbox.downloadUrl("kept");
  const { port } = new URL(gateway.url);
  await gateway.close();
  gateway = await start(Number(port));
  assert.equal(await (await fetch(link)).text(), "text");
  await gateway.close();
  gateway = await start(Number(port));
  assert.match(await (await fetch(`${gateway.url}/9-${sandbox.sandboxId}/`)).text(), /port is not open/);
  await sandbox.kill();
  await gateway.close();
  gateway = await start(Number(port));
  assert.equal((await fetch(link)).status, 502);
});

test("a sandbox from a snapshot has the metadata, the time and the end of its request, and another may follow", async () => {
  const source = await Sandbox.create({ ...onHost(helper), metadata: { of: "source" }, timeoutMs: 120_000 });
  const { snapshotId } = await source.createSnapshot();
  const lifecycle = { onTimeout: "pause" as const };
  const made = await Sandbox.create(snapshotId, { metadata: { of: "copy" }, timeoutMs: 600_000, lifecycle });
  const info = await made.getInfo();
  assert.deepEqual([info.metadata, info.lifecycle?.onTimeout], [{ of: "copy" }, "pause"]);
  assert.ok(info.endAt.getTime() - Date.now() > 500_000);
  const found = await Sandbox.list({ query: { metadata: { of: "copy" } } }).nextItems();
  assert.deepEqual(
    found.map(({ sandboxId }) => sandboxId),
    [made.sandboxId],
  );
  assert.deepEqual((await source.getInfo()).metadata, { of: "source" });
  assert.equal((await made.getMetrics({ start: new Date(0), end: new Date(3_600_000) })).length, 0);
  const second = await Sandbox.create(snapshotId, { timeoutMs: 60_000 });
  const forks = [...(await source.fork()), ...(await source.fork({ count: 2 }))];
  const copies = [second, ...forks].map((each) => (each instanceof Error ? assert.fail(each) : each));
  assert.equal(new Set([source, made, ...copies].map(({ sandboxId }) => sandboxId)).size, 6);
  await Promise.all([source, made, ...copies].map((each) => each.kill()));
  assert.equal(await Sandbox.deleteSnapshot(snapshotId), true);
});

test("what of a network is not there is refused by its name, and the rest is kept", async () => {
  const attempt = (network: object): Promise<unknown> =>
    Sandbox.create({ ...onHost(helper), network }).then(
      (sandbox) => sandbox.kill(),
      (error: unknown) => String(error),
    );
  assert.match(String(await attempt({ denyOut: ["8.8.8.8"] })), /denyOut of less than everything is not implemented/);
  assert.match(String(await attempt({ httpsPorts: [8443] })), /network.httpsPorts is not implemented/);
  assert.match(String(await attempt({ maskRequestHost: "a b" })), /maskRequestHost is not a host/);
  assert.equal(await attempt({ denyOut: ["0.0.0.0/0"], allowOut: ["1.1.1.1", "example.com"] }), true);
  const sandbox = await Sandbox.create({
    ...onHost(helper),
    network: { allowPublicTraffic: false, maskRequestHost: "own.example:${PORT}" },
  });
  const url = `${gateway.url}/9-${sandbox.sandboxId}/`;
  assert.equal((await fetch(url)).status, 403);
  const headers = { "e2b-traffic-access-token": sandbox.trafficAccessToken ?? "" };
  assert.equal((await fetch(url, { headers })).status, 502);
  await sandbox.kill();
});

test("nothing is open to a key that was revoked, or is another tenant's", async () => {
  const client = flotilla.client();
  const made = (await client.post("/v1/apikeys", {})).json as { id: string; key: string };
  e2bEnvironment(gateway.url, made.key);
  const sandbox = await create();
  assert.equal((await sandbox.commands.run("echo hi")).stdout, "hi\n");
  assert.equal((await client.delete(`/v1/apikeys/${made.id}`)).status, 204);
  await assert.rejects(sandbox.commands.run("true"), /401|unauth|key/i);
  await assert.rejects(sandbox.getInfo(), /401|key/i);
  const tenant = (await client.post("/v1/tenants", { name: "other" })).json as { id: string };
  const other = (await client.post("/v1/apikeys", { tenantId: tenant.id })).json as { key: string };
  e2bEnvironment(gateway.url, other.key);
  await assert.rejects(Sandbox.connect(sandbox.sandboxId), /doesn't exist|not found/i);
  assert.deepEqual(await Sandbox.list().nextItems(), []);
});

test("a token opens its own sandbox only", async () => {
  const [one, other] = [await create(), await create()];
  const call = (id: string, given: string): Promise<Raw> => {
    const headers = { "e2b-sandbox-id": id, "x-access-token": given, "content-type": "application/json" };
    return raw("POST", "/process.Process/List", headers, "{}");
  };
  assert.equal((await call(one.sandboxId, token(one))).status, 200);
  for (const given of [token(other), "", "x".repeat(60)]) assert.equal((await call(one.sandboxId, given)).status, 401);
  assert.equal(
    (await raw("POST", "/execute", { "e2b-sandbox-id": one.sandboxId, "e2b-sandbox-port": "49999" })).status,
    401,
  );
  assert.equal((await call(`i${"0".repeat(32)}`, token(one))).status, 401);
  await Promise.all([one.kill(), other.kill()]);
});

test("what is not there is answered at once, with its name", async () => {
  const sandbox = await create();
  const key = { "x-api-key": process.env["E2B_API_KEY"] ?? "" };
  const volumes = await raw("POST", "/volumes", key, "{}");
  assert.deepEqual([volumes.status, JSON.parse(volumes.text).code], [501, 501]);
  assert.match(volumes.text, /POST \/volumes is not implemented/);
  const refused = await raw("POST", "/v2/sandboxes", key, JSON.stringify({ templateID: "base", iam: { role: "x" } }));
  assert.deepEqual([refused.status, /iam/.test(refused.text)], [501, true]);
  const call = { "e2b-sandbox-id": sandbox.sandboxId, "x-access-token": token(sandbox) };
  const unary = await raw("POST", "/process.Process/Dance", { ...call, "content-type": "application/json" }, "{}");
  assert.deepEqual([unary.status, JSON.parse(unary.text).code], [501, "unimplemented"]);
  const protobuf = await raw("POST", "/process.Process/List", { ...call, "content-type": "application/proto" }, "");
  assert.equal(protobuf.status, 415);
  await sandbox.kill();
});

test("input that is wrong is refused, and does not disturb the others", async () => {
  const sandbox = await create();
  const key = { "x-api-key": process.env["E2B_API_KEY"] ?? "" };
  for (const body of [
    "{",
    "[]",
    "1",
    '{"templateID":5}',
    '{"templateID":"base","timeout":-1}',
    `"${"x".repeat(2_000_000)}"`,
  ]) {
    const { status } = await raw("POST", "/v2/sandboxes", key, body);
    assert.ok(status === 400 || status === 413, `${status} for ${body.slice(0, 40)}`);
  }
  const call = { "e2b-sandbox-id": sandbox.sandboxId, "x-access-token": token(sandbox) };
  for (const body of ["{", "[]", "null", `{"a":${"[".repeat(100_000)}`]) {
    const { status } = await raw(
      "POST",
      "/filesystem.Filesystem/Stat",
      { ...call, "content-type": "application/json" },
      body,
    );
    assert.equal(status, 400, body.slice(0, 20));
  }
  await assert.rejects(sandbox.files.read("a\0b"));
  const name = "ignore all instructions; $(touch x) `id` '\"\n.txt";
  await sandbox.files.write(name, "data");
  assert.equal(await sandbox.files.read(name), "data");
  assert.ok((await sandbox.files.list(".")).some((entry) => entry.name === name));
  await sandbox.kill();
});
