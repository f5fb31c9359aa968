/**
 * Timeouts that allow for a busy host; for those that detect something that will never come.
 */
import { availableParallelism, loadavg } from "node:os";

/** Waiting longer than this multiple is pointless. */
const FACTOR_MAX = 4;

/**
 * Scales a timeout (milliseconds) by the host's load: the average number of tasks per processor over the last
 * minute, at least 1. Returns a whole number, because timeouts of child processes must be one.
 */
export function loadAdjustedMs(ms: number, load = loadavg()[0] ?? 0, processors = availableParallelism()): number {
  return Math.round(ms * Math.min(Math.max(load / processors, 1), FACTOR_MAX));
}
