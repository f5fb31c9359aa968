/**
 * Which test files run at the same time: as many as keep the processors busy, the longest first.
 *
 * Always:
 * - A job is one file, or several in one process. Its load is the number of processors that its last run kept
 *   busy, and at least that of its layer, so what waits a lot (programs killed at random moments) runs beside
 *   what computes.
 * - A job for which there is no room waits while a shorter one that fits begins. Alone, every job has room.
 */
import type { Duration } from "./durations.ts";
import type { Layer } from "./layers.ts";

export interface Job {
  readonly layer: Layer;
  readonly files: readonly string[];
  readonly ms: number;
  readonly load: number;
}

/** Duration of a file that was never recorded: it may be long, so it begins first. */
const UNKNOWN_MS = 120_000;
/** Duration of a file of which many share a process. */
const UNKNOWN_SHARED_MS = 100;
/** Waiting for a disk, and for each other's processors, leaves some of them free. */
const OVERLOAD = 1.25;
/** More jobs would hold memory for little. */
const JOBS_PER_PROCESSOR = 3;

/** The jobs of a layer. */
export function jobsOf(
  layer: Layer,
  files: readonly string[],
  durations: ReadonlyMap<string, Duration>,
): readonly Job[] {
  if (layer.processes !== undefined) return shared(layer, files, { processes: layer.processes, durations });
  return files.map((file) => {
    const known = durations.get(file);
    // On a busy host a file has less of the processors than it could use.
    const load =
      layer.isAlone === true ? Number.POSITIVE_INFINITY : Math.max(layer.load, (known?.cpuMs ?? 0) / (known?.ms ?? 1));
    return { layer, files: [file], ms: known?.ms ?? UNKNOWN_MS, load };
  });
}

/**
 * Deals the files out to that many processes, the longest first, each to the process with the least so far.
 */
function shared(
  layer: Layer,
  files: readonly string[],
  { processes, durations }: { readonly processes: number; readonly durations: ReadonlyMap<string, Duration> },
): readonly Job[] {
  const msOf = (file: string): number => durations.get(file)?.ms ?? UNKNOWN_SHARED_MS;
  const packs = Array.from({ length: Math.min(processes, files.length) }, () => ({ files: [] as string[], ms: 0 }));
  for (const file of files.toSorted((one, other) => msOf(other) - msOf(one))) {
    const [least] = packs.toSorted((one, other) => one.ms - other.ms);
    least?.files.push(file);
    if (least !== undefined) least.ms += msOf(file);
  }
  return packs.map((pack) => ({ layer, ...pack, load: layer.load }));
}

/** The job to begin now, beside the running ones: the first of the waiting ones for which there is room. */
export function nextJob(waiting: Iterable<Job>, running: Iterable<Job>, processors: number): Job | undefined {
  const beside = [...running];
  if (beside.length >= processors * JOBS_PER_PROCESSOR) return undefined;
  const room = processors * OVERLOAD - beside.reduce((sum, job) => sum + job.load, 0);
  return [...waiting].find((job) => beside.length === 0 || job.load <= room);
}

export function longestFirst(jobs: readonly Job[]): readonly Job[] {
  return jobs.toSorted((one, other) => other.ms - one.ms);
}
