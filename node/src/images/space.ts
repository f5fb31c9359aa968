/**
 * Free space for images: how much there is, and a watch that aborts work when it runs out.
 *
 * Machines' disks are sparse files on the same file system: an image that took the last block would make the
 * next write of every machine on the node fail. So images never use a reserve of 1 GiB or 5 % of the file
 * system.
 */
import { statfs } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";

const RESERVE_BYTES_MAX = 1024 ** 3;
const RESERVE_SHARE = 0.05;
const WATCH_PERIOD_MS = 200;

/** Shown to the machine's owner: the disk of the node is full, and what makes room. */
export class DiskFull extends Error {
  constructor(why: string) {
    super(`the node's disk is too full: ${why}; remove images or machines to make room`);
  }

  /** The same with another message. */
  static saying(text: string): DiskFull {
    return Object.assign(new DiskFull(""), { message: text });
  }
}

/** Bytes that images may still use on the file system of `directory`; negative when the reserve is in use. */
export async function readFreeBytes(directory: string): Promise<number> {
  const facts = await statfs(directory);
  return facts.bavail * facts.bsize - Math.min(RESERVE_BYTES_MAX, facts.blocks * facts.bsize * RESERVE_SHARE);
}

export interface SpaceWatch extends Disposable {
  /** Aborted with DiskFull when space runs out, or with the parent. */
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
      if (freeBytes < 0) controller.abort(new DiskFull("it filled up during the operation"));
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

/** Converts every form of a full-disk error to DiskFull; returns other errors unchanged. */
export function asDiskFull(error: unknown): unknown {
  if (error instanceof DiskFull) return error;
  const code = (error as { code?: unknown } | null)?.code;
  const message = error instanceof Error ? error.message : "";
  const isFull =
    code === "ENOSPC" || code === "EDQUOT" || /no space left on device|could not allocate block/i.test(message);
  return isFull ? new DiskFull("no space is left") : error;
}
