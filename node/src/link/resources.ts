/**
 * What the host has and what of it is in use, as the server's scheduler needs to know it.
 *
 * Reads /proc and the file system of the node's directory; owns nothing. Always: all numbers are of this
 * moment, except `usedCpus`, which is the mean since the last look.
 */
import { readFile, statfs } from "node:fs/promises";
import { availableParallelism, cpus, totalmem } from "node:os";
import type { NodeResources } from "@flotilla/contract/link/link";
import { readPressure } from "./pressure.ts";

const BYTES_PER_MB = 1024 * 1024;
const BYTES_PER_GB = 1024 * 1024 * 1024;

/** The resources of this host; the directory is on the file system that holds disks and images. */
export function makeResourceObserver(directory: string): () => Promise<NodeResources> {
  let last = processorTimes();
  let usedCpus = 0;
  return async () => {
    const now = processorTimes();
    const elapsed = now.total - last.total;
    if (elapsed > 0) {
      usedCpus = ((now.busy - last.busy) / elapsed) * availableParallelism();
      last = now;
    }
    const [availableMemoryMb, disk, pressure] = await Promise.all([
      readAvailableMemoryMb(),
      statfs(directory),
      readPressure(),
    ]);
    const totalMemoryMb = Math.floor(totalmem() / BYTES_PER_MB);
    const totalDiskGb = Math.floor((disk.blocks * disk.bsize) / BYTES_PER_GB);
    const availableDiskGb = Math.floor((disk.bavail * disk.bsize) / BYTES_PER_GB);
    return {
      totalCpus: availableParallelism(),
      totalMemoryMb,
      availableMemoryMb,
      totalDiskGb,
      availableDiskGb,
      usedCpus: Math.round(usedCpus * 100) / 100,
      usedMemoryMb: Math.max(totalMemoryMb - availableMemoryMb, 0),
      usedDiskGb: Math.max(totalDiskGb - availableDiskGb, 0),
      pressure,
    };
  };
}

function processorTimes(): { readonly busy: number; readonly total: number } {
  let busy = 0;
  let total = 0;
  for (const { times } of cpus()) {
    const all = times.user + times.nice + times.sys + times.idle + times.irq;
    total += all;
    busy += all - times.idle;
  }
  return { busy, total };
}

async function readAvailableMemoryMb(): Promise<number> {
  const text = await readFile("/proc/meminfo", "utf8");
  const kilobytes = /^MemAvailable:\s+(\d+) kB$/m.exec(text)?.[1];
  return Math.floor(Number(kilobytes ?? 0) / 1024);
}
