/**
 * Secrets that are given to a server and a node, and those that they make, are in no log, event, error, audit
 * row or webhook.
 *
 * Logs are read at the level `debug`, which is the most that the programs write.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { type IncomingMessage, request as httpRequest } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import type { AppInfo } from "@flotilla/contract/apps";
import type { Answer } from "../../server/test/support/client.ts";
import { startReceiver } from "../../server/test/support/receiver.ts";
import { type Flotilla, JOIN_TOKEN, startFlotilla } from "../support/flotilla.ts";
import { assertInNone, placesOf, plantedValue } from "../support/planted.ts";
import { until } from "../support/until.ts";

test("planted secrets are in no log, event, error, audit row or webhook", async () => {
  const receiver = await startReceiver();
  await using flotilla = await startFlotilla({
    serverEnvironment: () => ({
      FLOTILLA_WEBHOOK_NETWORKS: "127.0.0.0/8",
      FLOTILLA_WEBHOOK_HTTP: "yes",
    }),
  });
  const admin = flotilla.client();
  const secrets = new Map([["admin key", admin.key ?? ""]]);
  const plant = (name: string): string => {
    const value = plantedValue(name);
    secrets.set(name, value);
    return value;
  };
  const answers: Answer[] = [];
  const must = async (answer: Promise<Answer>): Promise<Answer["json"]> => {
    const { status, text, json } = await answer;
    assert.ok(status >= 200 && status < 300, text);
    return json;
  };

  const key = await must(admin.post("/v1/apikeys", {}));
  secrets.set("API key", key.key);
  const client = admin.withKey(key.key);
  const hook = await must(client.post("/v1/webhooks", { url: `${receiver.url}?token=${plant("webhook token")}` }));
  secrets.set("webhook secret", hook.secret);
  secrets.set("new webhook secret", (await must(client.post(`/v1/webhooks/${hook.id}/secret`))).secret);
  secrets.set("join token", (await must(admin.post("/v1/tokens", { description: "for a host" }))).token);
  secrets.set("join token of the node", JOIN_TOKEN);
  const { id } = await must(
    client.post("/v1/machines", {
      source: { type: "image", reference: "local/busybox" },
      env: { VALUE: plant("env value") },
      secretEnv: { SECRET: plant("secret env value") },
      ports: [{ port: 80 }],
    }),
  );
  const path = `/v1/machines/${id}`;
  await must(client.post(`${path}/start`));
  secrets.set("connect token", (await must(client.post(`${path}/connect-token`))).token);
  secrets.set("share link", new URL((await must(client.post(`${path}/share`))).url).search.slice(1));
  await must(client.post(`${path}/sessions`, { id: "s", env: { IN: plant("session value") } }));
  const command = { command: `echo ${plant("command")}`, env: { RUN: plant("exec value") }, stdin: plant("input") };
  await must(client.post(`${path}/exec`, command));
  const content = { raw: plant("content of a file"), headers: { "content-type": "application/octet-stream" } };
  await must(client.post(`${path}/files?path=/tmp/${plant("name of a file")}`, undefined, content));

  // Refusals of requests that carry secrets.
  answers.push(await admin.withKey(plant("wrong key")).get("/v1/machines"));
  answers.push(
    await client.post("/v1/machines", { source: plant("source"), env: { VALUE: 5 }, secretEnv: plant("env") }),
  );
  answers.push(await client.post("/v1/webhooks", { url: `ftp://${plant("webhook password")}@127.0.0.1/` }));
  answers.push(await client.post(`${path}/exec`, { command: 5, env: { RUN: plant("refused value") } }));
  answers.push(await admin.withKey(plant("wrong token")).get(`${path}/connect/80/`));
  answers.push(await admin.withKey(null).get(`${path}/connect/80/?access_token=${plant("wrong key in the query")}`));
  answers.push(await admin.withKey(null).get(`/v1/machines?access_token=${plant("key where it is not read")}`));
  const machine = {
    source: { type: "image", reference: `sailor:${plant("registry password")}@127.0.0.1/a` },
  };
  answers.push(await client.post("/v1/machines", machine));
  answers.push(await admin.withKey(plant("wrong join token")).post("/v1/nodes/register", { id: "node-x" }));
  answers.push(await admin.withKey(plant("wrong credential")).post("/v1/nodes/node-0/heartbeat", {}));
  for (const { status, text } of answers) assert.ok(status >= 400 && status < 500, text);
  await must(client.post(`${path}/stop`));
  await must(client.delete(path));
  await must(admin.delete(`/v1/apikeys/${key.id}`));
  await until(() => receiver.accepted.some(({ body }) => body.includes("machine deleted")));

  for (const [name, value] of await secretsInFiles(flotilla)) secrets.set(name, value);
  const places = await placesOf(flotilla);
  places.set("an event of the machine", (await admin.get(`${path}/events`)).text);
  places.set("an error", answers.map(({ text }) => text).join("\n"));
  places.set("a webhook", receiver.requests.map(({ body }) => body).join("\n"));
  places.set("a list of join tokens", (await admin.get("/v1/tokens")).text);
  places.set("a list of deliveries", (await admin.get(`/v1/webhooks/${hook.id}/deliveries`)).text);
  assertInNone(secrets, places);
});

test("the environment of an app is in no log, event, error, audit row or operation, and its secrets are in no answer", async () => {
  await using flotilla = await startFlotilla();
  const client = flotilla.client();
  const secrets = new Map<string, string>();
  /** Shown to readers of the app, and nowhere else. */
  const values = new Map<string, string>();
  const release = (name: string, listen: string): object => {
    const [secret, value] = [plantedValue(`secret of ${name}`), plantedValue(`value of ${name}`)];
    secrets.set(`the secret of ${name}`, secret);
    values.set(`the value of ${name}`, value);
    return {
      ...{ name: "web", image: "local/busybox", healthDeadlineSecs: 2 },
      health: { type: "http", intervalSecs: 1, timeoutSecs: 1, retries: 1 },
      env: [
        { key: "FAKE_LISTEN", value: listen },
        { key: "VALUE", value },
      ],
      secretEnv: [{ key: "SECRET", value: secret }],
    };
  };
  const answers: Answer[] = [];
  const call = async (answer: Promise<Answer>, status: number): Promise<Answer["json"]> => {
    const { status: got, text, json } = await answer;
    assert.equal(got, status, text);
    answers.push(await answer);
    return json;
  };
  const becomes = (what: string, holds: (app: AppInfo) => boolean): Promise<unknown> =>
    until(async () => holds((await client.get("/v1/apps/web")).json as AppInfo), { what: `the app to be ${what}` });

  const good = release("a release that serves", "8080=200");
  await call(client.post("/v1/apps/-/plan", good), 200);
  const begun = (await call(client.post("/v1/apps", good), 200)) as AppInfo;
  await becomes("served", ({ status }) => status === "running");
  await call(client.post("/v1/apps", release("a release that fails", "8080=500")), 200);
  await becomes("rolled back", ({ rollout }) => rollout?.phase === "failed");
  await call(client.post("/v1/apps/web/redeploy"), 200);
  await becomes("deployed again", ({ release: number }) => number === 3);
  await call(client.post("/v1/apps/web/rollback", { release: 1 }), 200);
  await becomes("as it was", ({ release: number, status }) => number === 4 && status === "running");
  const refused = { ...release("a refused deploy", "8080=200"), port: 0 };
  await call(client.post("/v1/apps", refused), 422);
  const twice = release("a deploy with a name twice", "8080=200") as { secretEnv: object[] };
  await call(client.post("/v1/apps", { ...twice, secretEnv: [...twice.secretEnv, ...twice.secretEnv] }), 400);
  await call(client.post("/v1/apps", { ...release("a deploy of nothing", "8080=200"), image: "team/missing" }), 422);
  for (const path of ["", "/releases", "/explain"]) await call(client.get(`/v1/apps/web${path}`), 200);
  const app = (await client.get("/v1/apps/web")).json as AppInfo;
  await call(client.get(`/v1/machines/${app.instances[0]?.machineId}`), 200);
  await call(client.get(`/v1/events?app=${begun.id}`), 200);
  const token = ((await client.post("/v1/apps/web/share")).json as { token: string }).token;
  const query = plantedValue("query of a visit");
  secrets.set("the query of a visit", query);
  const { hostname, port } = new URL(client.url);
  const visit = httpRequest({ hostname, port, path: `/page?token=${query}`, headers: { host: "web.localhost" } }).end();
  const [visited] = (await once(visit, "response")) as [IncomingMessage];
  visited.resume();
  assert.equal(visited.statusCode, 200);
  await until(async () => (await client.delete("/v1/apps/web")).status === 204);

  const shown = answers.map(({ text }) => text).join("\n");
  const operations = (await client.get("/v1/operations")).text;
  assert.match(operations, /was rolled back/);
  const places = await placesOf(flotilla);
  places.set("an operation", operations);
  const line = new RegExp(`"path":"/page","status":200,"ms":[\\d.]+,"appId":"${begun.id}","machineId":"mach-`);
  assert.match(places.get("the log of the server") ?? "", line, "a visit is logged with its app and its instance");
  assertInNone(new Map([...secrets, ...values, ["the share link", token]]), places);
  assertInNone(secrets, new Map([["an answer", shown]]));
});

/** Secrets that the programs made for themselves, by their names. */
async function secretsInFiles(flotilla: Flotilla): Promise<ReadonlyMap<string, string>> {
  const data = flotilla.servers[0]?.directory ?? "";
  const files = {
    "the key that encrypts secrets": join(data, "secrets.key"),
    "the password of the database": join(data, "postgres", "password"),
    "the credential of the node": join(flotilla.nodeDirectory(), "credential"),
  };
  const read = Object.entries(files).map(
    async ([name, path]) => [name, (await readFile(path, "utf8")).trim()] as const,
  );
  return new Map(await Promise.all(read));
}
