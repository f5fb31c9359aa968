/**
 * Starts VMM processes in their jail and connects to their channels: what booting, making a template and preparing a VM
 * have in common.
 *
 * Always: a VMM is in a session of its own and outlives this process; its command line names boot and node directory,
 * so it is found again whatever this process forgot. Paths in a plan are the host's; the VMM is told them as its jail
 * shows them.
 */
import { execFile, spawn } from "node:child_process";
import { constants } from "node:fs";
import { chmod, chown, open, stat, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import type { Clock } from "../../clock.ts";
import { connectGuest } from "../../guest/client.ts";
import type { Guest, GuestConfiguration } from "../../guest/guest.ts";
import type { Cgroups, NewVmmGroup } from "../../host/cgroups.ts";
import { type Log, messageOf } from "../../log.ts";
import { GUEST_NETWORK, type Network, type Reach } from "../../network/network.ts";
import type { VmRecord } from "../driver.ts";
import { type Accelerator, type GuestMemory, QEMU_PROGRAM, qemuArgv } from "./argv.ts";
import { bulkPathIn, makeBulkFile, openBulkDisk } from "./bulk.ts";
import {
  type GuestFiles,
  INITRAMFS_NAME,
  KERNEL_NAME,
  RESTORE_KERNEL_NAME,
  TEMPLATE_MEMORY_NAME,
} from "./guest-files.ts";
import { type Jail, type JailView, jailArgv, jailView } from "./jail.ts";
import { isAlive, startTimeOf, vmmName } from "./processes.ts";
import { vmmLimits } from "./limits.ts";
import { Qmp } from "./qmp.ts";
import { connectWhenThere } from "./sockets.ts";
import { Vmm, type VmmOptions } from "./vmm.ts";

/** A VMM to be started. Paths lie below the node's directory. */
export interface Launch {
  /** Of the machine, or what the VM is for. */
  readonly machineId: string;
  readonly bootId: string;
  /** Exists; becomes the user's. */
  readonly bootDirectory: string;
  readonly uid: number;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly memory: GuestMemory;
  /** null: a placeholder. */
  readonly diskPath: string | null;
  readonly backingPaths: readonly string[];
  /** Waits for a template's device state instead of booting. */
  readonly isIncoming: boolean;
  /** It ends with this process, and no later agent is to find it. */
  readonly diesWithStarter?: boolean;
}

export interface LauncherOptions {
  readonly nodeDirectory: string;
  /** The same directory as callers may name it, such as through a link. */
  readonly givenDirectory: string;
  readonly guestFiles: GuestFiles;
  readonly accelerator: Accelerator;
  readonly tscKhz: number | null;
  /** null: guests have no interface. Takes root. */
  readonly network: Network | null;
  /** null: the host has none that could be used. */
  readonly cgroups: Cgroups | null;
  readonly clock: Clock;
  readonly log: Log;
}

/** The caller's signal gives up earlier; this only ends what nobody waits for any more. */
const HELLO_MS_MAX = 600_000;
/** What a launcher and a VMM need of the environment; they are told nothing else. */
const VMM_ENVIRONMENT = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  // Its threads seldom allocate: a heap for each of them keeps 2 MB that nobody uses.
  MALLOC_ARENA_MAX: "1",
};
export const NOBODY = 65_534;
/** Names no file: node/native/template-memory.c takes opening it for a request. */
const FORGET_CODE_PATH = "/proc/self/flotilla-forget-code";

export class Launcher {
  /** Without links in it: what command lines are compared with. */
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

  /** The user that a VMM really runs as. */
  uidOf(launch: { readonly uid: number }): number {
    return this.isRoot ? launch.uid : (process.getuid?.() ?? NOBODY);
  }

  /** The boot's directory is its user's; those on the way to its files may be passed by it, and not be listed. */
  async makeReachable(uid: number, owned: readonly string[], read: readonly string[]): Promise<void> {
    if (!this.isRoot) return;
    for (const path of owned) await chown(path, uid, uid);
    const directories = new Set<string>();
    for (const file of [...owned, ...read]) {
      for (let place = dirname(this.#inside(file)); place !== "."; place = dirname(place)) {
        directories.add(join(this.nodeDirectory, place));
      }
    }
    for (const path of [this.nodeDirectory, ...directories]) {
      const { mode } = await stat(path);
      if ((mode & 0o001) === 0) await chmod(path, (mode & 0o7777) | 0o001);
    }
  }

  /** A path below the node's directory, as a VMM sees it. Throws when it is elsewhere: the VMM could not see it. */
  seen(path: string): string {
    return join(this.#view.nodeDirectory, this.#inside(path));
  }

  async spawn(launch: Launch): Promise<Vmm> {
    const memoryFiles = launch.memory.kind === "file" ? [launch.memory.path] : [];
    const disks = launch.diskPath === null ? [] : [launch.diskPath];
    const bulkPath = bulkPathIn(launch.bootDirectory);
    await makeBulkFile(bulkPath);
    const owned = [launch.bootDirectory, bulkPath, ...disks];
    await this.makeReachable(launch.uid, owned, [...launch.backingPaths, ...memoryFiles]);
    const group = await this.#makeGroup(launch);
    const jail = { ...this.#jail(launch.uid, launch.diesWithStarter), groups: group?.procsPaths ?? [] };
    const argv = jailArgv(jail, ...this.#program(launch));
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
      const record = { bootId: launch.bootId, pid, startTime: startTimeOf(pid) ?? 0 };
      return this.#watch(record, launch.bootDirectory, { child, group });
    } finally {
      await log.close();
    }
  }

  /** Watches a VMM that an earlier agent has started. */
  watch(record: VmRecord, bootDirectory: string): Vmm {
    const group = this.#options.cgroups?.find(record.bootId) ?? null;
    return this.#watch(record, bootDirectory, { child: null, group });
  }

  #watch(record: VmRecord, bootDirectory: string, { child, group }: Pick<VmmOptions, "child" | "group">): Vmm {
    const logPath = join(bootDirectory, "vmm.log");
    return new Vmm({ record, child, group, logPath, clock: this.clock, log: this.log });
  }

  /** null: it runs without, as on a host that has none. */
  async #makeGroup(launch: Launch): Promise<NewVmmGroup | null> {
    const { cgroups, accelerator } = this.#options;
    try {
      return (await cgroups?.make(launch.bootId, vmmLimits(launch, accelerator))) ?? null;
    } catch (error) {
      this.log.warn({ boot: launch.bootId, reason: messageOf(error) }, "a VMM runs without a control group");
      return null;
    }
  }

  /**
   * Lets a VMM have what is left of the host's processors, or its share of them as from its start. Does nothing without
   * root, which could not take the first back. Rejects when the VMM has ended.
   *
   * For a scheduler that knows groups of processes an idle task is one only within its group, so the group of the VMM's
   * session gets the least weight (sched(7), "The autogroup feature").
   */
  async schedule({ record, group }: Vmm, share: "background" | "usual"): Promise<void> {
    if (!this.isRoot) return;
    const { pid } = record;
    if (!isAlive(record)) throw new Error("the VMM has ended");
    const usual = this.#options.accelerator === "kvm" ? "other" : "batch";
    const [policy, nice] = share === "background" ? ["idle", "19"] : [usual, "0"];
    await group?.share?.(pid, share);
    await writeFile(`/proc/${pid}/autogroup`, nice).catch(() => {}); // A kernel without such groups.
    await promisify(execFile)("chrt", ["--all-tasks", `--${policy}`, "--pid", "0", String(pid)]);
  }

  /** Connects to a VMM's control channel. */
  async control(vmm: Vmm, launch: Pick<Launch, "bootDirectory" | "uid">, signal: AbortSignal): Promise<Qmp> {
    const place = { path: join(launch.bootDirectory, "qmp.sock"), uid: this.uidOf(launch) };
    const socket = await connectWhenThere(place, this.clock, signal);
    const qmp = await Qmp.connect(socket, vmm.onEvent, signal);
    await vmm.attach(qmp);
    return qmp;
  }

  /** Connects to the guest and waits for its agent's hello. */
  async guest(launch: Pick<Launch, "bootDirectory" | "uid">, signal: AbortSignal): Promise<Guest> {
    const place = { path: join(launch.bootDirectory, "guest.sock"), uid: this.uidOf(launch) };
    const bulk = await openBulkDisk({ ...place, path: bulkPathIn(launch.bootDirectory) });
    const channel = await connectWhenThere(place, this.clock, signal);
    return connectGuest(channel, { helloTimeoutMs: HELLO_MS_MAX, signal, clock: this.clock, bulk });
  }

  /** A VMM that was restored from a template forgets the code that it has translated. While it is paused. */
  async forgetCode(qmp: Qmp): Promise<void> {
    const file = { driver: "file", "node-name": "forget", filename: FORGET_CODE_PATH, "read-only": true };
    await qmp.execute("blockdev-add", file).catch(() => {}); // It is not there: that is how it is meant.
  }

  /** The network of a VMM that runs; null when it has none. It ends with the VMM, or is closed by who lets go of that. */
  reach(vmm: Vmm, uid: number): Reach | null {
    const reach = this.#options.network?.reach({ pid: vmm.record.pid, uid }) ?? null;
    void vmm.exited.then(() => reach?.close());
    return reach;
  }

  /** What a guest is told of its network, which is the same for all. */
  get guestNetwork(): Pick<GuestConfiguration, "address" | "nameservers"> {
    if (this.#options.network === null) return { address: null, nameservers: [] };
    return { address: GUEST_NETWORK.address, nameservers: [GUEST_NETWORK.nameServer] };
  }

  get #view(): JailView {
    return jailView(this.#jail(NOBODY));
  }

  #jail(uid: number, diesWithStarter = false): Jail {
    return {
      diesWithStarter,
      groups: [],
      nodeDirectory: this.nodeDirectory,
      guestDirectory: this.#options.guestFiles.directory,
      uid: this.isRoot ? uid : null,
      hasKvm: this.#options.accelerator === "kvm",
      network: this.#options.network?.setup(uid) ?? null,
    };
  }

  /** A path's place below the node's directory. */
  #inside(path: string): string {
    for (const directory of [this.nodeDirectory, this.#options.givenDirectory]) {
      const place = relative(directory, path);
      if (place !== "" && !place.startsWith("..")) return place;
    }
    throw new Error(`${path} is not below ${this.nodeDirectory}`);
  }

  #program(launch: Launch): readonly [string, readonly string[]] {
    const guestDirectory = this.#view.guestDirectory;
    const { machineId, bootId, cpus, memoryMb, memory, diskPath, isIncoming } = launch;
    const argv = qemuArgv({
      name: vmmName(machineId, bootId, this.nodeDirectory),
      accelerator: this.#options.accelerator,
      cpus,
      memoryMb,
      memory: memory.kind === "file" ? { ...memory, path: this.seen(memory.path) } : memory,
      // What is restored has booted: the kernel's place is only kept, and its 14 MB are saved in every VMM.
      kernelPath: join(guestDirectory, isIncoming ? RESTORE_KERNEL_NAME : KERNEL_NAME),
      initramfsPath: isIncoming ? null : join(guestDirectory, INITRAMFS_NAME),
      disk:
        diskPath === null
          ? null
          : { path: this.seen(diskPath), backingPaths: launch.backingPaths.map((path) => this.seen(path)) },
      bulkPath: this.seen(bulkPathIn(launch.bootDirectory)),
      socketDirectory: this.seen(launch.bootDirectory),
      tscKhz: this.#options.tscKhz,
      isIncoming,
      hasNetwork: this.#options.network !== null,
    });
    if (memory.kind !== "file" || memory.isShared) return [QEMU_PROGRAM, argv];
    const environment = [
      `LD_PRELOAD=${join(guestDirectory, TEMPLATE_MEMORY_NAME)}`,
      `FLOTILLA_TEMPLATE_MEMORY=${this.seen(memory.path)}`,
      `FLOTILLA_FORGET_CODE=${FORGET_CODE_PATH}`,
    ];
    return ["env", [...environment, QEMU_PROGRAM, ...argv]];
  }
}
