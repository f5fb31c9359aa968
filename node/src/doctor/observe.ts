/**
 * Collects the facts about this host for `flotilla doctor`. judge.ts judges them.
 *
 * Changes nothing on the host, except that a trial of KVM saves its verdict in the cache, as a start would.
 * Always: a fact that cannot be determined is reported as such; nothing here throws.
 */
import { execFile } from "node:child_process";
import { constants, existsSync } from "node:fs";
import { access, readFile, stat, statfs } from "node:fs/promises";
import { createServer } from "node:net";
import { availableParallelism, release, totalmem } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { ListenAddress } from "@flotilla/contract/setting-values";
import type { DriverFacts } from "../driver/driver.ts";
import { qemuFacts } from "../driver/qemu/index.ts";
import { makeLog } from "../log.ts";
import { readCgroupLayout, readsDiskWeights } from "../host/cgroups.ts";
import { firstUserId, USERS_PER_RANGE } from "../host/user-ids.ts";
import { loadAdjustedMs } from "../host/load-adjusted-timeout.ts";

export interface HostFacts {
  readonly isRoot: boolean;
  /**
   * The user ids of machines, such as `700000 to 704095`, which this user namespace lacks; null: it has them.
   */
  readonly missingUserIds: string | null;
  /** Node's name for it, such as `x64`. */
  readonly arch: string;
  readonly processors: number;
  readonly missingPrograms: readonly string[];
  /** The driver's facts, or why it cannot start. */
  readonly driver: DriverFacts | { readonly failure: string };
  /**
   * Why a process cannot be put into new namespaces; null if it can, or if we are not root and cannot check.
   */
  readonly jailFailure: string | null;
  /** Why root cannot create a user namespace; null as for the jail. */
  readonly usersFailure: string | null;
  /** Why a namespace cannot get a network with rules; null as for the jail. */
  readonly networkFailure: string | null;
  /** Which version can limit machines; `none`: no memory controller. */
  readonly cgroups: "v1" | "v2" | "read-only" | "none";
  /** Whether the kernel weights disk requests by control group; false without control groups. */
  readonly hasDiskWeights: boolean;
  /** Such as `6.1.0-40-amd64`. */
  readonly kernel: string;
  readonly memory: { readonly totalMb: number; readonly availableMb: number };
  /** File system of the data directory, or of the directory in which it would be made. */
  readonly disk: {
    readonly path: string;
    readonly totalGb: number;
    readonly freeGb: number;
    /** How many more files it can have; null where it does not say, because it has no such limit. */
    readonly freeFiles: number | null;
    /** Why this user cannot make files there; null if that is possible. */
    readonly failure: string | null;
  };
  readonly listen: { readonly address: string; readonly state: ListenState };
  readonly clock: { readonly now: number; readonly lastInstallAt: number; readonly isSynchronized: boolean | null };
  readonly hasLocalBusybox: boolean;
}

/** `flotilla`: in use by a server that answers like ours. */
export type ListenState = "free" | "flotilla" | "taken" | "elsewhere" | "forbidden";

export interface ObserveOptions {
  readonly dataDirectory: string;
  readonly cacheDirectory: string;
  readonly accelerator: "auto" | "kvm" | "tcg";
  readonly listen: ListenAddress;
  readonly clock: Clock;
  /** The directories of PATH, with their separators. */
  readonly searchPath: string;
}

/** Programs that machines require; scripts/setup knows their packages. */
const PROGRAMS = [
  ...["qemu-system-x86_64", "qemu-img", "mkfs.ext4", "umoci"],
  ...["unshare", "setpriv", "chrt", "nsenter", "mount", "ip", "nft", "conntrack"],
] as const;
/** Directories for root's programs, which another user's PATH may lack. */
const ROOT_PATH = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/** Enough for a first run, when the kernel may have to load modules. */
const PROGRAM_MS = 5_000;
const MB = 2 ** 20;
const GB = 2 ** 30;

export async function observeHost(options: ObserveOptions): Promise<HostFacts> {
  const isRoot = process.getuid?.() === 0;
  const [
    missingUserIds,
    driver,
    jailFailure,
    usersFailure,
    networkFailure,
    cgroups,
    hasDiskWeights,
    memory,
    disk,
    listen,
    clock,
    missingPrograms,
  ] = await Promise.all([
    observeUserIds(options.dataDirectory),
    observeDriver(options),
    isRoot ? observeJail() : null,
    isRoot ? failureIn(["--user"], "true") : null,
    isRoot ? observeNetwork() : null,
    observeCgroups(),
    observeDiskWeights(),
    observeMemory(),
    observeDisk(options.dataDirectory),
    observeListen(options.listen),
    observeClock(options.clock),
    findMissing(options.searchPath),
  ]);
  return {
    isRoot,
    missingUserIds,
    arch: process.arch,
    processors: availableParallelism(),
    missingPrograms,
    driver,
    jailFailure,
    usersFailure,
    networkFailure,
    cgroups,
    hasDiskWeights,
    kernel: release(),
    memory,
    disk,
    listen,
    clock,
    hasLocalBusybox: existsSync(join(options.cacheDirectory, "images", "busybox")),
  };
}

/** Unprivileged containers often have only ids below 65536. */
async function observeUserIds(dataDirectory: string): Promise<string | null> {
  const map = await readFile("/proc/self/uid_map", "utf8").catch(() => "0 0 4294967295");
  const first = firstUserId(join(resolve(dataDirectory), "node"));
  const last = first + USERS_PER_RANGE - 1;
  const ranges = map.split("\n").map((line) => line.trim().split(/\s+/).map(Number));
  const isMapped = ranges.some(([start = 0, , count = 0]) => start <= first && last < start + count);
  return isMapped ? null : `${first} to ${last}`;
}

async function findMissing(searchPath: string): Promise<readonly string[]> {
  const directories = [...searchPath.split(delimiter), ...ROOT_PATH];
  const isInstalled = (program: string): Promise<boolean> =>
    Promise.any(directories.map((directory) => access(join(directory, program), constants.X_OK))).then(
      () => true,
      () => false,
    );
  const found = await Promise.all(PROGRAMS.map(isInstalled));
  return PROGRAMS.filter((_, index) => !found[index]);
}

async function observeDriver(options: ObserveOptions): Promise<HostFacts["driver"]> {
  const { cacheDirectory, accelerator, clock } = options;
  const log = makeLog({ level: "silent", clock });
  return qemuFacts({ cacheDirectory, accelerator, clock, log }).catch((error) => ({ failure: messageOf(error) }));
}

/** Creates mount and network namespaces, as for every VMM. Containers are often not permitted to. */
async function observeJail(): Promise<string | null> {
  return failureIn(["--mount", "--net"], "mount -t tmpfs flotilla /mnt");
}

/**
 * Creates what every machine's namespace has: a tap device, a veth pair, and rules with address translation.
 */
async function observeNetwork(): Promise<string | null> {
  const interfaces = "ip link add name v0 type veth peer name v1 && ip tuntap add dev t0 mode tap";
  const rules =
    "add table inet t; add chain inet t c { type nat hook postrouting priority srcnat; }; " +
    "add rule inet t c ct state new masquerade; add set inet t s { type ipv4_addr . inet_service; flags timeout; }";
  return failureIn(["--net"], `${interfaces} && nft '${rules}'`);
}

function failureIn(namespaces: readonly string[], script: string): Promise<string | null> {
  return promisify(execFile)("unshare", [...namespaces, "--", "sh", "-c", script], {
    timeout: loadAdjustedMs(PROGRAM_MS),
  }).then(
    () => null,
    (error: Error & { readonly stderr?: string }) => (error.stderr || error.message).trim(),
  );
}

async function observeMemory(): Promise<HostFacts["memory"]> {
  const text = await readFile("/proc/meminfo", "utf8").catch(() => "");
  const availableKb = Number(/^MemAvailable:\s+(\d+) kB$/m.exec(text)?.[1] ?? 0);
  return { totalMb: Math.floor(totalmem() / MB), availableMb: Math.floor(availableKb / 1024) };
}

/** Reads the file system that will hold the directory, which need not exist yet. */
async function observeDisk(directory: string): Promise<HostFacts["disk"]> {
  let path = resolve(directory);
  while (!existsSync(path)) path = dirname(path);
  const { bsize, blocks, bavail, files, ffree } = await statfs(path);
  const failure = await observeDirectory(path);
  return {
    path,
    totalGb: Math.floor((blocks * bsize) / GB),
    freeGb: Math.floor((bavail * bsize) / GB),
    freeFiles: files === 0 ? null : ffree,
    failure,
  };
}

async function observeDirectory(path: string): Promise<string | null> {
  if (!(await stat(path)).isDirectory()) return "it is not a directory";
  return access(path, constants.W_OK | constants.X_OK).then(
    () => null,
    ({ code }: NodeJS.ErrnoException) =>
      code === "EROFS" ? "its file system is read-only" : "this user may not make files there",
  );
}

async function observeCgroups(): Promise<HostFacts["cgroups"]> {
  const layout = await readCgroupLayout();
  const tree = layout?.trees.get("memory");
  if (layout === undefined || tree === undefined) return "none";
  const isWritable = await access(tree, constants.W_OK).then(
    () => true,
    () => false,
  );
  if (!isWritable) return "read-only";
  return layout.version === 1 ? "v1" : "v2";
}

async function observeDiskWeights(): Promise<boolean> {
  const layout = await readCgroupLayout();
  return layout !== undefined && (await readsDiskWeights(layout));
}

async function observeListen(listen: ListenAddress): Promise<HostFacts["listen"]> {
  const { host, port } = listen;
  const address = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
  const code = await tryToListen(listen);
  if (code === null) return { address, state: "free" };
  if (code === "EADDRINUSE") return { address, state: (await isFlotilla(address)) ? "flotilla" : "taken" };
  return { address, state: code === "EACCES" ? "forbidden" : "elsewhere" };
}

function tryToListen({ host, port }: ListenAddress): Promise<string | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "unknown"));
    server.listen({ host, port }, () => server.close(() => resolve(null)));
  });
}

async function isFlotilla(address: string): Promise<boolean> {
  try {
    const response = await fetch(`http://${address}/health`, { signal: AbortSignal.timeout(PROGRAM_MS) });
    const health: unknown = await response.json();
    return typeof health === "object" && health !== null && "nodesTotal" in health;
  } catch {
    return false;
  }
}

async function observeClock(clock: Clock): Promise<HostFacts["clock"]> {
  const { mtimeMs } = await stat(import.meta.filename);
  const show = ["show", "--property=NTPSynchronized", "--value"];
  const answer = await promisify(execFile)("timedatectl", show, { timeout: PROGRAM_MS }).catch(() => null);
  const isSynchronized = answer === null ? null : answer.stdout.trim() === "yes";
  return { now: clock.now(), lastInstallAt: mtimeMs, isSynchronized };
}
