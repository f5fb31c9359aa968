/**
 * How long to wait on a busy host. For time-outs that mean "it will never come".
 */
import { availableParallelism, loadavg } from "node:os";

/** Waiting longer than this many times the usual has no use. */
const FACTOR_MAX = 4;

/**
 * A time-out in milliseconds, longer on a busy host: multiplied by the number of tasks that each processor has had to
 * serve on average over the last minute, at least 1. A whole number, because time-outs of child processes must be one.
 */
export function patientMs(ms: number, load = loadavg()[0] ?? 0, processors = availableParallelism()): number {
  return Math.round(ms * Math.min(Math.max(load / processors, 1), FACTOR_MAX));
}
