/**
 * The loops of the server on a real database: deadlines, deletions, purges, and the driver that runs them.
 */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { DatabaseUnavailable, sql } from "../src/db/database.ts";
import { purgeKeys } from "../src/apikeys/store.ts";
import { purgeAudit } from "../src/audit/store.ts";
import type { Context } from "../src/context.ts";
import { purgeEvents } from "../src/events/store.ts";
import { purgeApps } from "../src/apps/store.ts";
import { purgeIngressLeases } from "../src/ingress/apps/route-store.ts";
import { purgeExpired } from "../src/console/store.ts";
import { purgeConnectTokens } from "../src/ingress/connect/store.ts";
import { purgeLeases } from "../src/leases/store.ts";
import { purgeTombstones } from "../src/machines/store.ts";
import { purgeOperations } from "../src/operations/store.ts";
import { purgeJoinTokens } from "../src/tokens/store.ts";
import { Loops } from "../src/reconcilers/driver.ts";
import type { Reconciler, Report } from "../src/family.ts";
import { machineReconciler } from "../src/machines/machines-loop.ts";
import { nodeReconciler } from "../src/nodes/nodes-loop.ts";
import { purgeRegistryLeases } from "../src/registry/lease-store.ts";
import { purgeReconciler } from "../src/reconcilers/purges.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { openTestServices } from "./support/services.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const node = await startTestNode(server);
const { client, context } = server;
const source = { type: "image", reference: "local/busybox" };
const { signal } = new AbortController();

const PURGES = {
  machines: purgeTombstones,
  events: purgeEvents,
  operations: purgeOperations,
  keys: (of: Context, max: number) => purgeKeys(of.db, of.clock.now(), max),
  joinTokens: (of: Context, max: number) => purgeJoinTokens(of.db, of.clock.now(), max),
  connectTokens: purgeConnectTokens,
  ingressLeases: purgeIngressLeases,
  leases: purgeLeases,
  registryLeases: purgeRegistryLeases,
  consoleSessions: (of: Context, max: number) => purgeExpired(of.db, of.clock.now(), max),
  apps: (of: Context, max: number) => purgeApps(of.db, of.clock.now(), max),
  audit: (of: Context, max: number) => purgeAudit(of, 365, max),
};

const purge = async (of: Context = context): Promise<Report> => await purgeReconciler(of, PURGES).activate(signal);

const created = async (fields: object = {}): Promise<string> =>
  (await client.post("/v1/machines", { source, ...fields })).json.id;

const get = async (id: string) => (await client.get(`/v1/machines/${id}`)).json;

test("a start that takes too long is abandoned, with the reason, and can be requested again", async () => {
  const id = await created({ env: { FAKE_BOOT_MS: "600000" } });
  await client.post(`/v1/machines/${id}/start?detach=true`);
  await context.db.execute(sql`
    UPDATE machines SET desired_at = now() - interval '31 minutes', reconcile_at = now() WHERE id = ${id}`);
  const machine = await until(async () => {
    const now = await get(id);
    return now.state === "error" && now;
  });
  assert.match(machine.error, /^start failed: not running after 30 minutes/);
  // An abandoned machine is stopped on the node as well.
  await until(async () => {
    const row = await context.db.queryOne<{ done: boolean }>(sql`
      SELECT observed_state = 'stopped' AND observed_generation = generation AS done FROM machines WHERE id = ${id}`);
    return row?.done;
  });
  assert.equal((await get(id)).state, "error");
  assert.equal((await client.post(`/v1/machines/${id}/start?detach=true`)).json.state, "creating");
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
});

test("a machine that was deleted thirty days ago is forgotten with its events, a younger one is not, and runs stay", async () => {
  const [old, young] = [await created(), await created()];
  for (const id of [old, young]) {
    await client.post(`/v1/machines/${id}/start`);
    await client.delete(`/v1/machines/${id}`);
  }
  const longAgo = sql`now() - interval '31 days'`;
  await context.db.execute(sql`UPDATE machines SET deleted_at = ${longAgo} WHERE id = ${old}`);
  await context.db.execute(sql`UPDATE tenant_events SET created_at = ${longAgo} WHERE subject_id = ${old}`);
  const purged = async () => (await purge()).counts["machines"];
  // Its row stays until its node has deleted it.
  await until(async () => (await purged()) === 1, { what: "the old machine to be forgotten" });
  assert.equal((await client.get(`/v1/machines/${old}/usage`)).status, 404);
  assert.equal((await client.get(`/v1/machines/${young}/usage`)).status, 200);
  assert.deepEqual(await context.db.query(sql`SELECT id FROM tenant_events WHERE subject_id = ${old}`), []);
  assert.equal((await context.db.query(sql`SELECT boot_id FROM machine_runs WHERE machine_id = ${old}`)).length, 1);
});

test("a machine whose node was away since it was deleted is deleted there when the node is back, also after thirty days", async () => {
  const id = await created();
  await client.post(`/v1/machines/${id}/start`);
  const hasFiles = async () => (await readdir(join(node.directory, "node", "machines"))).includes(id);
  assert.ok(await hasFiles());
  await node.kill();
  await client.delete(`/v1/machines/${id}`);
  await context.db.execute(sql`UPDATE machines SET deleted_at = now() - interval '31 days' WHERE id = ${id}`);
  assert.equal((await purge()).counts["machines"], 0);
  await node.restart();
  await until(async () => !(await hasFiles()), { what: "the machine's files to be removed" });
  await until(async () => (await purge()).counts["machines"] === 1);
});

test("two servers never claim the same machine at the same time", async () => {
  const ids = await Promise.all(Array.from({ length: 20 }, () => created()));
  const services = openTestServices(server);
  const loops = [machineReconciler(services), machineReconciler(services)];
  await context.db.execute(sql`UPDATE machines SET reconcile_at = now() - interval '1 hour' WHERE id = ANY(${ids})`);
  const reports = await Promise.all(loops.map((loop) => loop.activate(signal)));
  const settled = reports.reduce((sum, { counts }) => sum + (counts["settle"] ?? 0), 0);
  // The server's own loop may have claimed some of them.
  assert.ok(settled <= 20);
  const left = await context.db.query(sql`SELECT id FROM machines WHERE id = ANY(${ids}) AND reconcile_at < now()`);
  assert.deepEqual(left, []);
  await services.stop();
});

test("the driver runs a loop by period, by wake and by channel, and survives its failures", async () => {
  let activations = 0;
  const loop: Reconciler = {
    name: "sample",
    purpose: "for this test",
    periodMs: 3_600_000,
    wakeOn: ["nodes"],
    async activate() {
      activations += 1;
      if (activations === 1) throw new Error("the first activation fails");
      return { errors: [], counts: {}, hasMore: activations === 2 };
    },
  };
  const quiet = { ...context, log: { ...context.log, error: () => undefined } };
  const loops = new Loops(quiet);
  loops.add([loop]);
  loops.start();
  await until(() => activations >= 1);
  await until(() => {
    loops.wake("sample");
    return activations >= 3;
  });
  const before = activations;
  await until(() => {
    void context.db.notify("nodes", "node-a");
    return activations > before;
  });
  await loops.stop();
});

test("a database that is away is logged once for all loops, without a stack, and once when they run again", async () => {
  let isAway = true;
  const lines: string[] = [];
  const say = (fields: object, message: string) => void lines.push(`${Object.keys(fields).join()} ${message}`);
  const makeLoop = (name: string): Reconciler => ({
    ...{ name, purpose: "for this test", periodMs: 1, wakeOn: [] },
    async activate() {
      if (isAway) throw new DatabaseUnavailable(new Error("connection refused"));
      return { errors: [], counts: {} };
    },
  });
  const loops = new Loops({ ...context, log: { ...context.log, error: say, warn: say, info: say } });
  loops.add(["one", "other"].map(makeLoop));
  loops.start();
  await until(() => loops.status().every(({ errors }) => errors >= 3));
  assert.deepEqual(lines, ["loop,reason a loop found the database unavailable"]);
  isAway = false;
  await until(() => loops.status().every(({ failures }) => failures === 0));
  await loops.stop();
  assert.deepEqual(lines.slice(1), ["loop the database answers loops again"]);
});

test("the status of a loop has its runs, what they did, and the errors of failed ones until a run has none", async () => {
  const outcomes: (() => Report)[] = [
    () => ({ errors: [], counts: { found: 2 } }),
    () => ({ errors: ["one item", "another"], counts: { found: 1 } }),
    () => {
      throw new Error("all of it", { cause: new Error("away") });
    },
    () => ({ errors: [], counts: { found: 0 } }),
  ];
  const running = Promise.withResolvers<void>();
  const loop: Reconciler = {
    ...{ name: "sample", purpose: "for this test", periodMs: 3_600_000, wakeOn: [] },
    async activate() {
      const outcome = outcomes.shift();
      if (outcome !== undefined) return outcome();
      await running.promise;
      return { errors: [], counts: {} };
    },
  };
  const quiet = { ...context, log: { ...context.log, error: () => undefined } };
  const loops = new Loops(quiet);
  loops.add([loop]);
  const after = async (runs: number) =>
    await until(() => {
      loops.wake("sample");
      const [status] = loops.status();
      return status?.runs === runs && structuredClone(status);
    });
  const { lastEndedAt, lastMs, ...idle } = loops.status()[0] ?? assert.fail();
  assert.deepEqual([lastEndedAt, lastMs, idle.runs, idle.lastError], [null, null, 0, null]);
  loops.start();
  const seen: unknown[] = [];
  for (const runs of [1, 2, 3, 4]) {
    const { errors, failures, lastError, counts, lastEndedAt: endedAt } = await after(runs);
    assert.ok(endedAt !== null);
    seen.push([errors, failures, lastError, counts["found"]]);
  }
  const text = "all of it: away";
  assert.deepEqual(seen, [
    [0, 0, null, 2],
    [2, 1, "one item", 3],
    [3, 2, text, 3],
    [3, 0, text, 3],
  ]);
  await until(() => {
    loops.wake("sample");
    return (loops.status()[0]?.runningSince ?? null) !== null;
  });
  running.resolve();
  await loops.stop();
  assert.equal(loops.status()[0]?.runningSince, null);
});

test("operators read the loops of the server that answers, which says who it is, and its metrics of them", async () => {
  const { json } = await client.get("/v1/loops");
  const [announced] = (await client.get("/v1/nodes/servers")).json;
  assert.deepEqual([json.serverId, json.host], [announced.id, announced.host]);
  const names = json.loops.map(({ name }: { name: string }) => name);
  const machines = json.loops[names.indexOf("machines")];
  assert.ok(machines.runs > 0 && machines.lastMs >= 0, JSON.stringify(machines));
  const { text } = await client.get("/metrics");
  for (const name of names)
    assert.match(text, new RegExp(`^flotilla_loop_errors_total\\{loop="${name}"\\} \\d+$`, "m"));
  assert.match(text, /^flotilla_loop_seconds\{loop="machines"\} \d/m);
});

test("the README has every loop, in the order of their families", async () => {
  const readme = await readFile(new URL("../src/reconcilers/README.md", import.meta.url), "utf8");
  const rows = readme.split("\n").filter((line) => line.startsWith("| "));
  const listed = rows.slice(2).map((row) => row.split("|").map((cell) => cell.trim()));
  const period = (ms: number): string => (ms < 60_000 ? `${ms / 1000} s` : `${ms / 60_000} min`);
  const { loops } = (await client.get("/v1/loops")).json;
  assert.deepEqual(
    listed.map(([, name, every, purpose]) => [name, every, purpose]),
    loops.map(({ name, periodMs, purpose }: Reconciler) => [name, period(periodMs), purpose]),
  );
});

test("a node that could not report while the database was away is not marked as silent", async () => {
  let now = 0;
  let isAway = false;
  let marks = 0;
  let stoppedMs = 0;
  const db: typeof context.db = Object.create(context.db, {
    query: {
      value: async ({ text }: { readonly text: string }) => {
        // The process is stopped while it waits for the answer.
        now += stoppedMs;
        stoppedMs = 0;
        if (isAway) throw new DatabaseUnavailable(new Error("away"));
        if (/^\s*UPDATE nodes/.test(text)) marks += 1;
        return [];
      },
    },
  });
  const clock = { ...context.clock, monotonic: () => now, now: () => now };
  const loop = nodeReconciler({ ...context, db, clock }, 20_000);
  const listenUntil = async (end: number): Promise<void> => {
    for (; now < end; now += 1_000) await loop.activate(signal);
  };
  await listenUntil(20_000);
  assert.equal(marks, 0);
  await listenUntil(21_000);
  assert.equal(marks, 1);
  isAway = true;
  await assert.rejects(async () => loop.activate(signal), DatabaseUnavailable);
  isAway = false;
  await listenUntil(41_000);
  assert.equal(marks, 1, "nodes have had no time to report");
  await listenUntil(42_000);
  assert.equal(marks, 2);
  // The process was stopped for a minute.
  now += 60_000;
  await listenUntil(now + 20_000);
  assert.equal(marks, 2, "nodes have had no time to report");
  await listenUntil(now + 1_000);
  assert.equal(marks, 3);
  stoppedMs = 60_000;
  await loop.activate(signal);
  assert.equal(marks, 4, "it had asked before it was stopped");
  await listenUntil(now + 20_000);
  assert.equal(marks, 4, "nodes have had no time to report");
  await listenUntil(now + 1_000);
  assert.equal(marks, 5);
});

test("a join token is forgotten thirty days after it expired", async () => {
  const make = async (): Promise<string> => (await client.post("/v1/tokens", {})).json.prefix;
  const [old, expired, valid] = [await make(), await make(), await make()];
  await context.db.execute(sql`UPDATE join_tokens SET expires_at = now() - interval '31 days' WHERE prefix = ${old}`);
  await context.db.execute(
    sql`UPDATE join_tokens SET expires_at = now() - interval '29 days' WHERE prefix = ${expired}`,
  );
  assert.equal((await purge()).counts["joinTokens"], 1);
  const listed = (await client.get("/v1/tokens")).json.map(({ prefix }: { prefix: string }) => prefix);
  assert.deepEqual(listed.toSorted(), [expired, valid].toSorted());
});

/**
 * One row of each kind that is purged, with this name. `ago`: since when it is over; `ends`: when it expires.
 * Resolves with the id of the machine.
 */
async function insertAged(
  name: string,
  machineId: string,
  { ago, ends }: { readonly ago: string; readonly ends: string },
) {
  const { db } = context;
  const keyId = (await db.queryOne<{ id: string }>(sql`SELECT id FROM api_keys LIMIT 1`))?.id;
  await db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
    SELECT 'ev-' || ${name}::text, tenant_id, 'machine', id, 'machine.started', '{}', 'info', ${name}, now() - ${ago}::text::interval
    FROM machines WHERE id = ${machineId}`);
  await db.execute(sql`
    INSERT INTO operations (id, tenant_id, kind, status, resource_kind, resource_id, input, steps, created_at, updated_at, deadline_at, attempt)
    SELECT 'op-' || md5(${name}), tenant_id, 'image pull', 'succeeded', 'machine', id, '{}', '[]', now() - interval '40 days',
      now() - ${ago}::text::interval, now(), 1 FROM machines WHERE id = ${machineId}`);
  await db.execute(sql`
    INSERT INTO registry_leases (holder, repository, expires_at) VALUES (${name}, 'library/x', now() + ${ends}::text::interval)`);
  await db.execute(sql`
    INSERT INTO console_sessions (token_hash, key_id, created_at, expires_at)
    VALUES (sha256(convert_to(${name}::text, 'UTF8')), ${keyId}, now(), now() + ${ends}::text::interval)`);
  await db.execute(sql`
    INSERT INTO connect_tokens (token_hash, machine_id, key_id, expires_at)
    VALUES (sha256(convert_to(${name}::text, 'UTF8')), ${machineId}, ${keyId}, now() + ${ends}::text::interval)`);
  await db.execute(sql`
    INSERT INTO idempotency_keys (key_id, idempotency_key, fingerprint, owner, seed, lease_until, created_at, expires_at)
    VALUES (${keyId}, ${name}, ${Buffer.alloc(1)}, ${name}, ${name}, now(), now() - interval '2 days', now() + ${ends}::text::interval)`);
  const deleted = await created();
  await client.delete(`/v1/machines/${deleted}`);
  await db.execute(sql`UPDATE machines SET deleted_at = now() - ${ago}::text::interval WHERE id = ${deleted}`);
  return deleted;
}

test("the server purges every kind", async () => {
  const { counts } = await until(async () => {
    const { loops } = (await client.get("/v1/loops")).json;
    const found = loops.find(({ name }: { name: string }) => name === "purges");
    return found.runs > 0 && found;
  });
  const kinds = counts.map(({ name }: { name: string }) => name);
  assert.deepEqual(kinds.toSorted(), [...Object.keys(PURGES), "idempotencyKeys"].toSorted());
});

test("only what is old enough is purged, of every kind", async () => {
  const id = await created();
  const old = await insertAged("old", id, { ago: "30 days 1 hour", ends: "-1 second" });
  const young = await insertAged("young", id, { ago: "29 days 23 hours", ends: "1 hour" });
  assert.deepEqual((await purge()).errors, []);
  const left = await context.db.query<{ kind: string }>(sql`
    SELECT 'event ' || message AS kind FROM tenant_events WHERE id IN ('ev-old', 'ev-young')
    UNION ALL SELECT 'operation ' || n FROM operations, (VALUES ('old'), ('young')) names (n) WHERE id = 'op-' || md5(n)
    UNION ALL SELECT 'token ' || n FROM connect_tokens, (VALUES ('old'), ('young')) names (n)
      WHERE token_hash = sha256(convert_to(n, 'UTF8'))
    UNION ALL SELECT 'key ' || idempotency_key FROM idempotency_keys WHERE idempotency_key IN ('old', 'young')
    UNION ALL SELECT 'machine ' || id FROM machines WHERE id IN (${old}, ${young})
    UNION ALL SELECT 'session ' || n FROM console_sessions, (VALUES ('old'), ('young')) names (n)
      WHERE token_hash = sha256(convert_to(n, 'UTF8'))
    UNION ALL SELECT 'push ' || holder FROM registry_leases WHERE holder IN ('old', 'young')
    ORDER BY kind`);
  assert.deepEqual(
    left.map(({ kind }) => kind),
    ["event young", "key young", `machine ${young}`, "operation young", "push young", "session young", "token young"],
  );
});

test("a failed purge does not stop the others, and is reported", async () => {
  const id = await created();
  await client.delete(`/v1/machines/${id}`);
  await context.db.execute(sql`UPDATE machines SET deleted_at = now() - interval '31 days' WHERE id = ${id}`);
  const deaf: typeof context.db = Object.create(context.db, {
    execute: {
      value: async (statement: Parameters<typeof context.db.execute>[0]) => {
        if (/^\s*DELETE FROM idempotency_keys/.test(statement.text)) throw new Error("no room");
        return await context.db.execute(statement);
      },
    },
  });
  const { errors, counts } = await purge({ ...context, db: deaf });
  assert.deepEqual(errors, ["idempotencyKeys: no room"]);
  assert.equal(counts["machines"], 1);
  assert.equal(counts["connectTokens"], 0);
});
