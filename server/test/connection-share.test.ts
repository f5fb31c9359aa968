/**
 * That a tenant whose statements wait in the database keeps no other one from it: over HTTP, on a real
 * PostgreSQL.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer();
const { client, context } = server;
const { db } = context;

async function tenantClient(name: string): Promise<typeof client> {
  const tenantId = (await client.post("/v1/tenants", { name })).json.id as string;
  return client.withKey((await client.post("/v1/apikeys", { tenantId })).json.key);
}

/** Statements that wait for a lock. */
async function countWaiting(): Promise<number> {
  const row = await db.queryOne<{ count: number }>(sql`
    SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`);
  return row?.count ?? 0;
}

test("a tenant whose statements wait for a lock leaves connections to others, and to the server's own work", async () => {
  const [flooder, neighbour] = [await tenantClient("flooder"), await tenantClient("neighbour")];
  const [release, holding] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const lock = db.transaction(async (transaction) => {
    await transaction.execute(sql`LOCK TABLE volumes IN ACCESS EXCLUSIVE MODE`);
    holding.resolve();
    await release.promise;
  });
  await holding.promise;
  const calls = Array.from({ length: 40 }, () => flooder.get("/v1/volumes"));
  try {
    await until(async () => (await countWaiting()) >= 2);
    for (let call = 0; call < 10; call += 1) {
      const answer = await neighbour.get("/v1/machines");
      assert.equal(answer.status, 200, answer.text);
      await countWaiting();
    }
    assert.ok((await countWaiting()) <= 14);
  } finally {
    release.resolve();
    await lock;
  }
  // Calls that waited for longer than for a connection of the pool are refused.
  for (const { status } of await Promise.all(calls)) assert.ok(status === 200 || status === 503, String(status));
});
