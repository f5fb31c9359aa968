/**
 * What the guest's agent says about a file, which a user of the guest may have made as strange as file
 * systems allow.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FileFailure, parseEntries, parseFailure, parseStatus } from "./file-answer.ts";

test("a directory in memory is listed also with a file of 2 PiB, and one of a distant year", () => {
  const lines = ["f 0644 2251799813685248 1\0sparse\0", "f 0644 9223372036854775807 1\0largest\0"];
  const { entries } = parseEntries(Buffer.from(`${lines.join("")}f 0644 1 99999999999999000\0late\0`));
  assert.deepEqual(
    entries.map(({ name, size, modifiedAt }) => [name, size, modifiedAt]),
    [
      ["sparse", 2 ** 51, 1],
      ["largest", Number.MAX_SAFE_INTEGER, 1],
      ["late", 1, 8.64e15],
    ],
  );
});

test("a time before 1970 is shown as its beginning", () => {
  assert.equal(parseStatus("d 0755 4096 -9223372036854775808").modifiedAt, 0);
});

test("a full disk is not called full memory, nor the reverse", () => {
  assert.match(parseFailure("no_space No space left on device").message, /^no space is left on the machine's disk$/);
  assert.match(parseFailure("no_space memory").message, /in the machine's memory, where \/tmp/);
});

test("what no agent says is a failure", () => {
  for (const line of [
    "",
    "f 644 1 1",
    "f 0644 -1 1",
    "f 0644 1.5 1",
    "f 0644 1e3 1",
    `f 0644 ${"1".repeat(21)} 1`,
    "x 0644 1 1",
  ])
    assert.throws(() => parseStatus(line), FileFailure, line);
});
