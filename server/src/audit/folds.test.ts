/**
 * Which refused calls have a row in the audit log, and which are counted.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuditRecord } from "@flotilla/contract/audit";
import { CallFolds } from "./folds.ts";

const record = (fields: Partial<AuditRecord> = {}): AuditRecord => ({
  at: "2026-07-22T20:00:00.000Z",
  requestId: "req-1",
  type: "machines.startMachine",
  resource: "mach-1",
  keyId: "key-1",
  scopes: [],
  address: "127.0.0.1",
  status: 403,
  errorCode: "missing_scope",
  ...fields,
});
const END = "2026-07-22T20:01:00.000Z";

const admitted = (folds: CallFolds, count: number, fields: Partial<AuditRecord> = {}): number =>
  Array.from({ length: count }, (_, index) =>
    folds.admit("tenant-1", record({ requestId: `req-${index}`, ...fields }), "whateverNamed"),
  ).filter(Boolean).length;

test("the first calls of a kind have rows, the others one row together, and the next period begins again", () => {
  const folds = new CallFolds();
  assert.equal(admitted(folds, 200), 10);
  const [row, ...more] = folds.end(END);
  assert.deepEqual([row?.tenantId, more], ["tenant-1", []]);
  assert.deepEqual(row?.record, record({ at: END, calls: 190, requestId: "req-199" }));
  assert.deepEqual(folds.end(END), []);
  assert.equal(admitted(folds, 1), 1);
});

test("calls of another key, type, code or status are of another kind", () => {
  const folds = new CallFolds();
  for (const fields of [{}, { keyId: "key-2" }, { type: "machines.stopMachine" }, { errorCode: "x" }, { status: 402 }])
    assert.equal(admitted(folds, 10, fields), 10, JSON.stringify(fields));
  assert.deepEqual(folds.end(END), []);
});

test("calls that name something else each time are folded, and their row names nothing", () => {
  const folds = new CallFolds();
  const rows = Array.from({ length: 30 }, (_, index) =>
    folds.admit(null, record({ resource: `mach-${index}` }), "whateverNamed"),
  );
  assert.equal(rows.filter(Boolean).length, 10);
  const [row] = folds.end(END);
  assert.deepEqual([row?.record.resource, row?.record.calls], [null, 20]);
});

test("calls that may have had an effect are folded for each thing that they name, which the row names too", () => {
  const folds = new CallFolds();
  const named = (resource: string, count: number): number =>
    Array.from({ length: count }, () => folds.admit(null, record({ resource, status: 503 }), "sameNamed")).filter(
      Boolean,
    ).length;
  assert.equal(named("mach-decoy", 12), 10);
  assert.equal(named("mach-hidden", 1), 1, "a flood with one name hides no call with another");
  assert.equal(named("mach-hidden", 11), 9);
  assert.deepEqual(
    folds.end(END).map((row) => [row.record.resource, row.record.calls]),
    [
      ["mach-decoy", 2],
      ["mach-hidden", 2],
    ],
  );
});

test("when there are too many kinds, further calls have a row each", () => {
  const folds = new CallFolds();
  for (let key = 0; key < 10_000; key += 1)
    assert.ok(folds.admit(null, record({ keyId: `key-${key}` }), "whateverNamed"));
  assert.equal(admitted(folds, 50, { keyId: "another" }), 50);
});
