/**
 * The decision on a new VMM, for all facts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type NotReplaced, refusalOf, type ReplaceFacts } from "./refusal.ts";

const BOOLEANS = [false, true] as const;

const ALL: readonly ReplaceFacts[] = (["live", "restart"] as const).flatMap((how) =>
  BOOLEANS.flatMap((isOutdated) =>
    BOOLEANS.flatMap((needsAgentRestart) =>
      BOOLEANS.flatMap((isMoving) =>
        BOOLEANS.map((hasSuccessor) => ({ how, isOutdated, needsAgentRestart, isMoving, hasSuccessor })),
      ),
    ),
  ),
);

const textOf = (found: NotReplaced | null): string =>
  found === null ? "replaced" : found.outcome === "refused" ? found.reason : found.outcome;

test("a machine is replaced exactly when it is outdated, its agent is not, it does not move and its VMM can", () => {
  assert.equal(ALL.length, 32);
  for (const facts of ALL) {
    const { how, isOutdated, needsAgentRestart, isMoving, hasSuccessor } = facts;
    const isReplaced = isOutdated && !needsAgentRestart && !isMoving && (how === "restart" || hasSuccessor);
    assert.equal(refusalOf(facts) === null, isReplaced, JSON.stringify(facts));
    assert.equal(textOf(refusalOf(facts)) === "current", !isOutdated, JSON.stringify(facts));
  }
});

test("of several reasons the one that an operator can do something about comes first", () => {
  const facts = {
    how: "live",
    isOutdated: true,
    needsAgentRestart: true,
    isMoving: true,
    hasSuccessor: false,
  } as const;
  assert.match(textOf(refusalOf(facts)), /restart that first$/);
  assert.equal(textOf(refusalOf({ ...facts, needsAgentRestart: false })), "the machine moves");
  assert.equal(
    textOf(refusalOf({ ...facts, needsAgentRestart: false, isMoving: false })),
    "this node does not replace VMMs",
  );
});
