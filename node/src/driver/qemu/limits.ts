/**
 * What a VMM may take of its host, beyond which something is wrong with it. Pure.
 */
import type { GroupLimits } from "../../host/cgroup-layout.ts";
import type { Accelerator } from "./argv.ts";

const MB = 2 ** 20;
/** Of the VMM itself: its code, its buffers for disks and sockets, the tables of the guest's pages. */
const OWN_MB = 256;
/** Translated code (argv.ts) and what finds it. */
const EMULATION_MB = 384;
/** A guest's memory needs tables in the host's kernel. */
const TABLES_SHARE = 1 / 64;
/** Besides one for each of the guest's processors: threads for disks, at most 64, and few others. */
const TASKS = 192;

export function vmmLimits(
  size: { readonly cpus: number; readonly memoryMb: number },
  accelerator: Accelerator,
): GroupLimits {
  const { cpus, memoryMb } = size;
  const ownMb = OWN_MB + memoryMb * TABLES_SHARE + (accelerator === "tcg" ? EMULATION_MB : 0);
  return { memoryBytes: Math.ceil(memoryMb + ownMb) * MB, cpus, tasksMax: TASKS + cpus };
}
