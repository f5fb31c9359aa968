/**
 * The launcher's command line, as data. What it does to a process is verified in node/test/jail.test.ts and
 * test/vm.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Jail, jailArgv } from "./jail.ts";

const jail: Jail = {
  launcher: "/cache/guest/boot-1/jail",
  runtime: {
    program: "/usr/bin/vmm",
    files: [],
    directories: ["/usr/lib/x"],
    links: [{ target: "usr/lib", path: "/lib" }],
  },
  guestDirectory: "/cache/guest/boot-1",
  bootDirectory: "/data/node/machines/m/boots/b",
  files: [],
  memory: null,
  imagesDirectory: null,
  uid: 700_000,
  hasKvm: false,
  network: null,
  groups: ["/sys/fs/cgroup/flotilla-1/b/cgroup.procs"],
  limits: { fileBytes: 4096, filesOpen: 64, tasksMax: 100 },
  environment: { A: "b c" },
  diesWithParent: false,
  moreSteps: [],
};

/** The steps before the program, joined. */
const stepsOf = (given: Jail): string => {
  const argv = jailArgv(given, ["-x"]);
  return ` ${argv.slice(argv.indexOf(jail.launcher) + 1, argv.indexOf(jail.runtime.program, argv.lastIndexOf("--"))).join(" ")} `;
};

test("as root the VMM becomes its own user, with limits and a control group", () => {
  const steps = stepsOf(jail);
  for (const step of [" user 700000 ", " limit nproc 100 ", " limit fsize 4096 ", " limit core 1 ", " net "]) {
    assert.ok(steps.includes(step), step);
  }
  assert.ok(steps.startsWith(" group /sys/fs/cgroup/flotilla-1/b/cgroup.procs "));
  assert.deepEqual(jailArgv(jail, ["-x"]).slice(-3), ["--", "/usr/bin/vmm", "-x"]);
});

test("a VMM can write to its boot's directory and to nothing else", () => {
  const memory = { path: "/data/node/templates/t/memory", isShared: false };
  const steps = stepsOf({ ...jail, memory, imagesDirectory: "/data/node/images" });
  assert.deepEqual(
    [...steps.matchAll(/ write (\S+)/g)].map(([, path]) => path),
    [jail.bootDirectory],
  );
  assert.match(steps, / read \/data\/node\/templates\/t\/memory \/memory /);
  const saved = stepsOf({ ...jail, memory: { ...memory, isShared: true } });
  assert.match(saved, / write \/data\/node\/templates\/t\/memory \/memory /);
});

test("without root a user namespace replaces the separate user", () => {
  const argv = jailArgv({ ...jail, uid: null }, []);
  assert.deepEqual(argv.slice(0, 4), ["unshare", "--user", "--map-root-user", "--"]);
  assert.ok(!argv.includes("user"));
  assert.ok(!stepsOf({ ...jail, uid: null }).includes(" nproc "));
});

test("only a VMM with KVM has the device for it", () => {
  assert.doesNotMatch(stepsOf(jail), /kvm/);
  assert.match(stepsOf({ ...jail, hasKvm: true }), / node \/dev\/kvm 10 232 /);
});

test("an accelerator's steps run while the launcher is still root", () => {
  assert.match(stepsOf({ ...jail, moreSteps: [["batch"], ["small-pages"]] }), / batch small-pages .*user /);
});

test("only a VMM with a network has the device for it", () => {
  assert.doesNotMatch(stepsOf(jail), /tun/);
  const network = { kind: "own", hostEnd: null, machineAddress: null, rules: "", inside: "", outside: "" } as const;
  assert.match(stepsOf({ ...jail, network }), / node \/dev\/net\/tun 10 200 /);
});

test("a VMM that is to replace another one joins its network and makes no other", () => {
  const network = { kind: "joined", pid: 77, leftovers: ["tap1"], inside: "tuntap add dev tap1\n" } as const;
  const argv = jailArgv({ ...jail, network }, []);
  assert.deepEqual(argv.slice(0, 3), ["nsenter", "--net=/proc/77/ns/net", "--"]);
  assert.ok(!argv.includes("unshare"));
  assert.doesNotMatch(stepsOf({ ...jail, network }), / net /);
  assert.match(stepsOf({ ...jail, network }), / node \/dev\/net\/tun 10 200 /);
});

test("a directory's name is not interpreted by the shell", () => {
  const evil = "/data/$(reboot)/'; reboot; '";
  const argv = jailArgv({ ...jail, bootDirectory: evil }, []);
  assert.ok(argv.includes(evil));
  assert.ok(!argv.some((word) => word !== evil && word.includes("reboot")));
});
