/**
 * The handlers of the families, together.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { handlersOf } from "./families.ts";

const getLiveness = async () => ({ status: 200 }) as const;

test("an endpoint has the handler of its family", () => {
  const handlers = handlersOf([{ name: "usage" }, { name: "status", handlers: { getLiveness } }]);
  assert.deepEqual(handlers, { getLiveness });
});

test("an endpoint with handlers in two families is refused, with both of them", () => {
  const families = ["status", "images"].map((name) => ({ name, handlers: { getLiveness } }));
  assert.throws(() => handlersOf(families), /^Error: getLiveness has a handler in status and in images$/);
});
