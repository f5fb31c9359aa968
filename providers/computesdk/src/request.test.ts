/**
 * What ComputeSDK's options mean for a machine.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineRequestOf } from "./request.ts";

const config = { url: "http://127.0.0.1:1", apiKey: "k" };

test("without options a sandbox is a machine of the default image that ends in five minutes", () => {
  assert.deepEqual(machineRequestOf(config, {}), {
    body: {
      source: { type: "image", reference: "local/busybox" },
      labels: { computesdk: "true" },
      ttlSeconds: 300,
    },
    snapshotId: null,
  });
});

test("the options of providers with other names for the same are read", () => {
  const sizes = [
    { cpu: 1.5, memory: 512 },
    { vcpus: 2, memMiB: 512 },
    { cpus: 2, memoryMb: 512 },
    { cpu: 2, memoryMiB: 512 },
  ];
  for (const size of sizes) assert.deepEqual(machineRequestOf(config, size).body.resources, { cpus: 2, memoryMb: 512 });
  assert.deepEqual(machineRequestOf(config, { diskMiB: 1025 }).body.resources, { diskGb: 2 });
});

test("the image is the sandbox's, its template, or the provider's", () => {
  const reference = (options: object) => machineRequestOf({ ...config, image: "c" }, options).body.source.reference;
  assert.deepEqual(
    [reference({ image: "a", templateId: "b" }), reference({ templateId: "b" }), reference({})],
    ["a", "b", "c"],
  );
});

test("a time is whole seconds, at least one, or none", () => {
  const seconds = (timeout: number) => machineRequestOf(config, { timeout }).body.ttlSeconds;
  assert.deepEqual([1, 1000, 1001, 0].map(seconds), [1, 1, 2, null]);
  assert.equal(machineRequestOf({ ...config, timeout: 9_000 }, {}).body.ttlSeconds, 9);
});

test("metadata becomes labels, and what is not one value is refused with its name", () => {
  const labels = machineRequestOf(config, { metadata: { a: "x", b: 1, c: true, computesdk: "no" } }).body.labels;
  assert.deepEqual(labels, { a: "x", b: "1", c: "true", computesdk: "true" });
  assert.throws(() => machineRequestOf(config, { metadata: { deep: {} } }), /metadata "deep"/);
  assert.throws(() => machineRequestOf(config, { ports: ["80"] }), /ports is not/);
});
