/**
 * What a node may say of runs: each is in a period in which the machine was that node's, and no two of a
 * machine overlap. Within that a run keeps its length, whatever the node's clock says and however late it is
 * reported.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Run } from "@flotilla/contract/link/link";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { writeRuns } from "../src/machines/run-store.ts";
import { assertSound } from "./support/sound.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer();
const { client, context } = server;
const { db } = context;
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const now = context.clock.now();
for (const id of ["one", "two"])
  await db.execute(sql`
    INSERT INTO nodes (id, address, status, credential_hash, registered_at, last_heartbeat_at)
    VALUES (${id}, 'node', 'ready', sha256(${id}::bytea), now(), now())`);

/** A machine that came to node `one` before `ago` milliseconds. */
async function machine(ago = 10 * HOUR): Promise<string> {
  const { id } = (await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } })).json;
  const at = instantOf(now - ago);
  await db.execute(sql`UPDATE machines SET node_id = 'one', updated_at = ${at} WHERE id = ${id}`);
  return id;
}

const moveTo = (node: string, id: string, ago: number): Promise<number> =>
  db.execute(sql`UPDATE machines SET node_id = ${node}, updated_at = ${instantOf(now - ago)} WHERE id = ${id}`);

let last = 0;

/** A run by the node's clock, from and to so many milliseconds before now. */
const run = (machineId: string, from: number, to: number | null = null): Run => ({
  ...{ bootId: `boot-${(last += 1)}`, sequence: last, machineId, startedAt: now - from },
  ...{ endedAt: to === null ? null : now - to, cause: to === null ? null : "stop" },
  egressBytes: 0,
});

/** The runs arrive so many milliseconds before now. */
function reportAt(ago: number, node: string, ...runs: readonly Run[]): Promise<readonly string[]> {
  return writeRuns({ ...context, clock: { ...context.clock, now: () => now - ago } }, node, runs);
}

const report = (node: string, ...runs: readonly Run[]): Promise<readonly string[]> => reportAt(0, node, ...runs);

/** The recorded runs, each from and to so many minutes before now. */
async function recorded(machineId: string): Promise<readonly (readonly [number, number | null])[]> {
  const rows = await db.query<{ from: number; to: number | null }>(sql`
    SELECT ms(started_at) AS from, ms(ended_at) AS to FROM machine_runs WHERE machine_id = ${machineId} ORDER BY started_at, ended_at`);
  return rows.map(({ from, to }) => [(now - from) / MINUTE, to === null ? null : (now - to) / MINUTE]);
}

const uptime = async (id: string): Promise<number> => {
  const row = await db.queryOne<{ ms: number }>(sql`
    SELECT coalesce(sum(1000 * extract(epoch FROM coalesce(ended_at, left_at) - started_at)), 0)::float8 AS ms
    FROM usage_intervals WHERE machine_id = ${id} AND meter = 'uptime'`);
  return row?.ms ?? Number.NaN;
};

test("a node bills no more than the time in which the machine was there, whatever runs it makes up", async () => {
  const id = await machine(5 * SECOND);
  const made = Array.from({ length: 500 }, () => ({ ...run(id, 5 * SECOND, 0), startedAt: 0 }));
  assert.deepEqual(await report("one", ...made), []);
  assert.equal(await uptime(id), 5 * SECOND);
  await report("one", ...Array.from({ length: 100 }, (_, at) => run(id, 5 * SECOND - at, at)));
  assert.equal(await uptime(id), 5 * SECOND);
});

test("a node reports no run of a machine that never was there, and none outside the time in which it was", async () => {
  const id = await machine();
  const foreign = run(id, 2 * HOUR, HOUR);
  assert.deepEqual(await report("two", foreign), [foreign.bootId]);
  await moveTo("two", id, 4 * HOUR);
  await report("two", run(id, HOUR));
  // Its former node makes up what is left of its time, and no more.
  await report("one", run(id, 24 * HOUR, 0), run(id, 3 * HOUR), run(id, 3 * HOUR, HOUR));
  assert.deepEqual(
    (await recorded(id)).filter(([from]) => from < 240),
    [[60, null]],
  );
  assert.equal(await uptime(id), 6 * HOUR);
});

test("a run that is open when its machine moves counts at most up to then, and its end is exact when it comes", async () => {
  const id = await machine();
  const open = run(id, 8 * HOUR);
  await report("one", open);
  await moveTo("two", id, 4 * HOUR);
  assert.equal(await uptime(id), 4 * HOUR);
  await report("two", run(id, 3 * HOUR));
  await report("one", { ...open, endedAt: now - 5 * HOUR, cause: "stop" });
  assert.deepEqual(await recorded(id), [
    [480, 300],
    [180, null],
  ]);
  const another = run(id, 4.9 * HOUR, 4.5 * HOUR);
  await report("one", another);
  assert.equal((await recorded(id)).length, 3, "it restarted before the move, and reports that late");
});

for (const [what, ahead] of [
  ["behind", -HOUR],
  ["ahead", HOUR],
] as const)
  test(`a run keeps its length at a node whose clock is an hour ${what}, also across a move`, async () => {
    const id = await machine(2 * HOUR);
    const late = (from: number, to: number | null): Run => run(id, from - ahead, to === null ? null : to - ahead);
    await reportAt(105 * MINUTE, "one", late(115 * MINUTE, 105 * MINUTE));
    const open = late(100 * MINUTE, null);
    await reportAt(100 * MINUTE, "one", open);
    await moveTo("two", id, 80 * MINUTE);
    const ended = { ...open, endedAt: now - 85 * MINUTE + ahead, cause: "stop" } as const;
    await reportAt(75 * MINUTE, "one", ended, late(84 * MINUTE, 82 * MINUTE));
    assert.equal(await uptime(id), 27 * MINUTE);
    for (const [from] of await recorded(id)) assert.ok(from >= 80 && from <= 120, `${from} minutes ago`);
    await reportAt(20 * MINUTE, "two", late(70 * MINUTE, 50 * MINUTE), late(40 * MINUTE, 30 * MINUTE));
    assert.equal(await uptime(id), 57 * MINUTE);
  });

test("a run keeps its length over a change to summer time of the database", async () => {
  const at = Date.UTC(2025, 2, 29, 12);
  const id = await machine(now - at + 48 * HOUR);
  await db.transaction(async (transaction) => {
    await transaction.execute(sql`SET LOCAL TIME ZONE 'Europe/Berlin'`);
    const long = run(id, now - at, now - at - 72 * HOUR);
    await writeRuns({ ...context, db: { ...db, ...transaction } }, "one", [long]);
  });
  assert.equal(await uptime(id), 72 * HOUR);
});

test("a run after the node's clock was set back follows the one before, with its length", async () => {
  const id = await machine();
  await report("one", run(id, 5 * HOUR, 2 * HOUR));
  // They began after it, and by then the clock was two hours behind.
  const next = run(id, 3 * HOUR, 2.5 * HOUR);
  await report("one", next, run(id, 2.4 * HOUR));
  assert.equal(await uptime(id), 3.5 * HOUR);
  const [[, end], [from, to], [open]] = (await recorded(id)) as [[number, number], [number, number], [number]];
  assert.ok(end >= from && to >= open);
});

test("a run that is reported after the machine is back belongs to the time of which its node says it was", async () => {
  const id = await machine();
  await moveTo("two", id, 8 * HOUR);
  await moveTo("one", id, 4 * HOUR);
  await report("one", run(id, 9.5 * HOUR, 9 * HOUR), run(id, 4.5 * HOUR, 3.75 * HOUR));
  assert.deepEqual(await recorded(id), [
    [570, 540],
    [240, 195],
  ]);
});

test("a run whose end the node has lost ends when the next one of the machine begins", async () => {
  const id = await machine();
  const lost = run(id, 9 * HOUR);
  await report("one", lost);
  await report("one", run(id, 6 * HOUR, 5 * HOUR));
  assert.deepEqual(await recorded(id), [
    [540, 360],
    [360, 300],
  ]);
});

test("a run that an answer brought before those that precede it leaves them their place", async () => {
  const id = await machine();
  const early = run(id, 8 * HOUR, 7 * HOUR);
  const known = run(id, 3 * HOUR);
  await report("one", known);
  await report("one", early);
  assert.deepEqual(await recorded(id), [
    [480, 420],
    [180, null],
  ]);
});

test("a run begins after one that a server whose clock is ahead has recorded in the future", async () => {
  const id = await machine();
  const before = run(id, 2 * MINUTE);
  await reportAt(-MINUTE, "one", before);
  await reportAt(-MINUTE, "one", { ...before, endedAt: now + MINUTE, cause: "stop" });
  const next = run(id, -MINUTE);
  assert.deepEqual(await report("one", next), []);
  assert.deepEqual(await recorded(id), [
    [2, -1],
    [-1, null],
  ]);
  await reportAt(-3 * MINUTE, "one", { ...next, endedAt: now + 3 * MINUTE, cause: "stop" });
  assert.equal(await uptime(id), 5 * MINUTE);
});

test("runs of one machine that overlap are refused by the database itself", async () => {
  const id = await machine();
  await report("one", run(id, 8 * HOUR, 7 * HOUR));
  const insert = db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, recorded_at)
    SELECT 'boot-beside', id, 'two', tenant_id, cpus, memory_mb, ${instantOf(now - 9 * HOUR)}::timestamptz, now()
    FROM machines WHERE id = ${id}`);
  await assert.rejects(insert, /machine_runs_apart/);
});

test("what was recorded is sound", () => assertSound(db));
