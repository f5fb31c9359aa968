/**
 * Whole stories of machines: a server and a node agent as processes, through the public API, with the fake driver.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

test("a machine is created, runs commands, stops, starts again and is deleted without a trace", async () => {
  await using flotilla = await startFlotilla();
  const { id, state } = await flotilla.create({ env: { GREETING: "hello" } });
  assert.equal(state, "stopped");
  assert.equal((await flotilla.start(id)).state, "started");
  assert.equal(await flotilla.exec(id, "echo $GREETING"), "hello\n");
  assert.equal((await flotilla.stop(id)).state, "stopped");
  assert.equal((await flotilla.start(id)).state, "started");
  assert.equal(await flotilla.exec(id, ["printenv", "GREETING"]), "hello\n");
  await flotilla.remove(id);
  assert.equal((await flotilla.client().get(`/v1/machines/${id}`)).status, 404);
  const machines = join(flotilla.nodeDirectory(), "machines");
  await until(async () => (await readdir(machines)).length === 0, { what: "the machine's files to go" });
});
