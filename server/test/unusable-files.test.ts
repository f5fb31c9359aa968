/**
 * Machines whose files their node cannot use for a time: they are in error with the reason, and as before, or
 * as was requested meanwhile, when the node can use them again, without another request of their user.
 */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { startMachineServer } from "./support/machine-server.ts";

const { client, node, machine } = await startMachineServer();

const read = async (id: string) => (await client.get(`/v1/machines/${id}`)).json;

/** Restarts the node's agent with another text of the machine's journal. */
async function restartWith(journal: string, text: string): Promise<void> {
  await node.kill();
  await writeFile(journal, text);
  await node.restart();
}

test("a machine with a journal of a later version is in error, runs on, and is shown again with the journal", async () => {
  const id = await machine();
  assert.equal((await client.post(`/v1/machines/${id}/start`)).json.state, "started");
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "echo here >/tmp/x" })).status, 200);
  const journal = join(node.directory, "node", "machines", id, "journal.json");
  const text = await readFile(journal, "utf8");

  await restartWith(journal, JSON.stringify({ ...JSON.parse(text), version: 99 }));
  const failed = await until(async () => ((await read(id)).state === "error" ? read(id) : null), { what: "the error" });
  assert.match(failed.error, /its journal has version 99.*start the later version of Flotilla again/);
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 409);

  await restartWith(journal, text);
  await until(async () => (await read(id)).state === "started", { what: "the machine to be shown again" });
  const shown = await read(id);
  assert.deepEqual([shown.ready, shown.error], [true, null]);
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 200);
  const events = (await client.get(`/v1/machines/${id}/events`)).json as { readonly type: string }[];
  const types = events.map(({ type }) => type).filter((type) => /started|failed|stopped/.test(type));
  assert.deepEqual(types.toReversed(), ["machine.started", "machine.failed", "machine.started"]);
});

test("what is requested while a machine's files cannot be used is done when they can, without another request", async () => {
  const ids = [await machine(), await machine()];
  const [started = "", stopped = ""] = ids;
  const journals = ids.map((id) => join(node.directory, "node", "machines", id, "journal.json"));
  for (const id of ids) assert.equal((await client.post(`/v1/machines/${id}/start`)).json.state, "started");
  const texts = await Promise.all(journals.map((journal) => readFile(journal, "utf8")));
  await node.kill();
  for (const [at, journal] of journals.entries())
    await writeFile(journal, JSON.stringify({ ...JSON.parse(texts[at] ?? ""), version: 99 }));
  await node.restart();
  for (const id of ids) await until(async () => (await read(id)).state === "error", { what: "the error" });

  const refused = await client.post(`/v1/machines/${started}/start`);
  assert.match(`${refused.status} ${refused.text}`, /^[45]\d\d .*its journal has version 99/);
  await client.post(`/v1/machines/${stopped}/stop`);

  await node.kill();
  for (const [at, journal] of journals.entries()) await writeFile(journal, texts[at] ?? "");
  await node.restart();
  await until(async () => (await read(started)).ready, { what: "the machine to be shown again" });
  assert.equal((await client.post(`/v1/machines/${started}/exec`, { command: "true" })).status, 200);
  const ends = async (): Promise<readonly string[]> =>
    ((await client.get(`/v1/machines/${stopped}/events`)).json as { readonly type: string }[]).map(({ type }) => type);
  await until(async () => (await ends()).includes("machine.stopped"), { what: "the stop" });
  assert.deepEqual([(await read(stopped)).state, (await read(stopped)).error], ["stopped", null]);
});

test("a machine whose journal is moved away while it is in error is recovered from its disk and its VM", async () => {
  const id = await machine();
  assert.equal((await client.post(`/v1/machines/${id}/start`)).json.state, "started");
  const journal = join(node.directory, "node", "machines", id, "journal.json");
  await restartWith(journal, JSON.stringify({ version: 99 }));
  await until(async () => (await read(id)).state === "error", { what: "the error" });
  await restartWith(journal, "");
  await until(async () => (await read(id)).state === "started", { what: "the machine to be recovered" });
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 200);
});
