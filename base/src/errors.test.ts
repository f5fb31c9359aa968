/**
 * Any thrown value, as text and as an Error.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { errorOf, messageOf, ownMessageOf } from "./errors.ts";

test("a message contains its causes, and without causes only itself", () => {
  const error = new Error("the image is damaged", { cause: new Error("bad block", { cause: "disk" }) });
  assert.equal(messageOf(error), "the image is damaged: bad block: disk");
  assert.equal(ownMessageOf(error), "the image is damaged");
});

test("a thrown value that is not an Error becomes one", () => {
  assert.equal(errorOf("gone").message, "gone");
  assert.equal(messageOf(undefined), "undefined");
});

test("an error of several attempts has their messages where it has none itself", () => {
  const error = new AggregateError([new Error("refused by ::1"), new Error("refused by 127.0.0.1")]);
  assert.equal(messageOf(new Error("no answer", { cause: error })), "no answer: refused by ::1, refused by 127.0.0.1");
});
