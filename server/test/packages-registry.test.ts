/**
 * Exports by real node agents into a real registry: what one node exports another one starts, while packages
 * that share its layers are deleted, the registry is collected, and programs die.
 */
import assert from "node:assert/strict";
import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { diskPathOf } from "../../node/src/machines/paths.ts";
import { until } from "../../test/support/until.ts";
import { createMachine } from "./support/machine-server.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { registryPids, registryServes, startRegistryServer } from "./support/oci.ts";

const server = await startRegistryServer({ joinToken: TEST_JOIN_TOKEN });
const { client } = server;
const node = await startTestNode(server, "node-a");
const PATIENT = { deadlineMs: 60_000 };

/** A stopped machine of node-a whose disk has these lines. */
async function stopped(...lines: string[]): Promise<string> {
  const id = await createMachine(client);
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).status, 200);
  await write(id, ...lines);
  return id;
}

/** A disk of the fake driver is a text. */
const write = (id: string, ...lines: string[]): Promise<void> =>
  appendFile(diskPathOf(join(node.directory, "node", "machines", id)), lines.map((line) => `${line}\n`).join(""));

async function exported(id: string, name: string): Promise<{ readonly reference: string; readonly digest: string }> {
  const answer = await client.post(`/v1/machines/${id}/export`, { name });
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
}

const remove = (reference: string) => client.delete(`/v1/packages?reference=${encodeURIComponent(reference)}`);

/** Starts a machine from the package. Returns its node. */
async function startFrom(reference: string): Promise<string> {
  const id = await createMachine(client, { source: { type: "smolmachine", reference } });
  const started = await client.post(`/v1/machines/${id}/start`);
  assert.equal(started.status, 200, started.text);
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
  return started.json.nodeId;
}

test("an unchanged disk has the same digest and sends nothing; a changed one has another", async () => {
  const id = await stopped("one");
  const first = await exported(id, "same");
  assert.deepEqual(await exported(id, "same"), first);
  const [{ steps }] = (await client.get("/v1/operations")).json;
  assert.equal(steps[1].sentBytes, 0);
  await write(id, "two");
  assert.notEqual((await exported(id, "same")).digest, first.digest);
});

test("packages that share layers are deleted and the registry is collected while others are exported, and each starts", async () => {
  const machines = await Promise.all([1, 2, 3].map((at) => stopped(`shared-${at}`)));
  const done = new AbortController();
  const collecting = (async () => {
    let collections = 0;
    while (!done.signal.aborted) {
      const { status, json } = await client.post("/v1/registry/collections");
      assert.equal(status, 202);
      collections += 1;
      await until(async () => {
        const operation = (await client.get(`/v1/operations/${json.id}`)).json;
        return operation.status !== "running" || done.signal.aborted;
      }, PATIENT);
    }
    return collections;
  })();
  for (let round = 0; round < 3; round += 1) {
    const references = await Promise.all(
      machines.map(async (id, at) => (await exported(id, `shared-${at}-${round}`)).reference),
    );
    const [gone = "", ...kept] = references;
    const again = exported(machines[0] ?? "", `again-${round}`);
    assert.equal((await remove(gone)).status, 204);
    await again;
    for (const reference of kept) await startFrom(reference);
    await startFrom(`again-${round}`);
  }
  done.abort();
  assert.ok((await collecting) > 0);
});

test("a machine starts on a node that has nothing of its package", async () => {
  const { reference } = await exported(await stopped("elsewhere"), "elsewhere");
  const other = await startTestNode(server, "node-b");
  await client.post("/v1/nodes/node-a/cordon");
  assert.equal(await startFrom(reference), "node-b");
  await client.post("/v1/nodes/node-a/uncordon");
  await other.kill();
});

test("a registry or an agent that is killed in the middle of an export loses nothing: it is completed", async () => {
  const id = await stopped(...Array.from({ length: 20 }, (_, at) => `line-${at}`));
  const begun = await client.post(`/v1/machines/${id}/export?detach=true`, { name: "interrupted" });
  assert.equal(begun.status, 202, begun.text);
  for (const pid of await registryPids(server.dataDirectory)) process.kill(pid, "SIGKILL");
  await node.kill();
  await node.restart();
  await registryServes(client);
  const ended = await until(async () => {
    const operation = (await client.get(`/v1/operations/${begun.json.id}`)).json;
    return operation.status !== "running" && operation;
  }, PATIENT);
  assert.equal(ended.status, "succeeded", ended.error);
  await startFrom("interrupted");
});
