/**
 * The driver with real VMs: booting, what a VMM may do, adopting VMs after a crash, and how they end.
 *
 * Under emulation a boot takes two to four seconds, so each test checks as much as it can with one.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe } from "node:test";
import { type Driver, GuestPaused, type Vm } from "../../node/src/driver/driver.ts";
import type { GuestKilled } from "../../node/src/guest/guest.ts";
import { readCgroupLayout } from "../../node/src/host/cgroups.ts";
import { DrawnTests } from "../support/drawn.ts";
import { onThisHost, until } from "../support/until.ts";
import {
  answersWithin,
  configure,
  deadline,
  NodePlace,
  shell,
  shellAndForget,
  shellInBackground,
  skipReason,
} from "./vm-fixture.ts";

/** A file system that grew to 16 TiB before its machine ran took minutes. */
const GROWN_AT_ONCE_MS = 15_000;
/** How many of fourteen a run plays. */
const TESTS_PER_RUN = 7;

function failAfter(ms: number): Promise<never> {
  return new Promise((_, reject) =>
    AbortSignal.timeout(ms).addEventListener("abort", () => reject(new Error(`not configured after ${ms} ms`))),
  );
}

describe("the qemu driver", { skip: skipReason }, () => {
  let place: NodePlace;
  let driver: Driver;

  before(async () => {
    place = new NodePlace();
    driver = await place.driver();
  });
  afterEach(() => place.sweep());
  after(() => place[Symbol.asyncDispose]());

  const some = new DrawnTests();

  some.test("a guest boots, runs commands, and what it synced survives the end of its VMM", async () => {
    const machine = { ...(await place.machine("mach-keep", 700_001)), cpus: 3 };
    const first = await driver.boot(place.bootOf(machine, "boot-keep-1"), deadline());
    assert.equal(first.guest.hello.isConfigured, false);
    const { timerKhz } = first.guest.hello;
    assert.ok(timerKhz !== null && timerKhz > 0, `its kernel measured its timer at ${timerKhz} kHz`);
    await configure(first.guest, driver);
    assert.equal(await shell(first.guest, "echo out; cat /etc/hostname"), "out\ntested\n");
    // Its group can then run no other command.
    const divide =
      "own=/sys/fs/cgroup$(busybox cut -d: -f3 /proc/self/cgroup); echo +memory > /sys/fs/cgroup/cgroup.subtree_control";
    const intoInner =
      "busybox mkdir $own/inner && echo $$ > $own/inner/cgroup.procs && echo +memory > $own/cgroup.subtree_control";
    await shell(first.guest, `${divide} && ${intoInner}`);
    assert.equal(await shell(first.guest, "busybox nproc"), "3\n");
    const size = Number(
      (await shell(first.guest, "busybox stat -f -c '%b' / && busybox stat -f -c '%S' /")).split("\n")[0],
    );
    assert.ok(size > 200_000, `the file system was not grown to the disk: ${size} blocks`);
    await shell(first.guest, "echo kept > /workspace/file && sync");
    process.kill(first.record.pid, "SIGKILL");
    assert.deepEqual(await first.exited, { kind: "killed", detail: "the VMM was killed by SIGKILL" });

    const second = await driver.boot(place.bootOf(machine, "boot-keep-2"), deadline());
    await configure(second.guest, driver);
    assert.equal(await shell(second.guest, "cat /workspace/file"), "kept\n");
    await second.kill();
  });

  some.test("a machine with a disk of 16 TiB runs immediately, and its file system grows meanwhile", async () => {
    const diskGb = 16 * 1024;
    const vm = await driver.boot(
      place.bootOf(await place.machine("mach-vast", 700_009, diskGb), "boot-vast"),
      deadline(),
    );
    await Promise.race([configure(vm.guest, driver, diskGb), failAfter(onThisHost(GROWN_AT_ONCE_MS))]);
    const sizeGb = async (): Promise<number> => {
      const [blocks, bytes] = (await shell(vm.guest, "busybox stat -f -c '%b %S' /")).split(" ").map(Number);
      return ((blocks ?? 0) * (bytes ?? 0)) / 2 ** 30;
    };
    const first = await sizeGb();
    assert.ok(first > 200, `${first} GiB`);
    await until(async () => (await sizeGb()) > first + 100, { what: "the file system to grow on", deadlineMs: 60_000 });
    // The growing process ends with the machine like any other.
    await vm.guest.shutDown();
    assert.equal((await vm.exited).kind, "poweroff");
  });

  some.test("a VMM has its own user, no privileges, a system call filter and no network", async () => {
    const machine = await place.machine("mach-jail", 700_002);
    const vm = await driver.boot(place.bootOf(machine, "boot-jail"), deadline());
    const status = readFileSync(`/proc/${vm.record.pid}/status`, "utf8");
    const field = (name: string): string => new RegExp(`^${name}:[ \\t]*(.*)$`, "m").exec(status)?.[1] ?? "";
    assert.equal(field("Name"), "qemu-system-x86");
    assert.equal(field("Uid"), "700002\t700002\t700002\t700002");
    assert.equal(field("Gid"), "700002\t700002\t700002\t700002");
    assert.equal(field("Groups").trim(), "");
    assert.equal(field("NoNewPrivs"), "1");
    assert.equal(field("Seccomp"), "2");
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) assert.equal(field(set), "0".repeat(16), set);
    for (const namespace of ["net", "mnt", "ipc"]) {
      const [own, its] = ["self", vm.record.pid].map((pid) => readlinkSync(`/proc/${pid}/ns/${namespace}`));
      assert.notEqual(own, its, `${namespace} namespace is the host's`);
    }
    for (const name of ["etc", "home", "proc/1", "root", "sys", "tmp", "var"]) {
      assert.ok(!existsSync(`/proc/${vm.record.pid}/root/${name}`), `it sees /${name}`);
    }
    assert.match(readFileSync(`/proc/${vm.record.pid}/limits`, "utf8"), /^Max file size +\d+ /m);
    const groups = readFileSync(`/proc/${vm.record.pid}/cgroup`, "utf8");
    if ((await readCgroupLayout()) !== undefined) {
      assert.match(groups, /^(0:|\d+:[^:]*\bmemory\b[^:]*):\/flotilla-[0-9a-f]{12}\/boot-jail$/m);
    }
    const interfaces = readFileSync(`/proc/${vm.record.pid}/net/dev`, "utf8").match(/^\s*\S+:/gm);
    assert.deepEqual(
      interfaces?.map((name) => name.trim()),
      ["lo:"],
    );
    const [, , , session] = readFileSync(`/proc/${vm.record.pid}/stat`, "utf8")
      .replace(/^.*\) /, "")
      .split(" ");
    assert.equal(Number(session), vm.record.pid, "it is in its own session");
    const environment = readFileSync(`/proc/${vm.record.pid}/environ`, "utf8")
      .split("\0")
      .filter((line) => line !== "");
    assert.deepEqual(environment.map((line) => line.split("=")[0]).sort(), ["LD_PRELOAD", "MALLOC_ARENA_MAX"]);
    await vm.kill();
  });

  some.test("another node agent adopts a running guest, with its record or without", async () => {
    const machine = await place.machine("mach-adopt", 700_003);
    const request = place.bootOf(machine, "boot-adopt");
    const first = await driver.boot(request, deadline());
    await configure(first.guest, driver);
    await shell(first.guest, "echo memory > /tmp/file");
    first.release();

    const second = await (await place.driver()).adopt(request, first.record, deadline());
    assert.notEqual(second, "gone");
    assert.deepEqual((second as Vm).record, first.record);
    assert.equal((second as Vm).guest.hello.isConfigured, true);
    assert.equal(await shell((second as Vm).guest, "cat /tmp/file"), "memory\n");
    (second as Vm).release();

    const third = await (await place.driver()).adopt(request, null, deadline());
    assert.notEqual(third, "gone");
    // What its saved memory would depend on, and its program, are only in its record.
    const { format, program, ...found } = first.record;
    assert.ok(format !== undefined && program !== undefined);
    assert.deepEqual((third as Vm).record, found);
    process.kill(first.record.pid, "SIGKILL");
    assert.equal((await (third as Vm).exited).kind, "killed");

    assert.equal(await driver.adopt(request, first.record, deadline()), "gone");
    assert.equal(await driver.adopt(request, null, deadline()), "gone");
  });

  some.test("a VMM whose node agent was killed during a boot is found again without a record", async () => {
    const machine = await place.machine("mach-half", 700_011);
    const request = place.bootOf(machine, "boot-half");
    const program = join(import.meta.dirname, "./boot-and-wait.ts");
    const agent = spawn(process.execPath, [program, JSON.stringify({ nodeDirectory: place.directory, request })]);
    await until(() => existsSync(join(request.bootDirectory, "qmp.sock")), { what: "the VMM to be there" });
    agent.kill("SIGKILL");
    const vm = await driver.adopt(request, null, deadline());
    assert.notEqual(vm, "gone");
    assert.equal((vm as Vm).guest.hello.isConfigured, false);
    await configure((vm as Vm).guest, driver);
    assert.equal(await shell((vm as Vm).guest, "echo alive"), "alive\n");
    await (vm as Vm).kill();
  });

  some.test("a full disk of the host pauses a machine, which loses nothing", async () => {
    await using small = new NodePlace({ sizeMb: 64 });
    const smallDriver = await small.driver();
    const machine = await small.machine("mach-full", 700_012);
    const vm = await smallDriver.boot(small.bootOf(machine, "boot-full"), deadline());
    await configure(vm.guest, smallDriver);
    const pauses: boolean[] = [];
    vm.watchDiskPause((isPaused) => pauses.push(isPaused));
    const ballast = join(small.directory, "ballast");
    writeFileSync(ballast, Buffer.alloc(40 * 2 ** 20));
    const written = shell(
      vm.guest,
      "busybox dd if=/dev/zero of=/file bs=1M count=40 2>/dev/null && sync && busybox stat -c %s /file",
    );
    await until(() => pauses.length > 0, { what: "the machine to wait for room", deadlineMs: 30_000 });
    assert.equal(await answersWithin(vm.guest, 1_000), false);
    assert.deepEqual(pauses, [true]);
    // A later watcher is notified as well.
    vm.watchDiskPause((isPaused) => pauses.push(isPaused));
    rmSync(ballast);
    assert.equal(await written, `${40 * 2 ** 20}\n`);
    assert.deepEqual(pauses, [true, true, false]);
    await vm.kill();
  });

  some.test("a machine that a full disk has paused is adopted when there is room", async () => {
    await using small = new NodePlace({ sizeMb: 64 });
    const smallDriver = await small.driver();
    const machine = await small.machine("mach-paused", 700_013);
    const request = small.bootOf(machine, "boot-paused");
    const first = await smallDriver.boot(request, deadline());
    await configure(first.guest, smallDriver);
    const ballast = join(small.directory, "ballast");
    writeFileSync(ballast, Buffer.alloc(40 * 2 ** 20));
    await shellInBackground(first.guest, "busybox dd if=/dev/zero of=/file bs=1M count=40; sync; echo done > /end");
    const pauses: boolean[] = [];
    first.watchDiskPause((isPaused) => pauses.push(isPaused));
    await until(() => pauses.length > 0, { what: "the machine to wait for room", deadlineMs: 30_000 });
    first.release();
    await assert.rejects(
      (await small.driver()).adopt(request, first.record, AbortSignal.timeout(onThisHost(2_500))),
      GuestPaused,
    );
    rmSync(ballast);
    const vm = await (await small.driver()).adopt(request, first.record, deadline());
    if (vm === "gone") throw new Error("it was lost");
    const isWritten = async (): Promise<boolean> => (await shell(vm.guest, "cat /end || true")) === "done\n";
    await until(isWritten, { what: "the file to be written", deadlineMs: 30_000 });
    assert.equal(await shell(vm.guest, "busybox stat -c %s /file"), `${40 * 2 ** 20}\n`);
    await vm.kill();
  });

  some.test("a process that the guest's kernel kills for lack of memory is named", async () => {
    const machine = await place.machine("mach-memory", 700_014);
    const vm = await driver.boot(place.bootOf(machine, "boot-memory"), deadline());
    await configure(vm.guest, driver);
    const killed: GuestKilled[] = [];
    vm.guest.onKilled?.((each) => killed.push(each));
    // It keeps the last line, which here has no end.
    assert.equal(await shell(vm.guest, "busybox tail /dev/zero; echo $?"), "137\n");
    await until(() => killed.length > 0, { what: "the report of the kill", deadlineMs: 10_000 });
    assert.deepEqual(killed, [{ program: "busybox", count: 1 }]);
    await vm.kill();
  });

  some.test("a guest that powers off without an agent running is later known to have done so", async () => {
    const machine = await place.machine("mach-off", 700_004);
    const request = place.bootOf(machine, "boot-off");
    const first = await driver.boot(request, deadline());
    await configure(first.guest, driver);
    await shellInBackground(first.guest, "busybox sleep 1; echo o > /proc/sysrq-trigger");
    first.release();
    const isOff = async (): Promise<boolean> => {
      const vm = await (await place.driver()).adopt(request, first.record, deadline());
      if (vm === "gone") throw new Error("its end was lost");
      const isUp = await answersWithin(vm.guest, 1_000);
      if (isUp) vm.release();
      else assert.equal((await vm.exited).kind, "poweroff");
      return !isUp;
    };
    await until(isOff, { what: "the power-off to be seen", deadlineMs: 20_000 });
    assert.equal(await driver.adopt(request, first.record, deadline()), "gone");
  });

  some.test("powering off and panicking are distinguished", async () => {
    const machine = await place.machine("mach-ends", 700_005);
    const off = await driver.boot(place.bootOf(machine, "boot-ends-1"), deadline());
    await configure(off.guest, driver);
    await off.guest.shutDown();
    assert.deepEqual(await off.exited, { kind: "poweroff", detail: "the guest powered off" });

    const panic = await driver.boot(place.bootOf(machine, "boot-ends-2"), deadline());
    await configure(panic.guest, driver);
    shellAndForget(panic.guest, "echo c > /proc/sysrq-trigger");
    const exit = await panic.exited;
    assert.equal(exit.kind, "crashed");
    assert.match(exit.detail, /Kernel panic/);
  });

  some.test("sweeping ends unknown VMs of this directory, and no others", async () => {
    await using elsewhere = new NodePlace();
    const other = await elsewhere.driver();
    const [known, unknown] = await Promise.all([
      place.machine("mach-known", 700_006),
      place.machine("mach-un", 700_007),
    ]);
    const kept = await driver.boot(place.bootOf(known, "boot-known"), deadline());
    const lost = await driver.boot(place.bootOf(unknown, "boot-unknown"), deadline());
    assert.equal(await other.sweep(new Set()), 0);
    lost.release();
    assert.equal(await (await place.driver()).sweep(new Set(["boot-known"])), 1);
    assert.ok(await answersWithin(kept.guest, onThisHost(5_000)));
    await kept.kill();
  });

  some.test("a machine's disk never has two VMMs", async () => {
    const machine = await place.machine("mach-twice", 700_008);
    const first = await driver.boot(place.bootOf(machine, "boot-twice-1"), deadline());
    await assert.rejects(driver.boot(place.bootOf(machine, "boot-twice-2"), deadline()), /lock/);
    assert.ok(await answersWithin(first.guest, onThisHost(5_000)));
    await first.kill();
    assert.equal(await driver.sweep(new Set()), 0);
  });

  some.test("a boot that cannot succeed says why and leaves no VMM", async () => {
    const machine = await place.machine("mach-bad", 700_009);
    writeFileSync(machine.diskPath, "not a disk");
    await assert.rejects(
      driver.boot(place.bootOf(machine, "boot-bad"), deadline()),
      /^Error: the VM of machine mach-bad failed to start: .*qcow2/,
    );
    assert.equal(await driver.sweep(new Set()), 0);
  });

  some.test("cancelling a boot ends its VMM", async () => {
    const machine = await place.machine("mach-given-up", 700_010);
    const controller = new AbortController();
    const request = place.bootOf(machine, "boot-given-up");
    const booting = driver.boot(request, controller.signal);
    const refused = assert.rejects(booting, /failed to start: no longer wanted/);
    await until(() => existsSync(join(request.bootDirectory, "qmp.sock")), { what: "the VMM to be there" });
    controller.abort(new Error("no longer wanted"));
    await refused;
    assert.equal(await driver.sweep(new Set()), 0);
  });

  some.run(TESTS_PER_RUN);
});
