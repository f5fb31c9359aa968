/**
 * What the agent reports as its last error.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { makeLog } from "../log.ts";
import { LastError } from "./last-error.ts";

test("the last error that was logged is reported with its machine and its reason, also while the log is silent", () => {
  const errors = new LastError({ now: () => 7 });
  const log = makeLog({ level: "silent", clock: systemClock, onError: (message) => errors.note(message) });
  log.warn({ reason: "no" }, "only a warning");
  assert.deepEqual([errors.last], [null]);
  log.error({ error: new Error("disk full") }, "the journal could not be written");
  assert.deepEqual([errors.last], [{ at: 7, message: "the journal could not be written: disk full" }]);
  log.child({ machine: "mach-1" }).error({ reason: "no such file" }, "a machine cannot be run");
  assert.equal(errors.last?.message, "mach-1: a machine cannot be run: no such file");
});
