/**
 * Images are reported whole at first, then as differences, within bounds.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeImage } from "@flotilla/contract/link/link";
import { ImageReports } from "./image-report.ts";

const image = (reference: string, lastUsedAt = 0): NodeImage => ({
  reference,
  digest: `sha256:${reference}`,
  sizeBytes: 1,
  architecture: "amd64",
  os: "linux",
  layerCount: 1,
  exposedPort: null,
  lastUsedAt,
  tenantId: null,
});
const reported = (reference: string) => ({ reference, architecture: "amd64", tenantId: null });

test("the first report is complete, and the next one holds what has come and what has gone", () => {
  const reports = new ImageReports();
  const first = reports.next([image("a"), image("b")], { isComplete: false });
  assert.deepEqual(first, { sequence: 1, isComplete: true, held: [reported("a"), reported("b")], removed: [] });
  reports.accepted();
  assert.equal(reports.next([image("b"), image("a")], { isComplete: false }), null);
  const next = reports.next([image("b"), image("c")], { isComplete: false });
  assert.deepEqual(next, { sequence: 2, isComplete: false, held: [reported("c")], removed: [reported("a")] });
});

test("a report that was not accepted is repeated, and a complete one holds everything", () => {
  const reports = new ImageReports();
  reports.next([image("a")], { isComplete: true });
  assert.equal(reports.next([image("a")], { isComplete: false })?.isComplete, true);
  reports.accepted();
  reports.next([image("a"), image("b")], { isComplete: false });
  assert.deepEqual(reports.next([image("a"), image("b")], { isComplete: false })?.held, [reported("b")]);
  const complete = reports.next([image("a"), image("b")], { isComplete: true });
  assert.deepEqual([complete?.isComplete, complete?.held.length], [true, 2]);
});

test("of more images than a report holds the most recently used are in it", () => {
  const many = Array.from({ length: 5_000 }, (_, n) => image(`registry/${"x".repeat(400)}${n}`, n));
  const report = new ImageReports().next(many, { isComplete: true });
  assert.ok(JSON.stringify(report).length < 1.1 * 1024 * 1024);
  assert.ok((report?.held.length ?? 0) > 2_000 && report?.held[0]?.reference.endsWith("4999"));
});
