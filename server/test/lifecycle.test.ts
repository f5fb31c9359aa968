/**
 * Lifetimes of machines: idle ones are stopped, expired ones deleted, busy ones kept; and their events.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { listIdle } from "../src/machines/lifetime/store.ts";
import { clockReconciler } from "../src/reconcilers/clocks.ts";
import type { Report } from "../src/family.ts";
import { lifetimeReconciler } from "../src/machines/lifetime/lifetimes-loop.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { openTestServices } from "./support/services.ts";
import { until } from "../../test/support/until.ts";

const { server, client, context, machine: create } = await startMachineServer();

/** The server's own loop runs concurrently, so tests check what became of a machine, not who did it. */
async function sweep(): Promise<Report> {
  const services = openTestServices(server);
  const report = await lifetimeReconciler(services).activate(new AbortController().signal);
  await services.stop();
  return report;
}

async function machine(fields: object, isStarted = true): Promise<string> {
  const id = await create(fields);
  if (isStarted) assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  return id;
}

const get = async (id: string) => (await client.get(`/v1/machines/${id}`)).json;
const isGone = async (id: string) => (await client.get(`/v1/machines/${id}`)).status === 404;

async function messages(id: string): Promise<readonly string[]> {
  const events = (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  return events.map(({ message }) => message);
}

/** Moves everything that happened to the machine into the past. */
async function makeOlder(id: string, seconds: number): Promise<void> {
  await context.db.execute(sql`
    UPDATE machines SET created_at = created_at - ${seconds}::int * interval '1 second',
      ready_at = ready_at - ${seconds}::int * interval '1 second',
      last_activity_at = last_activity_at - ${seconds}::int * interval '1 second'
    WHERE id = ${id}`);
}

test("the machines of a suspended tenant stop soon, keep their disks, and stay stopped when it is active again", async () => {
  const { id: tenantId } = (await client.post("/v1/tenants", { name: "late payer" })).json;
  const owner = client.withKey((await client.post("/v1/apikeys", { tenantId })).json.key);
  const source = { type: "image", reference: "local/busybox" };
  const { id } = (await owner.post("/v1/machines", { source })).json;
  assert.equal((await owner.post(`/v1/machines/${id}/start`)).status, 200);
  const other = await machine({});
  assert.equal((await client.post(`/v1/tenants/${tenantId}/suspend`)).status, 204);
  await until(async () => {
    const row = await context.db.queryOne<{ state: string }>(
      sql`SELECT observed_state AS state FROM machines WHERE id = ${id}`,
    );
    return row?.state === "stopped";
  });
  assert.equal((await get(other)).state, "started");
  assert.equal((await client.post(`/v1/tenants/${tenantId}/reactivate`)).status, 204);
  // The row was read directly; a read through the server may be some milliseconds older.
  await until(async () => (await owner.get(`/v1/machines/${id}`)).json.state === "stopped");
  const events = (await owner.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  assert.ok(events.some(({ message }) => message === "stopped: the tenant is suspended"));
  assert.equal((await owner.post(`/v1/machines/${id}/start`)).status, 200);
});

test("reading about a machine is not activity, however often and for how long it is done", async () => {
  const id = await machine({ autoStopSeconds: 60 });
  const left = new AbortController();
  const viewers = await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      fetch(`${client.url}${n % 2 === 0 ? "/v1/events" : `/v1/machines/${id}/logs`}?follow=true`, {
        headers: { authorization: `Bearer ${client.key}` },
        signal: left.signal,
      }),
    ),
  );
  for (const { status } of viewers) assert.equal(status, 200);
  await makeOlder(id, 61);
  const paths = ["", "/events", "/usage", "/sessions", "/logs"].map((path) => `/v1/machines/${id}${path}`);
  for (let count = 0; count < 50; count += 1) {
    for (const path of [...paths, "/v1/machines", "/v1/account", "/v1/events", "/health"])
      assert.equal((await client.get(path)).status, 200, path);
    if ((await get(id)).state !== "started") break;
  }
  await sweep();
  await until(async () => (await get(id)).state === "stopped");
  left.abort();
});

test("a machine in which nothing is done is stopped, keeps its disk and says why", async () => {
  const id = await machine({ autoStopSeconds: 60 });
  await makeOlder(id, 59);
  await sweep();
  assert.equal((await get(id)).state, "started");
  await makeOlder(id, 2);
  await sweep();
  await until(async () => (await get(id)).state === "stopped");
  assert.deepEqual((await messages(id)).slice(-2), ["auto-stop: the machine was idle for 60 s", "machine stopped"]);
  const back = await client.post(`/v1/machines/${id}/exec`, { command: "echo back" });
  assert.equal(back.json.stdout, "back\n");
});

test("a machine that was used while the clock was ahead is idle from when the clock was set back", async () => {
  const [used, unused] = [await machine({ autoStopSeconds: 60 }), await machine({ autoStopSeconds: 60 })];
  for (const id of [used, unused]) await makeOlder(id, -30 * 24 * 3600);
  await context.db.execute(sql`UPDATE machines SET last_activity_at = NULL WHERE id = ${unused}`);
  const { counts } = await clockReconciler(context).activate(new AbortController().signal);
  assert.equal(counts["activity"], 2);
  await sweep();
  for (const id of [used, unused]) {
    assert.equal((await get(id)).state, "started");
    await context.db.execute(
      sql`UPDATE machines SET last_activity_at = last_activity_at - interval '61 s' WHERE id = ${id} AND last_activity_at < now() + interval '1 hour'`,
    );
  }
  await sweep();
  for (const id of [used, unused]) await until(async () => (await get(id)).state === "stopped");
});

test("a machine that never becomes ready is stopped too, after ten minutes", async () => {
  const id = await machine({ autoStopSeconds: 60, ports: [{ port: 9 }] });
  const askedFor = (minutes: number) =>
    context.db.execute(
      sql`UPDATE machines SET desired_at = now() - ${minutes}::int * interval '1 minute' WHERE id = ${id} AND ready_at IS NULL`,
    );
  await askedFor(9);
  await sweep();
  const waiting = await get(id);
  assert.deepEqual([waiting.state, waiting.ready], ["started", false]);
  await askedFor(11);
  await sweep();
  await until(async () => (await get(id)).state === "stopped");
  assert.ok((await messages(id)).includes("auto-stop: the machine was idle for 60 s"));
});

test("idle machines of a node that does not report keep no others from being stopped", async () => {
  const [lost = "", idle = ""] = [
    await machine({ autoStopSeconds: 60 }),
    await machine({ autoStopSeconds: 60 }),
  ].sort();
  await context.db.execute(sql`
    INSERT INTO nodes (id, address, status, credential_hash, registered_at)
    VALUES ('node-lost', 'http://127.0.0.1:9', 'unreachable', sha256('lost'), now())`);
  await context.db.execute(sql`UPDATE machines SET node_id = 'node-lost' WHERE id = ${lost}`);
  for (const id of [lost, idle]) await makeOlder(id, 3600);
  const found = await listIdle(context, { limit: 1, idleMinSeconds: 15 });
  // The server's own loop may have stopped the other one by now.
  assert.ok(found.every(({ id }) => id !== lost));
  await sweep();
  await until(async () => (await get(idle)).state === "stopped");
  assert.equal((await client.call("DELETE", `/v1/machines/${lost}`)).status, 204);
});

test("every use of a machine counts as activity, and is shown", async () => {
  const id = await machine({ autoStopSeconds: 60 });
  const uses: readonly (() => Promise<unknown>)[] = [
    () => client.post(`/v1/machines/${id}/exec`, { command: "false" }),
    () => client.post(`/v1/machines/${id}/exec/stream`, { command: "true" }),
    () => client.post(`/v1/machines/${id}/code`, { language: "python", code: "" }),
  ];
  for (const use of uses) {
    await makeOlder(id, 3600);
    const before = Date.now();
    await use();
    await until(async () => Date.parse((await get(id)).lastActivityAt) >= before);
    await sweep();
    assert.equal((await get(id)).state, "started");
  }
});

test("a running command keeps its machine from being idle, however long it is silent", async () => {
  const id = await machine({ autoStopSeconds: 1 });
  const ending = new AbortController();
  const running = client.post(`/v1/machines/${id}/exec`, { command: "sleep 600" }, { signal: ending.signal });
  await until(async () => (await get(id)).lastActivityAt !== null);
  await makeOlder(id, 10);
  await sweep();
  assert.equal((await get(id)).state, "started");
  const before = Date.parse((await get(id)).lastActivityAt);
  await until(async () => Date.parse((await get(id)).lastActivityAt) > before + 10_000, {
    deadlineMs: 15_000,
    what: "the running command to be noted again",
  });
  ending.abort();
  await assert.rejects(running);
  await until(async () => {
    await makeOlder(id, 60);
    await sweep();
    return (await get(id)).state === "stopped";
  });
});

test("a machine that is older than its ttl is deleted in any state", async () => {
  const running = await machine({ ttlSeconds: 3600 });
  const stopped = await machine({ ttlSeconds: 3600 }, false);
  const young = await machine({ ttlSeconds: 3600 }, false);
  for (const id of [running, stopped]) await makeOlder(id, 3601);
  await sweep();
  assert.deepEqual([await isGone(running), await isGone(stopped), await isGone(young)], [true, true, false]);
  const usage = await client.get(`/v1/machines/${running}/usage`);
  assert.equal(usage.status, 200);
});

test("a machine whose owner changes its ttl is deleted when that is over, and never with 0", async () => {
  const extended = await machine({ ttlSeconds: 60 });
  const shortened = await machine({ ttlSeconds: 7200 });
  const kept = await machine({ ttlSeconds: 60 });
  for (const [id, ttlSeconds] of [
    [extended, 7200],
    [shortened, 60],
    [kept, 0],
  ] as const) {
    const changed = await client.patch(`/v1/machines/${id}`, { ttlSeconds });
    assert.deepEqual([changed.status, changed.json.ttlSeconds], [200, ttlSeconds]);
    await makeOlder(id, 3600);
  }
  await sweep();
  assert.deepEqual([await isGone(extended), await isGone(shortened), await isGone(kept)], [false, true, false]);
});

test("a machine is suspended or stopped at the end of its ttl as its owner wants, and again when it is started", async () => {
  const suspended = await machine({ ttlSeconds: 60, atEnd: "suspend" });
  const refused = await machine({ ttlSeconds: 60, atEnd: "suspend", env: { FAKE_SUSPEND_FAIL: "no_space" } });
  const stopped = await machine({ ttlSeconds: 60 });
  const stays = await machine({ ttlSeconds: 60, atEnd: "stop" }, false);
  const ephemeral = await machine({ ttlSeconds: 60, atEnd: "suspend", ephemeral: true });
  const changed = await client.patch(`/v1/machines/${stopped}`, { atEnd: "stop", labels: { kind: "old" } });
  assert.deepEqual([changed.json.atEnd, changed.json.labels, changed.json.ttlSeconds], ["stop", { kind: "old" }, 60]);
  for (const id of [suspended, refused, stopped, stays, ephemeral]) await makeOlder(id, 3600);
  const hasEnded = async (id: string, isSuspended: boolean): Promise<boolean> => {
    await sweep();
    const { state, suspendedAt } = await get(id);
    return state === "stopped" && (suspendedAt !== null) === isSuspended;
  };
  await until(() => hasEnded(suspended, true));
  await until(() => hasEnded(refused, false));
  await until(() => hasEnded(stopped, false));
  await until(() => isGone(ephemeral));
  assert.deepEqual([(await get(stays)).state, await isGone(stays)], ["stopped", false]);
  assert.equal((await messages(stopped)).filter((message) => message.startsWith("its ttl of 60 s is over")).length, 1);

  assert.equal((await client.post(`/v1/machines/${suspended}/start`)).status, 200);
  await until(() => hasEnded(suspended, true));
  await client.patch(`/v1/machines/${suspended}`, { ttlSeconds: 7200 });
  assert.equal((await client.post(`/v1/machines/${suspended}/start`)).status, 200);
  await sweep();
  assert.equal((await get(suspended)).state, "started");
});

test("lifetimes of any size, and of nothing, are accepted", async () => {
  const ids = [
    await machine({ autoStopSeconds: Number.MAX_SAFE_INTEGER, ttlSeconds: Number.MAX_SAFE_INTEGER }),
    await machine({ autoStopSeconds: 0, ttlSeconds: 0 }),
    await machine({ autoStopSeconds: null, ttlSeconds: null }),
  ];
  for (const id of ids) await makeOlder(id, 1_000_000);
  assert.deepEqual((await sweep()).errors, []);
  for (const id of ids) assert.equal((await get(id)).state, "started");
});

test("two servers that run the loop at the same time end a machine once", async () => {
  const idle = await machine({ autoStopSeconds: 60 });
  const old = await machine({ ttlSeconds: 60 });
  for (const id of [idle, old]) await makeOlder(id, 3600);
  const reports = await Promise.all(Array.from({ length: 4 }, () => sweep()));
  assert.deepEqual(
    reports.flatMap(({ errors }) => errors),
    [],
  );
  await until(async () => (await get(idle)).state === "stopped");
  assert.equal((await messages(idle)).filter((message) => message.startsWith("auto-stop")).length, 1);
  assert.equal(await isGone(old), true);
});

test("a stopped machine is not stopped again, and an idle ephemeral one is deleted", async () => {
  const stopped = await machine({ autoStopSeconds: 60 });
  await client.post(`/v1/machines/${stopped}/stop`);
  const ephemeral = await machine({ autoStopSeconds: 60, ephemeral: true });
  for (const id of [stopped, ephemeral]) await makeOlder(id, 3600);
  await sweep();
  await until(() => isGone(ephemeral));
  assert.equal((await messages(stopped)).at(-1), "machine stopped");
});

test("the unexpected end of a machine is on its timeline once", async () => {
  const ends = { crash: /^machine failed: .*crash/, poweroff: /^machine stopped: the guest powered itself off$/ };
  for (const [command, expected] of Object.entries(ends)) {
    const id = await machine({ restart: "never" });
    await client.post(`/v1/machines/${id}/exec`, { command: [command] });
    // Before that it may still be shown as running, and a start then waits for its end.
    await until(async () => ["error", "stopped"].includes((await get(id)).state));
    // The node's outstanding events are written before this.
    const again = await client.post(`/v1/machines/${id}/start`);
    assert.equal(again.status, 200, again.text);
    await until(async () => (await messages(id)).filter((message) => message === "machine started").length === 2);
    const [created, ...others] = (await messages(id)).filter((message) => !/^exec|^machine started/.test(message));
    assert.equal(created, "machine created");
    assert.equal(others.length, 1, others.join("; "));
    assert.match(others[0] ?? "", expected);
  }
});
