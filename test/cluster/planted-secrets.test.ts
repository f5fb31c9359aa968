/**
 * Secrets that are given to a server and a node, and those that they make, are in no log, event, error, audit row or webhook.
 *
 * Logs are read at the level `debug`, which is the most that the programs write.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Answer } from "../../server/test/support/client.ts";
import { startReceiver } from "../../server/test/support/receiver.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

/** Without characters that JSON, URLs or base64 would change. */
const planted = (of: string): string => `planted${of}0123456789abcdef`;

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
    const value = planted(name.replaceAll(" ", ""));
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
  await must(client.post(`${path}/exec`, { command: `echo ${plant("command")}`, env: { RUN: plant("exec value") } }));

  // Refusals of requests that carry secrets.
  answers.push(await admin.withKey(plant("wrong key")).get("/v1/machines"));
  answers.push(
    await client.post("/v1/machines", { source: plant("source"), env: { VALUE: 5 }, secretEnv: plant("env") }),
  );
  answers.push(await client.post("/v1/webhooks", { url: `ftp://${plant("webhook password")}@127.0.0.1/` }));
  answers.push(await client.post(`${path}/exec`, { command: 5, env: { RUN: plant("refused value") } }));
  answers.push(await admin.withKey(plant("wrong token")).get(`${path}/connect/80/`));
  for (const { status, text } of answers) assert.ok(status >= 400 && status < 500, text);
  await must(client.post(`${path}/stop`));
  await must(client.delete(path));
  await must(admin.delete(`/v1/apikeys/${key.id}`));
  await until(() => receiver.accepted.some(({ body }) => body.includes("machine deleted")));

  const places = new Map<string, string>([
    ["an event", (await admin.get("/v1/events")).text],
    ["an event of the machine", (await admin.get(`${path}/events`)).text],
    ["an audit row", (await admin.get("/v1/audit?limit=1000")).text],
    ["an error", answers.map(({ text }) => text).join("\n")],
    ["a webhook", receiver.requests.map(({ body }) => body).join("\n")],
    ["the log of the server", (await flotilla.servers[0]?.log()) ?? ""],
    ["the log of the node", (await flotilla.nodes[0]?.log()) ?? ""],
    ["a list of keys", (await admin.get("/v1/apikeys")).text],
  ]);
  for (const [place, text] of places) {
    assert.ok(text.length > 100, `${place} is empty: ${text}`);
    for (const [name, secret] of secrets) {
      assert.ok(secret.length > 15, name);
      const at = text.indexOf(secret);
      assert.equal(at, -1, `${name} is in ${place}: ${text.slice(Math.max(0, at - 200), at + 20)}`);
    }
  }
});
