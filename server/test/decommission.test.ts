/**
 * Nodes that leave the fleet for good.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { until } from "../../test/support/until.ts";
import { keyedNode, startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN, nodeListen: { host: "127.0.0.1", port: 0 } });
const { client, context } = server;
const own = client.withKey(TEST_JOIN_TOKEN);
const source = { type: "image", reference: "local/busybox" };

const statusOf = async (id: string): Promise<string | undefined> =>
  ((await client.get("/v1/nodes")).json as { id: string; status: string }[]).find((node) => node.id === id)?.status;

async function makeMachine(name: string): Promise<string> {
  const made = await client.post("/v1/machines", { source, name });
  assert.equal(made.status, 201, made.text);
  return made.json.id;
}

test("a node leaves when it is drained and no machine has its disk there, and no earlier token admits it again", async () => {
  const node = await startTestNode(server, "leaving");
  const id = await makeMachine("kept");
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  const early = await client.delete("/v1/nodes/leaving");
  assert.equal(early.status, 409);
  assert.match(early.text, new RegExp(`has the disks of 1 machine: ${id} \\(kept, .*\\); move or delete them first`));
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
  const open = await client.delete("/v1/nodes/leaving");
  assert.equal(open.status, 409);
  assert.match(open.text, /node leaving is ready, so machines may still use it; drain it first/);
  assert.equal((await client.post("/v1/nodes/leaving/drain", { deadlineSeconds: 0 })).status, 200);
  await until(async () => (await statusOf("leaving")) === "drained", { what: "the drain", deadlineMs: 60_000 });
  assert.equal((await client.delete("/v1/nodes/leaving")).status, 204);
  assert.equal(await statusOf("leaving"), undefined);
  assert.equal((await client.delete("/v1/nodes/leaving")).status, 404);
  const again = await own.post("/v1/nodes/register", { id: "leaving", address: "unix:/nowhere/agent.sock" });
  assert.equal(again.status, 409);
  assert.match(again.text, /its id or its key was revoked after its join token was made; restart its server/);
  await node.kill();
});

test("a node that is lost leaves although it did not confirm deletions, and its open runs end", async () => {
  const address = "unix:/nowhere/agent.sock";
  const joined = await own.post("/v1/nodes/register", { id: "lost", address });
  assert.equal(joined.status, 200, joined.text);
  const id = await makeMachine("orphan");
  await context.db.execute(sql`UPDATE machines SET node_id = 'lost' WHERE id = ${id}`);
  await context.db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, recorded_at)
    SELECT 'boot-lost', id, node_id, tenant_id, cpus, memory_mb, now(), now() FROM machines WHERE id = ${id}`);
  assert.equal((await client.delete("/v1/nodes/lost/credential")).status, 204);
  assert.equal((await client.delete("/v1/nodes/lost")).status, 409);
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
  // The copy of a machine that moved away, which the node has not confirmed to be gone.
  await context.db.execute(sql`INSERT INTO machine_copies (machine_id, node_id) VALUES ('mach-moved', 'lost')`);
  assert.equal((await client.delete("/v1/nodes/lost")).status, 204);
  assert.deepEqual(await context.db.query(sql`SELECT machine_id FROM machine_copies`), []);
  assert.equal(await statusOf("lost"), undefined);
  const run = await context.db.queryOne<{ cause: string }>(
    sql`SELECT end_cause AS cause FROM machine_runs WHERE boot_id = 'boot-lost'`,
  );
  assert.equal(run?.cause, "unseen");
  const { token } = (await client.post("/v1/tokens")).json;
  assert.equal((await client.withKey(token).post("/v1/nodes/register", keyedNode("lost")(token))).status, 200);
});
