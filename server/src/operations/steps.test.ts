/**
 * The steps of an operation: what each change leaves, whatever came before.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { beginStep, endStep, failRunning, findStep, plannedStep, setStepMessage } from "./steps.ts";

const NOW = Date.UTC(2026, 6, 22);

test("a step begins, tells and ends, and a step that was not planned comes last", () => {
  const begun = beginStep([plannedStep("copy")], "extra", NOW);
  assert.deepEqual(
    begun.map(({ name, status }) => [name, status]),
    [
      ["copy", "pending"],
      ["extra", "running"],
    ],
  );
  const described = setStepMessage(begun, "extra", "half of it");
  assert.equal(findStep(described, "extra")?.message, "half of it");
  const done = findStep(endStep(described, "extra", { status: "succeeded", message: "all", now: NOW + 1000 }), "extra");
  assert.deepEqual([done?.status, done?.message], ["succeeded", "all"]);
  assert.deepEqual([done?.startedAt, done?.finishedAt], ["2026-07-22T00:00:00.000Z", "2026-07-22T00:00:01.000Z"]);
});

test("a step that has ended stays as it is", () => {
  const ended = endStep(beginStep([], "copy", NOW), "copy", { status: "failed", message: "no room", now: NOW });
  assert.deepEqual(beginStep(ended, "copy", NOW + 1), ended);
  assert.deepEqual(setStepMessage(ended, "copy", "late"), ended);
  assert.deepEqual(endStep(ended, "copy", { status: "succeeded", message: "late", now: NOW + 1 }), ended);
});

test("a step that is run again keeps when it first began, and the end of the operation fails what still runs", () => {
  const again = beginStep(beginStep([plannedStep("switch")], "copy", NOW), "copy", NOW + 5000);
  assert.equal(findStep(again, "copy")?.startedAt, "2026-07-22T00:00:00.000Z");
  const failed = failRunning(again, "too late", NOW + 9000);
  assert.deepEqual(
    failed.map(({ name, status, message }) => [name, status, message]),
    [
      ["switch", "pending", null],
      ["copy", "failed", "too late"],
    ],
  );
});
