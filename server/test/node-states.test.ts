/**
 * The statements that change a node's status follow the table of its states, for every status and every
 * event.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { NODE_STATUSES, type NodeStatus } from "@flotilla/contract/nodes";
import { sql } from "../src/db/database.ts";
import { revokeNode } from "../src/nodes/revocation-store.ts";
import { NODE_EVENTS, type NodeEvent, nextStatus } from "../src/nodes/state.ts";
import {
  admitNode,
  beginDrain,
  endDrain,
  markUnreachable,
  reopenNode,
  updateHeartbeats,
  updateRegistration,
} from "../src/nodes/store.ts";
import { startTestServer } from "./support/server.ts";

const { context } = await startTestServer();
const { db } = context;
const ID = "node-under-test";
const now = Date.now();
const registration = {
  id: ID,
  address: "unix:/nowhere/agent.sock",
  totalCpus: 1,
  totalMemoryMb: 1024,
  totalDiskGb: 10,
  labels: {},
  runtime: null,
  keyHash: null,
  now,
};

const UNKNOWN = { agent: null, clockAheadMs: null, certificateExpiresAt: null };

const STATEMENTS: Readonly<Record<NodeEvent, () => Promise<unknown>>> = {
  admitted: () =>
    admitNode(db, registration, { credentialHash: randomBytes(32), joinTokenPrefix: null, tokenMadeAt: now }),
  registered: () => updateRegistration(db, registration),
  heartbeat: async () =>
    (
      await updateHeartbeats(db, [{ id: ID, agentBootId: null, isComplete: true, resources: null, ...UNKNOWN, now }])
    ).get(ID),
  silent: () => markUnreachable(db, now),
  drainRequested: () => beginDrain(db, ID),
  drained: () => endDrain(db, ID, "drained"),
  drainFailed: () => endDrain(db, ID, "drainFailed"),
  drainCanceled: () => reopenNode(db, ID),
  revoked: () => revokeNode(db, ID, now),
};

/** Makes the node again, with this status. */
async function put(status: NodeStatus): Promise<void> {
  const hash = status === "revoked" ? null : randomBytes(32);
  // Before the `now` that `silent` gets, but too recent for the server's own loop.
  const heardAt = new Date(now - 1);
  await db.execute(sql`DELETE FROM nodes WHERE id = ${ID}`);
  await db.execute(sql`
    INSERT INTO nodes (id, address, status, credential_hash, registered_at, last_heartbeat_at)
    VALUES (${ID}, 'http://127.0.0.1:9', ${status}, ${hash}, ${heardAt}, ${heardAt})`);
}

async function statusNow(): Promise<NodeStatus | undefined> {
  return (await db.queryOne<{ status: NodeStatus }>(sql`SELECT status FROM nodes WHERE id = ${ID}`))?.status;
}

for (const event of NODE_EVENTS) {
  test(`${event} changes a node of every status as in the table`, async () => {
    for (const status of NODE_STATUSES) {
      await put(status);
      const answer = await STATEMENTS[event]();
      const next = nextStatus(status, event);
      assert.equal(await statusNow(), next ?? status, `${event} of ${status}`);
      const hasMet = Array.isArray(answer) ? answer.length > 0 : answer !== undefined && answer !== false;
      assert.equal(hasMet, next !== null, `${event} of ${status} has changed a row`);
    }
  });
}
