/**
 * What a refusal costs.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "./errors.ts";

test("a refusal collects no stack, and the errors after it do", () => {
  const refusal = new Refusal("rate_limited", "too many requests");
  assert.equal(refusal.stack?.includes("\n    at "), false, refusal.stack);
  assert.match(new Error("a fault").stack ?? "", /\n {4}at /);
});
