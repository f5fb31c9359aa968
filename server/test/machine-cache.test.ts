/**
 * Reads of a machine that are answered from memory: what they may show, and that they make no query.
 *
 * Two servers share a database; the second one's connection to it can be cut. The tests do not wait for an
 * answer to age: the first server's clock can be set ahead.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { sql } from "../src/db/database.ts";
import { MachineCache } from "../src/machines/machine-cache.ts";
import { findAnyMachine } from "../src/machines/store.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startProxy } from "./support/proxy.ts";
import { startTestServer } from "./support/server.ts";
import { countStatements, untilStatements } from "./support/statements.ts";
import { until } from "../../test/support/until.ts";

let aheadMs = 0;
const clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs };
const here = await startTestServer({ joinToken: TEST_JOIN_TOKEN, clock });
const proxy = await startProxy(here.databaseUrl);
const { dataDirectory } = here;
const there = await startTestServer({ databaseUrl: proxy.url, joinToken: TEST_JOIN_TOKEN, dataDirectory });
after(() => proxy.close());
const node = await startTestNode(here);

const state = async (id: string, server = here) => (await server.client.get(`/v1/machines/${id}`)).json.state as string;

/** A running machine that both servers have cached. */
async function running(): Promise<string> {
  const source = { type: "image", reference: "local/busybox" };
  const { id } = (await here.client.post("/v1/machines", { source })).json;
  assert.equal((await here.client.post(`/v1/machines/${id}/start`)).status, 200);
  await known(id);
  return id;
}

/** Until both servers answer without a query. */
async function known(id: string): Promise<void> {
  for (const server of [here, there]) await untilStatements(server.context.db, 0, () => state(id, server));
}

test("a cached machine is read without a query, by its owner alone", async () => {
  const id = await running();
  const { db } = here.context;
  await untilStatements(db, 0, async () => {
    for (let round = 0; round < 20; round += 1) assert.equal(await state(id), "started");
  });
  const tenant = (await here.client.post("/v1/tenants", { name: "stranger" })).json;
  const key = (await here.client.post("/v1/apikeys", { name: "k", scopes: ["machine:read"], tenantId: tenant.id }))
    .json;
  const stranger = here.client.withKey(key.key);
  assert.equal((await stranger.get(`/v1/machines/${id}`)).status, 404);
  await untilStatements(db, 0, () => state(id));
});

test("a client whose change was answered sees it, however many read meanwhile", async () => {
  const id = await running();
  let isOver = false;
  const readers = Array.from({ length: 8 }, async () => {
    while (!isOver) await here.client.get(`/v1/machines/${id}`);
  });
  for (let round = 0; round < 5; round += 1) {
    await here.client.post(`/v1/machines/${id}/stop`);
    assert.equal(await state(id), "stopped");
    await here.client.post(`/v1/machines/${id}/start`);
    assert.equal(await state(id), "started");
  }
  assert.equal((await here.client.delete(`/v1/machines/${id}`)).status, 204);
  for (let round = 0; round < 5; round += 1)
    assert.equal((await here.client.get(`/v1/machines/${id}`)).status, 404, "a deleted machine was shown");
  isOver = true;
  await Promise.all(readers);
});

test("a client whose change was answered sees it, also when a report of the node was written first", async () => {
  const id = await running();
  const { notify } = here.context.db;
  const { query } = there.context.db;
  // The node reports to one server, which is kept from announcing it, and answers the stop of the other.
  const [written, asked] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  here.context.db.notify = async (channel, payload) => {
    if (payload.startsWith(id)) {
      written.resolve();
      await asked.promise;
    }
    await notify(channel, payload);
  };
  let writes = 0;
  there.context.db.query = async (statement) => {
    // The first write is the desired state, the second the node's answer.
    const isWrite = statement.text.includes("UPDATE machines");
    if (isWrite && JSON.stringify(statement.values).includes(id) && ++writes === 2) await written.promise;
    return query(statement);
  };
  try {
    assert.equal((await there.client.post(`/v1/machines/${id}/stop`)).json.state, "stopped");
    assert.equal(await state(id, there), "stopped");
  } finally {
    asked.resolve();
    here.context.db.notify = notify;
    there.context.db.query = query;
  }
});

test("a list is read from the database, and only rows that are not cached at their revision", async () => {
  const label = "listed=yes";
  const source = { type: "image", reference: "local/busybox" };
  const ids: string[] = [];
  for (let count = 0; count < 4; count += 1)
    ids.unshift((await here.client.post("/v1/machines", { source, labels: { listed: "yes" } })).json.id);
  const list = async () =>
    (await here.client.get(`/v1/machines?label=${label}`)).json as { id: string; state: string }[];
  const asked = () => countStatements(here.context.db, list, /m\.tenant_id = /);
  await until(async () => (await asked()) === 1, { what: "a list of machines that are known" });
  assert.deepEqual(
    (await list()).map(({ id }) => id),
    ids,
  );
  for (const [verb, shown] of [
    ["start", "started"],
    ["stop", "stopped"],
  ] as const) {
    await there.client.post(`/v1/machines/${ids[1]}/${verb}`);
    assert.equal((await list())[1]?.state, shown, "a list is never behind, whichever server made the change");
    for (const { id, state: listed } of await list()) assert.equal(await state(id), listed);
  }
  await there.client.delete(`/v1/machines/${ids[0]}`);
  assert.deepEqual(
    (await list()).map(({ id }) => id),
    ids.slice(1),
  );
  const pages = await here.client.get(`/v1/machines?label=${label}&limit=2`);
  assert.deepEqual([pages.json.length, pages.headers.has("link")], [2, true]);
});

test("another server's change shows soon, without repeated queries", async () => {
  const id = await running();
  for (const [verb, shown] of [
    ["stop", "stopped"],
    ["start", "started"],
  ] as const) {
    await known(id);
    await there.client.post(`/v1/machines/${id}/${verb}`);
    await until(async () => (await state(id)) === shown, { what: `${shown} at the other server` });
  }
  await known(id);
  await there.client.delete(`/v1/machines/${id}`);
  const isGone = async () => (await here.client.get(`/v1/machines/${id}`)).status === 404;
  await until(isGone, { what: "the deletion at the other server" });
});

test("a change without a notification shows when the cached answer is too old", async () => {
  const id = await running();
  await here.context.db.execute(sql`UPDATE machines SET labels = '{"by":"hand"}'::jsonb WHERE id = ${id}`);
  aheadMs += 5_001;
  assert.deepEqual((await here.client.get(`/v1/machines/${id}`)).json.labels, { by: "hand" });
});

test("nothing is shown from memory while notifications do not arrive, nor what was cached before", async () => {
  const id = await running();
  proxy.cut();
  try {
    const isCut = async () => (await there.client.get(`/v1/machines/${id}`)).status === 503;
    await until(isCut, { what: "the second server to miss its database" });
    await here.client.post(`/v1/machines/${id}/stop`);
    assert.equal((await there.client.get(`/v1/machines/${id}`)).status, 503);
  } finally {
    proxy.restore();
  }
  const states = new Set<string>();
  const isBack = async () => {
    const answer = await there.client.get(`/v1/machines/${id}`);
    if (answer.status === 200) states.add(answer.json.state);
    return answer.status === 200 && (await countStatements(there.context.db, () => state(id, there))) === 0;
  };
  await until(isBack, { what: "the second server to have its database back, and to keep what it reads" });
  assert.deepEqual([...states], ["stopped"]);
});

test("a change of a node removes its machines from memory, and no others", async () => {
  const id = await running();
  const { context } = here;
  const cache = new MachineCache(context);
  const name = { tenantId: (await findAnyMachine(context.db, id))?.tenantId ?? "", id };
  try {
    const isKept = async () => (await cache.read(name)) !== undefined && cache.current(name) !== undefined;
    await until(isKept);
    await context.db.notify("nodes", "another-node");
    assert.notEqual(cache.current(name), undefined);
    await context.db.notify("nodes", node.id);
    assert.equal(cache.current(name), undefined);
  } finally {
    cache.close();
  }
});

test("machines that are read at the same time share statements, and each caller gets its own or none", async () => {
  const source = { type: "image", reference: "local/busybox" };
  const ids: string[] = [];
  while (ids.length < 12) ids.push((await here.client.post("/v1/machines", { source })).json.id);
  const { context } = here;
  const cache = new MachineCache(context);
  const tenantId = (await findAnyMachine(context.db, ids[0] ?? ""))?.tenantId ?? "";
  const none = `mach-${"0".repeat(32)}`;
  try {
    let found: readonly unknown[] = [];
    await untilStatements(context.db, 1, async () => {
      const names = [...ids, ...ids, none].map((id) => ({ tenantId, id }));
      found = await Promise.all(
        [...names, { tenantId: "another", id: ids[0] ?? "" }].map(async (name) => (await cache.read(name))?.id),
      );
    });
    assert.deepEqual(found, [...ids, ...ids, undefined, undefined]);
    assert.equal((await here.client.delete(`/v1/machines/${ids[0]}`)).status, 204);
    assert.equal(await cache.read({ tenantId, id: ids[0] ?? "" }), undefined);
    assert.notEqual((await cache.readAny(ids[0] ?? ""))?.deletedAt, null);
  } finally {
    cache.close();
  }
});

test("a row read before a change arrived is used once and not cached", async () => {
  const id = await running();
  const { context } = here;
  const cache = new MachineCache(context);
  const name = { tenantId: (await findAnyMachine(context.db, id))?.tenantId ?? "", id };
  try {
    const asOf = async (meanwhile: () => unknown) => {
      await cache.keep([id], async () => {
        const found = await findAnyMachine(context.db, id);
        await meanwhile();
        return found === undefined ? [] : [found];
      });
      return cache.current(name);
    };
    // Earlier notifications are delivered by PostgreSQL again.
    const isKept = async () => (await asOf(() => undefined)) !== undefined;
    await until(isKept);
    const touchedAt = Date.now() + 60_000;
    const touched = await asOf(() => cache.touched(id, touchedAt));
    assert.equal(touched?.lastActivityAt, touchedAt);
    assert.equal(await asOf(() => context.db.notify("nodes", node.id)), undefined);
    await until(isKept);
    assert.equal(await asOf(() => context.db.notify("machines", `${id}:${touched.revision + 1}`)), undefined);
  } finally {
    cache.close();
  }
});

test("a revoked node shows on its machines immediately, and soon at another server", async () => {
  const id = await running();
  assert.equal((await here.client.delete(`/v1/nodes/${node.id}/credential`)).status, 204);
  assert.equal(await state(id), "error");
  await until(async () => (await state(id, there)) === "error", { what: "the revoked node at the other server" });
});
