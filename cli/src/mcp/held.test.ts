/**
 * Which machines count as a key's.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { heldBy, type Holding } from "./held.ts";

const app = (name: string, replicas: number, count: number, createdBy = "mine"): Holding["apps"][number] => ({
  ...{ name, replicas, createdBy },
  instances: Array.from({ length: count }),
});

const all: Holding = {
  machines: [{ createdBy: "mine" }, { createdBy: "other" }, { createdBy: null }],
  // The first lacks instances, the second has two that leave.
  apps: [app("few", 3, 1), app("many", 0, 2), app("theirs", 4, 4, "other")],
};

test("machines of a key count, and the instances that its apps have or are to have", () => {
  assert.equal(heldBy("mine", all), 1 + 3 + 2);
  assert.equal(heldBy("other", all), 1 + 4);
  assert.equal(heldBy("unknown", all), 0);
});

test("an app that is about to change is left out, whosever it was", () => {
  assert.equal(heldBy("mine", all, "few"), 1 + 2);
  assert.equal(heldBy("mine", all, "theirs"), heldBy("mine", all));
});
