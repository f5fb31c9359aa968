/**
 * When a share of a budget is reached, and what the event says.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { printEvent } from "@flotilla/contract/event-types";
import { type Budgeted, isUsedUp, noticesOf, reachedPercents } from "./notices.ts";

test("a share is reached to the micro, also of budgets that floating point cannot divide", () => {
  assert.deepEqual(reachedPercents(79_999_999, 100_000_000), []);
  assert.deepEqual(reachedPercents(80_000_000, 100_000_000), [80]);
  assert.deepEqual(reachedPercents(99_999_999, 100_000_000), [80]);
  assert.deepEqual(reachedPercents(100_000_000, 100_000_000), [80, 100]);
  const odd = 2 ** 53 - 1;
  assert.deepEqual(reachedPercents(7_205_759_403_792_792, odd), []);
  assert.deepEqual(reachedPercents(7_205_759_403_792_793, odd), [80]);
  assert.deepEqual(reachedPercents(0, 0), [80, 100], "a budget of 0 is used up");
});

test("an event has exact amounts, and says how much is used and at 100 % what happens then", () => {
  const budgeted = {
    tenantId: "t",
    policy: "stop",
    budgetMicros: 100_000_000,
    heldMicros: 0,
    clockAheadMs: 0,
  } as const;
  const [first] = noticesOf(budgeted, 80_500_000);
  const amounts = { usedMicros: 80_500_000, budgetMicros: 100_000_000, heldMicros: 0 };
  assert.deepEqual(first?.event.data, { percent: 80, ...amounts, policy: "stop" });
  const said = (of: Budgeted, usedMicros: number) =>
    noticesOf(of, usedMicros).map(({ event }) => printEvent(event).message);
  assert.deepEqual(said(budgeted, 80_500_000), ["80 % of the monthly budget is used: 80.50 of 100.00"]);
  assert.match(said(budgeted, 100_000_001)[1] ?? "", /^100 % .*: 100\.000001 of 100\.00; creates .* are stopped$/);
  const held = said({ ...budgeted, heldMicros: 500_000 }, 99_600_000)[1] ?? "";
  assert.match(held, /: 99\.60 of 100\.00, with 0\.50 held for running machines; creates/);
});

test("a budget is used up when nothing is left, or when what is held does not fit in what is left", () => {
  const budgeted = { tenantId: "t", policy: "stop", budgetMicros: 100, heldMicros: 10, clockAheadMs: 0 } as const;
  assert.equal(isUsedUp(budgeted, 90), false, "it fits to the micro");
  assert.equal(isUsedUp(budgeted, 91), true);
  assert.equal(isUsedUp({ ...budgeted, heldMicros: 0 }, 99), false);
  assert.equal(isUsedUp({ ...budgeted, heldMicros: 0 }, 100), true);
});
