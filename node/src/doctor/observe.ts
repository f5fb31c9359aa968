/**
 * Looks at this host as `flotilla doctor` needs to know it. Judges nothing: that is judge.ts.
 *
 * Changes nothing on the host, except that trying KVM leaves its verdict in the cache, as a start would.
 * Always: whatever can not be found out is a fact too; nothing here throws.
 */
import { execFile } from "node:child_process";
import { constants, existsSync } from "node:fs";
import { access, readFile, stat, statfs } from "node:fs/promises";
import { createServer } from "node:net";
import { availableParallelism, totalmem } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { ListenAddress } from "@flotilla/contract/settings";
import type { DriverFacts } from "../driver/driver.ts";
import { qemuFacts } from "../driver/qemu/index.ts";
import { makeLog } from "../log.ts";
import { readCgroupLayout, readsDiskWeights } from "../host/cgroups.ts";
import { patientMs } from "../host/patience.ts";

export interface HostFacts {
  readonly isRoot: boolean;
  /** As Node names it, such as `x64`. */
  readonly arch: string;
  readonly processors: number;
  readonly missingPrograms: readonly string[];
  /** What the driver would say of itself, or why it can not start. */
  readonly driver: DriverFacts | { readonly failure: string };
  /** Whether a process can be put into namespaces of its own; null as long as that takes a root that we are not. */
  readonly jailFailure: string | null;
  /** Whether a namespace can be given a network with rules; null as for the jail. */
  readonly networkFailure: string | null;
  /** Where machines can be limited by control groups; `none`: the memory's are not there. */
  readonly cgroups: "v1" | "v2" | "read-only" | "none";
  /** Whether requests to disks are weighed by control group; false also where there are none. */
  readonly hasDiskWeights: boolean;
  readonly memory: { readonly totalMb: number; readonly availableMb: number };
  readonly disk: { readonly path: string; readonly totalGb: number; readonly freeGb: number };
  readonly listen: { readonly address: string; readonly state: ListenState };
  readonly clock: { readonly now: number; readonly lastInstallAt: number; readonly isSynchronized: boolean | null };
  readonly hasLocalBusybox: boolean;
}

/** `flotilla`: taken, by a server that answers as ours does. */
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

/** Programs that machines can not run without; scripts/setup knows the packages they come in. */
const PROGRAMS = [
  ...["qemu-system-x86_64", "qemu-img", "mkfs.ext4", "umoci"],
  ...["unshare", "setpriv", "chrt", "nsenter", "mount", "ip", "nft"],
] as const;
/** Where root finds programs although another user's PATH may not name it. */
const ROOT_PATH = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/** On a first run the kernel may have to load modules. */
const PROGRAM_MS = 5_000;
const MB = 2 ** 20;
const GB = 2 ** 30;

export async function observeHost(options: ObserveOptions): Promise<HostFacts> {
  const isRoot = process.getuid?.() === 0;
  const [driver, jailFailure, networkFailure, cgroups, hasDiskWeights, memory, disk, listen, clock, missingPrograms] =
    await Promise.all([
      observeDriver(options),
      isRoot ? observeJail() : null,
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
    arch: process.arch,
    processors: availableParallelism(),
    missingPrograms,
    driver,
    jailFailure,
    networkFailure,
    cgroups,
    hasDiskWeights,
    memory,
    disk,
    listen,
    clock,
    hasLocalBusybox: existsSync(join(options.cacheDirectory, "images", "busybox")),
  };
}

async function findMissing(searchPath: string): Promise<readonly string[]> {
  const directories = [...searchPath.split(delimiter), ...ROOT_PATH];
  const isThere = (program: string): Promise<boolean> =>
    Promise.any(directories.map((directory) => access(join(directory, program), constants.X_OK))).then(
      () => true,
      () => false,
    );
  const found = await Promise.all(PROGRAMS.map(isThere));
  return PROGRAMS.filter((_, index) => !found[index]);
}

async function observeDriver(options: ObserveOptions): Promise<HostFacts["driver"]> {
  const { cacheDirectory, accelerator, clock } = options;
  const log = makeLog({ level: "silent", clock });
  return qemuFacts({ cacheDirectory, accelerator, clock, log }).catch((error) => ({ failure: messageOf(error) }));
}

/** Mount and network namespaces: what every VMM is put into. Containers often may not make them. */
async function observeJail(): Promise<string | null> {
  return failureIn(["--mount", "--net"], "mount -t tmpfs flotilla /mnt");
}

/** What every machine's namespace has: a tap, a pair of interfaces, and rules with translation. */
async function observeNetwork(): Promise<string | null> {
  const interfaces = "ip link add name v0 type veth peer name v1 && ip tuntap add dev t0 mode tap";
  const rules =
    "add table inet t; add chain inet t c { type nat hook postrouting priority srcnat; }; " +
    "add rule inet t c ct state new masquerade; add set inet t s { type ipv4_addr . inet_service; flags timeout; }";
  return failureIn(["--net"], `${interfaces} && nft '${rules}'`);
}

function failureIn(namespaces: readonly string[], script: string): Promise<string | null> {
  return promisify(execFile)("unshare", [...namespaces, "--", "sh", "-c", script], {
    timeout: patientMs(PROGRAM_MS),
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

/** Of the file system that will hold the directory, which may not exist yet. */
async function observeDisk(directory: string): Promise<HostFacts["disk"]> {
  let path = resolve(directory);
  while (!existsSync(path)) path = dirname(path);
  const { bsize, blocks, bavail } = await statfs(path);
  return { path, totalGb: Math.floor((blocks * bsize) / GB), freeGb: Math.floor((bavail * bsize) / GB) };
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
