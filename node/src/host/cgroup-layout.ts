/**
 * Which control groups a host has for machines, and what is written into which of their files. Pure.
 *
 * Both versions of the kernel's interface are spoken: in version 2 a controller is a property of one tree, in version 1 each
 * has a tree of its own. On a host with both, a tree of version 1 that has the memory decides.
 */

const CONTROLLERS = ["memory", "cpu", "pids", "io"] as const;
export type Controller = (typeof CONTROLLERS)[number];

export interface CgroupLayout {
  readonly version: 1 | 2;
  /** Where each controller's tree is mounted: in version 2 the same place for all. */
  readonly trees: ReadonlyMap<Controller, string>;
}

/** What a VMM may have of the host. */
export interface GroupLimits {
  readonly memoryBytes: number;
  /** Its share of busy processors, against those of other machines. */
  readonly cpus: number;
  /** Processes and threads. */
  readonly tasksMax: number;
}

/** One file to be written, below a group's directory of the controller's tree. */
export interface GroupFile {
  readonly controller: Controller;
  readonly name: string;
  readonly value: string;
}

const V1_NAMES: Readonly<Record<Controller, string>> = { memory: "memory", cpu: "cpu", pids: "pids", io: "blkio" };
const V2_WEIGHT_MAX = 10_000;
const V1_SHARES_MAX = 262_144;

/**
 * From the text of /proc/mounts and of `cgroup.controllers` at the place where version 2 is mounted (null: none is).
 * undefined: the host can not limit a machine's memory this way.
 */
export function cgroupLayout(
  mounts: string,
  controllersAt: (mountPoint: string) => string | null,
): CgroupLayout | undefined {
  const lines = mounts.split("\n").map((line) => line.split(" "));
  const v1 = new Map<Controller, string>();
  for (const [, at = "", type, options = ""] of lines) {
    if (type !== "cgroup") continue;
    const words = options.split(",");
    for (const controller of CONTROLLERS) if (words.includes(V1_NAMES[controller])) v1.set(controller, unescaped(at));
  }
  if (v1.has("memory")) return { version: 1, trees: v1 };
  const [, at] = lines.find(([, , type]) => type === "cgroup2") ?? [];
  if (at === undefined) return undefined;
  const mountPoint = unescaped(at);
  const there = controllersAt(mountPoint)?.trim().split(/\s+/) ?? [];
  if (!there.includes("memory")) return undefined;
  const trees = CONTROLLERS.filter((controller) => there.includes(controller)).map(
    (name) => [name, mountPoint] as const,
  );
  return { version: 2, trees: new Map(trees) };
}

/** Of one VMM's group. Memory that is swapped out counts beside it, as everywhere on the host. */
export function limitFiles(version: 1 | 2, limits: GroupLimits): readonly GroupFile[] {
  const { memoryBytes, tasksMax } = limits;
  return [
    { controller: "memory", name: version === 1 ? "memory.limit_in_bytes" : "memory.max", value: String(memoryBytes) },
    { controller: "pids", name: "pids.max", value: String(tasksMax) },
    shareFile(version, limits.cpus),
    ...diskWeightFiles(version, "usual"),
  ];
}

/** A machine has as much of busy processors as others of its size. */
export function shareFile(version: 1 | 2, cpus: number): GroupFile {
  if (version === 1) return { controller: "cpu", name: "cpu.shares", value: String(clamp(cpus * 256, V1_SHARES_MAX)) };
  return { controller: "cpu", name: "cpu.weight", value: String(clamp(cpus * 25, V2_WEIGHT_MAX)) };
}

/** What a group's disk requests count against others', in the units of each file. `node`: all VMMs of a node together. */
const DISK_WEIGHTS = {
  1: [
    { name: "blkio.bfq.weight", usual: 100, background: 1, node: 50 },
    { name: "blkio.weight", usual: 500, background: 10, node: 250 },
  ],
  2: [
    { name: "io.weight", usual: 100, background: 1, node: 50 },
    { name: "io.bfq.weight", usual: 100, background: 1, node: 50 },
  ],
} as const;

/**
 * All machines count the same, because a disk is asked for as much by a small one as by a large one. Which of the files a
 * kernel has depends on what it schedules disks with; where it has none, nothing is weighed.
 */
export function diskWeightFiles(version: 1 | 2, share: "usual" | "background" | "node"): readonly GroupFile[] {
  return DISK_WEIGHTS[version].map((file) => ({ controller: "io", name: file.name, value: String(file[share]) }));
}

/**
 * Whether a kernel weighs disk requests, by the names in the controller's tree: of its top, where version 2 has no weights,
 * and of a group below it.
 */
export function weighsDisks(names: readonly string[]): boolean {
  const signs: readonly string[] = ["io.weight", "io.bfq.weight", "io.cost.qos", "blkio.weight"];
  return names.some((name) => signs.includes(name) || name.startsWith("blkio.bfq."));
}

/**
 * Of the group that all VMMs of a node are in: they leave some of the host's memory to what manages them, and get the
 * processors as if each processor had one task more. On a busy disk they count half of what another group does.
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

/** How often the kernel has ended a process of the group for want of memory, by the text of the file that says so. */
export function memoryKills(text: string): number {
  return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0);
}

export const memoryKillsFile = (version: 1 | 2): string => (version === 1 ? "memory.oom_control" : "memory.events");

function clamp(value: number, max: number): number {
  return Math.min(Math.max(Math.round(value), 1), max);
}

/** The kernel writes blanks in a mount point as octal numbers. */
function unescaped(path: string): string {
  return path.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
