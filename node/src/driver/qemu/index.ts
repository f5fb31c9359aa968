/**
 * The driver that runs machines in QEMU: one unprivileged, jailed VMM per boot.
 *
 * Owns the VMM processes of one node directory, and in each boot's directory `qmp.sock`, `guest.sock` and `vmm.log`.
 * Leaves directories, journals and the bound on boots at once to machines/.
 *
 * Always: a VMM is in a session of its own and outlives this process. It is found again by its command line, which
 * names machine, boot and node directory, so a crash between spawning and writing its record loses nothing. A boot
 * that fails has no VMM any more when `boot` rejects.
 */
import { execFile, spawn } from "node:child_process";
import { constants } from "node:fs";
import { chmod, chown, mkdir, mkdtemp, open, readFile, realpath, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { type Clock, deadlineSignal } from "../../clock.ts";
import { connectGuest } from "../../guest/client.ts";
import { type AcceleratorVerdict, chooseAccelerator } from "../../host/accelerator.ts";
import { tscKhzIn } from "../../host/time-stamp-counter.ts";
import { type Log, messageOf } from "../../log.ts";
import type { BootRequest, Driver, DriverFacts, Vm, VmRecord } from "../driver.ts";
import { type Accelerator, QEMU_PROGRAM, qemuArgv } from "./argv.ts";
import { endedGuest } from "./ended-guest.ts";
import { ensureGuestFiles, type GuestFiles, INITRAMFS_NAME, KERNEL_NAME } from "./guest-files.ts";
import { type Jail, jailArgv, jailView } from "./jail.ts";
import { findVmms, isAlive, killNow, startTimeOf, vmmName } from "./processes.ts";
import { Qmp } from "./qmp.ts";
import { connectWhenThere } from "./sockets.ts";
import { Vmm } from "./vmm.ts";

export interface QemuDriverOptions {
  /** Everything that a VMM reads and writes lies below it: boots, disks, images. */
  readonly nodeDirectory: string;
  readonly cacheDirectory: string;
  readonly accelerator: "auto" | Accelerator;
  readonly clock: Clock;
  readonly log: Log;
}

/** Where guest/ is. */
const REPOSITORY_DIRECTORY = join(import.meta.dirname, "../../../..");
/** A guest that KVM really runs answers within a second; this one may share its host with many. */
const PROBE_MS = 8_000;
/** The caller's signal gives up earlier; this only ends what nobody waits for any more. */
const HELLO_MS_MAX = 600_000;
/** What a launcher and a VMM need of the environment; they are told nothing else. */
const VMM_ENVIRONMENT = { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" };
const NOBODY = 65_534;

/** Throws with what to do when QEMU, kernel or agent are missing. Probes for KVM when that has not been done. */
export async function openQemuDriver(options: QemuDriverOptions): Promise<Driver> {
  const { cacheDirectory, accelerator, clock, log } = options;
  const runtime = await openRuntime({ cacheDirectory, setting: accelerator, clock, log });
  return openIn(options.nodeDirectory, { ...runtime, clock, log });
}

/** What `doctor` tells of this host: the same that a driver would find. */
export async function qemuFacts(options: Omit<QemuDriverOptions, "nodeDirectory">): Promise<DriverFacts> {
  const { cacheDirectory, accelerator, clock, log } = options;
  const runtime = await openRuntime({ cacheDirectory, setting: accelerator, clock, log });
  return factsOf(runtime);
}

/** Programs and files on this host, and what it can do with them. */
interface Runtime {
  readonly qemuVersion: string;
  readonly guestFiles: GuestFiles;
  readonly tscKhz: number | null;
  readonly verdict: AcceleratorVerdict;
}

type Host = Runtime & { readonly clock: Clock; readonly log: Log };

interface RuntimeQuestion {
  readonly cacheDirectory: string;
  readonly setting: "auto" | Accelerator;
  readonly clock: Clock;
  readonly log: Log;
}

async function openRuntime({ cacheDirectory, setting, clock, log }: RuntimeQuestion): Promise<Runtime> {
  const [qemuVersion, guestFiles, cpuinfo] = await Promise.all([
    readQemuVersion(),
    ensureGuestFiles({ cacheDirectory, repositoryDirectory: REPOSITORY_DIRECTORY }),
    readFile("/proc/cpuinfo", "utf8"),
  ]);
  const tscKhz = tscKhzIn(cpuinfo);
  const versions = `QEMU ${qemuVersion}, guest ${guestFiles.key}`;
  const probe = (): Promise<void> => probeKvm({ qemuVersion, guestFiles, tscKhz, clock, log });
  const verdict = await chooseAccelerator({ setting, cacheDirectory, versions, probe });
  return { qemuVersion, guestFiles, tscKhz, verdict };
}

async function openIn(directory: string, host: Host): Promise<QemuDriver> {
  const givenDirectory = resolve(directory);
  await mkdir(givenDirectory, { recursive: true, mode: 0o700 });
  return new QemuDriver({ ...host, givenDirectory, nodeDirectory: await realpath(givenDirectory) });
}

async function readQemuVersion(): Promise<string> {
  const { stdout } = await promisify(execFile)(QEMU_PROGRAM, ["--version"]).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") throw new Error(`${QEMU_PROGRAM} is not installed; run scripts/setup`);
    throw error;
  });
  return /version (\S+)/.exec(stdout)?.[1] ?? "unknown";
}

/** Boots the smallest guest with KVM, without a disk and without leaving anything. Rejects when it does not answer. */
async function probeKvm(host: Omit<Host, "verdict">): Promise<void> {
  const nodeDirectory = await mkdtemp(join(tmpdir(), "flotilla-probe-"));
  const deadline = deadlineSignal(host.clock, PROBE_MS);
  try {
    const verdict = { accelerator: "kvm", reason: "probe" } as const;
    const driver = await openIn(nodeDirectory, { ...host, verdict });
    await driver.probe(deadline.signal);
  } finally {
    deadline.dispose();
    await rm(nodeDirectory, { recursive: true, force: true });
  }
}

function factsOf({ qemuVersion, guestFiles, verdict }: Omit<Runtime, "tscKhz">): DriverFacts {
  return {
    name: "qemu",
    accelerator: verdict.accelerator,
    acceleratorReason: verdict.reason,
    runtime: `QEMU ${qemuVersion}, Linux ${guestFiles.kernelVersion}`,
    rootDevice: "/dev/vda",
  };
}

/** A boot, or the probe, which has no disk. */
type Launch = Omit<BootRequest, "diskPath"> & { readonly diskPath: string | null };

class QemuDriver implements Driver {
  readonly facts: DriverFacts;
  /** Without links in it: what command lines are compared with. */
  readonly #nodeDirectory: string;
  readonly #givenDirectory: string;
  readonly #guestFiles: GuestFiles;
  readonly #accelerator: Accelerator;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #tscKhz: number | null;
  readonly #isRoot = process.getuid?.() === 0;

  constructor(options: Host & { readonly nodeDirectory: string; readonly givenDirectory: string }) {
    this.facts = factsOf(options);
    this.#nodeDirectory = options.nodeDirectory;
    this.#givenDirectory = options.givenDirectory;
    this.#guestFiles = options.guestFiles;
    this.#accelerator = options.verdict.accelerator;
    this.#tscKhz = options.tscKhz;
    this.#clock = options.clock;
    this.#log = options.log.child({ driver: "qemu" });
  }

  async boot(request: BootRequest, signal: AbortSignal): Promise<Vm> {
    try {
      return await this.#start(request, signal);
    } catch (error) {
      throw new Error(`the VM of machine ${request.machineId} did not start: ${messageOf(error)}`);
    }
  }

  async probe(signal: AbortSignal): Promise<void> {
    const bootDirectory = join(this.#nodeDirectory, "boot");
    await mkdir(bootDirectory);
    const [cpus, memoryMb, uid] = [1, 128, NOBODY];
    const names = { machineId: "probe", bootId: "probe", bootDirectory };
    const vm = await this.#start({ ...names, cpus, memoryMb, uid, diskPath: null, backingPaths: [] }, signal);
    vm.guest.close();
    await vm.kill();
  }

  async adopt(request: BootRequest, record: VmRecord | null, signal: AbortSignal): Promise<Vm | "gone"> {
    const uid = this.#uidOf(request);
    const found = (await findVmms(this.#nodeDirectory)).find(
      (vmm) =>
        vmm.bootId === request.bootId &&
        (record === null || (vmm.pid === record.pid && vmm.startTime === record.startTime)) &&
        // A launcher is still root; anybody else only pretends to be this boot.
        (vmm.uid === uid || vmm.uid === process.getuid?.()),
    );
    if (found === undefined) return "gone";
    const { bootId, pid, startTime } = found;
    const vmm = this.#watch({ bootId, pid, startTime }, request.bootDirectory, null);
    try {
      return await this.#open(vmm, request, signal);
    } catch (error) {
      // It powered off just now: `exited` says so, which "gone" could not.
      if (vmm.hasShutDown) return this.#vm(vmm, endedGuest());
      if (!isAlive(vmm.record)) return "gone";
      vmm.release();
      throw new Error(`the VM of machine ${request.machineId} runs but its agent does not answer: ${messageOf(error)}`);
    }
  }

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const unknown = (await findVmms(this.#nodeDirectory)).filter(({ bootId }) => !known.has(bootId));
    for (const vmm of unknown) {
      this.#log.warn({ boot: vmm.bootId, pid: vmm.pid }, "ending a VM that no journal knows");
      killNow(vmm);
    }
    for (const vmm of unknown) while (isAlive(vmm)) await this.#clock.sleep(SWEEP_LOOK_MS);
    return unknown.length;
  }

  async #start(launch: Launch, signal: AbortSignal): Promise<Vm> {
    signal.throwIfAborted();
    await this.#makeReachable(launch);
    const vmm = await this.#spawn(launch);
    try {
      return await this.#open(vmm, launch, signal);
    } catch (error) {
      const words = await Promise.race([vmm.lastWords(), this.#clock.sleep(LAST_WORDS_MS)]);
      await vmm.kill();
      const saying = words && !messageOf(error).includes(words) ? `; the guest's last words: ${words}` : "";
      throw new Error(`${messageOf(error)}${saying}`);
    }
  }

  /** The boot's directory is its user's; those on the way to its files may be passed by it, and not be listed. */
  async #makeReachable(launch: Launch): Promise<void> {
    if (!this.#isRoot) return;
    await chown(launch.bootDirectory, launch.uid, launch.uid);
    const files = [launch.bootDirectory, launch.diskPath ?? launch.bootDirectory, ...launch.backingPaths];
    const directories = new Set<string>();
    for (const file of files) {
      for (let place = dirname(this.#inside(file)); place !== "."; place = dirname(place)) {
        directories.add(join(this.#nodeDirectory, place));
      }
    }
    for (const path of [this.#nodeDirectory, ...directories]) {
      const { mode } = await stat(path);
      if ((mode & 0o001) === 0) await chmod(path, (mode & 0o7777) | 0o001);
    }
  }

  #uidOf(launch: Launch): number {
    return this.#isRoot ? launch.uid : (process.getuid?.() ?? NOBODY);
  }

  /** A path's place below the node's directory. Throws when it is elsewhere: the VMM could not see it. */
  #inside(path: string): string {
    // Callers may know the directory by another name, such as a link's.
    for (const directory of [this.#nodeDirectory, this.#givenDirectory]) {
      const place = relative(directory, path);
      if (place !== "" && !place.startsWith("..")) return place;
    }
    throw new Error(`${path} is not below ${this.#nodeDirectory}`);
  }

  async #spawn(launch: Launch): Promise<Vmm> {
    const jail: Jail = {
      nodeDirectory: this.#nodeDirectory,
      guestDirectory: this.#guestFiles.directory,
      uid: this.#isRoot ? launch.uid : null,
      hasKvm: this.#accelerator === "kvm",
    };
    const argv = jailArgv(jail, QEMU_PROGRAM, this.#qemuArgv(launch, jail));
    const logPath = join(launch.bootDirectory, "vmm.log");
    const { O_WRONLY, O_CREAT, O_APPEND, O_NOFOLLOW } = constants;
    const log = await open(logPath, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0o600);
    try {
      const [program = "", ...rest] = argv;
      // A session of its own: it must outlive this process and its terminal.
      const child = spawn(program, rest, {
        cwd: "/",
        detached: true,
        env: VMM_ENVIRONMENT,
        stdio: ["ignore", log.fd, log.fd],
      });
      child.unref();
      const pid = child.pid ?? 0;
      return this.#watch({ bootId: launch.bootId, pid, startTime: startTimeOf(pid) ?? 0 }, launch.bootDirectory, child);
    } finally {
      await log.close();
    }
  }

  #qemuArgv(launch: Launch, jail: Jail): readonly string[] {
    const view = jailView(jail);
    const seen = (path: string): string => join(view.nodeDirectory, this.#inside(path));
    const { machineId, bootId, cpus, memoryMb, diskPath } = launch;
    return qemuArgv({
      name: vmmName(machineId, bootId, this.#nodeDirectory),
      accelerator: this.#accelerator,
      cpus,
      memoryMb,
      memory: { kind: "private" },
      kernelPath: join(view.guestDirectory, KERNEL_NAME),
      initramfsPath: join(view.guestDirectory, INITRAMFS_NAME),
      disk: diskPath === null ? null : { path: seen(diskPath), backingPaths: launch.backingPaths.map(seen) },
      socketDirectory: seen(launch.bootDirectory),
      tscKhz: this.#tscKhz,
      isIncoming: false,
    });
  }

  #watch(record: VmRecord, bootDirectory: string, child: ConstructorParameters<typeof Vmm>[0]["child"]): Vmm {
    return new Vmm({ record, child, logPath: join(bootDirectory, "vmm.log"), clock: this.#clock, log: this.#log });
  }

  /** Connects to a VMM's channels and waits for the agent's hello; ends early when the VMM does. */
  async #open(vmm: Vmm, launch: Launch, giveUp: AbortSignal): Promise<Vm> {
    const ended = new AbortController();
    void vmm.exited.then((exit) => ended.abort(new Error(exit.detail)));
    const signal = AbortSignal.any([giveUp, ended.signal]);
    const place = (name: string) => ({ path: join(launch.bootDirectory, name), uid: this.#uidOf(launch) });
    try {
      const startedAt = this.#clock.monotonic();
      const control = await connectWhenThere(place("qmp.sock"), this.#clock, signal);
      await vmm.attach(await Qmp.connect(control, vmm.onEvent, signal));
      if (vmm.hasShutDown) return this.#vm(vmm, endedGuest());
      const channel = await connectWhenThere(place("guest.sock"), this.#clock, signal);
      const qmpMs = Math.round(this.#clock.monotonic() - startedAt);
      const guest = await connectGuest(channel, { helloTimeoutMs: HELLO_MS_MAX, signal, clock: this.#clock });
      const helloMs = Math.round(this.#clock.monotonic() - startedAt);
      this.#log.debug({ boot: launch.bootId, qmpMs, helloMs }, "a guest answers");
      return this.#vm(vmm, guest);
    } catch (error) {
      // Why the VMM ended says more than which channel broke by it.
      await Promise.race([vmm.exited, this.#clock.sleep(LAST_WORDS_MS, giveUp)]);
      signal.throwIfAborted();
      throw error;
    }
  }

  #vm(vmm: Vmm, guest: Vm["guest"]): Vm {
    const release = (): void => {
      guest.close();
      vmm.release();
    };
    return { record: vmm.record, guest, exited: vmm.exited, kill: () => vmm.kill(), release };
  }
}

const SWEEP_LOOK_MS = 5;
/** How long a VMM that is being given up may take to say why. */
const LAST_WORDS_MS = 500;
