/**
 * Which pages a page map marks as changed, and their division into records.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { PAGE_BYTES, RECORD_PAGES_MAX } from "./memory-file.ts";
import { changedRuns, split } from "./process-pages.ts";

/** One character for each page: p present, s swapped, f a present page of a file, - none. */
function entriesOf(text: string): Buffer {
  const bits: Readonly<Record<string, bigint>> = { p: 1n << 63n, s: 1n << 62n, f: (1n << 63n) | (1n << 61n), "-": 0n };
  const entries = Buffer.alloc(text.length * 8);
  for (const [at, letter] of [...text].entries()) entries.writeBigUInt64LE(bits[letter] ?? 0n, at * 8);
  return entries;
}

const runs = (text: string, first = 0): [number, number][] =>
  [...changedRuns(entriesOf(text), { first, count: text.length })].map(({ offset, pages }) => [
    offset / PAGE_BYTES,
    pages,
  ]);

test("changed pages are those that are present or swapped out, and not of a file", () => {
  assert.deepEqual(runs("-pps-f-fp"), [
    [1, 3],
    [8, 1],
  ]);
  assert.deepEqual(runs("ffff"), []);
  assert.deepEqual(runs("p", 100), [[100, 1]]);
});

test("a long run is divided into records", () => {
  assert.deepEqual(runs("p".repeat(RECORD_PAGES_MAX + 2)), [
    [0, RECORD_PAGES_MAX],
    [RECORD_PAGES_MAX, 2],
  ]);
});

test("pages of zeros become records without content", () => {
  const page = (value: number): Buffer => Buffer.alloc(PAGE_BYTES, value);
  const lastByte = page(0);
  lastByte.writeUInt8(1, PAGE_BYTES - 1);
  const records = [...split(PAGE_BYTES, Buffer.concat([page(0), page(0), lastByte, page(1), page(0)]))];
  assert.deepEqual(records, [
    { kind: "zero", offset: PAGE_BYTES, pages: 2 },
    { kind: "data", offset: 3 * PAGE_BYTES, bytes: Buffer.concat([lastByte, page(1)]) },
    { kind: "zero", offset: 5 * PAGE_BYTES, pages: 1 },
  ]);
});
