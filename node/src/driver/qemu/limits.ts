/**
 * The resource limits of a VMM; a VMM that exceeds one is faulty. Pure.
 */
import { DISK_GB_MAX } from "@flotilla/contract/limits";
import type { GroupLimits } from "../../host/cgroup-layout.ts";

const MB = 2 ** 20;
/** Memory of the VMM itself: code, buffers for disks and sockets, page tables. */
const OWN_MB = 256;
/** The host kernel's tables for a guest's memory. */
const TABLES_SHARE = 1 / 64;
/** Besides one thread per guest processor: up to 64 threads for disks, and a few others. */
const TASKS = 192;

/** A VMM needs a few dozen open files. */
const FILES_OPEN = 512;
/** Room for a disk's metadata and other files. */
const FILE_SLACK_BYTES = 2 ** 30;

export interface VmmLimits extends GroupLimits {
  /** Maximum size of any file that it writes. */
  readonly fileBytes: number;
  readonly filesOpen: number;
}

/**
 * `diskBytes` is null if any disk may be attached later. `acceleratorMb`: overhead of its accelerator
 * (tuning.ts).
 */
export function vmmLimits(
  size: {
    readonly cpus: number;
    readonly memoryMb: number;
    readonly diskBytes: number | null;
    /** Another VMM of the same user lives meanwhile. */
    readonly hasTwin?: boolean;
  },
  acceleratorMb: number,
): VmmLimits {
  const { cpus, memoryMb, diskBytes, hasTwin = false } = size;
  const ownMb = OWN_MB + memoryMb * TABLES_SHARE + acceleratorMb;
  return {
    memoryBytes: Math.ceil(memoryMb + ownMb) * MB,
    cpus,
    // The limit of a process counts all those of its user.
    tasksMax: (TASKS + cpus) * (hasTwin ? 2 : 1),
    // A template's memory is a file too.
    fileBytes: fileBytesMax(Math.max(diskBytes ?? DISK_GB_MAX * 2 ** 30, memoryMb * MB)),
    filesOpen: FILES_OPEN,
  };
}

/** The size of the largest file for a disk of this size. */
export function fileBytesMax(diskBytes: number): number {
  return Math.ceil(diskBytes * (1 + 1 / 64)) + FILE_SLACK_BYTES;
}
