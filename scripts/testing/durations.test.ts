/**
 * The record of durations keeps the last one of each file.
 */
import assert from "node:assert/strict";
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { recordDuration, recordedDurations } from "./durations.ts";

const folder = mkdtempSync(path.join(tmpdir(), "flotilla-durations-"));
after(() => rmSync(folder, { recursive: true }));

test("what was recorded last of a file is read, and a host without a record has none", () => {
  const record = path.join(folder, "a/record");
  assert.deepEqual([...recordedDurations(record)], []);
  recordDuration("x.test.ts", { ms: 10.4, cpuMs: 5 }, record);
  recordDuration("y.test.ts", { ms: 20, cpuMs: 30 }, record);
  recordDuration("x.test.ts", { ms: 40, cpuMs: 50 }, record);
  assert.deepEqual(
    [...recordedDurations(record)],
    [
      ["x.test.ts", { ms: 40, cpuMs: 50 }],
      ["y.test.ts", { ms: 20, cpuMs: 30 }],
    ],
  );
});

test("a line that was cut off counts as none, and a long record is shortened to a line for each file", () => {
  const record = path.join(folder, "record");
  appendFileSync(record, `${"x.test.ts 10 5\n".repeat(20_000)}y.test.ts 1 1\nz.tes`);
  assert.deepEqual([...recordedDurations(record).keys()], ["x.test.ts", "y.test.ts"]);
  assert.equal(readFileSync(record, "utf8"), "x.test.ts 10 5\ny.test.ts 1 1\n");
});
