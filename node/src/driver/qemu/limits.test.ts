/**
 * How a VMM's limits follow its machine's size.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { vmmLimits } from "./limits.ts";

const MB = 2 ** 20;

test("a VMM may have its guest's memory and some for itself, more where it translates code", () => {
  const kvm = vmmLimits({ cpus: 4, memoryMb: 8192, diskBytes: 2 ** 30 }, "kvm");
  assert.ok(kvm.memoryBytes > (8192 + 256) * MB && kvm.memoryBytes < (8192 + 512) * MB, String(kvm.memoryBytes / MB));
  const tcg = vmmLimits({ cpus: 4, memoryMb: 8192, diskBytes: 2 ** 30 }, "tcg");
  assert.ok(tcg.memoryBytes >= kvm.memoryBytes + 256 * MB);
});

test("each processor of the guest may have its thread", () => {
  assert.equal(
    vmmLimits({ cpus: 64, memoryMb: 256, diskBytes: null }, "kvm").tasksMax -
      vmmLimits({ cpus: 1, memoryMb: 256, diskBytes: null }, "kvm").tasksMax,
    63,
  );
});

test("no file grows much beyond the machine's disk, and a template's memory has room", () => {
  const gib = 2 ** 30;
  const small = vmmLimits({ cpus: 1, memoryMb: 256, diskBytes: 64 * gib }, "tcg").fileBytes;
  assert.ok(small >= 65 * gib && small <= 67 * gib, String(small / gib));
  assert.ok(vmmLimits({ cpus: 1, memoryMb: 65_536, diskBytes: gib }, "tcg").fileBytes >= 64 * gib);
});
