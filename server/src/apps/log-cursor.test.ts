/**
 * Cursors of the log of an app: printed, parsed, bounded.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCursor, printCursor } from "./log-cursor.ts";

const machine = (number: number): string => `mach-${number.toString(16).padStart(32, "0")}`;

test("a cursor is read back as it was printed", () => {
  const positions = new Map([
    [machine(1), "1:0"],
    [machine(2), "12:8388607"],
  ]);
  assert.deepEqual(parseCursor(printCursor(1_796_098_000_000, positions)), { time: 1_796_098_000_000, positions });
  assert.deepEqual(parseCursor(printCursor(5, [])), { time: 5, positions: new Map() });
});

test("a cursor of many instances names the latest of them, and fits into a request's head", () => {
  const positions = new Map(Array.from({ length: 1_000 }, (_, at) => [machine(at), "999999:8388607"] as const));
  const text = printCursor(1_796_098_000_000, positions);
  assert.ok(text.length < 8_192, `${text.length}`);
  const read = parseCursor(text);
  assert.equal(read?.positions.size, 150);
  assert.ok(read.positions.has(machine(999)));
});

test("what is not a cursor is not taken for one", () => {
  const named = `${"a".repeat(32)}:1:2`;
  const texts = ["", "x", "1:2", "-1", "1~", `1~${named}~`, `1~${named.toUpperCase()}`, "1~../../etc:1:2", "1e3"];
  for (const text of texts) assert.equal(parseCursor(text), null, text);
  assert.equal(parseCursor(`1${`~${named}`.repeat(151)}`), null);
});
