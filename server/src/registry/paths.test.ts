/**
 * How paths, ranges and scopes of the registry are read.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isDigest, isTag, parseRepository } from "@flotilla/contract/reference";
import { OciError } from "./oci-error.ts";
import { isForRegistry, rangeOf, routeOf, scopesOf } from "./paths.ts";

const DIGEST = `sha256:${"ab".repeat(32)}`;

test("paths are routed by their end, whatever the repository is called", () => {
  const kinds = (method: string, url: string) => routeOf(method, url).kind;
  assert.equal(kinds("GET", "/v2/"), "version");
  assert.equal(kinds("GET", "/v2/auth?service=x"), "token");
  assert.equal(kinds("GET", "/v2/_catalog"), "catalog");
  assert.equal(kinds("HEAD", "/v2/library/manifests/manifests/v1"), "readManifest");
  assert.equal(kinds("PUT", `/v2/library/tags/list/manifests/${DIGEST}`), "putManifest");
  assert.equal(kinds("GET", `/v2/library/x/blobs/${encodeURIComponent(DIGEST)}`), "readBlob");
  assert.equal(kinds("POST", "/v2/tenants/t/blobs/uploads/blobs/uploads/?mount=x"), "beginUpload");
  assert.equal(kinds("POST", "/v2/library/x/blobs/uploads"), "beginUpload");
  assert.equal(kinds("PATCH", `/v2/library/x/blobs/uploads/${"0".repeat(32)}`), "appendUpload");
  assert.equal(kinds("GET", "/v2/library/x/tags/list?n=1"), "listTags");
});

test("only paths below /v2 are the registry's", () => {
  for (const url of ["/v2", "/v2/", "/v2?x", "/v2/x"]) assert.ok(isForRegistry(url), url);
  for (const url of ["/v1/machines", "/v20", "/", "", "/v2x/", "//v2/"]) assert.ok(!isForRegistry(url), url);
});

test("whatever is asked, a route names only what can exist", () => {
  const pieces = fc.constantFrom(
    "v2",
    "tenants",
    "library",
    "t",
    "..",
    "%2e",
    "manifests",
    "blobs",
    "uploads",
    "tags",
    "list",
    DIGEST,
    "A",
    "",
  );
  const paths = fc.array(pieces, { maxLength: 9 }).map((parts) => `/${parts.join("/")}`);
  const methods = fc.constantFrom("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "TRACE");
  fc.assert(
    fc.property(methods, fc.oneof(paths, fc.webUrl(), fc.string({ unit: "binary" })), (method, url) => {
      try {
        const route = routeOf(method, url);
        if (!("repository" in route)) return true;
        if (parseRepository(route.repository) === null) return false;
        if ("target" in route && !("tag" in route.target ? isTag(route.target.tag) : isDigest(route.target.digest)))
          return false;
        return !("digest" in route) || isDigest(route.digest);
      } catch (error) {
        return error instanceof OciError;
      }
    }),
    { numRuns: 2_000 },
  );
});

test("ranges of parts are inclusive numbers in order", () => {
  assert.equal(rangeOf(undefined), null);
  for (const text of ["0-9", "bytes 0-9", "bytes=0-9", "bytes 0-9/10", " 0-9 "])
    assert.deepEqual(rangeOf(text), { start: 0, end: 9 });
  for (const text of ["", "9-0", "-9", "0-", "a-b", "0-9,20-30", `0-${"9".repeat(20)}`])
    assert.throws(() => rangeOf(text), text);
});

test("scopes are read as clients send them, and bounded", () => {
  const scopes = (...texts: readonly string[]) =>
    scopesOf(new URLSearchParams(texts.map((text): [string, string] => ["scope", text])));
  assert.deepEqual(scopes("repository:library/x:pull,push repository:library/y:*"), [
    { repository: "library/x", actions: ["pull", "push"] },
    { repository: "library/y", actions: ["pull", "push", "delete"] },
  ]);
  assert.deepEqual(scopes("repository:library/x:pull", "repository:library/x:push,evil"), [
    { repository: "library/x", actions: ["pull", "push"] },
  ]);
  assert.deepEqual(scopes("registry:catalog:*", "repository:../x:pull", "", "repository::pull"), []);
  const many = Array.from({ length: 100 }, (_, index) => `repository:library/x${index}:pull`);
  assert.equal(scopes(...many).length, 32);
});
