/**
 * Whether and when a machine that ended without being asked is started again. Pure.
 *
 * The first time at once, then after a pause that doubles. After RESTARTS_MAX within RESTART_WINDOW_MS it is left as it
 * is: what ends that often needs its owner, and takes processors from others.
 */
import { RESTART_WINDOW_MS, RESTARTS_MAX } from "@flotilla/contract/limits";

const PAUSE_MS = 1_000;

export interface Restarts {
  /** Epoch milliseconds of those that count, oldest first. */
  readonly at: readonly number[];
  /** The latest of them has not led to a machine that runs yet. */
  readonly isUnderWay: boolean;
}

/** Epoch milliseconds of the next start, which may be now; null: there were too many. */
export function nextRestart(before: readonly number[], now: number): number | null {
  const counted = countedAt(before, now);
  if (counted.length >= RESTARTS_MAX) return null;
  return counted.length === 0 ? now : now + PAUSE_MS * 2 ** (counted.length - 1);
}

/** Those that still count. A clock that was set back makes none count for longer than the window. */
export function countedAt(before: readonly number[], now: number): readonly number[] {
  return before.filter((at) => Math.abs(now - at) < RESTART_WINDOW_MS);
}
