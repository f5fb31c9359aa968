/**
 * How much processes of the host wait for processors, memory and the disk: pressure stall information of the
 * kernel.
 *
 * Always: a kernel without it (older than 4.20, or started with `psi=0`) gives null, never zeros.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { NodePressure } from "@flotilla/contract/link/link";

/** null: the kernel does not measure it. */
export async function readPressure(directory = "/proc/pressure"): Promise<NodePressure | null> {
  const read = async (name: string) => waitsIn(await readFile(join(directory, name), "utf8").catch(() => ""));
  const [cpu, memory, io] = await Promise.all([read("cpu"), read("memory"), read("io")]);
  return cpu === null || memory === null || io === null ? null : { cpu, memory, io };
}

/**
 * In percent of the last minute; null: the text has none. Kernels before 5.13 have no `full` of processors.
 */
export function waitsIn(text: string): NodePressure["cpu"] | null {
  const some = meanOf("some", text);
  return some === null ? null : { some, full: meanOf("full", text) ?? 0 };
}

function meanOf(kind: "some" | "full", text: string): number | null {
  const value = new RegExp(`^${kind} .*\\bavg60=(\\d+(?:\\.\\d+)?)\\b`, "m").exec(text)?.[1];
  return value === undefined ? null : Math.min(100, Number(value));
}
