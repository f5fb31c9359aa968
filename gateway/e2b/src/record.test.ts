/**
 * What of a sandbox is kept in labels.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { LABEL_NAME } from "@flotilla/contract/patterns";
import { LABELS_MAX } from "@flotilla/contract/limits";
import { type Facts, factsOf, labelsOf, ttlUntil } from "./record.ts";

const facts: Facts = {
  ...{ template: "base", seed: "ab", metadata: {}, pausesAtEnd: false, resumesByTraffic: false },
  ...{ hasInternet: true, isPublic: true, keepsMemory: true, hostMask: null },
};

test("what is kept of a sandbox fits into labels, and is read back as it was", () => {
  const metadata = { sandboxTestId: "x", "a b&c": "é".repeat(400), 𝒳: "𝒳".repeat(900), nul: "\0" };
  const labels = labelsOf({ ...facts, metadata });
  assert.ok(Object.keys(labels).length <= LABELS_MAX);
  for (const [name, value] of Object.entries(labels)) {
    assert.match(name, new RegExp(LABEL_NAME));
    assert.ok(value.length <= 255 && value.isWellFormed() && !value.includes("\0"), name);
  }
  assert.deepEqual(factsOf({ labels }), { ...facts, metadata });
});

test("metadata that does not fit is refused", () => {
  assert.throws(() => labelsOf({ ...facts, metadata: { a: "x".repeat(10_000) } }), /metadata is longer/);
});

test("a machine without the labels, or with broken ones, is not a sandbox", () => {
  assert.equal(factsOf({ labels: {} }), null);
  assert.equal(factsOf({ labels: { e2b: "sandbox", "e2b.0": "{" } }), null);
});

test("a ttl reaches to the end of the time, and is never none", () => {
  const createdAt = "2026-01-01T00:00:00.000Z";
  const start = Date.parse(createdAt);
  assert.deepEqual(
    [start + 300_001, start + 1, start - 5000].map((endAt) => ttlUntil({ createdAt }, endAt)),
    [301, 1, 1],
  );
});
