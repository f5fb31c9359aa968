/**
 * Properties of the table of node states that hold whatever its details.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { NODE_STATUSES } from "@flotilla/contract/nodes";
import { NODE_EVENTS, nextStatus } from "./state.ts";

test("a revoked node returns only when it is admitted again", () => {
  const backs = NODE_EVENTS.filter((event) => (nextStatus("revoked", event) ?? "revoked") !== "revoked");
  assert.deepEqual(backs, ["admitted"]);
});

test("every status can be left, and every node can be revoked", () => {
  for (const status of NODE_STATUSES) {
    assert.ok(
      NODE_EVENTS.some((event) => ![null, status].includes(nextStatus(status, event))),
      status,
    );
    assert.equal(nextStatus(status, "revoked"), "revoked");
  }
});

test("only a drain closes a reporting node", () => {
  for (const event of NODE_EVENTS) if (nextStatus("ready", event) === "draining") assert.equal(event, "drainRequested");
});

test("a heartbeat does not reopen a node that is drained or draining", () => {
  assert.deepEqual(
    ["draining", "drained"].map((status) => nextStatus(status as "drained", "heartbeat")),
    ["draining", "drained"],
  );
});
