/**
 * A report of a node that waited for a server which was stopped says nothing of what came to the node meanwhile.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";
import { RESOURCES, TEST_JOIN_TOKEN } from "./support/node.ts";

const { client, context } = await startMachineServer();
const { db } = context;
const LATE_MS = 60_000;

test("a machine is not taken for lost because of a report that was written before it came to the node, however late that arrives", async () => {
  const { json } = await client
    .withKey(TEST_JOIN_TOKEN)
    .post("/v1/nodes/register", { id: "ghost", address: "http://127.0.0.1:9", totalCpus: 1 });
  await client.post("/v1/nodes/ghost/cordon");
  const report = async (sentAt: number): Promise<void> => {
    const body = { bootId: "agent-of-ghost", isComplete: true, resources: RESOURCES, machines: [], events: [], sentAt };
    const answer = await client.withKey(json.credential).post("/v1/nodes/ghost/heartbeat", body);
    assert.equal(answer.status, 200, answer.text);
  };
  await report(Date.now());
  const id = await createMachine(client);
  // It came to the node half a minute ago, after the late reports were written.
  await db.execute(sql`
    UPDATE machines SET node_id = 'ghost', desired_state = 'running', observed_state = 'running', generation = 1, observed_generation = 1, updated_at = now() - interval '30 s', revision = revision + 1 WHERE id = ${id}`);
  const errorOf = async () =>
    (await db.queryOne<{ error: string | null }>(sql`SELECT error FROM machines WHERE id = ${id}`))?.error;
  await report(Date.now() - LATE_MS);
  await report(Date.now() - LATE_MS);
  assert.equal(await errorOf(), null);
  await report(Date.now());
  assert.match((await errorOf()) ?? "", /does not have the machine any more/);
});
