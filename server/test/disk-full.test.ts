/**
 * A server whose disk is full: it reports that with a reason, loses nothing, starts, and works again once
 * there is room.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { execFileSync } from "node:child_process";
import { closeSync, existsSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { readSettings } from "../src/config.ts";
import { failureText } from "../src/db/full-disk.ts";
import { startEmbeddedPostgres } from "../src/embedded-postgres/embedded.ts";
import { createLog } from "../src/log.ts";
import { startServer } from "../src/main.ts";
import { makeDisk } from "./support/disk.ts";
import { until } from "../../test/support/until.ts";

/** Fills all remaining space. */
function fill(path: string): void {
  const file = openSync(path, "a");
  try {
    for (const bytes of [1024 ** 2, 4096, 1]) {
      try {
        for (;;) writeSync(file, Buffer.alloc(bytes));
      } catch (error) {
        assert.equal((error as NodeJS.ErrnoException).code, "ENOSPC");
      }
    }
  } finally {
    closeSync(file);
  }
}

test("a full disk is answered with its reason and never with a fault, and written data is kept", {
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
}, async (t) => {
  const directory = makeDisk(t, "320m");
  const server = await startServer({
    ...readSettings([`--data-dir=${join(directory, "flotilla")}`, "--listen=127.0.0.1:0"]),
    databaseUrl: null,
    log: createLog("silent"),
  });
  t.after(() => server.stop());
  const reserve = join(directory, "flotilla", "postgres", "reserve");
  assert.ok(existsSync(reserve));
  const create = async (name: string) => {
    const body = JSON.stringify({
      name,
      source: { type: "image", reference: "local/busybox" },
      env: Object.fromEntries(
        Array.from({ length: 8 }, (_, index) => [`FILL_${index}`, crypto.randomUUID().repeat(200)]),
      ),
    });
    const headers = { authorization: `Bearer ${server.adminKey.key}`, "content-type": "application/json" };
    const answer = await fetch(`${server.url}/v1/machines`, { method: "POST", headers, body });
    return { status: answer.status, text: await answer.text(), name };
  };
  const readyz = async () => {
    const answer = await fetch(`${server.url}/readyz`);
    return `${answer.status} ${await answer.text()}`;
  };
  const answers = [await create("first")];
  assert.ok((answers[0]?.status ?? 0) < 300, answers[0]?.text);

  const filling = join(directory, "filling");
  fill(filling);
  await until(() => !existsSync(reserve), { what: "the reserve to be given to the database" });
  assert.match(await readyz(), /^503 .*disk is full/);
  // The space of the released reserve is filled too.
  await until(
    async () => {
      fill(filling);
      answers.push(await create(`more-${answers.length}`));
      return /disk is full/.test(answers.at(-1)?.text ?? "");
    },
    { what: "an answer that names the full disk", deadlineMs: 60_000 },
  );
  assert.deepEqual(
    answers.filter(({ status }) => status >= 300).map(({ status }) => status),
    answers.filter(({ status }) => status >= 300).map(() => 503),
  );

  rmSync(filling);
  await until(async () => (await readyz()).startsWith("200"), { what: "a server that is ready", deadlineMs: 60_000 });
  assert.ok(existsSync(reserve));
  answers.push(await create("last"));
  const headers = { authorization: `Bearer ${server.adminKey.key}` };
  const listed = await (await fetch(`${server.url}/v1/machines?limit=1000`, { headers })).text();
  for (const { status, name } of answers) assert.equal(listed.includes(`"${name}"`), status < 300, name);
});

test("a database that finds no room for its first start says so, and is made once there is some", {
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
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
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
}, async (t) => {
  const directory = join(makeDisk(t, "320m"), "postgres");
  const start = () => startEmbeddedPostgres({ directory, clock: systemClock, log: createLog("silent"), randomBytes });
  await (await start()).stop();
  const reserve = join(directory, "reserve");
  assert.ok(existsSync(reserve));
  const filling = join(directory, "..", "filling");
  fill(filling);
  const postgres = await start();
  t.after(() => postgres.stop());
  assert.ok(postgres.isDiskFull());
  assert.ok(!existsSync(reserve));
  rmSync(filling);
  await until(() => existsSync(reserve), { what: "a new reserve" });
});
