/**
 * Events, webhooks and the audit log on the command line, against a real server.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../../server/src/db/database.ts";
import { startReceiver } from "../../server/test/support/receiver.ts";
import { startTestServer } from "../../server/test/support/server.ts";
import { runCli } from "./run-cli.ts";

test("a user makes, tests, changes and replays a webhook, and follows events", async (t) => {
  const server = await startTestServer({ webhookNetworks: ["127.0.0.0/8"], webhookHttp: true });
  const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
  const cli = (...argv: string[]) => runCli(t, argv, { environment });
  const said = async (...argv: string[]): Promise<string> => {
    const { code, output, errors } = await cli(...argv);
    assert.equal(code, 0, errors);
    return String(output).trim();
  };
  const receiver = await startReceiver();
  assert.match(await said("webhook", "create", receiver.url, "--description", "mine"), /^whsec_[A-Za-z0-9+/]{43}=$/);
  const id = /hook-[0-9a-f]{32}/.exec(await said("webhook", "ls"))?.[0] ?? "";
  assert.match(await said("webhook", "test", id), /^ev-[0-9a-f]{32} {2}the receiver answered 200$/);
  const [event] = /ev-[0-9a-f]{32}/.exec(await said("webhook", "deliveries", id)) ?? [""];
  assert.match(await said("webhook", "redeliver", id, event), /pending$/);
  assert.match(await said("webhook", "replay", id), /reads its events again/);
  assert.match(await said("webhook", "rotate", id, "--keep-hours", "0"), /^whsec_/);
  receiver.behave = () => 500;
  const failed = await cli("webhook", "test", id);
  assert.deepEqual(
    [failed.code, failed.errors.trim()],
    [1, "error: the receiver answered 500; the test is tried again"],
  );
  assert.match(await said("webhook", "set", id, "--disable", "--type", "machine.failed"), /paused$/);
  assert.match(await said("webhook", "show", id), /^state +paused$/m);
  const refused = await cli("webhook", "create", "https://127.0.0.1.nip.invalid:x/");
  assert.match(refused.errors, /^error: <address> cannot be used for a webhook/);
  assert.equal(await said("webhook", "rm", id), id);
  const tenant = (await server.client.get("/v1/tenants")).json[0].id as string;
  assert.match(await said("audit", "verify"), /^\d+ recorded calls are intact, up to \d+ \([0-9a-f]{64}\)$/);
  assert.match(await said("audit", "ls", "--tenant", tenant), new RegExp(`webhooks.createWebhook +${id} +201`));
  const other = (await server.client.post("/v1/tenants", { name: "other" })).json.id as string;
  const otherKey = (await server.client.post("/v1/apikeys", { tenantId: other })).json as { id: string; key: string };
  await server.client.withKey(otherKey.key).post("/v1/webhooks", { url: receiver.url });
  assert.match(
    await said("audit", "ls", "--all"),
    new RegExp(`^${other} +1 .* ${otherKey.id} +webhooks.createWebhook `, "m"),
  );
  const ofKey = (await said("audit", "ls", "--all", "--key", otherKey.id)).trim().split("\n");
  assert.equal(ofKey.length, 2, "the heads and one call");
  assert.match(
    await said("audit", "ls", "--resource", other, "--since", "2026-01-01"),
    / tenants.createTenant +tenant-/,
  );
  assert.match(await said("audit", "ls", "--type", "tenants.*"), / tenants.createTenant +tenant-/);
  assert.equal(await said("audit", "ls", "--type", "apps.*", "--json"), "[]");
  assert.equal((await cli("audit", "ls", "--all", "--tenant", other)).code, 2);
  // More than two pages.
  await server.context.db.execute(sql`
    SELECT append_audit(jsonb_agg(jsonb_build_object('tenantId', ${other}::text, 'at', now(), 'keyId', 'key-x', 'resource', NULL, 'type', 'webhooks.listed', 'record',
      (SELECT record FROM audit_log LIMIT 1)))) FROM generate_series(1, 2100)`);
  const listed = (await said("audit", "ls", "--tenant", other)).split("\n");
  const entries = JSON.parse(await said("audit", "ls", "--tenant", other, "--json")) as { sequence: number }[];
  assert.deepEqual([listed.length, entries.length], [2102, 2101]);
  assert.deepEqual(
    entries.map(({ sequence }) => sequence),
    entries.map((_, index) => index + 1),
  );
  assert.equal(await said("audit", "ls", "--key", "key-without-calls", "--json"), "[]");
  assert.match(await said("audit", "verify", "--all"), /^2 tenants, 0 broken logs$/m);
  await server.context.db.execute(sql`ALTER TABLE audit_log DISABLE TRIGGER audit_log_append_only`);
  await server.context.db.execute(
    sql`UPDATE audit_log SET record = replace(record, 'createWebhook', 'deleteWebhook') WHERE sequence = 1`,
  );
  const tampered = await cli("audit", "verify");
  assert.deepEqual(
    [tampered.code, tampered.errors.trim()],
    [1, `error: the audit log of ${tenant} is broken: row 1 does not have the hash of its content`],
  );
  const everyone = await cli("audit", "verify", "--all");
  assert.deepEqual([everyone.code, /^2 tenants, 2 broken logs$/m.test(String(everyone.output))], [1, true]);
  const machine = await server.client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } });
  assert.match(await said("events"), new RegExp(`info +${machine.json.id} +machine created$`));
  const [first] = JSON.parse(await said("events", "--json")) as { cursor: string }[];
  assert.equal(await said("events", "--from", first?.cursor ?? ""), "");
});
