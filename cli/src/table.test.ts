/**
 * Text for people: columns, sizes, and that no control characters of foreign text reach a terminal.
 *
 * Always: texts are compared whole, because they are what a user sees.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { clean, renderBytes, renderFacts, renderMemory, renderTable, wrap } from "./table.ts";

test("columns are as wide as their widest cell, and no line ends in spaces", () => {
  assert.deepEqual(
    renderTable(
      ["NAME", "STATE"],
      [
        ["a-long-name", "started"],
        ["b", ""],
      ],
    ),
    ["NAME         STATE", "a-long-name  started", "b"],
  );
});

test("facts without a value are left out", () => {
  assert.deepEqual(
    renderFacts([
      ["id", "mach-1"],
      ["url", null],
      ["network", "open"],
    ]),
    ["id       mach-1", "network  open"],
  );
});

test("what would move a cursor, change colours or reverse text is removed", () => {
  assert.equal(clean("a\x1b[31mred\x1b[0m\r\nb\x07\u202ec\u009b2J"), "ared b c 2J");
  assert.deepEqual(renderTable(["X"], [["\x1b[2J\x1b[1;1Hboo"]]), ["X", "boo"]);
  assert.equal(clean("ümläut ✓ 日本"), "ümläut ✓ 日本");
});

test("text is broken at spaces, and a word that is too long has its own line", () => {
  assert.deepEqual(wrap("one two  three", 7), ["one two", "three"]);
  assert.deepEqual(wrap("a unbreakable b", 5), ["a", "unbreakable", "b"]);
});

test("bytes are shown with significant digits only", () => {
  const bytes = [0, 999, 1000, 9_940, 12_345, 999_600, 5_000_000_000];
  assert.deepEqual(bytes.map(renderBytes), ["0 B", "999 B", "1.0 kB", "9.9 kB", "12 kB", "1.0 MB", "5.0 GB"]);
  assert.deepEqual([128, 1024, 1536, 8192].map(renderMemory), ["128 MB", "1 GB", "1536 MB", "8 GB"]);
});
