/**
 * The interfaces of VMMs in the kernel's list.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { tapsIn } from "./taps.ts";

const HEAD = "Inter-|   Receive\n face |bytes    packets\n";

test("only machines' interfaces are found in the kernel's list", () => {
  assert.deepEqual(tapsIn(`${HEAD}    lo:  1 2\n  tap0: 0 0\n   up0: 5 5\n`), ["tap0"]);
  assert.deepEqual(tapsIn(`${HEAD}  tap2: 0 0\n  tap0:12 0\n tap10: 0 0\n`), ["tap2", "tap0"]);
});
