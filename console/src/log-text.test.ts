/**
 * Lines of logs as they would look on a terminal.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { marked, overwritten, piecesOf, SHOWN_MAX } from "./log-text.ts";

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

test("what is searched for is marked, also across colours, and its letters are those of the line", () => {
  const pieces = piecesOf(`an Err${ESC}[31mor or error${ESC}[0m`);
  assert.deepEqual(marked(pieces, "error"), [
    { text: "an ", look: "" },
    { text: "Err", look: "", isHit: true },
    { text: "or", look: "ansi-1", isHit: true },
    { text: " or ", look: "ansi-1" },
    { text: "error", look: "ansi-1", isHit: true },
  ]);
  assert.deepEqual(
    marked(piecesOf("aaaa"), "aa").map(({ text }) => text),
    ["aa", "aa"],
  );
  assert.equal(marked(pieces, "nothing"), pieces);
  assert.equal(marked(pieces, ""), pieces);
});

test("no character turns the direction of a line, breaks it or hides in it", () => {
  for (const code of [0x00, 0x08, 0x85, 0x9b, 0x2028, 0x2029, 0x202e, 0x2066])
    assert.deepEqual(piecesOf(`a${String.fromCodePoint(code)}b`), [{ text: "a\ufffdb", look: "" }], code.toString(16));
});
