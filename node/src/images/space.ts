/**
 * Room on the disk: how much there is, and the alarm when it runs out during work.
 *
 * Machines' disks lie on the same file system and are sparse: an image that took the last block would make every
 * machine of the node fail its next write. So a part of the file system, 1 GiB or 5 %, is never used for images.
 */
import { statfs } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";

const RESERVE_BYTES_MAX = 1024 ** 3;
const RESERVE_SHARE = 0.05;
const WATCH_PERIOD_MS = 200;

/** For the machine's owner: a full disk is the node's trouble, and names what ends it. */
export class DiskFull extends Error {
  constructor(why: string) {
    super(`the node's disk is too full for it: ${why}; removing images or machines makes room`);
  }
}

/** Bytes that images may still take on the file system of `directory`; negative when the reserve is touched. */
export async function readFreeBytes(directory: string): Promise<number> {
  const facts = await statfs(directory);
  return facts.bavail * facts.bsize - Math.min(RESERVE_BYTES_MAX, facts.blocks * facts.bsize * RESERVE_SHARE);
}

export interface SpaceWatch extends Disposable {
  /** Aborted with DiskFull when room runs out, or with the parent. */
  readonly signal: AbortSignal;
}

export function watchSpace(directory: string, clock: Clock, parent: AbortSignal): SpaceWatch {
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(parent.reason);
  if (parent.aborted) onAbort();
  else parent.addEventListener("abort", onAbort, { once: true });
  const ended = new AbortController();
  const watch = async (): Promise<void> => {
    while (!ended.signal.aborted && !controller.signal.aborted) {
      const freeBytes = await readFreeBytes(directory).catch(() => 0);
      if (freeBytes < 0) controller.abort(new DiskFull("it filled up during the work"));
      else await clock.sleep(WATCH_PERIOD_MS, ended.signal);
    }
  };
  void watch();
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      ended.abort();
      parent.removeEventListener("abort", onAbort);
    },
  };
}

/** A full disk, however it showed itself, becomes DiskFull; everything else stays. */
export function asDiskFull(error: unknown): unknown {
  if (error instanceof DiskFull) return error;
  const code = (error as { code?: unknown } | null)?.code;
  const message = error instanceof Error ? error.message : "";
  const isFull =
    code === "ENOSPC" || code === "EDQUOT" || /no space left on device|could not allocate block/i.test(message);
  return isFull ? new DiskFull("no space is left") : error;
}
