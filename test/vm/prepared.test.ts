/**
 * VMs that start from a template: what they share and what they must not, and what a VMM can do to the
 * template.
 *
 * The template is made once, of the smallest size; each machine then takes tenths of a second.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, renameSync, statSync } from "node:fs";
import { watch } from "node:fs/promises";
import { join } from "node:path";
import { after, afterEach, before, describe } from "node:test";
import { qcow2Disks } from "../../node/src/disks/disks.ts";
import type { Driver, PreparedDisk, PreparedVm, Vm } from "../../node/src/driver/driver.ts";
import { DrawnTests } from "../support/drawn.ts";
import { vmmsOf } from "../support/node-on-host.ts";
import { until } from "../support/until.ts";
import { BOOT_DEADLINE_MS, configure, deadline, NodePlace, shell, skipReason } from "./vm-fixture.ts";

/** Two of one secret would show; more on demand, at a second and a half each. */
const MACHINES = Number(process.env["FLOTILLA_TEST_MACHINES"] ?? 6);
/** How many of fourteen a run plays. */
const TESTS_PER_RUN = 7;

describe("VMs from a template", { skip: skipReason }, () => {
  let place: NodePlace;
  let driver: Driver;
  let count = 0;

  before(async () => {
    place = new NodePlace();
    driver = await place.driver();
  });
  afterEach(() => place.sweep());
  after(() => place[Symbol.asyncDispose]());

  interface PrepareOptions {
    readonly kind: "own" | "scratch" | "none";
    readonly signal?: AbortSignal;
    readonly bootId?: string;
    readonly isFrequent?: boolean;
  }

  async function prepare(options: PrepareOptions): Promise<PreparedVm> {
    count += 1;
    const { bootId = `boot-${randomBytes(16).toString("hex")}` } = options;
    const bootDirectory = join(place.directory, "prepared", bootId);
    mkdirSync(bootDirectory, { recursive: true, mode: 0o700 });
    const size = { cpus: 1, memoryMb: 192, uid: 710_000 + count };
    const path = join(bootDirectory, "disk");
    const { kind } = options;
    const make = async (): Promise<PreparedDisk> => {
      await qcow2Disks.make({ diskPath: path, root: place.image, diskGb: 1, uid: size.uid });
      return { path, backingPaths: [place.image.rootPath], bytes: 2 ** 30, user: "" };
    };
    const [disk, makeScratchDisk] = [kind === "own" ? await make() : null, kind === "scratch" ? make : null];
    const request = { bootId, bootDirectory, ...size, disk, isFrequent: options.isFrequent ?? false, makeScratchDisk };
    assert.ok(driver.prepare);
    return driver.prepare(request, options.signal ?? deadline());
  }

  async function start(prepared: PreparedVm, machineId: string): Promise<Vm> {
    const machine = await place.machine(machineId, prepared.uid);
    const vm = await prepared.start(place.bootOf(machine, prepared.bootId));
    await configure(vm.guest, driver);
    return vm;
  }

  /** Starts a VM that was prepared with its own disk, as a machine that takes both. */
  async function startWithDisk(prepared: PreparedVm, machineId: string): Promise<Vm> {
    const directory = join(place.directory, "machines", machineId);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    renameSync(join(place.directory, "prepared", prepared.bootId, "disk"), join(directory, "disk"));
    return start(prepared, machineId);
  }

  const mountedTemplates = (): readonly string[] =>
    readdirSync(join(place.directory, "templates")).filter((name) => name.includes("disk-"));

  const some = new DrawnTests();

  some.test("a prepared VM becomes a machine with its own disk, and nothing of the warm-up is left in it", async () => {
    const vm = await start(await prepare({ kind: "scratch" }), "mach-warm");
    assert.equal(await shell(vm.guest, "cat /etc/hostname; echo mine > /workspace/file; sync"), "tested\n");
    const mounts = await shell(vm.guest, "cat /proc/mounts");
    assert.equal(mounts.split("\n").filter((line) => line.startsWith("/dev/vda ")).length, 1, mounts);
    const groups = await shell(vm.guest, "busybox ls /sys/fs/cgroup");
    assert.ok(!/flotilla-(?!1-)/.test(groups), groups);
    assert.deepEqual(readdirSync(join(place.directory, "machines/mach-warm/boots", vm.record.bootId)).sort(), [
      "bulk",
      // Its disk and the image below it, as the VMM sees them.
      "file-0",
      "file-1.ext4",
      "guest.sock",
      "output",
      "qmp.sock",
    ]);
    await vm.kill();
    const again = await driver.boot(
      place.bootOf({ ...(await place.machine("mach-other", 719_999)) }, "boot-other"),
      deadline(),
    );
    await configure(again.guest, driver);
    await assert.rejects(shell(again.guest, "cat /workspace/file"), /No such file/);
    await again.kill();
  });

  some.test("a VM prepared with its own disk becomes a machine with that disk and a new name", async () => {
    const prepared = await prepare({ kind: "own" });
    const directory = join(place.directory, "machines", "mach-own");
    mkdirSync(join(directory, "boots", prepared.bootId), { recursive: true, mode: 0o700 });
    const diskPath = join(directory, "disk");
    renameSync(join(place.directory, "prepared", prepared.bootId, "disk"), diskPath);
    const vm = await prepared.start({
      machineId: "mach-own",
      bootId: prepared.bootId,
      bootDirectory: join(directory, "boots", prepared.bootId),
      cpus: 1,
      memoryMb: 192,
      diskPath,
      diskBytes: 2 ** 30,
      backingPaths: [place.image.rootPath],
      uid: prepared.uid,
      network: { mode: "open" },
      publishedPorts: [],
    });
    assert.equal(vm.guest.hello.isConfigured, true);
    await configure(vm.guest, driver);
    const names = await shell(vm.guest, "cat /etc/hostname /etc/hosts /etc/machine-id; busybox hostname");
    assert.match(names, /^tested\n/);
    assert.ok(!/flotilla|([01])\1{31}/.test(names), names);
    assert.equal(
      await shell(vm.guest, "cat /etc/hostname; busybox ls -A / | busybox grep -c flotilla || :"),
      "tested\n0\n",
    );
    await shell(vm.guest, "echo kept > /workspace/file && sync");
    await vm.kill();
    const machine = { ...(await place.machine("mach-scrap", prepared.uid)), machineId: "mach-own", diskPath };
    const again = await driver.boot(place.bootOf(machine, "boot-own-again"), deadline());
    await configure(again.guest, driver);
    assert.equal(await shell(again.guest, "cat /workspace/file"), "kept\n");
    await again.kill();
  });

  some.test("a VM that was prepared with its disk does not keep it open for writing below another one", async () => {
    const prepared = await prepare({ kind: "own" });
    const vm = await startWithDisk(prepared, "mach-branched");
    const directory = join(place.directory, "machines/mach-branched");
    const boot = place.bootOf(await place.machine("mach-branched", prepared.uid), prepared.bootId);
    const overlayPath = join(directory, "overlay");
    await qcow2Disks.make({ diskPath: overlayPath, root: place.image, diskGb: 1, uid: boot.uid });
    assert.ok(vm.points);
    const request = { boot, directory, pointDirectory: directory, overlayPath, memoryId: null };
    await (await vm.points.begin(request, deadline())).take();
    const { ino } = statSync(join(directory, "disk"));
    const locks = readFileSync("/proc/locks", "utf8").split("\n");
    const taken = locks.flatMap((line) => new RegExp(`:${ino} (\\d+) (\\d+)$`).exec(line)?.slice(1).map(Number) ?? []);
    // The lock of a QEMU that may write.
    assert.ok(taken.includes(100) && !taken.includes(101), JSON.stringify(taken));
    await vm.kill();
  });

  some.test("machines of an image's template have separate disks, which hold what each wrote", async (context) => {
    if (driver.facts.accelerator === "kvm") return context.skip("only emulated guests are saved with a disk");
    const first = await startWithDisk(await prepare({ kind: "own", isFrequent: true }), "mach-image-1");
    assert.equal(mountedTemplates().length, 1);
    await shell(first.guest, "echo first > /workspace/file; echo secret > /tmp/secret; sync");
    const second = await place.machine("mach-image-2", 719_996);
    const size = { memoryMb: 192, hasNewDisk: true };
    const vm = await driver.boot(place.bootOf({ ...second, ...size }, "boot-image-2"), deadline());
    assert.deepEqual([vm.origin, vm.guest.hello.isConfigured], ["template", true], "its disk is mounted already");
    await configure(vm.guest, driver);
    assert.equal(
      await shell(vm.guest, "cat /etc/hostname; busybox ls -A /workspace /tmp"),
      "tested\n/tmp:\n\n/workspace:\n",
    );
    assert.ok(!/([01])\1{31}/.test(await shell(vm.guest, "cat /etc/machine-id /etc/hosts")));
    await shell(vm.guest, "echo second > /workspace/file; sync");
    await Promise.all([first.kill(), vm.kill()]);
    for (const [name, uid, content] of [
      ["mach-image-1", 719_995, "first"],
      ["mach-image-2", 719_996, "second"],
    ] as const) {
      const again = await driver.boot(
        place.bootOf(await place.machine(name, uid), `boot-again-${content}`),
        deadline(),
      );
      await configure(again.guest, driver);
      assert.equal(await shell(again.guest, "cat /workspace/file"), `${content}\n`);
      assert.equal(await shell(again.guest, "busybox dmesg | busybox grep -ci 'ext4-fs error' || :"), "0\n");
      await again.kill();
    }
  });

  some.test(
    "an emulated VM has idle priority while it is prepared, and normal priority afterwards",
    async (context) => {
      if (driver.facts.accelerator === "kvm") return context.skip("only emulated VMs are prepared so");
      const bootId = `boot-${randomBytes(16).toString("hex")}`;
      const prepared = prepare({ kind: "own", bootId });
      await until(() => policiesOf(bootId).includes(SCHED_IDLE), {
        what: "an idle task",
        deadlineMs: BOOT_DEADLINE_MS,
      });
      const vm = await prepared;
      // A new thread may have been missed; such threads end when they are idle for a while.
      const isShare = (policy: number): boolean => policy === SCHED_BATCH;
      const wait = { what: "threads that have their share", deadlineMs: BOOT_DEADLINE_MS };
      await until(() => policiesOf(bootId).length > 0 && policiesOf(bootId).every(isShare), wait);
      await vm.discard();
    },
  );

  some.test(
    "memory that commands have freed is returned to the host, from a restored guest and from a booted one",
    async () => {
      const restored = await start(await prepare({ kind: "none" }), "mach-restored");
      const booted = await driver.boot(
        place.bootOf(await place.machine("mach-booted", 719_997), "boot-booted"),
        deadline(),
      );
      await configure(booted.guest, driver);
      for (const { guest, record, kill } of [restored, booted].map((vm) => ({ ...vm, kill: () => vm.kill() }))) {
        assert.equal(await shell(guest, "busybox grep -c balloon /proc/modules || :"), "0\n");
        await shell(guest, `busybox dd if=/dev/zero of=/dev/shm/file bs=1M count=${FILE_MB}`);
        const used = privateMegabytes(record.pid);
        assert.ok(used > FILE_MB, `${used} MB`);
        await shell(guest, "busybox rm /dev/shm/file");
        await until(() => privateMegabytes(record.pid) < used - FILE_MB * 0.8, { what: "the memory" });
        await kill();
      }
    },
  );

  some.test("a prepared VM that was started is adopted like any other", async () => {
    const prepared = await prepare({ kind: "none" });
    const machine = await place.machine("mach-adopt", prepared.uid);
    const request = place.bootOf(machine, prepared.bootId);
    const vm = await prepared.start(request);
    await configure(vm.guest, driver);
    await shell(vm.guest, "echo here > /tmp/marker");
    vm.release();
    const adopted = await (await place.driver()).adopt(request, vm.record, deadline());
    assert.notEqual(adopted, "gone");
    if (adopted === "gone") return;
    assert.equal(await shell(adopted.guest, "cat /tmp/marker"), "here\n");
    await adopted.kill();
  });

  some.test("a prepared VM that was taken and never started is unknown to the next agent, and ended", async () => {
    const prepared = await prepare({ kind: "none" });
    const machine = await place.machine("mach-taken", prepared.uid);
    const next = await place.driver();
    assert.equal(await next.adopt(place.bootOf(machine, prepared.bootId), null, deadline()), "gone");
    await prepared.exited;
  });

  some.test(
    "a VM whose start was not recorded is unknown to the next agent, and ended, at whatever point of the start",
    async () => {
      const prepared = await prepare({ kind: "own" });
      const machine = await place.machine("mach-half-taken", prepared.uid);
      const request = place.bootOf(machine, prepared.bootId);
      renameSync(join(place.directory, "prepared", prepared.bootId), request.bootDirectory);
      assert.equal(await (await place.driver()).adopt(request, null, deadline()), "gone");
      await prepared.exited;
    },
  );

  some.test("an agent stopped while it makes a template leaves neither VMM nor files of it", async () => {
    const bootDirectory = join(place.directory, "prepared", "boot-given-up");
    mkdirSync(bootDirectory, { recursive: true, mode: 0o700 });
    const before = readdirSync(join(place.directory, "templates"));
    const stop = new AbortController();
    const size = { cpus: 1, memoryMb: 208, uid: 719_998 };
    const request = {
      bootId: "boot-given-up",
      bootDirectory,
      ...size,
      disk: null,
      isFrequent: false,
      makeScratchDisk: null,
    };
    const preparing = assert.rejects(driver.prepare?.(request, stop.signal) ?? Promise.resolve(), /stopped/);
    const isMade = (): boolean =>
      readdirSync(join(place.directory, "templates")).some(
        (name) => name.endsWith(".new") && existsSync(join(place.directory, "templates", name, "boot", "qmp.sock")),
      );
    await until(isMade, { what: "the VMM of the template" });
    stop.abort(new Error("stopped"));
    await preparing;
    assert.equal(await place.sweep(), 0);
    assert.deepEqual(readdirSync(join(place.directory, "templates")), before);
  });

  some.test("a VM that goes silent while it is prepared is discarded at the deadline", async () => {
    await (await prepare({ kind: "own" })).discard();
    const bootId = "boot-silent";
    const bootDirectory = join(place.directory, "prepared", bootId);
    mkdirSync(bootDirectory, { recursive: true, mode: 0o700 });
    const time = new AbortController();
    const watching = watch(bootDirectory, { signal: time.signal });
    const preparing = assert.rejects(prepare({ kind: "own", bootId, signal: time.signal }), /too long/);
    // Made for the template's state, and removed when the VM has it: the next step is a request to the guest.
    let changes = 0;
    for await (const { filename } of watching) {
      if (filename === "incoming.sock") changes += 1;
      if (changes === 2) break;
    }
    const silent = vmmsOf(realpathSync(place.directory)).filter((vmm) => vmm.bootId === bootId);
    for (const { pid } of silent) process.kill(pid, "SIGSTOP");
    assert.equal(silent.length, 1);
    time.abort(new Error("it took too long"));
    await preparing;
    assert.equal(await place.sweep(), 0);
  });

  some.test("a start from a template that fails leaves no VM of it, also when the machine then boots", async () => {
    await (await prepare({ kind: "none" })).discard();
    const machine = { ...(await place.machine("mach-late", 718_000)), memoryMb: 192 };
    const late = new Error("it must not begin any more");
    const never = (): never => {
      throw late;
    };
    await assert.rejects(
      driver.boot({ ...place.bootOf(machine, "boot-never"), mayBegin: never }, deadline()),
      /any more/,
    );
    assert.deepEqual(await driver.find(), []);
    let calls = 0;
    const notFirst = (): void => {
      calls += 1;
      if (calls === 1) throw late;
    };
    const vm = await driver.boot({ ...place.bootOf(machine, "boot-second"), mayBegin: notFirst }, deadline());
    assert.equal(vm.origin, "boot");
    // On a busy host it boots again if its kernel has mismeasured its timer.
    assert.ok(calls >= 2, `${calls} calls`);
    assert.deepEqual(
      (await driver.find()).map(({ record }) => record.pid),
      [vm.record.pid],
    );
    await vm.kill();
  });

  some.test("discarding leaves nothing", async () => {
    const prepared = await prepare({ kind: "none" });
    await prepared.discard();
    assert.ok(!existsSync(join(place.directory, "prepared", prepared.bootId)));
    assert.equal(await place.sweep(), 0);
  });

  some.test("a VMM cannot change the template it was restored from", async () => {
    const prepared = await prepare({ kind: "none" });
    const vm = await start(prepared, "mach-reader");
    // The tests before have made templates with a mounted disk too, and a directory has no order.
    const [key, ...others] = readdirSync(join(place.directory, "templates")).filter((name) => !name.includes("disk-"));
    assert.ok(key !== undefined && others.length === 0, `templates without a disk: ${key} ${others.join(" ")}`);
    const memory = statSync(join(place.directory, "templates", key, "memory"));
    assert.equal(memory.uid, 0);
    assert.equal(memory.mode & 0o222, 0);
    const { pid } = vm.record;
    const opened = readdirSync(`/proc/${pid}/fd`).filter((fd) => {
      const info = readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8");
      const flags = Number.parseInt(/^flags:\s+(\d+)$/m.exec(info)?.[1] ?? "0", 8);
      return statSync(`/proc/${pid}/fd/${fd}`).ino === memory.ino && (flags & 3) !== 0;
    });
    assert.deepEqual(opened, [], "the template's memory is open for writing");
    const mapped = new RegExp(`rw-p [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ ${memory.ino} `);
    assert.match(readFileSync(`/proc/${pid}/maps`, "utf8"), mapped);
    await vm.kill();
  });

  some.test(`${MACHINES} machines of one template share no random bytes, ids, ports or clocks`, async () => {
    const draws: string[][] = [];
    for (let at = 0; at < MACHINES; at += 1) {
      // Every second one from the template of the image.
      const prepared = await prepare({ kind: at % 2 === 0 ? "none" : "own", isFrequent: true });
      const vm = await (at % 2 === 0 ? start : startWithDisk)(prepared, `mach-${at}`);
      draws.push((await shell(vm.guest, DRAW)).trim().split("\n"));
      await vm.kill();
    }
    const names = ["urandom", "uuid", "boot id", "machine id", "local ports", "clock"];
    const columns = names.map((_, column) => draws.map((draw) => draw[column] ?? ""));
    for (const [column, values] of columns.entries()) {
      assert.ok(
        values.every((value) => value !== ""),
        `${names[column]} was not drawn: ${draws[0]?.join(" | ")}`,
      );
    }
    // Four ports of 28,000: a few pairs may be equal by chance, two guests with one secret would have all
    // equal.
    for (const column of [0, 1, 2, 3, 4]) {
      assert.equal(new Set(columns[column]).size, MACHINES, `${names[column]}: ${columns[column]?.join(" ")}`);
    }
    const clocks = columns[5]?.map(Number) ?? [];
    assert.ok(
      clocks.every((clock, at) => at === 0 || clock >= (clocks[at - 1] ?? 0)),
      clocks.join(" "),
    );
    assert.ok(Math.abs((clocks.at(-1) ?? 0) - Date.now() / 1000) < 5, "the clock is wrong");
  });

  some.run(TESTS_PER_RUN);
});

/** On a guest's file system in memory; more than a guest may use before it returns memory. */
const FILE_MB = 70;

function privateMegabytes(pid: number): number {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  return Number(/^Private_Dirty: +(\d+) kB$/m.exec(text)?.[1]) / 1024;
}

/** Process id of the VMM; undefined before its launcher has become it. */
function pidOf(bootId: string): string | undefined {
  return readdirSync("/proc").find((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const commandLine = readFileSync(`/proc/${name}/cmdline`, "utf8");
      return /^[^\0]*qemu-system/.test(commandLine) && commandLine.includes(bootId);
    } catch {
      return false; // It ended during the check.
    }
  });
}

const SCHED_BATCH = 3;
const SCHED_IDLE = 5;

/** The scheduling policy of each of the VMM's threads: field 41 of proc_pid_stat(5), 38 behind the name. */
function policiesOf(bootId: string): readonly number[] {
  const pid = pidOf(bootId);
  if (pid === undefined) return [];
  // A thread may end during the check: `until` repeats it.
  return readdirSync(`/proc/${pid}/task`).map((thread) => {
    const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[38]);
  });
}

/** One line each; the ports are those that four connections over loopback were given. */
const DRAW = [
  "busybox head -c 32 /dev/urandom | busybox sha256sum",
  "cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id /etc/machine-id",
  "busybox nc -ll -p 7 -e busybox cat & server=$!",
  "while ! busybox grep -q ':0007 ' /proc/net/tcp /proc/net/tcp6; do busybox usleep 2000; done",
  "for each in 1 2 3 4; do busybox echo | busybox nc 127.0.0.1 7 >/dev/null; done",
  "busybox awk '$3 ~ /:0007$/ {print $2}' /proc/net/tcp | busybox sort | busybox tr '\\n' ' '; echo",
  "kill $server; busybox date +%s",
].join("\n");
