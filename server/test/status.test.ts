/**
 * The health endpoints, in normal operation and while the database is unreachable.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { endpointList } from "@flotilla/contract/endpoints";
import { freshDatabase, startTestServer } from "./support/server.ts";
import { startProxy } from "./support/proxy.ts";
import { fastClock } from "../../test/support/fast-clock.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer();
const { client } = server;

test("health has every field that clients need", async () => {
  const { json } = await client.withKey(null).get("/health");
  assert.match(json.clusterId, /^[0-9a-f]{32}$/);
  assert.equal(json.version, "0.1.0");
  for (const name of ["nodesTotal", "nodesReady", "appsTotal", "poolsTotal", "uptimeSecs"])
    assert.equal(typeof json[name], "number", name);
});

test("liveness and readiness have no body", async () => {
  for (const path of ["/livez", "/readyz"]) {
    const answer = await client.withKey(null).get(path);
    assert.deepEqual([answer.status, answer.text], [200, ""]);
  }
});

test("metrics need an admin key and count requests by endpoint and status", async () => {
  assert.equal((await client.withKey(null).get("/metrics")).status, 401);
  const answer = await client.get("/metrics");
  assert.match(answer.headers.get("content-type") ?? "", /^text\/plain; version=0\.0\.4/);
  assert.match(answer.text, /flotilla_http_requests_total\{endpoint="getLiveness",status="200"\} 1/);
  assert.match(answer.text, /process_cpu_seconds_total/);
  const misnamed = [...answer.text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].filter(
    ([, name = "", type]) => name.endsWith("_total") !== (type === "counter"),
  );
  assert.deepEqual(misnamed, [], "_total is for counters, and for all of them");
});

test("the description is OpenAPI 3.1 with every endpoint once", async () => {
  const { json } = await client.withKey(null).get("/openapi.json");
  assert.deepEqual([json.openapi, json.info.version, json.info.license.name], ["3.1.0", "0.1.0", "Apache-2.0"]);
  const ids = Object.values(json.paths as Record<string, Record<string, { operationId: string }>>).flatMap((path) =>
    Object.values(path).map(({ operationId }) => operationId),
  );
  assert.equal(new Set(ids).size, ids.length);
  for (const [name] of endpointList) assert.ok(ids.includes(name), name);
  assert.deepEqual(json.paths["/v1/apps/{name}/scale"].post["x-aliases"], ["/v1/groups/{name}/scale"]);
  const named = new Set(Object.keys(json.components.schemas));
  for (const [, name] of JSON.stringify(json).matchAll(/"#\/components\/schemas\/([A-Za-z]+)"/g))
    assert.ok(named.has(name ?? ""), name);
});

test("the documentation page loads only files of this server", async () => {
  const page = await client.withKey(null).get("/docs");
  assert.match(page.headers.get("content-type") ?? "", /^text\/html/);
  assert.match(page.headers.get("content-security-policy") ?? "", /default-src 'none'; script-src 'self'/);
  const linked = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1] ?? "");
  assert.ok(linked.length >= 4);
  for (const path of linked) assert.equal((await client.withKey(null).get(path)).status, 200, path);
  assert.doesNotMatch(page.text, /<script>/);
});

test("while the database is unreachable requests answer 503 and readiness fails; afterwards everything works again", async () => {
  const proxy = await startProxy(await freshDatabase());
  const own = await startTestServer({ databaseUrl: proxy.url });
  assert.equal((await own.client.get("/v1/me")).status, 200);
  const known = await own.client.get("/health");
  assert.match((await own.client.get("/metrics")).text, /^flotilla_database_up 1$/m);
  proxy.cut();
  await until(async () => (await own.client.get("/readyz")).status === 503);
  const away = await own.client.get("/v1/tenants");
  assert.deepEqual([away.status, away.headers.get("x-error-code")], [503, "unavailable"]);
  assert.match(away.headers.get("retry-after") ?? "", /^\d+$/);
  assert.equal((await own.client.get("/livez")).status, 200);
  const notReady = await own.client.get("/readyz");
  assert.deepEqual([notReady.status, notReady.headers.get("retry-after")], [503, "1"]);
  const health = await own.client.withKey(null).get("/health");
  assert.deepEqual([health.status, health.json.databaseUp, health.json.clusterId], [200, false, known.json.clusterId]);
  const metrics = await own.client.get("/metrics");
  assert.equal(metrics.status, 200, "for a key that has read them before");
  assert.match(metrics.text, /^flotilla_database_up 0$/m);
  assert.equal((await own.client.withKey(`smk_${"x".repeat(43)}`).get("/metrics")).status, 503);
  proxy.restore();
  await until(async () => (await own.client.get("/readyz")).status === 200);
  assert.equal((await own.client.get("/v1/tenants")).status, 200);
  await own.stop();
  await proxy.close();
});

test("while the database hangs requests are refused at once, also those that wait for it, until it answers again", async () => {
  const proxy = await startProxy(await freshDatabase());
  const own = await startTestServer({ databaseUrl: proxy.url, clock: fastClock(5) });
  assert.equal((await own.client.get("/v1/tenants")).status, 200);
  proxy.freeze();
  const waiting = Array.from({ length: 40 }, () => own.client.get("/v1/tenants"));
  for (const { status, headers } of await Promise.all(waiting))
    assert.deepEqual([status, headers.get("retry-after")], [503, "1"]);
  const isRefused = async () => (await own.client.get("/readyz")).status === 503;
  await until(isRefused, { what: "a server that is not ready", deadlineMs: 60_000 });
  proxy.restore();
  const answers = async () => (await own.client.get("/v1/tenants")).status === 200;
  await until(answers, { what: "an answer", deadlineMs: 60_000 });
  await own.stop();
  await proxy.close();
});

test("a server that expects a node is ready once one has reported to it", async () => {
  const joinToken = "join-me";
  const own = await startTestServer({ expectsNode: true, joinToken });
  const waiting = await own.client.get("/readyz");
  assert.deepEqual([waiting.status, waiting.text], [503, "no node has reported yet"]);
  const headers = { authorization: `Bearer ${joinToken}` };
  const entered = await own.client.post("/v1/nodes/register", { id: "n", address: "unix:/x" }, { headers });
  assert.equal((await own.client.get("/readyz")).status, 503);
  const beat = { headers: { authorization: `Bearer ${entered.json.credential}` } };
  assert.equal((await own.client.post("/v1/nodes/n/heartbeat", undefined, beat)).status, 200);
  assert.equal((await own.client.get("/readyz")).status, 200);
});
