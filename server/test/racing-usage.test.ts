/**
 * Thousands of writers over fifty connections, which record overlapping usage of a few boots: nothing is
 * recorded twice. FLOTILLA_TEST_WRITERS is how many each test has.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import pg from "pg";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { openDatabase } from "../src/db/postgres.ts";
import { createLog } from "../src/log.ts";
import { writeRuns } from "../src/machines/run-store.ts";
import { assertSound } from "./support/sound.ts";
import { startTestServer } from "./support/server.ts";

const CONNECTIONS = 50;
const WRITERS = Number(process.env["FLOTILLA_TEST_WRITERS"] ?? 2000);
const BOOTS = 50;
const HOUR = 3_600_000;

const server = await startTestServer({ invoiceGraceHours: 1_000_000 });
const { db } = server.context;
const from = Date.UTC(2026, 6, 1);

/**
 * Calls `write` for each writer, always CONNECTIONS of them at the same time. Returns how many were refused.
 */
async function race(write: (writer: number) => Promise<unknown>): Promise<number> {
  const writers = Array.from({ length: WRITERS }, (_, writer) => writer).values();
  let refused = 0;
  const connection = async (): Promise<void> => {
    for (const writer of writers)
      await write(writer).catch((error: unknown) => {
        // Two that wait for each other are a deadlock, of which PostgreSQL refuses one.
        assert.match(String(error), /nothing_twice|deadlock/);
        refused += 1;
      });
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, connection));
  return refused;
}

/** Pairs of stored intervals of one boot and meter that overlap. */
async function overlaps(): Promise<number> {
  const row = await db.queryOne<{ count: number }>(sql`
    SELECT count(*)::int AS count FROM usage_intervals a JOIN usage_intervals b
      ON coalesce(a.boot_id, a.machine_id) = coalesce(b.boot_id, b.machine_id) AND a.meter = b.meter AND a.id < b.id
      AND tstzrange(a.started_at, a.ended_at) && tstzrange(b.started_at, b.ended_at)`);
  return row?.count ?? -1;
}

test("of thousands of concurrent inserts of overlapping intervals none is stored beside another", async (t) => {
  const rate = await db.queryOne<{ id: string }>(sql`SELECT id FROM rates LIMIT 1`);
  // Deadlocks are found after this time, which is a second otherwise.
  const pool = new pg.Pool({
    connectionString: server.databaseUrl,
    max: CONNECTIONS,
    options: "-c deadlock_timeout=5ms",
  });
  // Most writers skip a conflict, because two that both wait for the other cost a search for a deadlock.
  await race((writer) => {
    const start = from + ((writer * 7919) % 1000);
    return pool.query(
      `INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id)
       VALUES ('tenant-y', 'mach-y', $1, 'cpu', 1, $2, $3, $4) ${writer % 10 === 0 ? "" : "ON CONFLICT DO NOTHING"}`,
      [`boot-${writer % BOOTS}`, instantOf(start), instantOf(start + 1 + (writer % 20)), rate?.id],
    );
  });
  await pool.end();
  const stored = await db.query(sql`SELECT FROM usage_intervals WHERE machine_id = 'mach-y'`);
  t.diagnostic(`${stored.length} of ${WRITERS} stored`);
  assert.ok(stored.length > BOOTS && stored.length < WRITERS);
  assert.equal(await overlaps(), 0);
});

test("of thousands of concurrent reports of a few runs each run is recorded once, with one end", async () => {
  const log = createLog("error");
  const connection = { connectionString: server.databaseUrl };
  const racing = openDatabase({ connection, clock: systemClock, log, connectionsMax: CONNECTIONS });
  const context = { ...server.context, db: racing };
  const nodeId = "node-racing";
  const { tenantId } = (await server.client.get("/v1/me")).json;
  const id = (boot: number): string => `mach-${String(boot).padStart(32, "0")}`;
  await db.execute(sql`
    INSERT INTO nodes (id, address, status, credential_hash, registered_at) VALUES (${nodeId}, 'node', 'ready', sha256('x'), now())`);
  await db.execute(sql`
    INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
      is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state, observed_generation, revision, node_id)
    SELECT id, ${tenantId}, '{}', '{}', '{}', '[]', '{}', 1, 1, 1, false, false, false, at, at, 'stopped', 1, at, 'absent', 0, 1, ${nodeId}
    FROM unnest(${Array.from({ length: BOOTS }, (_, boot) => id(boot))}::text[]) AS id,
      (SELECT ${instantOf(from)}::timestamptz AS at) AS given`);
  const refused = await race((writer) => {
    const boot = writer % BOOTS;
    const endedAt = writer % 3 === 0 ? null : from + HOUR + (writer % 1000);
    const times = {
      startedAt: from + (writer % 7),
      endedAt,
      cause: endedAt === null ? null : ("stop" as const),
      egressBytes: 0,
    };
    return writeRuns(context, nodeId, [{ machineId: id(boot), bootId: `run-${boot}`, sequence: writer, ...times }]);
  });
  await racing.close();
  assert.equal(refused, 0);
  assert.equal(await overlaps(), 0);
  const runs = await db.query(sql`SELECT FROM machine_runs WHERE node_id = ${nodeId} AND ended_at IS NOT NULL`);
  const intervals = await db.query(
    sql`SELECT FROM usage_intervals WHERE boot_id LIKE 'run-%' AND ended_at IS NOT NULL`,
  );
  assert.deepEqual([runs.length, intervals.length], [BOOTS, 3 * BOOTS]);
  await assertSound(db);
});
