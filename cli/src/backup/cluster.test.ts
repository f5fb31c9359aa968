/**
 * Which cluster a backup may save: every combination of what names one.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Answered, clusterToSave } from "./cluster.ts";

const ANY = { cluster: undefined };
const ONLY = { cluster: "c" };

/** What names it → the outcome when a server answers, and when none does. */
const TABLE = {
  "--data-dir": [ANY, ANY],
  "--data-dir and an address": [ANY, ANY],
  "--data-dir and a place": [ANY, ANY],
  "--data-dir, a place and an address": [ANY, ANY],
  "a place": [ANY, ANY],
  "a place and an address": [ONLY, ANY],
  "an address": [ONLY, "unknown"],
  nothing: [ONLY, ANY],
} as const;

for (const [what, [answered, silent]] of Object.entries(TABLE)) {
  test(`a backup with ${what} saves what was named`, async () => {
    const outcomeOf = (answer: Answered) =>
      clusterToSave({
        isDirectoryGiven: what.includes("--data-dir"),
        isPlaceNamed: what.includes("a place"),
        isUrlNamed: what.includes("an address"),
        ask: () => Promise.resolve(answer),
      });
    assert.deepEqual([await outcomeOf("c"), await outcomeOf(null)], [answered, silent]);
  });
}
