/**
 * Names that are made up.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MachineName } from "@flotilla/contract/machines";
import fc from "fast-check";
import { generatedName } from "./names.ts";

test("a made-up name is a machine's name and a host's label, whatever the dice say", () => {
  const form = new RegExp(String((MachineName as { pattern?: string }).pattern));
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 5, maxLength: 5 }), (bytes) => {
      const name = generatedName(() => Buffer.from(bytes));
      assert.match(name, form);
      assert.match(name, /^[a-z]+-[a-z]+-[0-9a-f]{6}$/);
    }),
  );
});
