/**
 * A start of Flotilla with obstacles: the programs of a killed one still run, or the database dies during the
 * start.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { makeDirectory, START_MS, startUp } from "./run-up.ts";

/**
 * What a restart may take beyond a first start. A server that drained a start for a dead node took 27 s
 * longer.
 */
const LONGER_MS = 10_000;

test("an up that is killed while a machine starts can be started again within seconds", async (t) => {
  const directory = makeDirectory(t);
  const firstAt = performance.now();
  const up = await startUp(t, directory);
  const firstMs = performance.now() - firstAt;
  const slow = ["machine", "create", "local/busybox", "--name", "slow", "--env", "FAKE_BOOT_MS=60000", "--start"];
  const starting = up.cli(...slow);
  await until(async () => String((await up.cli("machine", "get", "slow")).output).match(/state +(creating|starting)/), {
    what: "a start that is under way",
    deadlineMs: START_MS,
  });
  up.signal("SIGKILL");
  await up.ran;
  const startedAt = performance.now();
  const again = await startUp(t, directory);
  const spentMs = performance.now() - startedAt;
  assert.ok(spentMs < firstMs + LONGER_MS, `the start took ${spentMs} ms, the first one ${firstMs} ms`);
  assert.equal((await again.cli("machine", "get", "slow")).code, 0);
  await starting;
});

test("a database killed during the start delays it and does not end it", async (t) => {
  const directory = makeDirectory(t);
  let killed = 0;
  const up = await startUp(t, directory, (errors) => {
    // The lines when the server begins to serve, and when the database is back.
    const moments = errors.match(/"message":"(serving|the embedded PostgreSQL runs again)"/g) ?? [];
    if (killed >= Math.min(moments.length, 3)) return;
    killed += 1;
    const pidFile = join(directory.path, "postgres", "data", "postmaster.pid");
    process.kill(Number(readFileSync(pidFile, "utf8").split("\n")[0]), "SIGKILL");
  });
  assert.equal(killed, 3);
  assert.equal((await up.cli("machine", "ls")).code, 0, up.said());
});
