/**
 * Facts about machines and nodes that both the schema and the code state, compared.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DESIRED_STATES, OBSERVED_STATES } from "@flotilla/contract/link/link";
import { EVENT_LEVELS } from "@flotilla/contract/event-types";
import { NODE_STATUSES } from "@flotilla/contract/nodes";
import { sql } from "../src/db/database.ts";
import { isActive, type MachineFacts } from "../src/machines/state.ts";
import { MACHINE_ID, machineRecord } from "./support/machine.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer();
const { db } = server.context;

/** The values that a CHECK constraint of the column allows. */
async function allowed(table: string, column: string): Promise<readonly string[]> {
  const rows = await db.query<{ definition: string }>(sql`
    SELECT pg_get_constraintdef(oid) AS definition FROM pg_constraint
    WHERE contype = 'c' AND conrelid = ${table}::regclass`);
  const found = rows.find(({ definition }) => new RegExp(`^CHECK \\(\\(${column} = ANY`).test(definition));
  return [...(found?.definition ?? "").matchAll(/'([a-z]+)'::text/g)].map(([, word]) => word ?? "").sort();
}

test("the lists of values in CHECK constraints are those of the code", async () => {
  assert.deepEqual(await allowed("machines", "desired_state"), [...DESIRED_STATES].sort());
  assert.deepEqual(await allowed("machines", "observed_state"), [...OBSERVED_STATES].sort());
  assert.deepEqual(await allowed("tenant_events", "level"), [...EVENT_LEVELS].sort());
  assert.deepEqual(await allowed("nodes", "status"), [...NODE_STATUSES].sort());
});

test("the column is_active says what isActive says, for every combination of facts", async () => {
  const tenant = await db.queryOne<{ id: string }>(sql`SELECT id FROM tenants`);
  await db.execute(sql`
    INSERT INTO nodes (id, address, status, credential_hash, registered_at)
    VALUES ('node-a', 'unix:/x', 'ready', ${Buffer.alloc(32)}, now())`);
  await db.execute(sql`
    INSERT INTO machines (id, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral,
      is_public, is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state,
      observed_generation, revision)
    VALUES (${MACHINE_ID}, ${tenant?.id}, '{}', '{}', '{}', '[]', '{}', 1, 1, 1, false, false, false, now(), now(),
      'stopped', 1, now(), 'absent', 0, 1)`);
  for (const desiredState of DESIRED_STATES) {
    for (const observedState of OBSERVED_STATES) {
      for (const observedGeneration of [1, 2]) {
        const facts: MachineFacts = machineRecord({
          desiredState,
          generation: 2,
          nodeId: "node-a",
          observedState,
          observedGeneration,
          observedReason: "because",
        });
        const row = await db.queryOne<{ is_active: boolean }>(sql`
          UPDATE machines SET desired_state = ${facts.desiredState}, generation = ${facts.generation},
            node_id = ${facts.nodeId}, observed_state = ${facts.observedState}, observed_reason = 'because',
            observed_generation = ${facts.observedGeneration},
            deleted_at = CASE WHEN ${facts.desiredState} = 'absent' THEN now() END
          WHERE id = ${MACHINE_ID} RETURNING is_active`);
        assert.equal(row?.is_active, isActive(facts), JSON.stringify(facts));
      }
    }
  }
});

test("contradictory facts cannot be written", async () => {
  const contradictions = [
    sql`UPDATE machines SET desired_state = 'running', deleted_at = NULL, node_id = NULL`,
    sql`UPDATE machines SET desired_state = 'absent', deleted_at = NULL`,
    sql`UPDATE machines SET observed_state = 'failed', observed_reason = NULL`,
    sql`UPDATE machines SET observed_state = 'stopped', ready_at = now()`,
    sql`UPDATE nodes SET status = 'revoked'`,
    sql`UPDATE nodes SET credential_hash = NULL`,
  ];
  for (const statement of contradictions) await assert.rejects(db.execute(statement), /check constraint/);
});
