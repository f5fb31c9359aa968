/**
 * Node agents and servers that die and come back, with the fake driver: machines keep running, and the
 * programs reconnect.
 */
import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { Program, runningBoots, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const flotilla = await startFlotilla({ databaseUrl: await sharedDatabaseUrl() });
after(() => flotilla[Symbol.asyncDispose]());

test("machines keep running while the server is down, and it shows their state when it is back", async () => {
  const kept = await flotilla.create();
  const ending = await flotilla.create({ env: { FAKE_CRASH_AFTER_MS: "5000" }, restart: "never" });
  await flotilla.start(kept.id);
  await flotilla.start(ending.id);
  await flotilla.servers[0]?.kill();
  const isGone = async (): Promise<boolean> => (await runningBoots(flotilla)).get(ending.id) === 0;
  await until(isGone, { what: "the crash, while no server listens" });
  await flotilla.startServer();
  const failed = await flotilla.untilState(ending.id, "error");
  assert.match(failed.error ?? "", /crashed/);
  // It ran for five seconds, however long the server was down.
  const { usage } = (await flotilla.client().get(`/v1/machines/${ending.id}/usage`)).json;
  assert.ok(usage.totalUptimeSeconds <= 6, `${usage.totalUptimeSeconds} s are counted`);
  assert.equal((await flotilla.get(kept.id)).state, "started");
  assert.equal(await flotilla.exec(kept.id, "echo still here"), "still here\n");
  for (const { id } of [kept, ending]) await flotilla.remove(id);
});

test("an unreachable node shows on its machines, and they are back with it", async () => {
  const { id } = await flotilla.create();
  await flotilla.start(id);
  await flotilla.nodes[0]?.kill();
  const away = await flotilla.untilState(id, "error", 60_000);
  assert.match(away.error ?? "", /node-0/);
  await flotilla.startNode();
  await flotilla.untilState(id, "started");
  assert.equal(await flotilla.exec(id, "echo back"), "back\n");
  assert.equal((await runningBoots(flotilla)).get(id), 1);
  await flotilla.remove(id);
});

test("machines keep running when their agent is stopped, and the next agent adopts them", async () => {
  const { id } = await flotilla.create();
  await flotilla.start(id);
  await flotilla.nodes[0]?.stop();
  assert.equal((await runningBoots(flotilla)).get(id), 1);
  await flotilla.startNode();
  assert.equal((await flotilla.get(id)).state, "started");
  assert.equal(await flotilla.exec(id, "echo on"), "on\n");
  await flotilla.remove(id);
});

test("a second agent on the same directory is refused, and the first keeps running", async () => {
  const { id } = await flotilla.create();
  await flotilla.start(id);
  const directory = flotilla.nodes[0]?.directory ?? "";
  const second = new Program("second", "node/src/main.ts", directory, {
    FLOTILLA_DATA_DIR: directory,
    FLOTILLA_DRIVER: "fake",
  });
  await second.start();
  try {
    await until(() => !second.isRunning, { what: "the second agent to end", deadlineMs: 60_000 });
  } finally {
    await second.kill();
  }
  assert.match(await second.log(), /in use by another node agent/);
  assert.equal(await flotilla.exec(id, "echo first"), "first\n");
  await flotilla.remove(id);
});

test("a machine whose journal is lost keeps running, or is in error and says what to do, and its disk is never replaced", async () => {
  const [running, stopped, later] = [await flotilla.create(), await flotilla.create(), await flotilla.create()];
  for (const { id } of [running, stopped, later]) await flotilla.start(id);
  await flotilla.client().post(`/v1/machines/${stopped.id}/stop`);
  await flotilla.nodes[0]?.stop();
  const fileOf = (id: string, name: string): string => join(flotilla.nodeDirectory(), "machines", id, name);
  for (const { id } of [running, stopped, later]) await writeFile(fileOf(id, "disk"), "data\n", { flag: "a" });
  await rm(fileOf(running.id, "journal.json"));
  await writeFile(fileOf(stopped.id, "journal.json"), "{");
  await writeFile(fileOf(later.id, "journal.json"), JSON.stringify({ version: 99 }));
  await flotilla.startNode();

  const failed = await flotilla.untilState(later.id, "error");
  assert.match(failed.error ?? "", /journal has version 99.*start the later version of Flotilla again/);
  const refused = await flotilla.client().post(`/v1/machines/${later.id}/start`);
  assert.equal(refused.status, 503);
  assert.match(refused.text, /version 99/);
  assert.equal(await flotilla.exec(running.id, "echo on"), "on\n");
  assert.equal(await flotilla.exec(stopped.id, "echo again"), "again\n");
  const boots = await runningBoots(flotilla);
  for (const { id } of [running, stopped, later]) {
    assert.ok((await readFile(fileOf(id, "disk"), "utf8")).endsWith("data\n"));
    assert.equal(boots.get(id), 1);
  }
  const events = (await flotilla.client().get(`/v1/machines/${running.id}/events`)).json as { message: string }[];
  assert.ok(events.some(({ message }) => /its journal is missing; the machine was recovered/.test(message)));
  for (const { id } of [running, stopped, later]) await flotilla.remove(id);
});

test("a machine whose files are gone gets no new disk from a start that its node receives before its report, and is in error", async () => {
  const { id } = await flotilla.create();
  await flotilla.start(id);
  await flotilla.client().post(`/v1/machines/${id}/stop`);
  await flotilla.nodes[0]?.stop();
  const directory = join(flotilla.nodeDirectory(), "machines", id);
  await rm(directory, { recursive: true });
  const started = flotilla.client().post(`/v1/machines/${id}/start`);
  await flotilla.startNode();
  const { status, text } = await started;
  assert.equal(status, 503, text);
  assert.match(text, /so its disk is lost; start it to begin with a new, empty disk/);
  assert.equal((await flotilla.get(id)).state, "error");
  // The owner has read it, and wants that.
  assert.equal((await flotilla.client().post(`/v1/machines/${id}/start`)).status, 200);
  assert.equal(await flotilla.exec(id, "echo new"), "new\n");
});
