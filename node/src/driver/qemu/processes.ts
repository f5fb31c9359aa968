/**
 * What /proc says about VMM processes: which there are, whose they are, and whether one still lives.
 *
 * Always: a process is named by the pair of its id and its start time, which is never reused. A VMM is recognized by the
 * value of its `-name`, which holds machine, boot and node directory; two Flotillas on one host never see each
 * other's.
 */
import { readFileSync } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import type { VmRecord } from "../driver.ts";

/** Ids have neither slash nor @, so the parts can be told apart whatever the directory is called. */
export function vmmName(machineId: string, bootId: string, nodeDirectory: string): string {
  return `${machineId}/${bootId}@${nodeDirectory}`;
}

/** A process that runs a VMM, or is about to become one. */
export interface FoundVmm extends VmRecord {
  /** The user it runs as. */
  readonly uid: number;
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
    const bootId = bootIdIn(argv, nodeDirectory);
    const startTime = startTimeOf(pid);
    if (bootId === undefined || startTime === undefined) return undefined;
    return { bootId, pid, startTime, uid: (await stat(`/proc/${pid}`)).uid };
  } catch {
    return undefined; // It ended while it was looked at.
  }
}

/** The boot that a command line runs, if it is a VMM's of this node directory. */
function bootIdIn(argv: readonly string[], nodeDirectory: string): string | undefined {
  const at = argv.indexOf("-name");
  const name = at === -1 ? undefined : argv[at + 1]?.replaceAll(",,", ",");
  const match = /^guest=[^/@]+\/([^/@]+)@(.*)$/s.exec(name ?? "");
  return match?.[2] === nodeDirectory ? match[1] : undefined;
}

/** In clock ticks since the host's boot; undefined when the process has ended, also when nobody has reaped it yet. */
export function startTimeOf(pid: number): number | undefined {
  try {
    // tidy-allow blocking: /proc is memory, read in microseconds, and a kill must not come long after this look
    return parseStartTime(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return undefined;
  }
}

/** `<pid> (<any name>) <state> <ppid> …`, with the start time as the 22nd field. */
function parseStartTime(stat: string): number | undefined {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0];
  const startTime = Number(fields[19]);
  if (state === undefined || "ZXx".includes(state) || !Number.isSafeInteger(startTime)) return undefined;
  return startTime;
}

export function isAlive(record: VmRecord): boolean {
  return startTimeOf(record.pid) === record.startTime;
}

/** Ends the process at once. Returns whether there was one to end. */
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
