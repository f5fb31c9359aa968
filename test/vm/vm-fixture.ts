/**
 * Shared by the tests of real VMs: a node directory with an image, of busybox unless a test wants another,
 * disks, boots and commands in guests.
 *
 * Always: the directory is deliberately difficult for the driver: no other user may enter it, its path is
 * longer than a socket's address may be, and contains a comma and a space. `dispose` ends every VM in it by
 * the driver's own sweep.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chownSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { systemClock } from "@flotilla/base/clock";
import { parseSettings } from "@flotilla/contract/settings";
import { qcow2Disks } from "../../node/src/disks/disks.ts";
import type { BootRequest, Driver } from "../../node/src/driver/driver.ts";
import { openQemuDriver } from "../../node/src/driver/qemu/index.ts";
import type { Guest, GuestExecRequest } from "../../node/src/guest/guest.ts";
import type { RootFile } from "../../node/src/images/images.ts";
import { makeLog } from "../../node/src/log.ts";
import { onThisHost } from "../support/until.ts";

/** The accelerator named by FLOTILLA_ACCELERATOR: an emulated host of test/kvm knows that KVM works. */
export const { cacheDirectory, accelerator } = parseSettings(["cacheDirectory", "accelerator"], process.env);

/** Why no VM can run here; false when they can. Only QEMU itself may be missing: set-up brings the rest. */
export const skipReason: string | false =
  spawnSync("qemu-system-x86_64", ["--version"]).status !== 0
    ? "no qemu-system-x86_64 on this host"
    : process.getuid?.() !== 0
      ? "VMMs run as separate users, which needs root"
      : false;

export const BOOT_DEADLINE_MS = 60_000;
/**
 * Aborted when a boot has taken too long. An emulated VM that is prepared has only what others leave of the
 * processors.
 */
export const deadline = (): AbortSignal => AbortSignal.timeout(onThisHost(BOOT_DEADLINE_MS));

interface PlaceOptions {
  readonly sizeMb?: number;
  readonly kept?: string;
  readonly makeRoot?: (tree: string, rootPath: string) => void;
}

export class NodePlace implements AsyncDisposable {
  readonly directory: string;
  readonly image: RootFile;
  readonly #top: string;
  readonly #isMounted: boolean;
  readonly #isKept: boolean;
  #driver: Driver | null = null;

  /**
   * `sizeMb`: on a file system of that size, which can be filled. `kept`: a directory that outlives this
   * program. `makeRoot`: makes the image's file system, by way of a tree.
   */
  constructor({ sizeMb, kept, makeRoot = makeBusyboxRoot }: PlaceOptions = {}) {
    this.#isKept = kept !== undefined;
    this.#top = kept ?? mkdtempSync(join(tmpdir(), "flotilla-vm-"));
    this.directory = join(this.#top, "a path, that is long ".padEnd(120, "-"), "node");
    mkdirSync(this.directory, { recursive: true });
    this.#isMounted = sizeMb !== undefined;
    if (sizeMb !== undefined) execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeMb}m`, "test", this.directory]);
    mkdirSync(join(this.directory, "images"), { recursive: true, mode: 0o700 });
    const rootPath = join(this.directory, "images", "root.ext4");
    if (!existsSync(rootPath)) makeRoot(join(this.#top, "tree"), rootPath);
    this.image = { rootPath, rootBytes: statSync(rootPath).size };
  }

  /** A separate driver object, as another node agent would have. */
  async driver(): Promise<Driver> {
    const log = makeLog({ level: "silent", clock: systemClock });
    const driver = await openQemuDriver({
      nodeDirectory: this.directory,
      cacheDirectory,
      accelerator,
      network: null,
      clock: systemClock,
      log,
    });
    this.#driver ??= driver;
    return driver;
  }

  /** A machine with a disk of `diskGb`. */
  async machine(machineId: string, uid: number, diskGb = 1): Promise<Omit<BootRequest, "bootId" | "bootDirectory">> {
    const directory = join(this.directory, "machines", machineId);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const diskPath = join(directory, "disk");
    if (!existsSync(diskPath)) await qcow2Disks.make({ diskPath, root: this.image, diskGb, uid });
    return {
      machineId,
      cpus: 1,
      memoryMb: 256,
      diskPath,
      diskBytes: diskGb * 2 ** 30,
      backingPaths: [this.image.rootPath],
      uid,
      network: { mode: "blocked" },
      publishedPorts: [],
    };
  }

  bootOf(machine: Omit<BootRequest, "bootId" | "bootDirectory">, bootId: string): BootRequest {
    const bootDirectory = join(this.directory, "machines", machine.machineId, "boots", bootId);
    mkdirSync(bootDirectory, { recursive: true, mode: 0o700 });
    chownSync(bootDirectory, machine.uid, machine.uid);
    return { ...machine, bootId, bootDirectory };
  }

  /** Ends all VMs. Returns how many there were. */
  async sweep(): Promise<number> {
    return (await this.#driver?.sweep(new Set())) ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sweep();
    if (this.#isMounted) execFileSync("umount", [this.directory]);
    if (!this.#isKept) rmSync(this.#top, { recursive: true, force: true });
  }
}

/** A file system with only busybox. */
function makeBusyboxRoot(tree: string, rootPath: string): void {
  for (const name of ["bin", "dev", "etc", "proc", "sys", "tmp", "root", "workspace"]) {
    mkdirSync(join(tree, name), { recursive: true });
  }
  copyFileSync(join(cacheDirectory, "images", "busybox"), join(tree, "bin/busybox"));
  for (const name of ["sh", "cat", "sync", "uname", "poweroff"]) symlinkSync("busybox", join(tree, "bin", name));
  makeFileSystem(tree, rootPath, "16M");
}

/** Like the root of an image (node/src/images/image-builder.ts), so that it grows in the same way. */
export function makeFileSystem(tree: string, rootPath: string, size: string): void {
  execFileSync("mkfs.ext4", ["-q", "-b", "4096", "-G", "256", "-O", "64bit", "-d", tree, rootPath, size]);
}

/** Configures a guest that has just booted, as a node agent does. */
export async function configure(guest: Guest, driver: Driver, diskGb = 1): Promise<void> {
  await guest.configure({
    hostname: "tested",
    machineId: randomBytes(16).toString("hex"),
    now: systemClock.now(),
    entropy: randomBytes(64),
    env: { PATH: "/bin" },
    workdir: "/",
    user: "",
    rootDevice: driver.facts.rootDevice,
    rootBytes: diskGb * 2 ** 30,
    nameservers: [],
    address: null,
  });
}

/** The standard output of a shell line that ends with 0. */
export async function shell(guest: Guest, line: string): Promise<string> {
  const exec = guest.exec(shellRequest(line));
  const [stdout, stderr, { exitCode }] = await Promise.all([text(exec.stdout), text(exec.stderr), exec.exit, exec.pid]);
  if (exitCode !== 0) throw new Error(`${line} ended with ${exitCode}: ${stderr}`);
  return stdout;
}

/** Starts a line that outlives this node agent's channel. */
export async function shellInBackground(guest: Guest, line: string): Promise<void> {
  const exec = guest.exec({ ...shellRequest(line), isBackground: true });
  await Promise.all([exec.pid, exec.exit]);
}

export function shellRequest(line: string): GuestExecRequest {
  const argv = ["/bin/sh", "-c", line];
  return { argv, cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false };
}

/**
 * Whether the guest answers a request for a command within `ms` milliseconds; one that is paused or has ended
 * does not.
 */
export async function answersWithin(guest: Guest, ms: number): Promise<boolean> {
  // Before a root disk is mounted there is no shell: the exit code for that is an answer too.
  const { exit } = guest.exec({ ...shellRequest("true"), needsPid: false });
  const answered = exit.then(
    () => true,
    () => false,
  );
  return await Promise.race([answered, systemClock.sleep(ms).then(() => false)]);
}

/** A line that is expected to end the guest: nothing is waited for. */
export function shellAndForget(guest: Guest, line: string): void {
  shell(guest, line).catch(() => {});
}
