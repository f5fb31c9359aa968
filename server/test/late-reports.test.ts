/**
 * Reports that arrive late: one that waited for a server which was stopped says nothing of what came to the
 * node meanwhile, and one that was overtaken brings no boot back.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";
import { RESOURCES, TEST_JOIN_TOKEN } from "./support/node.ts";

const { client, context } = await startMachineServer();
const { db } = context;
const LATE_MS = 60_000;

const { json } = await client
  .withKey(TEST_JOIN_TOKEN)
  .post("/v1/nodes/register", { id: "ghost", address: "unix:/nowhere/agent.sock", totalCpus: 1 });
await client.post("/v1/nodes/ghost/cordon");

/** A heartbeat of the node that the test plays. */
async function beat(fields: object): Promise<void> {
  const body = {
    bootId: "agent-of-ghost",
    isComplete: false,
    resources: RESOURCES,
    machines: [],
    events: [],
    ...fields,
  };
  const answer = await client.withKey(json.credential).post("/v1/nodes/ghost/heartbeat", body);
  assert.equal(answer.status, 200, answer.text);
}

test("a machine is not taken for lost because of a report that was written before it came to the node, however late that arrives", async () => {
  const report = (sentAt: number): Promise<void> => beat({ isComplete: true, sentAt });
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

test("a report of a boot whose end is recorded does not bring it back, and one of a boot that follows is applied", async () => {
  const machineId = await createMachine(client);
  await db.execute(sql`
    UPDATE machines SET node_id = 'ghost', desired_state = 'running', generation = 1, created_at = now() - interval '1 hour' WHERE id = ${machineId}`);
  const startedAt = Date.now() - 60_000;
  let sequence = 0;
  const runs = (of: readonly { bootId: string; endedAt: number | null }[]) => ({
    sequence: (sequence += of.length),
    isComplete: false,
    runs: of.map((run, at) => ({
      ...{ ...run, machineId, startedAt, cause: run.endedAt === null ? null : "fenced" },
      sequence: sequence - of.length + at + 1,
    })),
  });
  const runsAs = (bootId: string): object => ({
    machineId,
    generation: 1,
    state: "running",
    bootId,
    runningSince: startedAt,
  });
  const observed = async () =>
    (
      await db.queryOne<{ bootId: string | null }>(
        sql`SELECT observed_boot_id AS "bootId" FROM machines WHERE id = ${machineId}`,
      )
    )?.bootId;
  const endedAt = startedAt + 30_000;
  await beat({ machines: [runsAs("boot-1")], runs: runs([{ bootId: "boot-1", endedAt: null }]) });
  await beat({
    machines: [{ ...runsAs("boot-2"), runningSince: endedAt + 1 }],
    runs: runs([
      { bootId: "boot-1", endedAt },
      { bootId: "boot-2", endedAt: null },
    ]),
  });
  assert.equal(await observed(), "boot-2");
  await beat({ machines: [runsAs("boot-1")] });
  await beat({ isComplete: true, machines: [runsAs("boot-1")] });
  await beat({ machines: [{ ...runsAs("boot-1"), state: "booting", runningSince: null }] });
  assert.equal(await observed(), "boot-2", "a boot that has ended runs again");
  await beat({ machines: [{ ...runsAs("boot-3"), runningSince: endedAt + 2 }] });
  assert.equal(await observed(), "boot-3");
});
