/**
 * The beginning and the end of text of any length.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Excerpt } from "./excerpt.ts";

function excerptOf(limit: number, ...pieces: readonly string[]): string {
  const excerpt = new Excerpt(limit);
  for (const piece of pieces) excerpt.add(new TextEncoder().encode(piece));
  return excerpt.show();
}

test("what fits is shown as it is, in however many pieces it came", () => {
  assert.equal(excerptOf(10, "01234", "5", "6789"), "0123456789");
  assert.equal(excerptOf(10), "");
});

test("of more the beginning and the end are shown, and how much is between them", () => {
  const expected = "01234\n[16 characters are left out]\nVWXYZ";
  const text = "01234........________VWXYZ";
  assert.equal(excerptOf(10, text), expected);
  assert.equal(excerptOf(10, ...text), expected);
});
