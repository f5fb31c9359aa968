/**
 * A server whose disk is full: it reports that with a reason, loses nothing, starts, and works again once
 * there is room.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { execFileSync, spawn } from "node:child_process";
import { globSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { readSettings } from "../src/config.ts";
import { failureText } from "../src/db/full-disk.ts";
import { startEmbeddedPostgres } from "../src/embedded-postgres/embedded.ts";
import { createLog } from "../src/log.ts";
import { startServer } from "../src/main.ts";
import { fillDisk, makeDisk, makeExt4Disk } from "./support/disk.ts";
import { until } from "../../test/support/until.ts";

const needsRoot = process.getuid?.() === 0 ? false : "mounting a file system needs root";
const GIB = 1024 ** 3;

/** Fills what becomes free, in its own process, until `end` is called or the test ends. */
function keepFilling(t: TestContext, path: string): { end(): void } {
  const script = `while :; do dd if=/dev/zero bs=4k oflag=append conv=notrunc of="$0" 2>/dev/null; sleep 0.1; done`;
  const child = spawn("sh", ["-c", script, path], { stdio: "ignore", detached: true });
  let isOver = false;
  const end = (): void => {
    if (isOver || child.pid === undefined) return;
    isOver = true;
    process.kill(-child.pid, "SIGKILL");
  };
  t.after(end);
  return { end };
}

test("while something fills the disk on and on, reads and deletes work, and what is new is refused with what to do", {
  skip: needsRoot,
}, async (t) => {
  const directory = makeExt4Disk(t, 2 * GIB);
  const server = await startServer({
    ...readSettings([`--data-dir=${join(directory, "flotilla")}`, "--listen=127.0.0.1:0"]),
    databaseUrl: null,
    log: createLog("silent"),
  });
  t.after(() => server.stop());
  const postgres = join(directory, "flotilla", "postgres");
  const reserve = join(postgres, "reserve");
  const whole = statSync(reserve).blocks;
  const call = async (method: string, path: string, body?: object) => {
    const headers = { authorization: `Bearer ${server.adminKey.key}`, "content-type": "application/json" };
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const answer = await fetch(`${server.url}${path}`, { method, headers, ...sent });
    return { status: answer.status, text: await answer.text() };
  };
  const create = (name: string) => {
    const value = () => crypto.randomUUID().repeat(20);
    const env = Object.fromEntries(Array.from({ length: 8 }, (_, index) => [`FILL_${index}`, value()]));
    return call("POST", "/v1/machines", { name, source: { type: "image", reference: "local/busybox" }, env });
  };
  const names = Array.from({ length: 24 }, (_, index) => `made-${index}`);
  for (const name of names) assert.equal((await create(name)).status, 201);
  const list = async () =>
    JSON.parse((await call("GET", "/v1/machines?limit=1000")).text) as { id: string; name: string }[];

  const filling = join(directory, "filling");
  fillDisk(filling);
  const others = keepFilling(t, filling);
  await until(async () => (await call("GET", "/readyz")).text.includes("disk is full"), { what: "a full disk" });
  const refused = await until(
    async () => {
      const answer = await create(`made-${names.length}`);
      assert.ok(answer.status === 201 || answer.status === 503, answer.text);
      if (answer.status === 201) names.push(`made-${names.length}`);
      return answer.text.includes("disk is full") && answer;
    },
    { what: "a create to be refused", deadlineMs: 60_000 },
  );
  assert.match(refused.text, /disk is full, so nothing new can be stored; delete machines or images/);
  // Vacuum removes them as well; the next connection writes them again.
  for (const cache of cachesOf(postgres)) rmSync(cache);
  const reads = await Promise.all(Array.from({ length: 14 }, () => call("GET", "/v1/machines?limit=1000")));
  assert.deepEqual(
    reads.filter(({ status }) => status !== 200),
    [],
  );
  const [kept, ...removed] = await list();
  for (const { id } of removed) {
    const answers = [await call("GET", `/v1/machines/${id}`), await call("DELETE", `/v1/machines/${id}`)];
    assert.deepEqual([answers[0]?.status, answers[1]?.status], [200, 204], answers[1]?.text);
  }
  assert.equal(removed.length + 1, names.length);
  assert.ok(statSync(reserve).blocks > whole / 2, "most of the reserve is left");

  others.end();
  rmSync(filling);
  await until(async () => (await call("GET", "/readyz")).status === 200, { what: "a server that is ready" });
  assert.equal(statSync(reserve).blocks, whole);
  assert.equal((await create("last")).status, 201);
  assert.deepEqual((await list()).map(({ name }) => name).toSorted(), ["last", kept?.name ?? ""].toSorted());
});

/** What connections read instead of the catalogs, and write when it is missing. */
const cachesOf = (postgres: string): readonly string[] => globSync(`${postgres}/data/{global,base/*}/pg_internal.init`);

test("a database that finds no room for its first start says so, and is made once there is some", {
  skip: needsRoot,
}, async (t) => {
  const disk = makeDisk(t, "24m");
  const directory = join(disk, "postgres");
  const start = () => startEmbeddedPostgres({ directory, clock: systemClock, log: createLog("silent"), randomBytes });
  const failure = await start().then(
    () => undefined,
    (error: unknown) => error,
  );
  assert.match(
    failureText(failure),
    /^the disk of the database is full: .* No space left on device; see \S+\/log\); make room there \(.*\) and repeat this: nothing/,
  );
  execFileSync("mount", ["-o", "remount,size=320m", disk]);
  await (await start()).stop();
});

test("a database whose disk became full while it did not run starts in its reserve", {
  skip: needsRoot,
}, async (t) => {
  const directory = join(makeDisk(t, "320m"), "postgres");
  const start = () => startEmbeddedPostgres({ directory, clock: systemClock, log: createLog("silent"), randomBytes });
  await (await start()).stop();
  const reserve = join(directory, "reserve");
  const whole = statSync(reserve).size;
  const filling = join(directory, "..", "filling");
  fillDisk(filling);
  const postgres = await start();
  t.after(() => postgres.stop());
  assert.ok(postgres.isDiskFull());
  assert.ok(statSync(reserve).size < whole);
  rmSync(filling);
  await until(() => statSync(reserve).size === whole && !postgres.isDiskFull(), { what: "a whole reserve" });
});
