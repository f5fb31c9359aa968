/**
 * What no event may do to a node, whatever the table says in detail.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { NODE_STATUSES } from "@flotilla/contract/nodes";
import { NODE_EVENTS, nextStatus } from "./state.ts";

test("a revoked node comes back by being admitted alone", () => {
  const backs = NODE_EVENTS.filter((event) => (nextStatus("revoked", event) ?? "revoked") !== "revoked");
  assert.deepEqual(backs, ["admitted"]);
});

test("every status is left again, and every node can be revoked", () => {
  for (const status of NODE_STATUSES) {
    assert.ok(
      NODE_EVENTS.some((event) => ![null, status].includes(nextStatus(status, event))),
      status,
    );
    assert.equal(nextStatus(status, "revoked"), "revoked");
  }
});

test("only a drain closes a node that reports", () => {
  for (const event of NODE_EVENTS) if (nextStatus("ready", event) === "draining") assert.equal(event, "drainAsked");
});

test("a heartbeat opens no node that is drained or being drained", () => {
  assert.deepEqual(
    ["draining", "drained"].map((status) => nextStatus(status as "drained", "heartbeat")),
    ["draining", "drained"],
  );
});
