/**
 * What connections leave behind in processes: memory of this one, and descriptors of this one and of others,
 * measured before, at the peak and after.
 *
 * A first round compiles code and fills pools; the second is compared with what was there after it.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { until } from "./until.ts";

export const MIB = 1024 * 1024;
/** How many equal numbers in a row, 50 ms apart. */
const SETTLED_LOOKS = 8;
const DEADLINE_MS = 60_000;
/**
 * A pool of connections to the database or to nodes may have grown. Fewer than the callers of one endpoint.
 */
const DESCRIPTORS_SLACK = 2;
const MEMORY_SLACK_BYTES = 24 * MIB;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

function memoryBytes(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const descriptorsOf = async (pid: number | "self"): Promise<number> => (await readdir(`/proc/${pid}/fd`)).length;

/** The descriptors of each process, once their number no longer changes. */
async function settled(pids: readonly (number | "self")[]): Promise<readonly number[]> {
  let [last, same]: [readonly number[], number] = [[], 0];
  const isSettled = async (): Promise<boolean> => {
    const now = await Promise.all(pids.map(descriptorsOf));
    same = now.join() === last.join() ? same + 1 : 0;
    last = now;
    return same >= SETTLED_LOOKS;
  };
  await until(isSettled, { what: "descriptors that do not change", deadlineMs: DEADLINE_MS, everyMs: 50 });
  return last;
}

/** Bytes in use, once they are no longer released. */
async function settledMemory(): Promise<number> {
  let [least, same] = [Number.POSITIVE_INFINITY, 0];
  const isSettled = (): boolean => {
    collectGarbage();
    const now = memoryBytes();
    same = now > least - MIB ? same + 1 : 0;
    least = Math.min(least, now);
    return same >= SETTLED_LOOKS;
  };
  await until(isSettled, { what: "memory that is not released any more", deadlineMs: DEADLINE_MS, everyMs: 50 });
  return least;
}

export interface Rounds<T> {
  readonly all: readonly T[];
  /** Results of the first round. */
  readonly warmUp: readonly T[];
  /** Processes besides this one. */
  readonly pids: readonly number[];
  /** What this process may use at the peak, beyond what it had before. */
  readonly peakBytesMax: number;
}

/** Opens connections and waits for their end; calls `look` often, so that the peak is seen. */
export type Round<T> = (items: readonly T[], look: () => void) => Promise<void>;

/** After the second round, the processes have as many descriptors and as much memory as after the first. */
export async function leavesNothing<T>(rounds: Rounds<T>, round: Round<T>): Promise<void> {
  const watched = ["self" as const, ...rounds.pids];
  await round(rounds.warmUp, () => undefined);
  const descriptors = await settled(watched);
  const before = await settledMemory();
  let peakBytes = before;
  await round(rounds.all, () => {
    peakBytes = Math.max(peakBytes, memoryBytes());
  });
  assert.ok(peakBytes - before < rounds.peakBytesMax, `${Math.round((peakBytes - before) / MIB)} MiB at the peak`);
  for (const [index, pid] of watched.entries()) {
    const allowed = (descriptors[index] ?? 0) + DESCRIPTORS_SLACK;
    const areFree = async () => {
      const count = await descriptorsOf(pid);
      if (count > allowed) throw new Error(`${count} descriptors`);
      return true;
    };
    await until(areFree, { what: `at most ${allowed} descriptors of process ${pid}`, deadlineMs: DEADLINE_MS });
  }
  const isFree = (): boolean => {
    collectGarbage();
    return memoryBytes() - before < MEMORY_SLACK_BYTES;
  };
  await until(isFree, { what: "the memory to be released", deadlineMs: DEADLINE_MS, everyMs: 100 });
}
