/**
 * The doctor's checks: a host without problems, then one problem at a time.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { judge } from "./judge.ts";
import type { HostFacts } from "./observe.ts";

const now = Date.UTC(2031, 0, 1);
const sound: HostFacts = {
  isRoot: true,
  arch: "x64",
  processors: 8,
  missingPrograms: [],
  driver: {
    name: "qemu",
    accelerator: "kvm",
    acceleratorReason: "a guest booted with KVM",
    runtime: "QEMU 7.2.22, Linux 6.1",
    rootDevice: "/dev/vda",
  },
  missingUserIds: null,
  jailFailure: null,
  usersFailure: null,
  networkFailure: null,
  cgroups: "v2",
  hasDiskWeights: true,
  kernel: "6.12.0-1-amd64",
  memory: { totalMb: 65_536, availableMb: 32_768 },
  disk: { path: "/", totalGb: 500, freeGb: 100, freeFiles: 1_000_000, failure: null },
  listen: { address: "127.0.0.1:8080", state: "free" },
  clock: { now, lastInstallAt: now - 1000, isSynchronized: true },
  hasLocalBusybox: true,
};

test("everything is ok on a host without problems", () => {
  assert.deepEqual(
    judge(sound).filter(({ status }) => status !== "ok"),
    [],
  );
});

const emulated = { accelerator: "tcg", acceleratorReason: "a guest did not boot with it" };
const wrong: readonly (readonly [string, Partial<HostFacts>, string, "warn" | "bad", RegExp])[] = [
  ["a user other than root", { isRoot: false }, "user", "bad", /sudo/],
  ["a user namespace", { missingUserIds: "700000 to 704095" }, "user", "bad", /outside the namespace.*map them/],
  ["a missing program", { missingPrograms: ["umoci"] }, "programs", "bad", /setup/],
  ["no guest kernel", { driver: { failure: "no guest kernel in /x" } }, "machines", "bad", /setup/],
  ["an arm host", { arch: "arm64", driver: { failure: "none" } }, "machines", "bad", /x86-64/],
  ["emulation", { driver: { ...sound.driver, ...emulated } }, "accelerator", "warn", /did not boot/],
  ["a container that may not unshare", { jailFailure: "Operation not permitted" }, "isolation", "bad", /CAP_SYS_ADMIN/],
  ["a kernel without user namespaces", { usersFailure: "No space left" }, "isolation", "warn", /max_user_namespaces/],
  ["a kernel without taps", { networkFailure: "open: No such device" }, "network", "bad", /\/dev\/net\/tun/],
  ["no control groups", { cgroups: "none" }, "cgroups", "warn", /cgroup v2/],
  ["control groups of a container", { cgroups: "read-only" }, "cgroups", "warn", /writable/],
  ["a kernel that cannot watch memory", { kernel: "6.1.0-40-cloud-amd64" }, "kernel", "warn", /paused while/],
  ["a kernel that weighs no disks", { hasDiskWeights: false }, "cgroups", "warn", /io\.weight/],
  ["little memory", { memory: { totalMb: 4096, availableMb: 3000 } }, "memory", "warn", /--memory/],
  ["hardly any memory", { memory: { totalMb: 512, availableMb: 300 } }, "memory", "bad", /too little/],
  ["little disk", { disk: { ...sound.disk, freeGb: 10 } }, "disk", "warn", /FLOTILLA_DATA_DIR/],
  ["a disk without inodes", { disk: { ...sound.disk, freeFiles: 12 } }, "disk", "bad", /inodes.*FLOTILLA_DATA_DIR/],
  ["a full disk", { disk: { ...sound.disk, freeGb: 0 } }, "disk", "bad", /FLOTILLA_DATA_DIR/],
  [
    "a data directory that is a file",
    { disk: { ...sound.disk, failure: "not a directory" } },
    "disk",
    "bad",
    /--data-dir/,
  ],
  ["a port in use", { listen: { address: "127.0.0.1:80", state: "taken" } }, "listen", "warn", /FLOTILLA_LISTEN/],
  ["an address of another host", { listen: { address: "9.9.9.9:80", state: "elsewhere" } }, "listen", "bad", /LISTEN/],
  ["a clock years behind", { clock: { ...sound.clock, now: 0 } }, "clock", "bad", /set the clock/],
  ["a clock that drifts", { clock: { ...sound.clock, isSynchronized: false } }, "clock", "warn", /set-ntp/],
  ["no image to try", { hasLocalBusybox: false }, "image local/busybox", "warn", /setup/],
];

for (const [what, facts, name, status, meaning] of wrong) {
  test(`${what} is ${status}, with advice`, () => {
    const check = judge({ ...sound, ...facts }).find((item) => item.name === name);
    assert.equal(check?.status, status);
    assert.match(`${check?.value} ${check?.meaning}`, meaning);
  });
}

test("cgroup v1 and a running Flotilla on the address are not problems", () => {
  const checks = judge({ ...sound, cgroups: "v1", listen: { address: "127.0.0.1:8080", state: "flotilla" } });
  assert.ok(checks.every(({ status }) => status === "ok"));
});
