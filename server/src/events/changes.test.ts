/**
 * Which changes a look finds.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ChangeWatch } from "./changes.ts";

test("a look finds what is new, what differs and which node is gone, and the first one finds nothing", () => {
  const watch = new ChangeWatch();
  const op = (id: string, mark: string) => ({ kind: "operation", id, mark }) as const;
  const node = (id: string, mark: string) => ({ kind: "node", id, mark }) as const;
  assert.deepEqual(watch.look([op("op-1", "a"), node("n-1", "ready"), node("n-2", "ready")]), []);
  assert.deepEqual(watch.look([op("op-1", "a"), node("n-1", "ready"), node("n-2", "ready")]), []);
  assert.deepEqual(
    watch.look([op("op-1", "b"), op("op-2", "a"), node("n-1", "draining"), { kind: "audit", id: "ten-1", mark: "1" }]),
    [
      { kind: "operation", id: "op-1" },
      { kind: "operation", id: "op-2" },
      { kind: "node", id: "n-1" },
      { kind: "audit", id: null },
      { kind: "node", id: "n-2" },
    ],
  );
  assert.deepEqual(watch.look([node("n-1", "draining")]), [], "an operation that ended long ago is not a change");
});
