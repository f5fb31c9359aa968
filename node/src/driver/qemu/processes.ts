/**
 * VMM processes in /proc: which exist, who owns them, and whether one is alive.
 *
 * Always: a process is identified by its id and start time, a pair that is never reused. A VMM is recognized
 * by the value of its `-name`, which contains machine, boot and node directory, so two Flotillas on one host
 * never see each other's.
 */
import { readdirSync, readFileSync } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import type { MemoryUse } from "@flotilla/contract/link/points";
import type { ProcessorTime, VmRecord } from "../driver.ts";

/** Ids contain neither slash nor @, so the parts can be separated whatever the directory is called. */
export function vmmName(machineId: string, bootId: string, nodeDirectory: string): string {
  return `${machineId}/${bootId}@${nodeDirectory}`;
}

/** A process that runs a VMM, or is about to become one. */
export interface FoundVmm extends VmRecord {
  /** The machine it was started for, or its other purpose. */
  readonly machineId: string;
  /** The user it runs as. */
  readonly uid: number;
}

/**
 * Looks for the VMMs of a node directory. All who ask while it looks share the next look, which begins after
 * that: when an agent starts, each machine asks at the same time, and to look is to read a file of every
 * process of the host.
 */
export class VmmFinder {
  readonly #look: () => Promise<readonly FoundVmm[]>;
  #present: Promise<unknown> = Promise.resolve();
  #next: Promise<readonly FoundVmm[]> | null = null;

  constructor(look: () => Promise<readonly FoundVmm[]>) {
    this.#look = look;
  }

  find(): Promise<readonly FoundVmm[]> {
    this.#next ??= this.#present.then(() => {
      this.#next = null;
      const looking = this.#look();
      this.#present = looking.catch(() => undefined);
      return looking;
    });
    return this.#next;
  }
}

/** All VMMs of a node directory. */
export async function findVmms(nodeDirectory: string): Promise<readonly FoundVmm[]> {
  const pids = (await readdir("/proc")).map(Number).filter(Number.isSafeInteger);
  const found = await Promise.all(pids.map((pid) => asVmm(pid, nodeDirectory)));
  return found.filter((vmm) => vmm !== undefined);
}

async function asVmm(pid: number, nodeDirectory: string): Promise<FoundVmm | undefined> {
  try {
    const argv = (await readFile(`/proc/${pid}/cmdline`, "utf8")).split("\0");
    const name = nameIn(argv, nodeDirectory);
    const startTime = name && startTimeOf(pid);
    if (name === undefined || startTime === undefined) return undefined;
    return { ...name, pid, startTime, uid: (await stat(`/proc/${pid}`)).uid };
  } catch {
    return undefined; // It ended meanwhile.
  }
}

/** Parses a command line; undefined unless it is that of a VMM of this node directory. */
function nameIn(argv: readonly string[], nodeDirectory: string): Pick<FoundVmm, "machineId" | "bootId"> | undefined {
  const at = argv.indexOf("-name");
  const name = at === -1 ? undefined : argv[at + 1]?.replaceAll(",,", ",");
  const [, machineId, bootId, directory] = /^guest=([^/@]+)\/([^/@]+)@(.*)$/s.exec(name ?? "") ?? [];
  if (machineId === undefined || bootId === undefined || directory !== nodeDirectory) return undefined;
  return { machineId, bootId };
}

/** The start in clock ticks since the host's boot; undefined after the process's end, reaped or not. */
export function startTimeOf(pid: number): number | undefined {
  try {
    // tidy-allow blocking: /proc is in memory, read in microseconds, and a kill must follow the check immediately
    return parseStartTime(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return undefined;
  }
}

/** Format: `<pid> (<any name>) <state> <ppid> …`; the start time is the 22nd field. */
function parseStartTime(stat: string): number | undefined {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0];
  const startTime = Number(fields[19]);
  if (state === undefined || "ZXx".includes(state) || !Number.isSafeInteger(startTime)) return undefined;
  return startTime;
}

/** Zeros after the process's end, and with a kernel that does not count it. */
export function processorTimeOf(pid: number): ProcessorTime {
  const sum = { ranMs: 0, waitedMs: 0 };
  try {
    // tidy-allow blocking: /proc is in memory, and only a VMM whose guest is silent is looked at
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      // tidy-allow blocking: as above
      const counted = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8");
      // Nanoseconds on a processor and in a run queue, and the number of times that it ran.
      const [ran = 0, waited = 0] = counted.split(" ").map(Number);
      sum.ranMs += ran / 1e6;
      sum.waitedMs += waited / 1e6;
    }
  } catch {
    return sum;
  }
  return sum;
}

/** Rejects after the process's end. */
export async function memoryUseOf(pid: number): Promise<MemoryUse> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, "utf8");
  const bytes = (name: string): number => Number(new RegExp(`^${name}: +(\\d+) kB$`, "m").exec(text)?.[1] ?? 0) * 1024;
  return {
    ownBytes: bytes("Private_Clean") + bytes("Private_Dirty"),
    sharedBytes: bytes("Shared_Clean") + bytes("Shared_Dirty"),
  };
}

export function isAlive(record: VmRecord): boolean {
  return startTimeOf(record.pid) === record.startTime;
}

/** Kills the process. Returns whether it was alive. */
export function killNow(record: VmRecord): boolean {
  if (!isAlive(record)) return false;
  try {
    process.kill(record.pid, "SIGKILL");
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}
