/**
 * Answers of registries to a push, and what follows from each.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { locationIn, meaningOf, offsetIn, type RegistryAnswer } from "./registry-answer.ts";

const NOW = Date.parse("2026-01-01T00:00:00Z");
const BLOB = `sha256:${"a".repeat(64)}`;
const answer = (status: number, errors: readonly object[] = [], retryAfter: string | null = null): RegistryAnswer => ({
  status,
  retryAfter,
  body: JSON.stringify({ errors }),
});
const ofUpload = (asked: RegistryAnswer) => meaningOf(asked, false, NOW);
const ofManifest = (asked: RegistryAnswer) => meaningOf(asked, true, NOW);

test("a busy registry is waited for as long as it says, and never longer than a minute", () => {
  assert.deepEqual(ofUpload(answer(429, [], "7")), { kind: "wait", ms: 7_000 });
  assert.deepEqual(ofUpload(answer(503, [], "999999")), { kind: "wait", ms: 60_000 });
  assert.deepEqual(ofUpload(answer(503, [], "Thu, 01 Jan 2026 00:00:05 GMT")), { kind: "wait", ms: 5_000 });
  assert.deepEqual(ofUpload(answer(429, [], "Mon, 01 Jan 2001 00:00:00 GMT")), { kind: "wait", ms: 0 });
  for (const text of ["soon", "-1", ""]) assert.deepEqual(ofUpload(answer(429, [], text)).kind, "wait");
  assert.deepEqual(ofUpload(answer(500)), { kind: "wait", ms: null });
});

test("a wrong range asks for the offset, and an upload that is gone begins again", () => {
  assert.deepEqual(ofUpload(answer(416)), { kind: "offset" });
  assert.deepEqual(ofUpload(answer(400, [{ code: "RANGE_INVALID" }])), { kind: "offset" });
  assert.deepEqual(ofUpload(answer(404, [{ code: "BLOB_UPLOAD_UNKNOWN" }])), { kind: "begin" });
  assert.deepEqual(ofUpload(answer(400, [{ code: "DIGEST_INVALID" }])), { kind: "begin" });
});

test("a manifest with a lost blob names it, in either form", () => {
  for (const detail of [BLOB, { digest: BLOB }])
    assert.deepEqual(ofManifest(answer(404, [{ code: "MANIFEST_BLOB_UNKNOWN", detail }])), {
      kind: "unknown-blobs",
      digests: [BLOB],
    });
  assert.deepEqual(ofManifest(answer(400, [{ code: "BLOB_UNKNOWN", detail: "../../etc" }])), {
    kind: "unknown-blobs",
    digests: [],
  });
});

test("a refusal is final, with the registry's reason without what a terminal would run", () => {
  const message = `quota\u001b[2J of 50 GB is used ${"x".repeat(1000)}`;
  const refused = ofUpload(answer(403, [{ code: "DENIED", message }]));
  assert.ok(refused.kind === "refused");
  assert.match(refused.text, /^the registry refuses it \(403\): quota \[2J of 50 GB is used x+$/);
  assert.ok(refused.text.length < 400);
  for (const status of [401, 405, 413, 507]) assert.equal(ofUpload(answer(status)).kind, "refused");
  for (const body of ["", "null", "{", '{"errors":5}', '{"errors":[null,1]}'])
    assert.equal(meaningOf({ status: 403, retryAfter: null, body }, false, NOW).kind, "refused");
});

test("an upload's offset follows its last byte; an empty one is at 0", () => {
  assert.equal(offsetIn("0-0"), 0);
  assert.equal(offsetIn("0-1023"), 1024);
  assert.equal(offsetIn("bytes=0-9"), 10);
  for (const range of [null, "", "5-9", "0-", "0--1", "0-99999999999999999"]) assert.equal(offsetIn(range), null);
});

test("a location is taken without its host, and only below /v2/", () => {
  const base = "/v2/tenants/t/web/blobs/uploads/";
  assert.equal(locationIn("https://elsewhere/v2/a/blobs/uploads/1?_state=x", base), "/v2/a/blobs/uploads/1?_state=x");
  assert.equal(locationIn("/v2/a/blobs/uploads/1", base), "/v2/a/blobs/uploads/1");
  assert.equal(locationIn("1?_state=y", base), `${base}1?_state=y`);
  for (const location of [undefined, "http://", "/v1/machines", "/v2/../v1/machines", "x".repeat(9000)])
    assert.equal(locationIn(location, base)?.startsWith("/v1") ?? null, null);
});
