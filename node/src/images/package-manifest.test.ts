/**
 * Manifests of packages: the same machine gives the same bytes, they are read as they were written, and other
 * manifests are refused with what they are.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseConfig, parseManifest } from "./manifest.ts";
import {
  PACKAGE_TYPE,
  type PackageFacts,
  type PackageLayer,
  renderPackageConfig,
  renderPackageManifest,
} from "./package-manifest.ts";

const digest = (digit: string): string => `sha256:${digit.repeat(64)}`;
const FACTS: PackageFacts = {
  diskBytes: 2 ** 30,
  usedBytes: 12_345_344,
  architecture: "amd64",
  machineId: `mach-${"a".repeat(32)}`,
  image: { reference: "docker.io/library/alpine:3", digest: digest("9") },
};
const LAYERS: readonly PackageLayer[] = ["1", "2"].map((digit) => ({
  digest: digest(digit),
  size: 1000,
  diffId: digest(digit === "1" ? "3" : "4"),
}));
const CONFIGURATION = { env: ["A=b"], workdir: "/srv", user: "web", entrypoint: ["/in"], command: ["run"] };
const SETTINGS = { configuration: CONFIGURATION, ports: [8080, 80], labels: { b: "2", a: "1" } };
const CONFIG = { digest: digest("5"), size: 100 };

const manifestOf = (change: object = {}): Buffer =>
  Buffer.from(
    JSON.stringify({
      ...(JSON.parse(renderPackageManifest(FACTS, CONFIG, LAYERS).toString()) as object),
      ...change,
    }),
  );
const annotated = (change: object): Buffer => {
  const { annotations } = JSON.parse(manifestOf().toString()) as { readonly annotations: object };
  return manifestOf({ annotations: { ...annotations, ...change } });
};

test("a manifest is read as it was written", () => {
  const manifest = parseManifest(renderPackageManifest(FACTS, CONFIG, LAYERS), null);
  assert.ok(manifest.kind === "image");
  assert.deepEqual(manifest.disk, { diskBytes: FACTS.diskBytes, usedBytes: FACTS.usedBytes });
  assert.deepEqual(
    manifest.layers.map((layer) => layer.digest),
    LAYERS.map((layer) => layer.digest),
  );
  const config = parseConfig(renderPackageConfig(FACTS, SETTINGS, LAYERS));
  const diffIds = LAYERS.map(({ diffId }) => diffId);
  assert.deepEqual(config, {
    architecture: "amd64",
    os: "linux",
    diffIds,
    exposedPort: 80,
    configuration: CONFIGURATION,
  });
});

test("the order in which ports and labels are given changes no byte", () => {
  const other = { ...SETTINGS, ports: [80, 8080], labels: { a: "1", b: "2" } };
  assert.deepEqual(renderPackageConfig(FACTS, other, LAYERS), renderPackageConfig(FACTS, SETTINGS, LAYERS));
});

test("a manifest of as many layers as there may be stays below 1 MiB", () => {
  const layers = Array.from({ length: 512 }, () => ({ digest: digest("f"), size: 2 ** 40, diffId: digest("e") }));
  assert.ok(renderPackageManifest(FACTS, CONFIG, layers).byteLength < 2 ** 20);
});

test("a package without the size of its disk, or with one that no disk has, is refused", () => {
  for (const value of [undefined, "", "0", "4097", "-4096", "1e9", 4096, `${2 ** 50}`, "9".repeat(40)])
    assert.throws(() => parseManifest(annotated({ "dev.flotilla.disk-bytes": value }), null), /no size of a disk/);
  assert.throws(() => parseManifest(manifestOf({ annotations: null }), null), /no annotations/);
});

test("the used bytes are never more than the disk", () => {
  const used = (value: unknown) => {
    const manifest = parseManifest(annotated({ "dev.flotilla.used-bytes": value }), null);
    return manifest.kind === "image" ? manifest.disk?.usedBytes : undefined;
  };
  assert.equal(used("999999999999999"), FACTS.diskBytes);
  assert.equal(used("many"), null);
});

test("layers of files in a package, and of disks in an image, are refused", () => {
  const tar = { mediaType: "application/vnd.oci.image.layer.v1.tar+zstd", digest: digest("1"), size: 1 };
  assert.throws(() => parseManifest(manifestOf({ layers: [tar] }), null), /one of its layers is of type .*tar/);
  assert.throws(() => parseManifest(manifestOf({ artifactType: undefined }), null), /of type .*vnd.flotilla.disk/);
  assert.throws(() => parseManifest(manifestOf({ layers: Array.from({ length: 513 }, () => tar) }), null), /512/);
});

test("an artifact of another program is refused with what it is and what to use", () => {
  const other = { artifactType: "application/vnd.smolmachines.smolmachine.v1" };
  assert.throws(() => parseManifest(manifestOf(other), null), /\.smolmachine of another program.*container image/);
  const config = { mediaType: "application/vnd.smolmachines.machine.config.v1+json", digest: digest("1"), size: 2 };
  assert.throws(() => parseManifest(manifestOf({ artifactType: PACKAGE_TYPE, config }), null), /another program/);
});

test("a manifest of 5 MB is refused unread", () => {
  const large = manifestOf({ annotations: { "dev.flotilla.disk-bytes": "4096", x: "y".repeat(5_000_000) } });
  assert.throws(() => parseManifest(large, null), /its manifest is larger than 4194304 bytes/);
});
