/**
 * Which caller may do what with which repository.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { KnownKey } from "../auth/key-cache.ts";
import { permitted, refusalOf } from "./caller.ts";
import type { Action } from "./paths.ts";

const keyOf = (scopes: readonly string[]): KnownKey => ({
  ...{ kind: "key", keyId: "key-1", tenantId: "t-1", scopes, isAdmin: scopes.includes("admin"), expiresAt: null },
  ...{ isSuspended: false, requestsPerSecond: 1, burst: 1, sessionHash: null },
});
const ACTIONS: readonly Action[] = ["pull", "push", "delete"];
const user = keyOf(["machine:read", "machine:create", "machine:delete"]);

const verdicts = (key: KnownKey, repository: string) =>
  ACTIONS.map((action) => {
    const refused = refusalOf({ key, scopes: null }, { repository, action });
    return refused === null ? "may" : refused === "challenge" ? refused : refused.code;
  });

test("a key does in its tenant's repositories what its scopes say", () => {
  assert.deepEqual(verdicts(user, "tenants/t-1/web"), ["may", "may", "may"]);
  assert.deepEqual(verdicts(keyOf(["machine:read"]), "tenants/t-1/web"), ["may", "DENIED", "DENIED"]);
  assert.deepEqual(verdicts(keyOf(["usage:read"]), "tenants/t-1/web"), ["DENIED", "DENIED", "DENIED"]);
});

test("another tenant's repository is missing, also for operators", () => {
  for (const key of [user, keyOf(["admin"]), keyOf([])])
    assert.deepEqual(verdicts(key, "tenants/t-2/web"), ["NAME_UNKNOWN", "DENIED", "DENIED"]);
});

test("the library is read by all and written by operators", () => {
  assert.deepEqual(verdicts(user, "library/web"), ["may", "DENIED", "DENIED"]);
  assert.deepEqual(verdicts(keyOf(["admin"]), "library/web"), ["may", "may", "may"]);
});

test("a token permits what it is for, and no more than its key", () => {
  const scopes = [{ repository: "tenants/t-1/web", actions: ["pull", "push"] }] as const;
  const asked = (key: KnownKey, repository: string, action: Action) =>
    refusalOf({ key, scopes }, { repository, action });
  assert.equal(asked(user, "tenants/t-1/web", "push"), null);
  assert.equal(asked(user, "tenants/t-1/web", "delete"), "challenge");
  assert.equal(asked(user, "tenants/t-1/other", "pull"), "challenge");
  assert.notEqual(asked(keyOf(["machine:read"]), "tenants/t-1/web", "push"), null);
  const all = [
    { repository: "tenants/t-1/web", actions: ACTIONS },
    { repository: "tenants/t-2/web", actions: ACTIONS },
    { repository: "library/web", actions: ACTIONS },
  ];
  assert.deepEqual(permitted(keyOf(["machine:read", "machine:delete"]), all), [
    { repository: "tenants/t-1/web", actions: ["pull", "delete"] },
    { repository: "library/web", actions: ["pull"] },
  ]);
});
