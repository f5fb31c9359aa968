/**
 * The part of a log in memory: bounded, and read again without a gap.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogRecord } from "@flotilla/sdk";
import { LogWindow } from "./log-window.ts";

const record = (at: number, message = `line ${at}`): LogRecord => ({
  ...{ timestamp: "2026-01-01T00:00:00.000Z", level: "info", message, source: "workload" },
  cursor: `1:${at}`,
});

const records = (from: number, to: number): readonly LogRecord[] =>
  Array.from({ length: to - from }, (_, at) => record(from + at));

function grown(count: number): LogWindow {
  const window = new LogWindow("1:0");
  for (let at = 0; at < count; at += 100) {
    for (const each of records(at, at + 100)) window.append(each);
    window.mark(`1:${at + 100}`);
    window.trimStart();
  }
  return window;
}

test("a log of any length costs bounded memory, and what was removed begins at the window's cursor", () => {
  const window = grown(200_000);
  assert.ok(window.lines.length <= 21_000, `${window.lines.length}`);
  assert.equal(window.lines.at(-1)?.text, "line 199999");
  assert.equal(window.end, "1:200000");
  assert.equal(window.start, window.lines[0]?.cursor);
});

test("pages that are read again at one end make room at the other, and each line is there once", () => {
  const window = grown(60_000);
  for (let start = Number(window.start.slice(2)); start > 0; start -= 1_000) {
    window.prepend(`1:${start - 1_000}`, records(start - 1_000, start));
    window.trimEnd();
  }
  assert.equal(window.start, "1:0");
  const texts = window.lines.map(({ text }) => text);
  assert.deepEqual(
    texts,
    texts.map((_, at) => `line ${at}`),
  );
  const numbers = window.lines.map(({ number }) => number);
  assert.deepEqual(
    numbers,
    numbers.map((_, at) => (numbers[0] ?? 0) + at),
  );
  assert.equal(window.end, `1:${texts.length}`, "reading continues after the last line");
});

test("long lines are bounded by their characters", () => {
  const window = new LogWindow("1:0");
  const long = "x".repeat(16 * 1024);
  for (let at = 0; at < 5_000; at++) {
    window.append(record(at, long));
    window.mark(`1:${at + 1}`);
    window.trimStart();
  }
  assert.ok(window.lines.length <= 600, `${window.lines.length}`);
});

test("a line that a new connection repeats is shown once", () => {
  const window = new LogWindow("1:0");
  for (const each of records(0, 5)) window.append(each);
  window.mark("1:5");
  for (const each of records(5, 8)) window.append(each);
  // The connection broke before the next mark.
  for (const each of records(5, 10)) window.append(each);
  window.mark("1:10");
  assert.deepEqual(
    window.lines.map(({ text }) => text),
    records(0, 10).map(({ message }) => message),
  );
});

test("a line that ends with a carriage return is overwritten by the next, and numbers have no gap", () => {
  const window = new LogWindow("1:4");
  for (const [at, text] of ["10%\r", "50%\r", "100%", "done"].entries()) window.append(record(4 + at, text));
  assert.deepEqual(
    window.lines.map(({ text }) => text),
    ["100%", "done"],
  );
  window.prepend("1:0", [record(0, "first"), record(1, "1 of 2\r"), record(2, "2 of 2"), record(3, "last")]);
  assert.deepEqual(
    window.lines.map(({ text }) => text),
    ["first", "2 of 2", "last", "100%", "done"],
  );
  const numbers = window.lines.map(({ number }) => number);
  assert.deepEqual(
    numbers,
    numbers.map((_, at) => (numbers[0] ?? 0) + at),
  );
});
