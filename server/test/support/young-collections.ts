/**
 * What young collections of this process moved to the old generation, of work that was over.
 */
import { GCProfiler, type HeapSpaceStatistics } from "node:v8";

const AT_ONCE = 4;

const oldBytes = ({ heapSpaceStatistics }: { readonly heapSpaceStatistics: readonly HeapSpaceStatistics[] }): number =>
  heapSpaceStatistics.find(({ spaceName }) => spaceName === "old_space")?.spaceUsedSize ?? 0;

/**
 * Bytes of each of `count` times that the work was done, after a quarter as many of which it may keep
 * something. Throws when nothing was collected.
 */
export async function keptOfEach(count: number, work: () => Promise<unknown>): Promise<number> {
  for (let index = 0; index < count / 4; index += 1) await work();
  const profiler = new GCProfiler();
  profiler.start();
  for (let index = 0; index < count; index += AT_ONCE) await Promise.all(Array.from({ length: AT_ONCE }, work));
  const collections = profiler.stop()?.statistics.filter(({ gcType }) => gcType === "Scavenge") ?? [];
  if (collections.length === 0) throw new Error("no young collection");
  return collections.reduce((sum, { beforeGC, afterGC }) => sum + oldBytes(afterGC) - oldBytes(beforeGC), 0) / count;
}
