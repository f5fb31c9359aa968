/**
 * Lines of logs as they would look on a terminal.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { overwritten, piecesOf, SHOWN_MAX } from "./log-text.ts";

const ESC = "\u001b";

test("a carriage return overwrites the beginning of its line", () => {
  assert.equal(overwritten("10 %\r50 %\r100 %"), "100 %");
  assert.equal(overwritten("a longer text\rshort"), "shortger text");
  assert.equal(overwritten("whole\r"), "whole");
  assert.equal(overwritten(`${ESC}[32m10 %\r${ESC}[32m90 %`), `${ESC}[32m90 %`);
});

test("colours become looks, and every other sequence nothing", () => {
  assert.deepEqual(piecesOf(`${ESC}[1;31mfailed${ESC}[0m at ${ESC}[94mline${ESC}[39m 3${ESC}[2K`), [
    { text: "failed", look: "ansi-1 bold" },
    { text: " at ", look: "" },
    { text: "line", look: "ansi-12" },
    { text: " 3", look: "" },
  ]);
  assert.deepEqual(piecesOf(`${ESC}[38;5;2mgreen${ESC}[38;2;1;2;3mred`), [
    { text: "green", look: "ansi-2" },
    { text: "red", look: "ansi-2" },
  ]);
  assert.deepEqual(piecesOf(`${ESC}]0;a title\u0007text`), [{ text: "text", look: "" }]);
});

test("hostile text stays text, and long lines are cut until they are asked for", () => {
  assert.deepEqual(piecesOf("<img src=x onerror=alert(1)>\u0000\u0008"), [
    { text: "<img src=x onerror=alert(1)>��", look: "" },
  ]);
  const long = "x".repeat(1_000_000);
  assert.equal(piecesOf(long)[0]?.text.length, SHOWN_MAX);
  assert.equal(piecesOf(long, true)[0]?.text.length, 1_000_000);
});
