/**
 * Whether and when a machine that ended unexpectedly is restarted. Pure.
 *
 * The first restart is immediate, later ones follow after a pause that doubles. After RESTARTS_MAX within
 * RESTART_WINDOW_MS there is none: a machine that ends that often needs its owner, and takes processors from
 * others. Time in which its agent did not answer does not count: the window would be over before a guest that
 * hangs after each boot has been restarted that often.
 */
import { RESTART_WINDOW_MS, RESTARTS_MAX } from "@flotilla/contract/limits";

const PAUSE_MS = 1_000;

export interface Restarts {
  /** Epoch milliseconds of the restarts in the window, oldest first. */
  readonly at: readonly number[];
  /** The latest of them has not led to a running machine yet. */
  readonly isUnderWay: boolean;
}

/** Epoch milliseconds of the next restart, which may be now; null: there were too many. */
export function nextRestart(before: readonly number[], now: number): number | null {
  const counted = countedAt(before, now);
  if (counted.length >= RESTARTS_MAX) return null;
  return counted.length === 0 ? now : now + PAUSE_MS * 2 ** (counted.length - 1);
}

/**
 * The restarts in the window, moved forward by the last `silentMs`, in which its agent did not answer. If the
 * clock was set back, none counts for longer than the window.
 */
export function countedAt(before: readonly number[], now: number, silentMs = 0): readonly number[] {
  return before.map((at) => at + silentMs).filter((at) => Math.abs(now - at) < RESTART_WINDOW_MS);
}
