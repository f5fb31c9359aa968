/**
 * The Database over PostgreSQL: values, transactions, notifications, and a lost connection.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { DatabaseUnavailable, sql } from "../src/db/database.ts";
import { isConnectionLoss, openDatabase } from "../src/db/postgres.ts";
import { createLog } from "../src/log.ts";
import { freshDatabase } from "./support/server.ts";
import { keptOfEach } from "./support/young-collections.ts";
import { until } from "../../test/support/until.ts";

const connectionString = await freshDatabase();
const log = createLog("silent");
const open = (connectionsMax = 10) =>
  openDatabase({ connection: { connectionString }, clock: systemClock, log, connectionsMax });
const db = open();
const other = open();
const closing = async () => Promise.all([db.close(), other.close()]);
// Tests run in order, so the last one closes; the hook is for a failure before it.
let isClosed = false;
after(async () => {
  if (!isClosed) await closing();
});

await db.execute(sql`CREATE TABLE counters (name text PRIMARY KEY, count bigint NOT NULL)`);

test("bigint arrives as a number, timestamps as Date, and arrays go both ways", async () => {
  const at = new Date("2026-07-22T20:01:41.152Z");
  const row = await db.queryOne<{ big: number; at: Date; texts: string[] }>(
    sql`SELECT ${9_007_199_254_740_991}::bigint AS big, ${at}::timestamptz AS at, ${["a", 'b"', ""]}::text[] AS texts`,
  );
  assert.deepEqual(row, { big: 9_007_199_254_740_991, at, texts: ["a", 'b"', ""] });
  await assert.rejects(db.query(sql`SELECT 9007199254740993::bigint`), /beyond 2\^53/);
});

test("a statement inside a statement keeps its own parameters", async () => {
  const inner = sql`SELECT ${1}::int AS one WHERE ${"x"}::text = 'x'`;
  assert.deepEqual(await db.query(sql`SELECT one, ${2}::int AS two FROM (${inner}) AS inside`), [{ one: 1, two: 2 }]);
});

test("young collections keep next to nothing of statements that were answered", async () => {
  const one = () => db.query(sql`SELECT g AS id, now() AS at FROM generate_series(1, 3) g WHERE g > ${0}::int`);
  const bytes = await keptOfEach(4_000, one);
  // They kept more than 2,000 bytes of each when pg made the promise.
  assert.ok(bytes < 300, `${Math.round(bytes)} bytes of each statement`);
});

test("a statement that the database refuses leaves its connection usable", async () => {
  const single = open(1);
  try {
    const processOf = () => single.queryOne<{ pid: number }>(sql`SELECT pg_backend_pid() AS pid`);
    const before = await processOf();
    await assert.rejects(single.query(sql`SELECT 1 / ${0}::int`), /division by zero/);
    assert.deepEqual(await processOf(), before);
  } finally {
    await single.close();
  }
});

test("a transaction that throws leaves nothing", async () => {
  const work = db.transaction(async (transaction) => {
    await transaction.execute(sql`INSERT INTO counters VALUES ('gone', 1)`);
    throw new Error("changed my mind");
  });
  await assert.rejects(work, /changed my mind/);
  assert.equal(await db.queryOne(sql`SELECT FROM counters WHERE name = 'gone'`), undefined);
});

test("deadlocked transactions are retried and all take effect", async () => {
  await db.execute(sql`INSERT INTO counters VALUES ('left', 0), ('right', 0)`);
  const step = async (names: readonly string[]) =>
    db.transaction(async (transaction) => {
      for (const name of names) {
        await transaction.execute(sql`UPDATE counters SET count = count + 1 WHERE name = ${name}`);
        await transaction.execute(sql`SELECT pg_sleep(0.01)`);
      }
    });
  await Promise.all([step(["left", "right"]), step(["right", "left"]), step(["left", "right"])]);
  const counts = await db.query(sql`SELECT count FROM counters WHERE name IN ('left', 'right')`);
  assert.deepEqual(counts, [{ count: 3 }, { count: 3 }]);
});

test("notifications reach another server, each once, also many at the same time", async () => {
  const received: string[] = [];
  let gaps = 0;
  const stop = other.listen("machines", { onPayload: (payload) => received.push(payload), onGap: () => void gaps++ });
  await until(() => gaps > 0 && other.isListening());
  const sent = Array.from({ length: 1000 }, (_, index) => `mach-${String(index).padStart(32, "0")}`);
  for (const payload of sent) void db.notify("machines", payload);
  for (const payload of sent) void db.notify("machines", payload);
  await until(() => received.length >= sent.length);
  assert.deepEqual(received, sent);
  stop();
});

test("a listener that lost its connection reports the gap and receives again", async () => {
  const received: string[] = [];
  let gaps = 0;
  const stop = other.listen("nodes", { onPayload: (payload) => received.push(payload), onGap: () => void gaps++ });
  await until(() => gaps === 1);
  await db.query(
    sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flotilla listener'`,
  );
  await until(() => gaps >= 3 && other.isListening(), { what: "one gap when it was lost and one when it was back" });
  await db.notify("nodes", "again");
  await until(() => received.includes("again"));
  stop();
});

test("ended backends are replaced, and their statements fail with an unavailable database", async () => {
  const refused = assert.rejects(db.query(sql`SELECT pg_sleep(20)`), DatabaseUnavailable);
  await until(
    async () =>
      (await other.query(sql`SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(20)%'`)).length > 0,
  );
  await other.query(
    sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flotilla' AND pid <> pg_backend_pid()`,
  );
  await refused;
  await until(async () => (await db.query(sql`SELECT 1`)).length === 1);
});

test("the locks of a server that stopped in a transaction are released, and its statement fails as without a database", async () => {
  await db.execute(sql`INSERT INTO counters VALUES ('locked', 0)`);
  const stopped = db.transaction(async (transaction) => {
    await transaction.execute(sql`UPDATE counters SET count = 1 WHERE name = 'locked'`);
    const set = sql`SELECT name, setting::int AS setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'`;
    const { setting } = (await transaction.queryOne<{ setting: number }>(set)) ?? { setting: 0 };
    assert.ok(setting > 0 && setting <= 30_000, `${setting} ms`);
    // The rest of its time.
    await transaction.execute(sql`SET LOCAL idle_in_transaction_session_timeout = 50`);
    await other.execute(sql`UPDATE counters SET count = 2 WHERE name = 'locked'`);
    await transaction.execute(sql`SELECT 1`);
  });
  await assert.rejects(stopped, DatabaseUnavailable);
  assert.deepEqual(await db.query(sql`SELECT count FROM counters WHERE name = 'locked'`), [{ count: 2 }]);
});

test("a statement that waits longer than its limit fails as without a database", async () => {
  const slow = db.transaction(async (transaction) => {
    await transaction.execute(sql`SET LOCAL statement_timeout = 50`);
    await transaction.execute(sql`SELECT pg_sleep(60)`);
  });
  await assert.rejects(slow, DatabaseUnavailable);
});

test("a host whose name cannot be resolved or reached at the moment is a lost connection", () => {
  for (const code of ["EAI_AGAIN", "ENOTFOUND", "ENETDOWN", "EHOSTDOWN", "ECONNABORTED"])
    assert.ok(isConnectionLoss(Object.assign(new Error(`getaddrinfo ${code} db`), { code })), code);
});

test("a missing database is DatabaseUnavailable, not a crash", async () => {
  const nowhere = openDatabase({
    connection: { connectionString: "postgres://flotilla:x@127.0.0.1:1/none" },
    clock: systemClock,
    log,
  });
  await assert.rejects(nowhere.query(sql`SELECT 1`), DatabaseUnavailable);
  await assert.rejects(
    nowhere.transaction(async () => undefined),
    DatabaseUnavailable,
  );
  await nowhere.close();
});

test("closing ends every connection", async () => {
  isClosed = true;
  await closing();
});
