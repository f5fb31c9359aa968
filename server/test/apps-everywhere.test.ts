/**
 * An app of two nodes through two servers and an ingress: what changes without a rollout is so at each of
 * them. What rollouts do under traffic is in test/traffic.
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

const deploy = async (fields: object = {}): Promise<AppInfo> => {
  const env = Object.entries(LISTENING).map(([key, value]) => ({ key, value }));
  const body = { name: "shop", image: "local/busybox", env, replicas: 2, health: HEALTH, stopGraceSecs: 1 };
  const answer = await client.post("/v1/apps", { ...body, ...fields });
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
};

/** Each instance serves. */
const settled = (): Promise<AppInfo> =>
  until(
    async () => {
      const app: AppInfo = (await client.get("/v1/apps/shop")).json;
      const serve = app.instances.filter(({ isServing, status }) => isServing && status === "healthy");
      if (app.rollout === null && serve.length === app.replicas) return app;
      throw new Error((await client.get("/v1/apps/shop/explain")).text);
    },
    { what: "the app to be settled", deadlineMs: 60_000 },
  );

const agent = new Agent({ keepAlive: true });
after(() => agent.destroy());

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

test("an app of two nodes is served by two servers and an ingress once it says so", async () => {
  await deploy();
  const { url, instances } = await settled();
  assert.match(url, /^http:\/\/shop\.localhost:\d+\/$/);
  assert.deepEqual(new Set(instances.map(({ nodeId }) => nodeId)), new Set([node.id, other.id]));
  for (const way of WAYS) assert.equal((await ask(way))[0], 200);
});

test("who may reach an app, and its domain, change at once and without a rollout", async () => {
  const closed = await deploy({ publicIngress: false });
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
  const open = await deploy({ publicIngress: true, domain });
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
