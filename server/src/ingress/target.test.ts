/**
 * Which of a set of ports a request is forwarded to.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isPassedOver, NO_FAILURES, PASSED_OVER_MS, withFailure, withoutFailure } from "./apps/failures.ts";
import { type Choice, chooseTarget, type TargetPort } from "./target.ts";

const target = (id: string): TargetPort => ({ machine: { tenantId: "tenant-1", id }, port: 80 });
const three = [target("a"), target("b"), target("c")];

const chosenOf = (choice: Partial<Choice>, targets = three): string | undefined =>
  chooseTarget(targets, { openIn: () => 0, isPassedOver: () => false, tried: new Set(), turn: 0, ...choice })?.machine
    .id;

test("a set of one is its port, whatever is open there, also if it refused; once", () => {
  const one = [target("a")];
  assert.equal(chosenOf({ openIn: () => 1_000, isPassedOver: () => true }, one), "a");
  assert.equal(chosenOf({ tried: new Set("a") }, one), undefined);
  assert.equal(chosenOf({}, []), undefined);
});

test("of several ports the least busy one is chosen, and of equals they take turns", () => {
  for (const [open, turn, chosen] of [
    [{ a: 0, b: 0, c: 0 }, 0, "a"],
    [{ a: 0, b: 0, c: 0 }, 1, "b"],
    [{ a: 0, b: 0, c: 0 }, 5, "c"],
    [{ a: 1, b: 0, c: 0 }, 0, "b"],
    [{ a: 1, b: 0, c: 0 }, 2, "c"],
    [{ a: 2, b: 2, c: 1 }, 0, "c"],
    [{ a: 1, b: 2, c: 1 }, 1, "c"],
    [{ a: 5, b: 4, c: 3 }, 1, "c"],
  ] as const)
    assert.equal(chosenOf({ openIn: (id) => open[id as "a"], turn }), chosen, `${JSON.stringify(open)} ${turn}`);
});

test("requests one after the other, and requests that stay open, are spread evenly", () => {
  const counted = new Map<string, number>();
  for (let turn = 0; turn < 9; turn += 1) {
    const id = chosenOf({ turn }) ?? "";
    counted.set(id, (counted.get(id) ?? 0) + 1);
  }
  assert.deepEqual(Object.fromEntries(counted), { a: 3, b: 3, c: 3 });
  const open = new Map<string, number>();
  for (let turn = 0; turn < 9; turn += 1) {
    const id = chosenOf({ openIn: (each) => open.get(each) ?? 0, turn: turn * 3 }) ?? "";
    open.set(id, (open.get(id) ?? 0) + 1);
  }
  assert.deepEqual(Object.fromEntries(open), { a: 3, b: 3, c: 3 });
});

test("what was tried is not chosen again, and what refused only if nothing else is left", () => {
  const refused = (...ids: readonly string[]) => ({ isPassedOver: (id: string) => ids.includes(id) });
  for (const [choice, chosen] of [
    [{ ...refused("a") }, "b"],
    [{ ...refused("a", "b"), openIn: (id: string) => (id === "c" ? 9 : 0) }, "c"],
    [{ ...refused("a", "b", "c") }, "a"],
    [{ tried: new Set("a") }, "b"],
    [{ tried: new Set(["a", "b"]), ...refused("c") }, "c"],
    [{ tried: new Set(["a"]), ...refused("b") }, "c"],
    [{ tried: new Set(["a", "b", "c"]) }, undefined],
  ] as const)
    assert.equal(chosenOf(choice), chosen);
});

test("a target that refused is passed over for a second, or until it accepts", () => {
  const one = withFailure(NO_FAILURES, "a", 1_000);
  for (const [now, isOver] of [
    [1_000, true],
    [1_000 + PASSED_OVER_MS - 1, true],
    [1_000 + PASSED_OVER_MS, false],
  ] as const)
    assert.equal(isPassedOver(one, "a", now), isOver);
  assert.equal(isPassedOver(one, "b", 1_000), false);
  assert.equal(isPassedOver(withoutFailure(one, "a"), "a", 1_000), false);
  assert.equal(withoutFailure(one, "b"), one);
  const again = withFailure(one, "a", 1_500);
  assert.equal(isPassedOver(again, "a", 1_000 + PASSED_OVER_MS), true);
  assert.deepEqual([...withFailure(again, "b", 9_000).keys()], ["b"], "what has passed is dropped");
});
