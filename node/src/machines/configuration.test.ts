/**
 * Tests of a guest's configuration: the machine's values override the image's, which override the defaults.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { MachineSpec } from "@flotilla/contract/link/link";
import { guestConfiguration, mergedEnvironment } from "./configuration.ts";

const spec: MachineSpec = {
  machineId: `mach-${"0123456789abcdef".repeat(2)}`,
  tenantId: "tenant-1",
  hostname: "web",
  image: { reference: "local/busybox", arch: null },
  cpus: 1,
  memoryMb: 256,
  diskGb: 1,
  network: { mode: "open" },
  env: { GREETING: "hello" },
  workdir: null,
  command: null,
  ports: [],
  restart: "always",
  disruption: "migrate",
  health: null,
};
const image = { env: ["GREETING=image", "LANG=C"], workdir: "/app", user: "1000:1000", entrypoint: [], command: [] };
const facts = {
  spec,
  image,
  rootDevice: "/dev/vda",
  rootBytes: 2 ** 30,
  network: null,
  now: 5,
  entropy: new Uint8Array(32),
};

test("the machine's environment wins over the image's, and PATH is always there", () => {
  const merged = mergedEnvironment(["A=1", "B=x=y", "=nameless", "novalue"], { A: "2" });
  assert.equal(merged["A"], "2");
  assert.equal(merged["B"], "x=y");
  assert.match(merged["PATH"] ?? "", /\/bin/);
  assert.equal(mergedEnvironment(["PATH=/only"], {})["PATH"], "/only");
  assert.deepEqual(Object.keys(merged).sort(), ["A", "B", "PATH"]);
});

test("the working directory is the machine's, else the image's, else the root", () => {
  assert.equal(guestConfiguration(facts).workdir, "/app");
  assert.equal(guestConfiguration({ ...facts, spec: { ...spec, workdir: "/w" } }).workdir, "/w");
  assert.equal(guestConfiguration({ ...facts, image: { ...image, workdir: "" } }).workdir, "/");
});

test("the guest's machine id is the machine's id without its prefix", () => {
  const configuration = guestConfiguration(facts);
  assert.match(configuration.machineId, /^[0-9a-f]{32}$/);
  assert.equal(`mach-${configuration.machineId}`, spec.machineId);
  assert.equal(configuration.user, "1000:1000");
  assert.equal(configuration.hostname, "web");
});
