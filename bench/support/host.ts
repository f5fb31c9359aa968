/**
 * What Linux says of this host's memory and of single processes. Reads /proc and nothing else.
 */
import { readFile } from "node:fs/promises";

/** The kernel's unit of processor time, for every program alike. */
const TICKS_PER_SECOND = 100;

export async function memoryMb(): Promise<{ readonly total: number; readonly available: number }> {
  const text = await readFile("/proc/meminfo", "utf8");
  return { total: kilobytes(text, "MemTotal") / 1024, available: kilobytes(text, "MemAvailable") / 1024 };
}

/** Memory that would come back if this process ended. */
export async function privateMemoryMb(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, "utf8");
  return (kilobytes(text, "Private_Clean") + kilobytes(text, "Private_Dirty")) / 1024;
}

/** Processor time that the process has used, in milliseconds. */
export async function processorMs(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/stat`, "utf8");
  // The name may hold anything, brackets and spaces included; the fields after it are numbers.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [user = 0, system = 0] = fields.slice(11, 13).map(Number);
  return ((user + system) * 1000) / TICKS_PER_SECOND;
}

function kilobytes(text: string, name: string): number {
  const found = new RegExp(`^${name}: +(\\d+) kB$`, "m").exec(text)?.[1];
  if (found === undefined) throw new Error(`/proc does not tell ${name}`);
  return Number(found);
}
