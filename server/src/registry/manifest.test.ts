/**
 * Which manifests are accepted, whatever is put.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isDigest } from "@flotilla/contract/reference";
import { readManifest } from "./manifest.ts";

const DIGEST = `sha256:${"ab".repeat(32)}`;
const TYPE = "application/vnd.oci.image.manifest.v1+json";
const part = { digest: DIGEST, size: 5 };
const read = (value: unknown, type: string | undefined = TYPE) =>
  readManifest(Buffer.from(JSON.stringify(value)), type);

test("an image names each blob once", () => {
  const { blobs, children, mediaType } = read({ schemaVersion: 2, config: part, layers: [part, part] });
  assert.deepEqual([blobs, children, mediaType], [[{ digest: DIGEST, bytes: 5 }], [], TYPE]);
});

test("what is elsewhere, not of a known type, or says two things is refused", () => {
  for (const [value, type, why] of [
    [{ schemaVersion: 2, config: part, layers: [{ ...part, urls: ["https://x"] }] }, TYPE, /elsewhere/],
    [{ schemaVersion: 1, config: part, layers: [] }, TYPE, /schemaVersion/],
    [{ schemaVersion: 2, config: part, layers: [] }, "text/html", /type/],
    [{ schemaVersion: 2, mediaType: "application/x", config: part, layers: [] }, TYPE, /says that it is/],
    [{ schemaVersion: 2, config: part, layers: Array.from({ length: 9_000 }, () => part) }, TYPE, /more than/],
    [{ schemaVersion: 2, config: part, layers: [{ ...part, size: -1 }] }, TYPE, /number of bytes/],
    [{ schemaVersion: 2, config: { ...part, digest: "sha512:ab" }, layers: [] }, TYPE, /sha256/],
  ] as const)
    assert.throws(() => read(value, type), why);
});

test("a manifest is refused with an error, or names digests and sizes only, whatever it is", () => {
  const anything = fc.anything({ withNullPrototype: false, maxDepth: 3 });
  const some = fc.record({
    schemaVersion: fc.constantFrom(2, 1, "2"),
    config: fc.oneof(fc.constant(part), anything),
    layers: fc.oneof(fc.array(fc.oneof(fc.constant(part), anything), { maxLength: 4 }), anything),
    artifactType: anything,
    annotations: anything,
  });
  fc.assert(
    fc.property(some, (value) => {
      let text: string | undefined;
      try {
        text = JSON.stringify(value);
      } catch {
        return true;
      }
      try {
        const { blobs } = readManifest(Buffer.from(text ?? ""), TYPE);
        return blobs.every(({ digest, bytes }) => isDigest(digest) && Number.isSafeInteger(bytes) && bytes >= 0);
      } catch (error) {
        return error instanceof Error && !(error instanceof TypeError);
      }
    }),
    { numRuns: 1_000 },
  );
});
