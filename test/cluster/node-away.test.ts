/**
 * Node agents and servers that die and come back, with the fake driver: machines run on, and everybody finds together
 * again.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Program, runningBoots, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

test("machines run on while the server is away, and it finds them as they are when it is back", async () => {
  await using flotilla = await startFlotilla();
  const kept = await flotilla.create();
  const ending = await flotilla.create({ env: { FAKE_CRASH_AFTER_MS: "1500" } });
  await flotilla.start(kept.id);
  await flotilla.start(ending.id);
  await flotilla.servers[0]?.kill();
  const isGone = async (): Promise<boolean> => (await runningBoots(flotilla)).get(ending.id) === 0;
  await until(isGone, { what: "the crash, while no server listens" });
  await flotilla.startServer();
  const failed = await flotilla.untilState(ending.id, "error");
  assert.match(failed.error ?? "", /crashed/);
  assert.equal((await flotilla.get(kept.id)).state, "started");
  assert.equal(await flotilla.exec(kept.id, "echo still here"), "still here\n");
});

test("a node that is away makes its machines say so, and they are back with it", async () => {
  await using flotilla = await startFlotilla();
  const { id } = await flotilla.create();
  await flotilla.start(id);
  await flotilla.nodes[0]?.kill();
  const away = await flotilla.untilState(id, "error", 60_000);
  assert.match(away.error ?? "", /node-0/);
  await flotilla.startNode();
  await flotilla.untilState(id, "started");
  assert.equal(await flotilla.exec(id, "echo back"), "back\n");
  assert.equal((await runningBoots(flotilla)).get(id), 1);
});

test("machines run on when their agent is stopped, and the next agent has them as they were", async () => {
  await using flotilla = await startFlotilla();
  const { id } = await flotilla.create();
  await flotilla.start(id);
  await flotilla.nodes[0]?.stop();
  assert.equal((await runningBoots(flotilla)).get(id), 1);
  await flotilla.startNode();
  assert.equal((await flotilla.get(id)).state, "started");
  assert.equal(await flotilla.exec(id, "echo on"), "on\n");
});

test("a second agent on the same directory is refused, and the first runs on", async () => {
  await using flotilla = await startFlotilla();
  const { id } = await flotilla.create();
  await flotilla.start(id);
  const directory = flotilla.nodes[0]?.directory ?? "";
  const second = new Program("second", "node/src/main.ts", directory, {
    FLOTILLA_DATA_DIR: directory,
    FLOTILLA_DRIVER: "fake",
  });
  await second.start();
  await until(() => !second.isRunning, { what: "the second agent to give up" });
  assert.match(await second.log(), /in use by another node agent/);
  assert.equal(await flotilla.exec(id, "echo first"), "first\n");
});
