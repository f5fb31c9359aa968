/**
 * What a VMM may take of its host, beyond which something is wrong with it. Pure.
 */
import { DISK_GB_MAX } from "@flotilla/contract/limits";
import type { GroupLimits } from "../../host/cgroup-layout.ts";

const MB = 2 ** 20;
/** Of the VMM itself: its code, its buffers for disks and sockets, the tables of the guest's pages. */
const OWN_MB = 256;
/** A guest's memory needs tables in the host's kernel. */
const TABLES_SHARE = 1 / 64;
/** Besides one for each of the guest's processors: threads for disks, at most 64, and few others. */
const TASKS = 192;

/** Files that a VMM has open at once: some tens. */
const FILES_OPEN = 512;
/** Of a disk's own tables, and for what else is written. */
const FILE_SLACK_BYTES = 2 ** 30;

export interface VmmLimits extends GroupLimits {
  /** The size of any file that it writes. */
  readonly fileBytes: number;
  readonly filesOpen: number;
}

/** `diskBytes` null: any disk may come to it later. `acceleratorMb`: what its accelerator takes (tuning.ts). */
export function vmmLimits(
  size: { readonly cpus: number; readonly memoryMb: number; readonly diskBytes: number | null },
  acceleratorMb: number,
): VmmLimits {
  const { cpus, memoryMb, diskBytes } = size;
  const ownMb = OWN_MB + memoryMb * TABLES_SHARE + acceleratorMb;
  return {
    memoryBytes: Math.ceil(memoryMb + ownMb) * MB,
    cpus,
    tasksMax: TASKS + cpus,
    // A template's memory is a file, too.
    fileBytes: fileBytesMax(Math.max(diskBytes ?? DISK_GB_MAX * 2 ** 30, memoryMb * MB)),
    filesOpen: FILES_OPEN,
  };
}

/** Of the largest file that holds a disk of this size. */
export function fileBytesMax(diskBytes: number): number {
  return Math.ceil(diskBytes * (1 + 1 / 64)) + FILE_SLACK_BYTES;
}
