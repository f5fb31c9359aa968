/**
 * An app in everything that may happen to it, while clients ask it by its host name through a server and
 * an ingress: checked by its nodes, rolled out by each strategy, scaled, rolled back, drained, destroyed.
 *
 * Always: no request fails while the app is asked to serve, counted by the clients.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, type IncomingMessage, request as httpRequest } from "node:http";
import { text } from "node:stream/consumers";
import { after, test } from "node:test";
import type { AppInfo } from "@flotilla/contract/apps";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { startTestIngress } from "./support/ingress.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestNode } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const { client, server, context, node } = await startMachineServer({ publicUrl: "http://fleet.example.net:8080" });
const other = await startTestNode(server, "node-b");
const second = await startTestServer({ databaseUrl: server.databaseUrl, dataDirectory: server.dataDirectory });
const ingress = await startTestIngress(server);
const WAYS = [server.url, second.url, ingress.url];
await context.db.execute(sql`UPDATE plans SET rate_requests_per_second = 100000, rate_burst = 100000`);

const HEALTH = { type: "http", path: "/healthz", intervalSecs: 1, timeoutSecs: 5, retries: 1 };
const LISTENING = { FAKE_LISTEN: "8080=200", FAKE_LISTEN_AFTER_MS: "150" };

const deploy = async (version: string, fields: object = {}, listening: object = LISTENING): Promise<AppInfo> => {
  const env = Object.entries({ ...listening, VERSION: version }).map(([key, value]) => ({ key, value }));
  const body = { name: "shop", image: "local/busybox", env, replicas: 3, health: HEALTH, stopGraceSecs: 1 };
  const answer = await client.post("/v1/apps", { ...body, ...fields });
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
};

const read = async (): Promise<AppInfo> => (await client.get("/v1/apps/shop")).json;
const becomes = (what: string, holds: (app: AppInfo) => boolean): Promise<AppInfo> =>
  until(
    async () => {
      const app = await read();
      if (holds(app)) return app;
      throw new Error((await client.get("/v1/apps/shop/explain")).text);
    },
    { what: `the app to be ${what}`, deadlineMs: 60_000 },
  );
const settled = (release: number): Promise<AppInfo> =>
  becomes(`settled with release ${release}`, (app) => {
    const { instances, replicas } = app;
    const isOver = app.rollout === null || app.rollout.phase === "failed";
    return (
      isOver &&
      instances.length === replicas &&
      instances.every((each) => each.isServing && each.status === "healthy" && each.generation === release)
    );
  });

let isOver = false;
const agent = new Agent({ keepAlive: true });
after(() => {
  isOver = true;
  agent.destroy();
});
interface Asked {
  readonly host?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The status and the text of the answer, which says which machine it is from. */
async function ask(
  url: string,
  { host = "shop.localhost", path = "/", headers = {} }: Asked = {},
): Promise<readonly [number, string]> {
  const { hostname, port } = new URL(url);
  const request = httpRequest({ hostname, port, agent, path, headers: { host, ...headers } });
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return [response.statusCode ?? 0, await text(response)];
}

let answered = 0;
const failures: string[] = [];
async function keepAsking(url: string): Promise<void> {
  while (!isOver) {
    const [status, said] = await ask(url).catch((error: unknown) => [0, String(error)] as const);
    answered += 1;
    if (status !== 200) failures.push(`${url} ${status} ${said}`);
  }
}

test("no request fails while releases are rolled out, promoted, rolled back, scaled and drained", async () => {
  await deploy("1");
  const first = await settled(1);
  assert.match(first.url, /^http:\/\/shop\.localhost:\d+\/$/);
  assert.deepEqual(new Set(first.instances.map(({ nodeId }) => nodeId)), new Set([node.id, other.id]));
  for (const url of WAYS) assert.equal((await ask(url))[0], 200, "it serves on every way once it says so");
  const clients = WAYS.map(keepAsking);

  await deploy("2", { strategy: { type: "rolling", batchSize: 2 } });
  await settled(2);
  await deploy("3", { strategy: { type: "canary", canaryCount: 1, autoPromote: false } });
  await becomes("waiting for a person", ({ status }) => status === "awaitingPromotion");
  assert.equal((await client.post("/v1/apps/shop/promote")).status, 200);
  await settled(3);
  await deploy("4", { strategy: { type: "blueGreen" } });
  await settled(4);
  await deploy("5", { strategy: { type: "canary" }, healthDeadlineSecs: 3 }, { FAKE_LISTEN: "8080=500" });
  const failed = await becomes("rolled back", ({ rollout }) => rollout?.phase === "failed");
  assert.match(failed.rollout?.message ?? "", /answered 500/);
  await settled(4);
  assert.equal((await client.post("/v1/apps/shop/rollback", { release: 1 })).status, 200);
  await settled(6);
  assert.equal((await client.post("/v1/apps/shop/redeploy")).status, 200);
  await settled(7);
  for (const count of [5, 2]) {
    assert.equal((await client.post("/v1/apps/shop/scale", { count })).status, 200);
    await settled(7);
  }
  assert.equal((await client.post(`/v1/nodes/${node.id}/drain`)).status, 200);
  await becomes("on the other node", (app) => app.instances.every(({ nodeId }) => nodeId === other.id));
  await settled(7);

  isOver = true;
  await Promise.all(clients);
  assert.deepEqual(failures, [], `of ${answered}`);
  assert.ok(answered > 1_000, `only ${answered} requests were made`);
});

test("who may reach an app, and its domain, change at once and without a rollout", async () => {
  const closed = await deploy("1", { replicas: 2, publicIngress: false });
  assert.deepEqual([closed.status, closed.rollout], ["running", null]);
  assert.equal((await ask(server.url))[0], 401);
  for (const url of WAYS) await until(async () => (await ask(url))[0] === 401, { what: `${url} to ask for a key` });
  const shared = await client.post("/v1/apps/shop/share");
  assert.equal(shared.status, 200, shared.text);
  assert.equal(shared.json.url, `${closed.url}?t=${shared.json.token}`);
  const linked = (url: string) => ask(url, { headers: { cookie: `flotilla_share=${shared.json.token}` } });
  for (const url of WAYS) {
    assert.equal((await ask(url, { path: `/?t=${shared.json.token}` }))[0], 302, url);
    assert.equal((await linked(url))[0], 200, url);
  }
  assert.equal((await client.delete("/v1/apps/shop/share")).status, 204);
  for (const url of WAYS) await until(async () => (await linked(url))[0] === 401, { what: `${url} to end the link` });
  const domain = "shop.example.com";
  const open = await deploy("1", { replicas: 2, publicIngress: true, domain });
  assert.deepEqual([open.rollout, new URL(open.url).hostname], [null, domain]);
  for (const url of WAYS)
    for (const host of [domain, "shop.localhost"])
      await until(async () => (await ask(url, { host }))[0] === 200, { what: `${url} to serve ${host}` });
});

test("an app that is destroyed is served nowhere, and leaves nothing", async () => {
  assert.equal((await client.delete("/v1/apps/shop")).status, 204);
  for (const url of WAYS)
    await until(async () => [401, 404].includes((await ask(url))[0]), { what: `${url} to serve it no more` });
  const left = sql`
    SELECT machine_id AS id FROM app_instances UNION ALL SELECT machine_id FROM machine_owners WHERE kind = 'app'
    UNION ALL SELECT id FROM machines WHERE deleted_at IS NULL AND labels ? 'app'`;
  await until(async () => (await context.db.query(left)).length === 0, { what: "nothing to be left" });
});
