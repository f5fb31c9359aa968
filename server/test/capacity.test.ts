/**
 * A start when memory is short: refused before anything changes, with what to do; and served as soon as there
 * is some.
 *
 * A second server reads the node for the first time when its memory is short, so it cannot have an older
 * cache. The node agent is stopped by then; its last report may still be on the way, so a trigger keeps what
 * the test says.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const source = { type: "image", reference: "local/busybox" };

test("without memory on a node, neither a new machine nor one whose disk is there is started", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const node = await startTestNode(server);
  const create = async (resources: object = {}) =>
    (await server.client.post("/v1/machines", { source, resources })).json.id as string;
  const [fresh, stopped] = [await create(), await create()];
  assert.equal((await server.client.post(`/v1/machines/${stopped}/start`)).status, 200);
  assert.equal((await server.client.post(`/v1/machines/${stopped}/stop`)).status, 200);
  await node.kill();
  const { db } = server.context;
  await db.execute(sql`
    CREATE FUNCTION stay_short() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      NEW.total_memory_mb := 24000;
      NEW.available_memory_mb := 900;
      RETURN NEW;
    END $$`);
  await db.execute(sql`CREATE TRIGGER stay_short BEFORE UPDATE ON nodes FOR EACH ROW EXECUTE FUNCTION stay_short()`);
  await db.execute(sql`UPDATE nodes SET status = status`);

  const other = await startTestServer({ databaseUrl: server.databaseUrl });
  const advices = new Map([
    [
      fresh,
      /no node has room for machine .*: node node-a has 900 MB of memory left and keeps 960 MB free; try again later/,
    ],
    [
      stopped,
      /node node-a has 900 MB of memory left and keeps 960 MB free, and the machine's disk is there; stop machines/,
    ],
  ]);
  for (const [id, advice] of advices) {
    const before = (await other.client.get(`/v1/machines/${id}`)).json;
    const answer = await other.client.post(`/v1/machines/${id}/start`);
    assert.deepEqual([answer.status, answer.headers.get("x-error-code")], [422, "no_capacity"], answer.text);
    assert.match(answer.text, advice);
    assert.deepEqual((await other.client.get(`/v1/machines/${id}`)).json, before);
  }

  const large = await create({ memoryMb: 200_000 });
  const never = await other.client.post(`/v1/machines/${large}/start`);
  assert.deepEqual([never.status, never.headers.get("x-error-code")], [422, "no_capacity"], never.text);
  assert.match(
    never.text,
    /node node-a has 24000 MB of memory, but 200000 MB are requested; what a machine needs of a node is fixed: create another machine/,
  );

  await db.execute(sql`DROP TRIGGER stay_short ON nodes`);
  await node.restart();
  for (const id of advices.keys()) assert.equal((await server.client.post(`/v1/machines/${id}/start`)).status, 200);
});

test("a machine that alone exceeds what its plan lets run at once gets an error that does not advise stopping others", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  await startTestNode(server);
  const made = await server.client.post("/v1/machines", { source, resources: { cpus: 64, memoryMb: 1024 * 1024 } });
  assert.equal(made.status, 201, made.text);
  const answer = await server.client.post(`/v1/machines/${made.json.id}/start`);
  assert.deepEqual([answer.status, answer.headers.get("x-error-code")], [422, "quota_exceeded"]);
  assert.match(answer.text, /0 are in use and this one needs 1048576; create one with less, or ask the operator/);
});
