/**
 * The VMM's command line, as data: what protects the host, what templates depend on, and special characters
 * in paths.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { qemuArgv, type VmmPlan } from "./argv.ts";
import { emulationTuning } from "./tcg/tuning.ts";
import { KVM_TUNING } from "./tuning.ts";

const plan: VmmPlan = {
  name: "mach-1/boot-1@/data/node",
  processor: ["-accel", "none", "-cpu", "some"],
  kernelParameters: [],
  cpus: 4,
  memoryMb: 8192,
  memory: { kind: "private" },
  kernelPath: "/mnt/guest/vmlinuz",
  initramfsPath: "/mnt/guest/initramfs",
  disk: { path: "/mnt/node/machines/mach-1/disk", backingPaths: ["/mnt/node/images/root.ext4"] },
  bulkPath: "/mnt/node/machines/mach-1/boot/bulk",
  socketDirectory: "/mnt/node/machines/mach-1/boot",
  isIncoming: false,
  tapName: null,
};

function valueOf(argv: readonly string[], option: string): string {
  const at = argv.indexOf(option);
  assert.notEqual(at, -1, `${option} is missing`);
  return argv[at + 1] ?? "";
}

test("the sandbox is on and denies everything it can", () => {
  assert.equal(
    valueOf(qemuArgv(plan), "-sandbox"),
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
  );
});

test("the disk is a qcow2 over a read-only raw image, under a raw node with a stable name", () => {
  assert.deepEqual(JSON.parse(valueOf(qemuArgv(plan), "-blockdev")), {
    driver: "raw",
    "node-name": "root",
    discard: "unmap",
    file: {
      driver: "qcow2",
      "node-name": "disk",
      discard: "unmap",
      file: { driver: "file", filename: "/mnt/node/machines/mach-1/disk", discard: "unmap" },
      backing: {
        driver: "raw",
        "node-name": "image",
        "read-only": true,
        file: { driver: "file", filename: "/mnt/node/images/root.ext4", "read-only": true },
      },
    },
  });
});

test("without a disk the guest gets a placeholder", () => {
  const root = JSON.parse(valueOf(qemuArgv({ ...plan, disk: null }), "-blockdev"));
  assert.equal(root.file.driver, "null-co");
});

test("a qcow2 between disk and image is read only", () => {
  const disk = { path: "/d/disk", backingPaths: ["/d/frozen.qcow2", "/i/root.ext4"] };
  const root = JSON.parse(valueOf(qemuArgv({ ...plan, disk }), "-blockdev"));
  assert.equal(root.file.backing.driver, "qcow2");
  assert.equal(root.file.backing["read-only"], true);
  assert.equal(root.file.backing.backing.driver, "raw");
});

test("commas in a path are escaped", () => {
  const argv = qemuArgv({ ...plan, name: "m/b@/a,b", socketDirectory: "/mnt/x,server=off" });
  assert.equal(valueOf(argv, "-name"), "guest=m/b@/a,,b");
  assert.ok(argv.includes("socket,id=qmp,path=/mnt/x,,server=off/qmp.sock,server=on,wait=off"));
});

test("a guest gets the kernel parameters and the processor of its accelerator", () => {
  const argv = qemuArgv({ ...plan, ...emulationTuning({ tscKhz: 2_596_120, clock: systemClock }) });
  assert.match(valueOf(argv, "-append"), / tsc_early_khz=2596120$/);
  assert.match(valueOf(argv, "-cpu"), /^max,/);
});

test("a guest under KVM gets no nested virtualization, no performance counters and no settings for emulation", () => {
  const argv = qemuArgv({ ...plan, ...KVM_TUNING });
  assert.equal(valueOf(argv, "-append"), valueOf(qemuArgv(plan), "-append"));
  assert.deepEqual(KVM_TUNING.jailSteps({ isRestored: true }), []);
  const features = valueOf(argv, "-cpu").split(",");
  assert.equal(features[0], "host");
  for (const feature of ["svm=off", "vmx=off", "pmu=off"]) assert.ok(features.includes(feature), feature);
});

test("no memory is reserved for a guest before it touches it", () => {
  const memories = [
    { kind: "private" },
    { kind: "file", path: "/mnt/t/ram", isShared: true },
    { kind: "file", path: "/mnt/t/ram", isShared: false },
  ] as const;
  for (const memory of memories) assert.match(valueOf(qemuArgv({ ...plan, memory }), "-object"), /\breserve=off\b/);
});

test("only the name differs between two machines of the same size without disks", () => {
  const one = qemuArgv({ ...plan, disk: null });
  const two = qemuArgv({ ...plan, disk: null, name: "mach-2/boot-2@/data/node" });
  assert.deepEqual(
    one.filter((word, index) => word !== two[index]),
    ["guest=mach-1/boot-1@/data/node"],
  );
});

test("a template's memory file is shared while it is made, and private when a machine starts from it", () => {
  const made = qemuArgv({ ...plan, memory: { kind: "file", path: "/mnt/t/ram", isShared: true } });
  const used = qemuArgv({ ...plan, memory: { kind: "file", path: "/mnt/t/ram", isShared: false }, isIncoming: true });
  assert.match(valueOf(made, "-object"), /share=on$/);
  assert.match(valueOf(used, "-object"), /share=off$/);
  assert.equal(valueOf(used, "-incoming"), "defer");
});
