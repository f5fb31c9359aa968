/**
 * Linux' figures for this host's memory and for single processes, and process priorities. Uses /proc.
 */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { setPriority } from "node:os";

/** The kernel's unit of processor time, the same for every program. */
const TICKS_PER_SECOND = 100;

export async function memoryMb(): Promise<{ readonly total: number; readonly available: number }> {
  const text = await readFile("/proc/meminfo", "utf8");
  return { total: kilobytes(text, "MemTotal") / 1024, available: kilobytes(text, "MemAvailable") / 1024 };
}

/** Memory that would be freed if this process ended. */
export async function privateMemoryMb(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, "utf8");
  return (kilobytes(text, "Private_Clean") + kilobytes(text, "Private_Dirty")) / 1024;
}

/** Processor time that the process has used, in milliseconds. */
export async function processorMs(pid: number): Promise<number> {
  return (await statOf(pid)).ownMs;
}

/** Processor time of the process and of its children, also those that have ended. */
export async function processorMsOfAll(pid: number): Promise<number> {
  const processes = (await readdir("/proc")).map(Number).filter((number) => number > 0);
  // Others end at any time.
  const stats = await Promise.all(processes.map((each) => statOf(each).catch(() => null)));
  const { ownMs, endedMs } = await statOf(pid);
  return stats.reduce((sum, stat) => sum + (stat?.parent === pid ? stat.ownMs : 0), ownMs + endedMs);
}

interface ProcessStat {
  readonly parent: number;
  readonly ownMs: number;
  /** Processor time of its children that have ended. */
  readonly endedMs: number;
}

async function statOf(pid: number): Promise<ProcessStat> {
  const text = await readFile(`/proc/${pid}/stat`, "utf8");
  // The name may contain anything, including brackets and spaces; the fields after it are numbers.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11, 15).map(Number);
  const ms = (ticks: number): number => (ticks * 1000) / TICKS_PER_SECOND;
  return { parent: Number(fields[1]), ownMs: ms(user + system), endedMs: ms(endedUser + endedSystem) };
}

const LEAST = 19;

/**
 * Gives the process, which leads a session, the lowest priority: it should affect others as if it ran on
 * another host. Linux may share processors between sessions first, and then their priority counts.
 */
export async function giveLeftovers(pid: number): Promise<void> {
  setPriority(pid, LEAST);
  await writeFile(`/proc/${pid}/autogroup`, String(LEAST)).catch(() => undefined);
}

function kilobytes(text: string, name: string): number {
  const found = new RegExp(`^${name}: +(\\d+) kB$`, "m").exec(text)?.[1];
  if (found === undefined) throw new Error(`/proc has no ${name}`);
  return Number(found);
}
