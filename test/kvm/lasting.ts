/**
 * A program for the emulated host: machines in a node directory that outlives it and the host's boot.
 *
 *     node lasting.ts begin DIRECTORY    a machine from a template writes and syncs a file, then keeps writing
 *     node lasting.ts resume DIRECTORY   the same machine and a new one start, from a template again
 *
 * After `begin` the machine keeps running, as after the end of a node agent.
 */
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Driver, Vm } from "../../node/src/driver/driver.ts";
import { configure, NodePlace, shell, shellInBackground } from "../vm/vm-fixture.ts";

const [, , task, directory = ""] = process.argv;
const DEADLINE_MS = 240_000;
const UID = 720_000;
mkdirSync(directory, { recursive: true });
const place = new NodePlace({ kept: directory });
const before = templates();
const driver: Driver = await place.driver();
const deadline = (): AbortSignal => AbortSignal.timeout(DEADLINE_MS);

/** The names of the complete ones. */
function templates(): readonly string[] {
  const all = join(place.directory, "templates");
  return existsSync(all) ? readdirSync(all).filter((name) => existsSync(join(all, name, "template.json"))) : [];
}

/** Makes a template when none matches, and a machine from it. */
async function start(machineId: string, uid: number): Promise<Vm> {
  const machine = await place.machine(machineId, uid);
  if (driver.prepare === null) throw new Error("this driver prepares nothing");
  const bootId = `boot-${randomBytes(16).toString("hex")}`;
  const bootDirectory = join(place.directory, "prepared", bootId);
  mkdirSync(bootDirectory, { recursive: true, mode: 0o700 });
  const size = { cpus: machine.cpus, memoryMb: machine.memoryMb, uid };
  const prepared = await driver.prepare(
    { bootId, bootDirectory, ...size, disk: null, isFrequent: false, makeScratchDisk: null },
    deadline(),
  );
  const vm = await prepared.start(place.bootOf(machine, bootId));
  await configure(vm.guest, driver);
  return vm;
}

if (task === "begin") {
  const vm = await start("mach-lasting", UID);
  await shell(vm.guest, "echo synced > /workspace/file && sync");
  await shellInBackground(vm.guest, "while :; do busybox dd if=/dev/zero of=/workspace/more bs=64k count=100; done");
  vm.release();
} else {
  // The host's reboot has ended every VMM, and an agent removes prepared ones.
  rmSync(join(place.directory, "prepared"), { recursive: true, force: true });
  for (const [at, machineId] of ["mach-lasting", "mach-new"].entries()) {
    const vm = await start(machineId, UID + at);
    const file = await shell(vm.guest, "cat /workspace/file 2>/dev/null || echo none");
    const flags = await shell(vm.guest, "busybox grep -m1 ^flags /proc/cpuinfo");
    const hidden = ["svm", "vmx"].filter((flag) => flags.split(/\s/).includes(flag));
    process.stdout.write(`${machineId}: ${file.trim()}, sees of virtualization: ${hidden.join(" ") || "nothing"}\n`);
    await vm.kill();
  }
  process.stdout.write(`templates made: ${templates().filter((name) => !before.includes(name)).length}\n`);
}
process.exit(0);
