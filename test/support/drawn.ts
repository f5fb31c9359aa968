/**
 * Cases of which every run tests some, because each takes long: which ones is drawn by chance, so the runs
 * together test all. FLOTILLA_CASES=all tests all of them, as `npm test -- night` does.
 */
import { randomInt } from "node:crypto";

/** Draws this many of the cases, which keep their order. */
export function drawn<T>(cases: readonly T[], count: number): readonly T[] {
  const left = [...cases];
  while (left.length > count && process.env["FLOTILLA_CASES"] !== "all") left.splice(randomInt(left.length), 1);
  return left;
}
