/**
 * What follows a hook, for all moments and ends of it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { HOOK_MOMENTS, type HookMoment } from "@flotilla/contract/hooks";
import { CONSEQUENCES, HOOK_OUTCOMES, type HookOutcome } from "./consequence.ts";

/** In the order of HOOK_OUTCOMES: done, failed, late, notRun, cut. */
const EXPECTED: Readonly<Record<HookMoment, readonly string[]>> = {
  fork: ["continue", "end", "end", "end", "end"],
  resume: ["continue", "tell", "tell", "tell", "continue"],
  suspend: ["continue", "tell", "tell", "tell", "continue"],
  stop: ["continue", "tell", "tell", "tell", "continue"],
};

const pairs = HOOK_MOMENTS.flatMap((moment) => HOOK_OUTCOMES.map((outcome, at) => ({ moment, outcome, at })));

test("each pair of a moment and an outcome has its consequence, with a reason", () => {
  for (const { moment, outcome, at } of pairs) {
    const { then, why } = CONSEQUENCES[moment][outcome];
    assert.equal(then, EXPECTED[moment][at], `${moment} ${outcome}`);
    assert.match(why, /^[a-z][^\n]{10,}$/);
  }
});

test("a clone whose hook did not do its work never runs, and no other machine is lost because of a hook", () => {
  const ends = (moment: HookMoment, outcome: HookOutcome): boolean => CONSEQUENCES[moment][outcome].then === "end";
  for (const { moment, outcome } of pairs)
    assert.equal(ends(moment, outcome), moment === "fork" && outcome !== "done", `${moment} ${outcome}`);
});
