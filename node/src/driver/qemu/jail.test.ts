/**
 * The launcher's command line, as data. What it does to a process is verified in test/vm.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Jail, jailArgv, jailView } from "./jail.ts";

const jail: Jail = {
  nodeDirectory: "/data/node",
  guestDirectory: "/cache/guest/boot-1",
  uid: 700_000,
  hasKvm: false,
  network: null,
  groups: [],
  diesWithStarter: false,
};

test("as root the VMM becomes its own user without any privilege", () => {
  const argv = jailArgv(jail, "vmm", ["-x"]);
  for (const word of ["--net", "--mount", "--reuid=700000", "--regid=700000", "--clear-groups", "--no-new-privs"]) {
    assert.ok(argv.includes(word), word);
  }
  assert.ok(argv.includes("--bounding-set=-all"));
  assert.deepEqual(argv.slice(-2), ["vmm", "-x"]);
});

test("without root a user namespace takes the place of the own user", () => {
  const argv = jailArgv({ ...jail, uid: null }, "vmm", []);
  assert.ok(argv.includes("--user"));
  assert.ok(!argv.some((word) => word.startsWith("--reuid")));
});

test("an emulated VMM is a batch task, one with KVM is not", () => {
  assert.ok(jailArgv(jail, "vmm", []).join(" ").includes("chrt --batch 0 setpriv "));
  assert.ok(!jailArgv({ ...jail, hasKvm: true }, "vmm", []).includes("chrt"));
});

test("directories below the usual place do not hide themselves", () => {
  assert.equal(jailView(jail).nodeDirectory, "/mnt/node");
  assert.equal(jailView({ ...jail, nodeDirectory: "/mnt/big/node" }).nodeDirectory, "/media/node");
  assert.equal(jailView({ ...jail, nodeDirectory: "/mntx" }).nodeDirectory, "/mnt/node");
  const everywhere = { ...jail, nodeDirectory: "/mnt/a", guestDirectory: "/media/b" };
  assert.equal(jailView(everywhere).guestDirectory, "/srv/guest");
});

test("what a directory is called does not reach the shell", () => {
  const evil = "/data/$(reboot)/'; reboot; '";
  const argv = jailArgv({ ...jail, nodeDirectory: evil }, "vmm", []);
  assert.ok(argv.includes(evil));
  assert.ok(!argv.some((word) => word !== evil && word.includes("reboot")));
});
