/**
 * How image references are read: the forms that container engines accept, and what is refused.
 */
import assert from "node:assert/strict";
import { it } from "node:test";
import fc from "fast-check";
import {
  canonicalReference,
  isTag,
  OWN_REGISTRY,
  parsePackageReference,
  parseReference,
  parseRepository,
} from "./reference.ts";

const DIGEST = `sha256:${"0123456789abcdef".repeat(4)}`;

const FORMS: Readonly<Record<string, string>> = {
  alpine: "docker.io/library/alpine:latest",
  "alpine:3.20": "docker.io/library/alpine:3.20",
  "library/alpine": "docker.io/library/alpine:latest",
  "docker.io/alpine": "docker.io/library/alpine:latest",
  "docker.io/library/alpine:latest": "docker.io/library/alpine:latest",
  "index.docker.io/library/alpine": "docker.io/library/alpine:latest",
  "registry-1.docker.io/team/app": "docker.io/team/app:latest",
  "team/app": "docker.io/team/app:latest",
  "localhost/app": "localhost/app:latest",
  "localhost:5000/app:v1": "localhost:5000/app:v1",
  "127.0.0.1:5000/team/sub/app:v2": "127.0.0.1:5000/team/sub/app:v2",
  "[::1]:5000/app": "[::1]:5000/app:latest",
  "ghcr.io/team/app__x-y.z": "ghcr.io/team/app__x-y.z:latest",
  "GHCR.io/team/app": "ghcr.io/team/app:latest",
  [`alpine@${DIGEST}`]: `docker.io/library/alpine@${DIGEST}`,
  [`alpine:3.20@${DIGEST}`]: `docker.io/library/alpine@${DIGEST}`,
  "local/busybox": "local/busybox:latest",
  "local/team/app:v1": "local/team/app:v1",
};

for (const [text, name] of Object.entries(FORMS))
  it(`${text.slice(0, 40)} means ${name.slice(0, 60)}`, () => assert.equal(parseReference(text).name, name));

const REFUSED: readonly (readonly [string, RegExp])[] = [
  ["", /it is empty/],
  ["https://ghcr.io/team/app", /leave out/],
  ["docker://alpine", /leave out/],
  ["Alpine", /lower-case/],
  ["alpine:", /tag/],
  ["alpine:a b", /white space/],
  ["alpine@sha256:123", /sha256/],
  [`alpine@${DIGEST.toUpperCase()}`, /sha256/],
  ["alpine@sha512:00", /sha256/],
  ["../../etc/passwd", /./],
  ["local/../x", /lower-case/],
  ["ghcr.io/", /lower-case/],
  ["ghcr.io:99999/app", /host and port/],
  ["-bad.io/app", /host and port/],
  ["user@ghcr.io/app", /sha256/],
  ["a//b", /lower-case/],
  ["alpine\n", /white space/],
  [`${"a/".repeat(200)}a`, /longer/],
  ["a".repeat(600), /longer/],
  [`local/x@${DIGEST}`, /no digest/],
];

for (const [text, why] of REFUSED)
  it(`${JSON.stringify(text.slice(0, 40))} is refused with a reason`, () => {
    assert.throws(() => parseReference(text), why);
    assert.throws(() => parseReference(text), /^Error: image reference /);
  });

it("the tag of a local image is kept, and the image is never requested from a registry", () => {
  const reference = parseReference("local/python:3");
  assert.deepEqual([reference.isLocal, reference.repository, reference.target], [true, "python", "3"]);
});

it("a canonical name is read as the same name again", () => {
  const text = fc.string({ unit: fc.constantFrom(..."ab0._-/:@[]AZ"), maxLength: 40 });
  fc.assert(
    fc.property(text, (value) => {
      let name: string;
      try {
        name = parseReference(value).name;
      } catch {
        return;
      }
      assert.equal(parseReference(name).name, name);
    }),
    { numRuns: 5000 },
  );
});

it("stored text that is not a reference is compared unchanged", () => {
  assert.equal(canonicalReference("index.docker.io/Alpine"), "index.docker.io/Alpine");
  assert.equal(canonicalReference("index.docker.io/alpine"), "docker.io/library/alpine:latest");
});

it("a password in a reference is not repeated by its refusal", () => {
  for (const text of [
    "sailor:mainsail@ghcr.io/a",
    "https://sailor:mainsail@ghcr.io/a",
    `sailor:mainsail@ghcr.io/a@${DIGEST}`,
    `sailor:main/mainsail@127.0.0.1:5000/a`,
  ])
    assert.throws(
      () => parseReference(text),
      (error: Error) => /image reference/.test(error.message) && !/mainsail/.test(error.message),
    );
});

const own = (repository: string, tag: string | null, digest: string | null = null) => ({
  ...{ kind: "own", repository, tag, digest },
  target: digest ?? tag ?? "",
});

const PACKAGES: Readonly<Record<string, ReturnType<typeof own>>> = {
  web: own("tenants/tenant-1/web", "latest"),
  "web:v1": own("tenants/tenant-1/web", "v1"),
  "team/web:v1": own("tenants/tenant-1/team/web", "v1"),
  [`web@${DIGEST}`]: own("tenants/tenant-1/web", null, DIGEST),
  [`web:v1@${DIGEST}`]: own("tenants/tenant-1/web", "v1", DIGEST),
  "library/base": own("library/base", "latest"),
  "library/os/base:12": own("library/os/base", "12"),
  "tenants/tenant-2/web:v1": own("tenants/tenant-2/web", "v1"),
  [`${OWN_REGISTRY}/tenants/t/web@${DIGEST}`]: own("tenants/t/web", null, DIGEST),
  [`${OWN_REGISTRY}/library/base:12`]: own("library/base", "12"),
};

for (const [text, expected] of Object.entries(PACKAGES))
  it(`package ${text.slice(0, 40)} is in ${expected.repository}`, () =>
    assert.deepEqual(parsePackageReference(text, "tenant-1"), expected));

it("a package reference with a registry is an image reference of that registry", () => {
  for (const text of ["ghcr.io/team/web:v1", "localhost/web", "127.0.0.1:5000/web", "local/web", "[::1]:5000/web"])
    assert.deepEqual(parsePackageReference(text, "tenant-1"), { kind: "foreign", reference: parseReference(text) });
});

it("package references that name no repository are refused with the reason", () => {
  const refused: readonly (readonly [string, RegExp])[] = [
    ["", /it is empty/],
    ["Web", /lower-case/],
    ["web:", /tag/],
    ["web@sha256:1", /sha256/],
    [`web@${DIGEST}@${DIGEST}`, /sha256/],
    ["tenants/tenant-2", /names no repository/],
    ["library/", /names no repository/],
    ["../tenant-2/web", /not valid/],
    ["web/../../tenant-2/web", /lower-case/],
    [`${OWN_REGISTRY}/web`, /names no repository/],
    ["a".repeat(600), /longer/],
    ["a".repeat(250), /lower-case/],
  ];
  for (const [text, why] of refused) assert.throws(() => parsePackageReference(text, "tenant-1"), why, text);
});

it("a repository is a tenant's or of the library", () => {
  assert.deepEqual(parseRepository("tenants/t-1/team/web"), { tenantId: "t-1", name: "team/web" });
  assert.deepEqual(parseRepository("library/web"), { tenantId: null, name: "web" });
  for (const text of [
    "",
    "web",
    "library",
    "tenants/t",
    "tenants//web",
    "library/Web",
    "library/web/",
    "tenants/T/web",
  ])
    assert.equal(parseRepository(text), null, text);
});

it("a package reference never leaves the repositories that exist, whatever is sent", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 60 }), (text) => {
      let read: ReturnType<typeof parsePackageReference>;
      try {
        read = parsePackageReference(text, "tenant-1");
      } catch (error) {
        return error instanceof Error && error.message.includes("reference");
      }
      if (read.kind === "foreign") return read.reference.registry !== OWN_REGISTRY;
      return parseRepository(read.repository) !== null && (read.tag === null || isTag(read.tag));
    }),
  );
});
