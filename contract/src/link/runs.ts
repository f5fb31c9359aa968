/**
 * Runs as a node reports them, and as the server acknowledges them.
 */
import { RUN_END_CAUSES, RUNS_PER_COMPLETE_REPORT_MAX } from "../runs.ts";
import { clipped, count, flag, instant, type Message, machineId, list, nullable, oneOfOr, Type } from "./vocabulary.ts";

const BOOT_ID_CHARACTERS_MAX = 128;

/** A run as its node recorded it. Times are epoch milliseconds of the node's clock. */
export const Run = Type.Object({
  /** Grows with every change of any run of the node, also over restarts of the agent. */
  sequence: count(Number.MAX_SAFE_INTEGER),
  bootId: clipped(BOOT_ID_CHARACTERS_MAX),
  machineId: machineId(),
  startedAt: instant(),
  /** null while it runs. If no agent saw it end: when it was last known to run. */
  endedAt: nullable(instant()),
  /** null while it runs. `unknown`: this version does not know the cause. */
  cause: nullable(oneOfOr(RUN_END_CAUSES, "unknown")),
  /** What the machine has sent in this run. Never less than before. */
  egressBytes: count(Number.MAX_SAFE_INTEGER, { default: 0 }),
});
export type Run = Message<typeof Run>;

/** The runs in a heartbeat. The server acknowledges up to a sequence; the node repeats the others. */
export const RunReport = Type.Object({
  /** The sequence of the newest change that the node has recorded; 0: none yet. */
  sequence: count(Number.MAX_SAFE_INTEGER),
  /** Whether `runs` holds every run that is open and every run that is not acknowledged. */
  isComplete: flag(),
  /** In the order of their sequence. */
  runs: list(Run, RUNS_PER_COMPLETE_REPORT_MAX),
});
export type RunReport = Message<typeof RunReport>;
