/**
 * The record of durations keeps the last one of each file that exists, rounded and in order.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { recordDurations, recordedDurations } from "./durations.ts";

const root = mkdtempSync(path.join(tmpdir(), "flotilla-durations-"));
after(() => rmSync(root, { recursive: true }));
const record = path.join(root, "record.json");
for (const file of ["x.test.ts", "y.test.ts"]) writeFileSync(path.join(root, file), "");
const write = (durations: Readonly<Record<string, { ms: number; cpuMs: number }>>): void =>
  recordDurations(new Map(Object.entries(durations)), { record, root });

test("what was recorded last of a file is read, and a host without a record has none", () => {
  assert.deepEqual([...recordedDurations(record)], []);
  write({ "y.test.ts": { ms: 20_000, cpuMs: 30_000 }, "x.test.ts": { ms: 1, cpuMs: 5 } });
  write({ "x.test.ts": { ms: 123_456, cpuMs: 5_432 } });
  assert.deepEqual(
    [...recordedDurations(record)],
    [
      ["x.test.ts", { ms: 120_000, cpuMs: 5_400 }],
      ["y.test.ts", { ms: 20_000, cpuMs: 30_000 }],
    ],
  );
});

test("each file that exists has a line", () => {
  write({ "gone.test.ts": { ms: 1000, cpuMs: 1000 }, "x.test.ts": { ms: 8, cpuMs: 8 } });
  assert.equal(
    readFileSync(record, "utf8"),
    '{\n  "x.test.ts": { "seconds": 0.1, "cpuSeconds": 0.1 },\n  "y.test.ts": { "seconds": 20, "cpuSeconds": 30 }\n}\n',
  );
});
