/**
 * Heartbeats of many nodes that are recorded by one statement: each node gets its own, and none waits long
 * for another's lock.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { heartbeatWriter } from "../src/nodes/heartbeat.ts";
import { findNode, type HeartbeatFacts, updateHeartbeats } from "../src/nodes/store.ts";
import { startTestServer } from "./support/server.ts";

const { context } = await startTestServer();
const { db } = context;
const NODES = ["beat-a", "beat-b", "beat-c", "beat-revoked"] as const;
const [A, B, C, REVOKED] = NODES;

const resources = {
  ...{ totalCpus: 8, usedCpus: 1.5, totalMemoryMb: 4_096, availableMemoryMb: 2_048, usedMemoryMb: 2_048 },
  ...{ totalDiskGb: 100, availableDiskGb: 60, usedDiskGb: 40, pressure: null },
};
const agent = {
  linkVersion: 1,
  release: "1.2.3",
  lastError: null,
  canFence: true,
  reserve: null,
  outdatedVmms: ["mach-o"],
};
const quiet = { resources: null, agent: null, agentBootId: null, clockAheadMs: null, certificateExpiresAt: null };
const beat = (id: string, more: Partial<HeartbeatFacts> = {}): HeartbeatFacts => ({
  ...{ id, isComplete: false, now: context.clock.now(), ...quiet },
  ...more,
});

test.beforeEach(async () => {
  await db.execute(sql`DELETE FROM nodes WHERE id = ANY(${NODES}::text[])`);
  await db.execute(sql`
    INSERT INTO nodes (id, address, status, credential_hash, registered_at, clock_ahead_ms, release)
    SELECT id, 'http://127.0.0.1:9', CASE WHEN id = ${REVOKED} THEN 'revoked' WHEN id = ${B} THEN 'unreachable' ELSE 'ready' END,
      CASE WHEN id <> ${REVOKED} THEN sha256(id::bytea) END, now(), 5_000, '1.0.0'
    FROM unnest(${NODES}::text[]) AS id`);
});

test("a clock that was put right is shown so with the next report, which may have been late all the same", async () => {
  const HOUR_MS = 3_600_000;
  await updateHeartbeats(db, [beat(A, { clockAheadMs: 3 * HOUR_MS })]);
  assert.equal((await findNode(db, A))?.clockAheadMs, 3 * HOUR_MS);
  await updateHeartbeats(db, [beat(A, { clockAheadMs: 20 })]);
  assert.equal((await findNode(db, A))?.clockAheadMs, 20);
  const before = (await updateHeartbeats(db, [beat(A, { clockAheadMs: 20 })])).get(A);
  assert.equal(before?.clockAheadMs, 3 * HOUR_MS - 2_000);
  await updateHeartbeats(db, [beat(A)]);
  assert.equal((await findNode(db, A))?.clockAheadMs, null);
});

test("a heartbeat that waited for its server counts from when it was written, by a bounded time, and never from before the last one", async () => {
  const now = context.clock.now();
  const writtenMs = async (ahead: number, clockAheadMs: number | null): Promise<number> => {
    await updateHeartbeats(db, [beat(A, { now: now + ahead, clockAheadMs })]);
    const row = await db.queryOne<{ at: Date }>(
      sql`SELECT last_heartbeat_at - last_late_ms * interval '1 ms' AS at FROM nodes WHERE id = ${A}`,
    );
    return (row?.at.getTime() ?? 0) - now;
  };
  assert.equal(await writtenMs(0, 5_000), 0);
  assert.equal(await writtenMs(40_000, 5_000 - 30_000), 10_000);
  // Its clock is known by then to be 2 s less ahead.
  assert.equal(await writtenMs(40_000, 5_000 - 36_000), 10_000);
  assert.equal(await writtenMs(50_000, 5_000), 50_000);
  assert.equal(await writtenMs(60_000, null), 60_000);
  assert.equal(await writtenMs(70_000, 3_600_000), 70_000);
  assert.equal(await writtenMs(2_000_000, 0), 1_400_000);
});

test("each node of a statement has what it reported, keeps what it said nothing of, and learns what it had before", async () => {
  const before = await updateHeartbeats(db, [
    beat(C, { agent, resources, agentBootId: "agent-c", clockAheadMs: 10 }),
    beat(REVOKED, { resources }),
    beat("beat-unknown"),
    beat(B),
    beat(A, { agent: { ...agent, release: null, lastError: { at: 1_000, message: "it broke" } } }),
  ]);
  assert.deepEqual([...before].map(([id, { status }]) => [id, status]).toSorted(), [
    [A, "ready"],
    [B, "unreachable"],
    [C, "ready"],
  ]);
  const rows = await db.query(sql`
    SELECT id, status, release, last_error AS error, total_cpus AS cpus, used_cpus AS used, agent_boot_id AS agent, can_fence AS fences,
      outdated_vmms AS outdated, clock_ahead_ms AS ahead, last_heartbeat_at IS NOT NULL AS beats, pressure
    FROM nodes WHERE id = ANY(${NODES}::text[]) ORDER BY id`);
  const none = { error: null, cpus: 0, used: 0, agent: null, pressure: null, ahead: null };
  assert.deepEqual(rows, [
    {
      ...none,
      id: A,
      status: "ready",
      release: null,
      error: "it broke",
      fences: true,
      outdated: ["mach-o"],
      beats: true,
    },
    { ...none, id: B, status: "ready", release: "1.0.0", fences: false, outdated: null, beats: true },
    // A clock is put back by two seconds at most.
    ...[
      {
        ...none,
        id: C,
        status: "ready",
        release: "1.2.3",
        cpus: 8,
        used: 1.5,
        agent: "agent-c",
        fences: true,
        outdated: ["mach-o"],
      },
    ].map((row) => ({ ...row, ahead: 3_000, beats: true })),
    {
      ...none,
      id: REVOKED,
      status: "revoked",
      release: "1.0.0",
      fences: false,
      outdated: null,
      ahead: 5_000,
      beats: false,
    },
  ]);
});

test("an error that a node says it had after the year 9999 does not cost the heartbeats that share its statement", async () => {
  const lastError = { at: 8.64e15, message: "it will break" };
  const before = await updateHeartbeats(db, [beat(A, { agent: { ...agent, lastError } }), beat(C)]);
  assert.deepEqual([...before.keys()].toSorted(), [A, C]);
  const [row] = await db.query(sql`SELECT extract(year FROM last_error_at)::int AS year FROM nodes WHERE id = ${A}`);
  assert.deepEqual(row, { year: 9999 });
});

test("a heartbeat that waits for its node's lock delays those of other nodes by a second, and is then written", async () => {
  const heartbeats = heartbeatWriter(context);
  const isWritten = { locked: false };
  let locked: Promise<unknown> = Promise.resolve();
  await db.transaction(async (transaction) => {
    await transaction.execute(sql`UPDATE nodes SET labels = '{"a": "b"}' WHERE id = ${A}`);
    locked = heartbeats.do(beat(A)).then(() => (isWritten.locked = true));
    const others = await Promise.all([heartbeats.do(beat(B)), heartbeats.do(beat(C))]);
    assert.deepEqual(
      others.map((one) => one?.status),
      ["unreachable", "ready"],
    );
    assert.equal(isWritten.locked, false);
  });
  await locked;
  const seen = await db.query(
    sql`SELECT FROM nodes WHERE id = ${A} AND last_heartbeat_at IS NOT NULL AND labels ->> 'a' = 'b'`,
  );
  assert.equal(seen.length, 1);
});
