/**
 * The texts of an upgrade of VMMs.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type ReplacedMachine, vmmProgressText, vmmResultText } from "./vmm-texts.ts";

const replaced = (machineId: string, pauseMs: number | null): ReplacedMachine => ({
  machineId,
  kind: "replaced",
  pauseMs,
});
const left = (machineId: string, reason: string): ReplacedMachine => ({ machineId, kind: "left", reason });

test("a result has the pauses, the restarts, and each machine that was left with its reason", () => {
  const text = vmmResultText([
    replaced("a", 40),
    replaced("b", 90),
    replaced("c", 60),
    replaced("d", null),
    left("e", "no room"),
    left("f", "no room"),
    left("g", "it moves"),
    { machineId: "h", kind: "done" },
  ]);
  assert.equal(
    text,
    "3 machines got a new VMM while running, paused for 60 ms in the middle and 90 ms at most; 1 machine restarted; " +
      "3 machines left in the old VMM: e, f (no room); g (it moves)",
  );
});

test("a node without outdated VMMs has nothing to report", () => {
  assert.equal(vmmResultText([]), "all machines run in VMMs of the installed program");
  assert.equal(vmmResultText([{ machineId: "h", kind: "done" }]), "all machines run in VMMs of the installed program");
});

test("progress counts those that were left", () => {
  assert.equal(vmmProgressText([replaced("a", 1)], 2), "1 of 2 machines");
  assert.equal(vmmProgressText([replaced("a", 1), left("b", "x")], 2), "2 of 2 machines, 1 left as they were");
});
