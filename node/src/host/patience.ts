/**
 * How much longer than usual things may take on this host now. For time-outs that mean "it will never come".
 */
import { availableParallelism, loadavg } from "node:os";

/** More than this is waited for nothing. */
const PATIENCE_MAX = 4;

/** A factor of at least 1: how many tasks each processor has had to serve, on average over the last minute. */
export function patience(load = loadavg()[0] ?? 0, processors = availableParallelism()): number {
  return Math.min(Math.max(load / processors, 1), PATIENCE_MAX);
}
