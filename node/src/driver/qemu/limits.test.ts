/**
 * How a VMM's limits depend on its machine's size.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { vmmLimits } from "./limits.ts";

const MB = 2 ** 20;

test("a VMM's memory limit is its guest's memory plus an overhead that depends on its accelerator", () => {
  const plain = vmmLimits({ cpus: 4, memoryMb: 8192, diskBytes: 2 ** 30 }, 0);
  assert.ok(
    plain.memoryBytes > (8192 + 256) * MB && plain.memoryBytes < (8192 + 512) * MB,
    String(plain.memoryBytes / MB),
  );
  const more = vmmLimits({ cpus: 4, memoryMb: 8192, diskBytes: 2 ** 30 }, 384);
  assert.ok(more.memoryBytes >= plain.memoryBytes + 384 * MB);
});

test("the limit of tasks allows a thread per processor of the guest", () => {
  assert.equal(
    vmmLimits({ cpus: 64, memoryMb: 256, diskBytes: null }, 0).tasksMax -
      vmmLimits({ cpus: 1, memoryMb: 256, diskBytes: null }, 0).tasksMax,
    63,
  );
});

test("the limit of file sizes is near the machine's disk size, and allows a template's memory", () => {
  const gib = 2 ** 30;
  const small = vmmLimits({ cpus: 1, memoryMb: 256, diskBytes: 64 * gib }, 0).fileBytes;
  assert.ok(small >= 65 * gib && small <= 67 * gib, String(small / gib));
  assert.ok(vmmLimits({ cpus: 1, memoryMb: 65_536, diskBytes: gib }, 0).fileBytes >= 64 * gib);
});
