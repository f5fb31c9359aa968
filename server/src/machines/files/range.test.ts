/**
 * Ranges of files: what is one, and what it means in a file of some size.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { locateInFile } from "@flotilla/contract/link/file-parts";
import { parseRange } from "./range.ts";

const inTen = (header: string) => {
  const part = parseRange(header);
  return part === undefined ? "whole" : (locateInFile(part, 10) ?? "outside");
};

test("single ranges of bytes are understood, everything else means the whole file", () => {
  assert.deepEqual(inTen("bytes=0-3"), { first: 0, count: 4 });
  assert.deepEqual(inTen("bytes=4-"), { first: 4, count: 6 });
  assert.deepEqual(inTen("bytes = 4-"), { first: 4, count: 6 });
  assert.deepEqual(inTen("bytes=-3"), { first: 7, count: 3 });
  assert.deepEqual(inTen("bytes=-30"), { first: 0, count: 10 });
  assert.deepEqual(inTen("bytes=8-99"), { first: 8, count: 2 });
  for (const other of ["", "bytes=-", "bytes=3-1", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b", "bytes=1"])
    assert.equal(inTen(other), "whole", other);
  for (const outside of ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=999999999999999-"])
    assert.equal(inTen(outside), "outside", outside);
});

test("what is located lies within the file", () => {
  fc.assert(
    fc.property(fc.string(), fc.nat(), fc.nat(), fc.nat(), (text, from, to, size) => {
      for (const header of [text, `bytes=${from}-${to}`, `bytes=${from}-`, `bytes=-${to}`]) {
        const part = parseRange(header);
        const located = part && locateInFile(part, size);
        if (located === undefined) continue;
        assert.ok(located.first >= 0 && located.count > 0 && located.first + located.count <= size, header);
      }
    }),
  );
});
