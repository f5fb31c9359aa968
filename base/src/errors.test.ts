/**
 * What is thrown, which may be anything, in words and as an Error.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { errorOf, messageOf, ownMessageOf } from "./errors.ts";

test("a message holds its causes, and without them only itself", () => {
  const error = new Error("the image is damaged", { cause: new Error("bad block", { cause: "disk" }) });
  assert.equal(messageOf(error), "the image is damaged: bad block: disk");
  assert.equal(ownMessageOf(error), "the image is damaged");
});

test("what is thrown without being an Error becomes one", () => {
  assert.equal(errorOf("gone").message, "gone");
  assert.equal(messageOf(undefined), "undefined");
});
