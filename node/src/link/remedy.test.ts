/**
 * What a node that cannot join is advised to do.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { remedyFor, systemCodeOf } from "./remedy.ts";

const JOINING = { code: null, status: null, hasJoined: false };

test("each usual failure of a node that joins has its remedy", () => {
  for (const [failed, expected] of [
    [{ code: "ECONNREFUSED" }, /--node-listen/],
    [{ code: "ENOTFOUND" }, /cannot resolve/],
    [{ code: "EHOSTUNREACH" }, /firewalls/],
    [{ code: "ETIMEDOUT" }, /firewalls/],
    [{ code: "EPROTO" }, /not a server's port for nodes/],
    [{ status: 401 }, /used by another node, or has expired: .*flotilla token create/],
    [{ status: 404 }, /not a server's port for nodes/],
  ] as const)
    assert.match(remedyFor({ ...JOINING, ...failed }) ?? "", expected);
});

test("what says itself what to do, or passes by itself, has none", () => {
  assert.equal(remedyFor({ ...JOINING, status: 409 }), null);
  assert.equal(remedyFor({ ...JOINING, code: "EUNKNOWN" }), null);
  assert.equal(remedyFor({ code: "ECONNREFUSED", status: null, hasJoined: true }), null);
});

test("a node that is no longer admitted is advised to join again", () => {
  assert.match(remedyFor({ code: null, status: 401, hasJoined: true }) ?? "", /was revoked.*FLOTILLA_JOIN_TOKEN/);
});

test("the code of an error is also found in its causes", () => {
  const cause = Object.assign(new Error("connect"), { code: "ECONNREFUSED" });
  assert.equal(systemCodeOf(new Error("fetch failed", { cause: new Error("x", { cause }) })), "ECONNREFUSED");
  assert.equal(systemCodeOf("text"), null);
});
