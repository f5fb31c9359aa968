/**
 * Cases of which every run tests some, because each takes long: which ones is drawn by chance, so the runs
 * together test all. FLOTILLA_CASES=all tests all of them, as `npm test -- night` does.
 */
import { randomInt } from "node:crypto";
import { test, type TestContext } from "node:test";

/** Draws this many of the cases, which keep their order. */
export function drawn<T>(cases: readonly T[], count: number): readonly T[] {
  const left = [...cases];
  while (left.length > count && process.env["FLOTILLA_CASES"] !== "all") left.splice(randomInt(left.length), 1);
  return left;
}

type Run = (t: TestContext) => Promise<void>;

/** Tests that do not depend on each other. */
export class DrawnTests {
  readonly #tests: (readonly [name: string, run: Run])[] = [];

  /** One more of those that may be drawn. */
  test(name: string, run: Run): void {
    this.#tests.push([name, run]);
  }

  /** Runs this many of them. */
  run(count: number): void {
    for (const [name, run] of drawn(this.#tests, count)) void test(name, run);
  }
}
