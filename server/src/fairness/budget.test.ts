/**
 * Shares of something that is bounded.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Budget } from "./budget.ts";

test("one holder cannot take what is left for others, and all of them cannot take more than there is", () => {
  const budget = new Budget({ perHolder: 6, all: 10 });
  assert.equal(budget.take("a", 6), null);
  assert.equal(budget.take("a", 1), "holder");
  assert.equal(budget.take("b", 5), "all");
  assert.equal(budget.take("b", 4), null);
  budget.release("a", 6);
  assert.equal(budget.take("b", 2), null);
});

test("whatever is taken and released, the bounds hold and the sum is right", () => {
  const step = fc.record({ holder: fc.constantFrom("a", "b", "c"), amount: fc.nat(9), isBack: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const budget = new Budget({ perHolder: 10, all: 15 });
      const held: Record<string, number> = { a: 0, b: 0, c: 0 };
      for (const { holder, amount, isBack } of steps) {
        const has = held[holder] ?? 0;
        if (isBack) {
          const back = Math.min(amount, has);
          budget.release(holder, back);
          held[holder] = has - back;
        } else if (budget.take(holder, amount) === null) held[holder] = has + amount;
        assert.equal(budget.heldBy(holder), held[holder]);
        assert.ok((held[holder] ?? 0) <= 10);
      }
      const sum = Object.values(held).reduce((total, amount) => total + amount, 0);
      assert.equal(budget.total, sum);
      assert.ok(sum <= 15);
    }),
  );
});
