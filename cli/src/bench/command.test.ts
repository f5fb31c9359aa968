/**
 * The options of `flotilla bench`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidArgumentError } from "commander";
import { milliseconds } from "./command.ts";

test("a number of milliseconds is read, and anything else refused with what was expected", () => {
  assert.deepEqual(["0", "200", "999999"].map(milliseconds), [0, 200, 999_999]);
  for (const text of ["", "-1", "1.5", "1s", "1e3", "1000000"]) {
    assert.throws(
      () => milliseconds(text),
      (error) => error instanceof InvalidArgumentError && /milliseconds/.test(error.message),
      text,
    );
  }
});
