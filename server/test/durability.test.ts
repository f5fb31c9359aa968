/**
 * Which writes wait for the disk: all but two, whose facts a node reports again. What is acknowledged to a
 * node is on the disk.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import pg from "pg";
import { sql } from "../src/db/database.ts";
import { applyEndedRuns, applyOpenRuns } from "../src/machines/apply-runs.ts";
import type { Change, ReportedRun } from "../src/machines/change.ts";
import { findAnyMachine, writeChanges } from "../src/machines/store.ts";
import { updateHeartbeats } from "../src/nodes/store.ts";
import { createMachine } from "./support/machine-server.ts";
import { TEST_JOIN_TOKEN } from "./support/node.ts";
import { freshDatabase, startTestServer } from "./support/server.ts";

// The PostgreSQL of the tests waits for no commit unless a test asks for it.
const databaseUrl = await freshDatabase();
const operator = new pg.Client({ connectionString: databaseUrl });
await operator.connect();
await operator.query(`ALTER DATABASE ${new URL(databaseUrl).pathname.slice(1)} SET synchronous_commit = on`);
await operator.end();

const { client, context } = await startTestServer({ databaseUrl, joinToken: TEST_JOIN_TOKEN });
const { db } = context;
const register = { id: "ghost", address: "unix:/nowhere/agent.sock", totalCpus: 8 };
assert.equal((await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", register)).status, 200);

/**
 * What a node's answer to a start, or to a stop, changes: the machine runs, and a run of it has ended before.
 */
async function observed(): Promise<{ readonly id: string; readonly change: Change; readonly run: ReportedRun }> {
  const id = await createMachine(client);
  await db.execute(sql`UPDATE machines SET node_id = 'ghost' WHERE id = ${id}`);
  const machine = await findAnyMachine(db, id);
  assert.ok(machine !== undefined);
  const now = context.clock.now();
  const run = { bootId: `boot-of-${id}`, startedAt: now - 2, endedAt: now - 1, cause: "stop" as const, egressBytes: 0 };
  const next = { ...machine, observedState: "running" as const, observedBootId: "boot-next" };
  return { id, run, change: { next, timeline: [], runs: [run] } };
}

for (const [durability, setting] of [
  ["disk", "on"],
  ["later", "off"],
] as const) {
  test(`a write with the durability "${durability}" is committed with synchronous_commit ${setting}, and the next one waits`, async () => {
    const { id, change } = await observed();
    const read = sql`SELECT current_setting('synchronous_commit') AS setting`;
    const during = await db.transaction(async (transaction) => {
      const written = await writeChanges({ ...context, db: { ...db, ...transaction } }, [change], { durability });
      assert.deepEqual([...written.keys()], [id]);
      return await transaction.queryOne(read);
    });
    assert.deepEqual(during, { setting });
    const all = await Promise.all(Array.from({ length: 30 }, () => db.queryOne(read)));
    assert.ok(all.every((row) => (row as { setting: string }).setting === "on"));
  });
}

test("a heartbeat that says nothing new of machines waits for no disk, and the next write of its connection does", async () => {
  const read = sql`SELECT current_setting('synchronous_commit') AS setting`;
  const heartbeat = {
    ...{ id: "ghost", agentBootId: "agent-1", isComplete: true, resources: null, agent: null },
    ...{ clockAheadMs: null, certificateExpiresAt: null, now: context.clock.now() },
  };
  const during = await db.transaction(async (transaction) => {
    assert.equal((await updateHeartbeats(transaction, [heartbeat])).get("ghost")?.status, "ready");
    return await transaction.queryOne(read);
  });
  assert.deepEqual(during, { setting: "off" });
  const all = await Promise.all(Array.from({ length: 30 }, () => db.queryOne(read)));
  assert.ok(all.every((row) => (row as { setting: string }).setting === "on"));
});

test("a run is acknowledged to its node when it is on the disk, also if it was recorded before without waiting", async () => {
  const sequence = 7;
  let isProven = false;
  for (let count = 0; count < 100 && !isProven; count += 1) {
    const { id, change, run } = await observed();
    await writeChanges(context, [change], { durability: "later" });
    const position = await db.queryOne<{ end: string; isBehind: boolean }>(sql`
      SELECT pg_current_wal_insert_lsn()::text AS end, pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() AS "isBehind"`);
    const report = { sequence, isComplete: false, runs: [{ ...run, machineId: id, sequence }] };
    await applyEndedRuns(context, "ghost", report);
    assert.equal(
      await applyOpenRuns(context, { id: "ghost", lastReportAt: null, isRestored: false }, report),
      sequence,
    );
    const after = await db.queryOne<{ isFlushed: boolean }>(sql`
      SELECT pg_current_wal_flush_lsn() >= ${position?.end ?? ""}::pg_lsn AS "isFlushed"`);
    assert.deepEqual(after, { isFlushed: true });
    // PostgreSQL may have written it in the background before.
    isProven = count >= 10 && position?.isBehind === true;
  }
  assert.ok(isProven, "every write was on the disk before its run was acknowledged");
});
