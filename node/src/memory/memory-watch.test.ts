/**
 * The answer of the program that watches a VMM's memory. The program itself is tested with real VMs.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { readRuns } from "./memory-watch.ts";

const answer = (...numbers: readonly number[]): Buffer => {
  const bytes = Buffer.alloc(numbers.length * 8);
  for (const [at, value] of numbers.entries()) bytes.writeBigUInt64LE(BigInt(value), at * 8);
  return bytes;
};

test("runs of pages are read in order", () => {
  assert.deepEqual(readRuns(answer(0, 4096, 8192, 8192), 16_384), [
    { start: 0, end: 4096 },
    { start: 8192, end: 16_384 },
  ]);
});

test("runs outside of the memory, empty ones, and ones out of order are refused", () => {
  for (const wrong of [answer(8192, 16_384), answer(4096, 0), answer(8192, 4096, 4096, 4096)])
    assert.throws(() => readRuns(wrong, 16_384), /outside/);
});
