/**
 * Starts VMM processes in their jail and connects to their channels: the common part of booting, making a
 * template and preparing a VM.
 *
 * Always: a VMM has its own session and outlives this process. Its command line names boot and node
 * directory, so it can be found without any other record. Paths in a launch are the host's; the VMM gets them
 * as its jail shows them.
 */
import { execFile, spawn } from "node:child_process";
import { chmod, lchown, link, rm, stat } from "node:fs/promises";
import { dirname, extname, join, relative } from "node:path";
import { promisify } from "node:util";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { connectGuest } from "../../guest/client.ts";
import type { Guest, GuestConfiguration } from "../../guest/guest.ts";
import type { Cgroups, NewVmmGroup, VmmGroup } from "../../host/cgroups.ts";
import type { FenceLease } from "../../host/fence-lease.ts";
import { NEXT_TAP_NAME, TAP_NAME } from "../../network/addresses.ts";
import { GUEST_ADDRESSING, type GuestNetwork, type Network } from "../../network/network.ts";
import { keepTapOf } from "../../network/taps.ts";
import type { VmRecord } from "../driver.ts";
import { type GuestMemory, qemuArgv } from "./argv.ts";
import { bulkPathIn, makeBulkFile, openBulkDisk } from "./bulk.ts";
import { FENCE_VARIABLE, firstFence } from "./fence.ts";
import {
  type GuestFiles,
  INITRAMFS_NAME,
  JAIL_NAME,
  KERNEL_NAME,
  MEMORY_WATCH_NAME,
  OVERCOMMIT_NAME,
  RESTORE_KERNEL_NAME,
  VMM_LIBRARY_NAME,
} from "./guest-files.ts";
import { jailArgv, VIEW } from "./jail.ts";
import { fileBytesMax, type VmmLimits, vmmLimits } from "./limits.ts";
import { isAlive, startTimeOf, vmmName } from "./processes.ts";
import { Qmp } from "./qmp.ts";
import type { RuntimeFiles } from "./runtime-files.ts";
import { connectWhenReady } from "./sockets.ts";
import type { Tuning } from "./tuning.ts";
import { VmmOutput } from "./vmm-output.ts";
import { Vmm, type VmmOptions } from "./vmm.ts";

/** A VMM to start. Paths are below the node's directory. */
export interface Launch {
  /** The machine's id, or what the VM is for. */
  readonly machineId: string;
  readonly bootId: string;
  /** Exists already; its ownership goes to the VMM's user. */
  readonly bootDirectory: string;
  readonly uid: number;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly memory: GuestMemory;
  /** null: a placeholder. */
  readonly diskPath: string | null;
  /** Size of its current or future disk, as the guest sees it; null if not known yet. */
  readonly diskBytes: number | null;
  readonly backingPaths: readonly string[];
  /** Waits for a template's device state instead of booting. */
  readonly isIncoming: boolean;
  /** The VMM of the same machine and user that it is to replace. Absent: none. */
  readonly replaces?: VmRecord;
  /** Whether it ends with this process, so that no later agent finds it. */
  readonly diesWithParent?: boolean;
  /** Whether it ends at the end of the lease, from its start on. */
  readonly isFenced?: boolean;
  /** As that of a BootRequest. */
  readonly mayBegin?: () => void;
}

export interface LauncherOptions {
  readonly nodeDirectory: string;
  /** The same directory in the caller's notation, such as through a symbolic link. */
  readonly givenDirectory: string;
  readonly guestFiles: GuestFiles;
  readonly runtimeFiles: RuntimeFiles;
  readonly tuning: Tuning;
  /** null: guests have no network interface. Otherwise requires root. */
  readonly network: Network | null;
  /** null: the host has none that can be used. */
  readonly cgroups: Cgroups | null;
  readonly lease: FenceLease;
  readonly clock: Clock;
  readonly log: Log;
}

/** The caller's signal ends the wait earlier; this only limits abandoned connections. */
const HELLO_MS_MAX = 600_000;
/** The whole environment of the launchers. */
const LAUNCHER_ENVIRONMENT = { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" };
/** QEMU's threads rarely allocate: a heap per thread would waste 2 MB each. */
const VMM_ENVIRONMENT = { MALLOC_ARENA_MAX: "1" };
export const NOBODY_UID = 65_534;
/** The directory of images below the node's directory. */
const IMAGES_NAME = "images";
/** QEMU reads this file to learn whether memory may be overcommitted; the kernel decides in the end. */
const OVERCOMMIT_PATH = "/proc/sys/vm/overcommit_memory";

export class Launcher {
  /** Without symbolic links; compared with command lines. */
  readonly nodeDirectory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly isRoot = process.getuid?.() === 0;
  readonly #options: LauncherOptions;

  constructor(options: LauncherOptions) {
    this.nodeDirectory = options.nodeDirectory;
    this.clock = options.clock;
    this.log = options.log;
    this.#options = options;
  }

  /** The user that a VMM effectively runs as. */
  uidOf(launch: { readonly uid: number }): number {
    return this.isRoot ? launch.uid : (process.getuid?.() ?? NOBODY_UID);
  }

  /**
   * Gives `owned` files to the VMM's user, and lets every user traverse, but not list, the directories on the
   * way. The node's own directory stays closed: the jail mounts what it shows while it is still root, and
   * other users of the host get to nothing.
   */
  async makeReachable(uid: number, owned: readonly string[], read: readonly string[]): Promise<void> {
    if (!this.isRoot) return;
    // A VMM may have put a link in place of a file in its directory.
    for (const path of owned) await lchown(path, uid, uid);
    const directories = new Set<string>();
    for (const file of [...owned, ...read]) {
      for (let place = dirname(this.#inside(file)); place !== "."; place = dirname(place)) {
        directories.add(join(this.nodeDirectory, place));
      }
    }
    for (const path of directories) {
      const { mode } = await stat(path);
      if ((mode & 0o001) === 0) await chmod(path, (mode & 0o7777) | 0o001);
    }
  }

  /**
   * Makes files of a machine visible to the VMM of a boot: hard-links them into the boot's directory and
   * returns the paths in the jail. Works before or after the VMM starts; the links are removed with the
   * directory. Rejects when a file other than an image is on a different file system than the node's
   * directory.
   */
  show(bootDirectory: string, paths: readonly string[]): Promise<readonly string[]> {
    return Promise.all(paths.map((path, index) => this.showAs(bootDirectory, path, `file-${index}${extname(path)}`)));
  }

  /** The same of one file, with a name of the caller's. */
  async showAs(bootDirectory: string, path: string, name: string): Promise<string> {
    const inside = relative(bootDirectory, path);
    if (!inside.startsWith("..")) return join(VIEW.boot, inside);
    const second = join(bootDirectory, name);
    try {
      // May exist from an earlier attempt.
      await rm(second, { force: true });
      await link(path, second);
      return join(VIEW.boot, name);
    } catch (error) {
      const image = relative(IMAGES_NAME, this.#inside(path));
      if ((error as NodeJS.ErrnoException).code !== "EXDEV" || image.startsWith("..")) throw error;
      return join(VIEW.images, image);
    }
  }

  async spawn(launch: Launch): Promise<Vmm> {
    const memoryFiles = launch.memory.kind === "file" ? [launch.memory.path] : [];
    const disks = launch.diskPath === null ? [] : [launch.diskPath];
    const bulkPath = bulkPathIn(launch.bootDirectory);
    await makeBulkFile(bulkPath);
    const owned = [launch.bootDirectory, bulkPath, ...disks];
    await this.makeReachable(launch.uid, owned, [...launch.backingPaths, ...memoryFiles]);
    const hasTwin = launch.replaces !== undefined;
    const limits = vmmLimits({ ...launch, hasTwin }, this.#options.tuning.memoryMb);
    launch.mayBegin?.();
    const group = await this.#makeGroup(launch.bootId, limits);
    try {
      return await this.#spawnIn(group, limits, launch);
    } catch (error) {
      // It has no VMM with which it would end.
      await group?.remove();
      throw error;
    }
  }

  async #spawnIn(group: NewVmmGroup | null, limits: VmmLimits, launch: Launch): Promise<Vmm> {
    const fencedUntil = launch.isFenced === true ? firstFence(this.#options.lease) : null;
    const argv = await this.#argv(launch, { limits, group, fencedUntil });
    const { output, writer } = await VmmOutput.make(launch.bootDirectory, this.clock);
    try {
      const [program = "", ...rest] = argv;
      // In its own session, because it must outlive this process and its terminal.
      const child = spawn(program, rest, {
        cwd: "/",
        detached: true,
        env: LAUNCHER_ENVIRONMENT,
        stdio: ["ignore", writer.fd, writer.fd],
      });
      child.unref();
      const pid = child.pid ?? 0;
      const record = { bootId: launch.bootId, pid, startTime: startTimeOf(pid) ?? 0 };
      const vmm = this.#watch(record, launch.bootDirectory, { child, group, output });
      if (fencedUntil !== null) vmm.fence.inherit(fencedUntil);
      return vmm;
    } finally {
      await writer.close();
    }
  }

  /** Watches a VMM that an earlier agent started. */
  async watch(record: VmRecord, bootDirectory: string): Promise<Vmm> {
    const output = await VmmOutput.find(bootDirectory, this.clock);
    const group = this.#options.cgroups?.find(record.bootId) ?? null;
    return this.#watch(record, bootDirectory, { child: null, group, output });
  }

  #watch(record: VmRecord, directory: string, parts: Pick<VmmOptions, "child" | "group" | "output">): Vmm {
    const { lease } = this.#options;
    return new Vmm({ record, directory, ...parts, lease, clock: this.clock, log: this.log });
  }

  /** null: the VMM runs without a control group, as on a host that has none. */
  async #makeGroup(bootId: string, limits: VmmLimits): Promise<NewVmmGroup | null> {
    try {
      return (await this.#options.cgroups?.make(bootId, limits)) ?? null;
    } catch (error) {
      this.log.warn({ boot: bootId, reason: messageOf(error) }, "a VMM runs without a control group");
      return null;
    }
  }

  /**
   * Limits the files of a VMM whose disk was not known before. Not awaited: until then the limit is only too
   * generous.
   */
  limitDisk({ record }: Vmm, diskBytes: number): void {
    const argv = ["--pid", String(record.pid), `--fsize=${fileBytesMax(diskBytes)}`];
    promisify(execFile)("prlimit", argv).catch((error: unknown) => {
      if (isAlive(record))
        this.log.warn({ reason: messageOf(error) }, "the size of a VMM's files could not be limited");
    });
  }

  /**
   * Connects to a VMM's control channel. `staysPaused`: a paused guest is not resumed, and one that runs is
   * paused.
   */
  async control(
    vmm: Vmm,
    launch: Pick<Launch, "bootDirectory" | "uid">,
    signal: AbortSignal,
    { staysPaused = false } = {},
  ): Promise<Qmp> {
    const place = { path: join(launch.bootDirectory, "qmp.sock"), uid: this.uidOf(launch) };
    const socket = await connectWhenReady(place, this.clock, signal);
    const qmp = await Qmp.connect(socket, vmm.onEvent, signal);
    await vmm.attach(qmp, { staysPaused });
    return qmp;
  }

  /**
   * Connects to the guest and waits for its agent's hello. Without `keepsCommands` every command in it ends,
   * unless it is a copy: its programs wait until it is another machine.
   */
  async guest(
    launch: Pick<Launch, "bootDirectory" | "uid">,
    signal: AbortSignal,
    { keepsCommands = false, isClone = false } = {},
  ): Promise<Guest> {
    const place = { path: join(launch.bootDirectory, "guest.sock"), uid: this.uidOf(launch) };
    const bulk = await openBulkDisk({ ...place, path: bulkPathIn(launch.bootDirectory) });
    const channel = await connectWhenReady(place, this.clock, signal).catch(async (error: unknown) => {
      await bulk?.close();
      throw error;
    });
    return connectGuest(channel, {
      helloTimeoutMs: HELLO_MS_MAX,
      signal,
      clock: this.clock,
      keepsCommands,
      isClone,
      bulk,
    });
  }

  /**
   * The network of a running VMM; null if it has none. Closed when the VMM ends, or by the caller on release.
   */
  attachNetwork(vmm: Vmm, uid: number): GuestNetwork | null {
    const guestNetwork = this.#options.network?.attach({ pid: vmm.record.pid, uid }) ?? null;
    void this.closesNetwork(vmm, guestNetwork);
    return guestNetwork;
  }

  /** Closes the network when the VMM has ended, unless it belongs to another VMM by then. */
  async closesNetwork(vmm: Vmm, guestNetwork: GuestNetwork | null): Promise<void> {
    await vmm.exited;
    guestNetwork?.closeOf(vmm.record.pid);
  }

  /** The VMM is the only one of its machine: what another one had in its network is removed. */
  async keepOnlyNetworkOf({ record }: Vmm): Promise<void> {
    if (this.#options.network === null) return;
    await keepTapOf(record.pid).catch((error: unknown) => {
      if (!isAlive(record)) return;
      this.log.warn(
        { boot: record.bootId, reason: messageOf(error) },
        "what a VMM left in a machine's network was not removed",
      );
    });
  }

  /** The program that watches the memory of a VMM. */
  get memoryWatchPath(): string {
    return join(this.#options.guestFiles.directory, MEMORY_WATCH_NAME);
  }

  /** As Tuning has it. */
  get timerKhz(): number | null {
    return this.#options.tuning.timerKhz;
  }

  /** The guest's network configuration, the same for all. */
  get guestAddressing(): Pick<GuestConfiguration, "address" | "nameservers"> {
    if (this.#options.network === null) return { address: null, nameservers: [] };
    return { address: GUEST_ADDRESSING.address, nameservers: [GUEST_ADDRESSING.nameServer] };
  }

  /** A path relative to the node's directory. */
  #inside(path: string): string {
    for (const directory of [this.nodeDirectory, this.#options.givenDirectory]) {
      const place = relative(directory, path);
      if (place !== "" && !place.startsWith("..")) return place;
    }
    throw new Error(`${path} is not below ${this.nodeDirectory}`);
  }

  async #argv(
    launch: Launch,
    parts: { readonly limits: VmmLimits; readonly group: VmmGroup | null; readonly fencedUntil: number | null },
  ): Promise<readonly string[]> {
    const { limits, group, fencedUntil } = parts;
    const { guestFiles, runtimeFiles, tuning, network } = this.#options;
    const { uid, bootDirectory, memory, diskPath, backingPaths, replaces } = launch;
    const shown = diskPath === null ? [] : await this.show(bootDirectory, [diskPath, ...backingPaths]);
    const isRestored = memory.kind === "file" && !memory.isShared;
    const environment = {
      ...VMM_ENVIRONMENT,
      LD_PRELOAD: join(VIEW.guest, VMM_LIBRARY_NAME),
      ...(isRestored ? { FLOTILLA_TEMPLATE_MEMORY: VIEW.memory } : {}),
      ...(fencedUntil === null ? {} : { [FENCE_VARIABLE]: String(fencedUntil) }),
    };
    const jail = {
      launcher: join(guestFiles.directory, JAIL_NAME),
      runtime: runtimeFiles,
      guestDirectory: guestFiles.directory,
      files: [{ from: join(guestFiles.directory, OVERCOMMIT_NAME), to: OVERCOMMIT_PATH }],
      bootDirectory,
      memory: memory.kind === "file" ? memory : null,
      imagesDirectory: await this.#separateImages(),
      uid: this.isRoot ? uid : null,
      hasKvm: tuning.hasKvm,
      network: (replaces === undefined ? network?.setup(uid) : network?.join({ pid: replaces.pid, uid })) ?? null,
      groups: group?.procsPaths ?? [],
      limits,
      environment,
      diesWithParent: launch.diesWithParent ?? false,
      moreSteps: tuning.jailSteps({ isRestored }),
    };
    return jailArgv(jail, this.#program(launch, shown));
  }

  /** The directory of images if it is on a different file system; null otherwise. */
  async #separateImages(): Promise<string | null> {
    const images = join(this.nodeDirectory, IMAGES_NAME);
    const [own, theirs] = await Promise.all([stat(this.nodeDirectory), stat(images).catch(() => null)]);
    return theirs === null || theirs.dev === own.dev ? null : images;
  }

  #program(launch: Launch, [diskPath, ...backingPaths]: readonly string[]): readonly string[] {
    const { machineId, bootId, cpus, memoryMb, memory, isIncoming, replaces } = launch;
    const { processor, kernelParameters } = this.#options.tuning;
    return qemuArgv({
      name: vmmName(machineId, bootId, this.nodeDirectory),
      processor,
      kernelParameters,
      cpus,
      memoryMb,
      memory: memory.kind === "file" ? { ...memory, path: VIEW.memory } : memory,
      // A restored VM has already booted: QEMU only allocates space for the kernel, and the head saves 14 MB
      // per VMM.
      kernelPath: join(VIEW.guest, isIncoming ? RESTORE_KERNEL_NAME : KERNEL_NAME),
      initramfsPath: isIncoming ? null : join(VIEW.guest, INITRAMFS_NAME),
      disk: diskPath === undefined ? null : { path: diskPath, backingPaths },
      bulkPath: bulkPathIn(VIEW.boot),
      socketDirectory: VIEW.boot,
      isIncoming,
      tapName: this.#options.network === null ? null : replaces === undefined ? TAP_NAME : NEXT_TAP_NAME,
    });
  }
}
