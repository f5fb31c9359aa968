/**
 * Manifests and configs, valid and invalid.
 */
import assert from "node:assert/strict";
import { it } from "node:test";
import { choosePlatform, parseConfig, parseManifest, renderConfig } from "./manifest.ts";

const DIGEST = `sha256:${"ab".repeat(32)}`;
const OCI = "application/vnd.oci.image";
const CONFIG = { mediaType: `${OCI}.config.v1+json`, digest: DIGEST, size: 10 };
const LAYER = { mediaType: `${OCI}.layer.v1.tar+gzip`, digest: DIGEST, size: 20 };

const manifest = (change: object) =>
  parseManifest(Buffer.from(JSON.stringify({ schemaVersion: 2, config: CONFIG, layers: [LAYER], ...change })), null);
const config = (change: object) =>
  parseConfig(
    Buffer.from(
      JSON.stringify({ architecture: "amd64", os: "linux", rootfs: { type: "layers", diff_ids: [DIGEST] }, ...change }),
    ),
  );

it("an OCI manifest and a docker manifest give the same result", () => {
  const docker = "application/vnd.docker";
  const read = manifest({
    config: { ...CONFIG, mediaType: `${docker}.container.image.v1+json` },
    layers: [{ ...LAYER, mediaType: `${docker}.image.rootfs.diff.tar.gzip` }],
  });
  assert.equal(read.kind === "image" && read.layers.length, 1);
  assert.equal(manifest({}).kind, "image");
});

const BAD_MANIFESTS: readonly (readonly [string, object, RegExp])[] = [
  ["the old schema", { schemaVersion: 1 }, /schema 1/],
  ["no schema", { schemaVersion: undefined }, /schemaVersion/],
  [
    "a chart instead of an image",
    { config: { ...CONFIG, mediaType: "application/vnd.cncf.helm.config.v1+json" } },
    /helm/,
  ],
  ["an encrypted layer", { layers: [{ ...LAYER, mediaType: `${OCI}.layer.v1.tar+gzip+encrypted` }] }, /encrypted/],
  ["too many layers", { layers: Array.from({ length: 513 }, () => LAYER) }, /512/],
  ["layers that are not a list", { layers: { length: 1 } }, /layers is missing/],
  ["a digest of another kind", { layers: [{ ...LAYER, digest: "sha512:00" }] }, /sha256/],
  ["a digest that is a path", { layers: [{ ...LAYER, digest: "sha256:../../../etc/passwd" }] }, /sha256/],
  ["a negative size", { layers: [{ ...LAYER, size: -1 }] }, /size/],
  ["a size that is not a number", { layers: [{ ...LAYER, size: "20" }] }, /size/],
  ["a config of many MiB", { config: { ...CONFIG, size: 2 ** 30 } }, /larger/],
];
for (const [what, change, why] of BAD_MANIFESTS)
  it(`a manifest with ${what} is refused`, () => assert.throws(() => manifest(change), why));

it("anything but a JSON object is refused", () => {
  for (const text of ["", "null", "[]", "{", "1"]) assert.throws(() => parseManifest(Buffer.from(text), null), /JSON/);
});

it("an error about a missing platform lists the available ones", () => {
  const entry = (os: string, architecture: string) => ({ ...LAYER, os, architecture, variant: null });
  const entries = [entry("linux", "arm64"), entry("windows", "amd64"), entry("unknown", "unknown")];
  assert.equal(choosePlatform(entries, "arm64").architecture, "arm64");
  assert.throws(
    () => choosePlatform(entries, "amd64"),
    /no variant for linux\/amd64; it has linux\/arm64, windows\/amd64$/,
  );
  assert.throws(() => choosePlatform([], "amd64"), /no platform/);
});

it("the only image of a list need not name its platform", () => {
  const image = { ...LAYER, os: null, architecture: null, variant: null };
  assert.equal(choosePlatform([image], "amd64"), image);
  assert.throws(() => choosePlatform([image, image], "amd64"), /no platform/);
});

it("of several variants of an architecture the one is chosen that the most processors can run", () => {
  const chosen = (architecture: string, variants: readonly (string | null)[]) =>
    choosePlatform(
      variants.map((variant) => ({ ...LAYER, os: "linux", architecture, variant })),
      architecture,
    ).variant;
  assert.equal(chosen("amd64", ["v3", "v2", null]), null);
  assert.equal(chosen("amd64", ["v4", "v3", "odd"]), "v3");
  assert.equal(chosen("amd64", ["v2", "v1"]), "v1");
  assert.equal(chosen("arm64", ["v9", "v8", null]), "v8");
  assert.equal(chosen("arm64", ["v9.2"]), "v9.2");
});

it("absent fields of a config become empty values", () => {
  assert.deepEqual(config({}).configuration, { env: [], workdir: "/", user: "", entrypoint: [], command: [] });
  assert.equal(config({}).exposedPort, null);
  const full = config({
    config: {
      ...{ Env: ["A=b=c", "no value", "=x"], WorkingDir: "srv", User: "1000:1000", Entrypoint: ["/e"], Cmd: null },
      ExposedPorts: { "443/tcp": {}, "80": {}, "53/udp": {}, "8000-8010/tcp": {}, "0/tcp": {}, "99999": {}, web: {} },
    },
  });
  assert.equal(full.exposedPort, 80);
  assert.deepEqual(full.configuration, {
    env: ["A=b=c"],
    workdir: "/srv",
    user: "1000:1000",
    entrypoint: ["/e"],
    command: [],
  });
  assert.deepEqual(parseConfig(renderConfig(full)), full);
});

const BAD_CONFIGS: readonly (readonly [string, object, RegExp])[] = [
  ["another system", { os: "windows" }, /windows/],
  ["an architecture of odd characters", { architecture: "am\u001b[31m" }, /architecture/],
  [
    "an environment of megabytes",
    { config: { Env: Array.from({ length: 9 }, (_, n) => `A${n}=${"x".repeat(100_000)}`) } },
    /environment/,
  ],
  ["a zero byte in the environment", { config: { Env: ["A=\0"] } }, /Env/],
  ["ports in a list", { config: { ExposedPorts: ["80/tcp"] } }, /ExposedPorts/],
  ["a command in one string", { config: { Cmd: "sh -c ls" } }, /Cmd/],
  ["a diff_id that is not a digest", { rootfs: { diff_ids: ["x"] } }, /diff_id/],
  ["no rootfs", { rootfs: null }, /rootfs/],
];
for (const [what, change, why] of BAD_CONFIGS)
  it(`a config with ${what} is refused`, () => assert.throws(() => config(change), why));
