/**
 * The embedded PostgreSQL: starting, adopting, restarting and stopping it. test/crash/database.test.ts tests
 * what kill -9 does to data.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import pg from "pg";
import { startEmbeddedPostgres } from "../src/embedded-postgres/embedded.ts";
import { createLog } from "../src/log.ts";
import { until } from "../../test/support/until.ts";
import { fastClock } from "../../test/support/fast-clock.ts";

const home = await mkdtemp(join(tmpdir(), "flotilla-embedded-"));
after(() => rm(home, { recursive: true, force: true }));

// Below a directory that only its owner may enter, and far longer than a Unix socket's path may be.
const directory = join(home, "x".repeat(100), "y".repeat(100), "postgres");
await mkdir(join(directory, ".."), { recursive: true, mode: 0o700 });

const options = {
  directory,
  clock: systemClock,
  log: createLog("silent"),
  randomBytes,
  settings: ["fsync=off"],
};

async function query(connection: object, text: string): Promise<readonly object[]> {
  const client = new pg.Client(connection);
  client.on("error", () => undefined);
  await client.connect();
  try {
    return (await client.query<object>(text)).rows;
  } finally {
    await client.end();
  }
}

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

test("it starts while an initdb of a killed server still writes", async () => {
  const place = join(home, "still-written", "postgres");
  const unfinished = join(place, "init-still-written");
  await mkdir(unfinished, { recursive: true });
  const write = 'for (let n = 0, end = Date.now() + 1500; Date.now() < end; n++) fs.writeFileSync(`${n}`, "");';
  const orphan = spawn(process.execPath, ["-e", write], { cwd: unfinished, stdio: "ignore" });
  await until(async () => (await readdir(unfinished)).length > 0);
  const started = await startEmbeddedPostgres({ ...options, directory: place });
  await started.stop();
  assert.deepEqual((await readdir(place)).sort(), ["data", "lib", "log", "password", "reserve"]);
  orphan.kill();
});

test("it starts in a deep private directory, keeps its data across a stop, and leaves no process", async () => {
  await mkdir(join(directory, "init-left-by-a-crash"), { recursive: true });
  const first = await startEmbeddedPostgres(options);
  await query(first.connection, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)");
  assert.deepEqual((await readdir(directory)).sort(), ["data", "lib", "log", "password", "reserve"]);
  assert.equal((await stat(join(directory, "password"))).mode & 0o777, 0o600);
  const pid = first.pid();
  await first.stop();
  assert.equal(isAlive(pid), false);
  const second = await startEmbeddedPostgres(options);
  assert.deepEqual(await query(second.connection, "SELECT n FROM kept"), [{ n: 7 }]);
  await second.stop();
});

test("it starts in a directory that is named from the working directory", async () => {
  const started = await startEmbeddedPostgres({
    ...options,
    directory: relative(".", join(home, "relative", "postgres")),
  });
  await started.stop();
});

test("it is reachable only through its socket, and only with the password", async () => {
  const postgres = await startEmbeddedPostgres(options);
  const { rows } = { rows: await query(postgres.connection, "SHOW listen_addresses") };
  assert.deepEqual(rows, [{ listen_addresses: "" }]);
  await assert.rejects(
    query({ ...postgres.connection, password: "wrong" }, "SELECT 1"),
    /password authentication failed/,
  );
  await postgres.stop();
});

test("a second start on the directory is refused while the first one runs, and does not disturb it", async () => {
  const postgres = await startEmbeddedPostgres(options);
  await assert.rejects(startEmbeddedPostgres(options), /is in use by another Flotilla; stop that one/);
  assert.deepEqual(await query(postgres.connection, "SELECT 1 AS one"), [{ one: 1 }]);
  await postgres.stop();
});

/** The process of PostgreSQL's that writes checkpoints. */
async function checkpointerOf(postmaster: number): Promise<number> {
  const children = await readFile(`/proc/${postmaster}/task/${postmaster}/children`, "utf8");
  for (const pid of children.trim().split(" ").map(Number))
    if ((await readFile(`/proc/${pid}/cmdline`, "utf8")).includes("checkpointer")) return pid;
  throw new Error("PostgreSQL has no checkpointer");
}

test("a stop that hangs is cut short for another start that waits, and nothing is lost", async () => {
  const stopping = new AbortController();
  const said: string[] = [];
  let checkpointer = 0;
  const warn = (fields: object): void => {
    said.push(JSON.stringify(fields));
    process.kill(checkpointer, "SIGCONT");
  };
  const log = { ...options.log, warn };
  const first = await startEmbeddedPostgres({ ...options, clock: fastClock(10), log, signal: stopping.signal });
  await query(first.connection, "INSERT INTO kept VALUES (8)");
  // Like a checkpoint on a disk that does not answer.
  checkpointer = await checkpointerOf(first.pid());
  process.kill(checkpointer, "SIGSTOP");
  stopping.abort();
  const stopped = first.stop();
  const second = await startEmbeddedPostgres(options);
  await stopped;
  assert.match(said[0] ?? "", /another Flotilla waits for it/);
  assert.deepEqual(await query(second.connection, "DELETE FROM kept WHERE n = 8 RETURNING n"), [{ n: 8 }]);
  await second.stop();
});

test("it is restarted after a kill", async () => {
  const postgres = await startEmbeddedPostgres(options);
  const pid = postgres.pid();
  process.kill(pid, "SIGKILL");
  await until(() => postgres.pid() !== pid, { deadlineMs: 30_000 });
  await until(async () => (await query(postgres.connection, "SELECT n FROM kept")).length === 1, {
    deadlineMs: 30_000,
  });
  await postgres.stop();
});

test("its log is bounded while it runs, and continues in the same file", async () => {
  const path = join(directory, "log");
  const postgres = await startEmbeddedPostgres({ ...options, clock: fastClock(20) });
  const sizeOf = async (name: string) => (await stat(name)).size;
  await truncate(path, 17 * 1024 ** 2);
  await until(async () => (await sizeOf(path)) < 1024 ** 2, { what: "a log that begins again" });
  assert.ok((await sizeOf(`${path}.1`)) >= 17 * 1024 ** 2);
  await query(postgres.connection, "SELECT no_such_function()").catch(() => undefined);
  await until(async () => (await readFile(path, "utf8")).includes("no_such_function"));
  assert.ok((await sizeOf(path)) < 1024 ** 2, "it continues behind a hole");
  await postgres.stop();
});

test("a start waits for a recovery that takes longer than any other start", async () => {
  await writeFile(join(directory, "data", "recovery.signal"), "");
  const settings = [...options.settings, "restore_command=sleep 2; false"];
  const postgres = await startEmbeddedPostgres({ ...options, clock: fastClock(20), settings });
  assert.equal((await query(postgres.connection, "SELECT n FROM kept")).length, 1);
  await postgres.stop();
});

test("a cluster whose password was lost is refused with an explanation", async () => {
  await rm(join(directory, "password"));
  await assert.rejects(startEmbeddedPostgres(options), /password is missing: restore it from a backup/);
});
