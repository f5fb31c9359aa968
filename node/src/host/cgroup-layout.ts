/**
 * The control group trees of a host, and the limits to write into their files. Pure.
 *
 * Supports both versions of the kernel's interface: in version 2 all controllers share one tree, in version 1
 * each has its own. On a host with both, version 1 is used if it has the memory controller.
 */

const CONTROLLERS = ["memory", "cpu", "pids", "io"] as const;
export type Controller = (typeof CONTROLLERS)[number];

export interface CgroupLayout {
  readonly version: 1 | 2;
  /** Where each controller's tree is mounted; the same path for all in version 2. */
  readonly trees: ReadonlyMap<Controller, string>;
}

/** The resource limits of a VMM. */
export interface GroupLimits {
  readonly memoryBytes: number;
  /** Relative share of processor time when the host is busy. */
  readonly cpus: number;
  /** Processes and threads. */
  readonly tasksMax: number;
}

/** A file to write, relative to a group's directory in the controller's tree. */
export interface GroupFile {
  readonly controller: Controller;
  readonly name: string;
  readonly value: string;
}

const V1_NAMES: Readonly<Record<Controller, string>> = { memory: "memory", cpu: "cpu", pids: "pids", io: "blkio" };
const V2_WEIGHT_MAX = 10_000;
const V1_SHARES_MAX = 262_144;

/**
 * Parses /proc/mounts and the `cgroup.controllers` of version 2's mount point (null: not mounted).
 * undefined: control groups cannot limit memory on this host.
 */
export function cgroupLayout(
  mounts: string,
  controllersAt: (mountPoint: string) => string | null,
): CgroupLayout | undefined {
  const lines = mounts.split("\n").map((line) => line.split(" "));
  const v1 = new Map<Controller, string>();
  for (const [, at = "", type, options = ""] of lines) {
    if (type !== "cgroup") continue;
    const names = options.split(",");
    for (const controller of CONTROLLERS) if (names.includes(V1_NAMES[controller])) v1.set(controller, unescaped(at));
  }
  if (v1.has("memory")) return { version: 1, trees: v1 };
  const [, at] = lines.find(([, , type]) => type === "cgroup2") ?? [];
  if (at === undefined) return undefined;
  const mountPoint = unescaped(at);
  const available = controllersAt(mountPoint)?.trim().split(/\s+/) ?? [];
  if (!available.includes("memory")) return undefined;
  const trees = CONTROLLERS.filter((controller) => available.includes(controller)).map(
    (name) => [name, mountPoint] as const,
  );
  return { version: 2, trees: new Map(trees) };
}

/** The limits of one VMM's group. Swapped-out memory is not counted, as everywhere on the host. */
export function limitFiles(version: 1 | 2, limits: GroupLimits): readonly GroupFile[] {
  const { memoryBytes, tasksMax } = limits;
  return [
    { controller: "memory", name: version === 1 ? "memory.limit_in_bytes" : "memory.max", value: String(memoryBytes) },
    { controller: "pids", name: "pids.max", value: String(tasksMax) },
    shareFile(version, limits.cpus),
    ...diskWeightFiles(version, "normal"),
  ];
}

/** Machines of equal size get equal shares of busy processors. */
export function shareFile(version: 1 | 2, cpus: number): GroupFile {
  if (version === 1) return { controller: "cpu", name: "cpu.shares", value: String(clamp(cpus * 256, V1_SHARES_MAX)) };
  return { controller: "cpu", name: "cpu.weight", value: String(clamp(cpus * 25, V2_WEIGHT_MAX)) };
}

/** Weights of a group's disk requests, in each file's units. `node`: all VMMs of a node together. */
const DISK_WEIGHTS = {
  1: [
    { name: "blkio.bfq.weight", normal: 100, background: 1, node: 50 },
    { name: "blkio.weight", normal: 500, background: 10, node: 250 },
  ],
  2: [
    { name: "io.weight", normal: 100, background: 1, node: 50 },
    { name: "io.bfq.weight", normal: 100, background: 1, node: 50 },
  ],
} as const;

/**
 * All machines have the same weight, because a small one can load a disk as much as a large one. Which files
 * exist depends on the kernel's I/O scheduler; without any, disk requests are not weighted.
 */
export function diskWeightFiles(version: 1 | 2, share: "normal" | "background" | "node"): readonly GroupFile[] {
  return DISK_WEIGHTS[version].map((file) => ({ controller: "io", name: file.name, value: String(file[share]) }));
}

/**
 * Whether the kernel weights disk requests, judged by file names: those at the top of the controller's tree
 * (where version 2 has no weights) and those in a group below it.
 */
export function weighsDisks(names: readonly string[]): boolean {
  const indicators: readonly string[] = ["io.weight", "io.bfq.weight", "io.cost.qos", "blkio.weight"];
  return names.some((name) => indicators.includes(name) || name.startsWith("blkio.bfq."));
}

/**
 * The limits of the group that contains all VMMs of a node. It leaves memory to what manages them, gets
 * processor time as if each processor had one more task, and has half the usual weight on a busy disk.
 */
export function nodeFiles(
  version: 1 | 2,
  host: { readonly memoryBytes: number; readonly processors: number },
): readonly GroupFile[] {
  const reserve = Math.min(Math.max(2 ** 30, host.memoryBytes / 20), host.memoryBytes / 2);
  const memory = String(Math.floor(host.memoryBytes - reserve));
  const { processors } = host;
  return [
    { controller: "memory", name: version === 1 ? "memory.limit_in_bytes" : "memory.max", value: memory },
    version === 1
      ? { controller: "cpu", name: "cpu.shares", value: String(clamp(processors * 1024, V1_SHARES_MAX)) }
      : { controller: "cpu", name: "cpu.weight", value: String(clamp(processors * 100, V2_WEIGHT_MAX)) },
    ...diskWeightFiles(version, "node"),
  ];
}

/** How many processes of the group the kernel killed because memory ran out, parsed from memoryKillsFile. */
export function memoryKills(text: string): number {
  return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0);
}

export const memoryKillsFile = (version: 1 | 2): string => (version === 1 ? "memory.oom_control" : "memory.events");

function clamp(value: number, max: number): number {
  return Math.min(Math.max(Math.round(value), 1), max);
}

/** The kernel writes blanks in mount points as octal escapes. */
function unescaped(path: string): string {
  return path.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
