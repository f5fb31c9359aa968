/**
 * Serves /v1/loops, and the loops' metrics.
 */
import type { LoopStatus } from "@flotilla/contract/loops";
import type { HandlersOf } from "../api/handler.ts";
import type { Measure } from "../family.ts";
import type { LoopRuns, Loops } from "./driver.ts";

/** The server whose loops they are. */
export interface LoopServer {
  readonly id: string;
  readonly host: string;
}

export function loopHandlers(loops: Loops, { id: serverId, host }: LoopServer): HandlersOf<"listLoops"> {
  return {
    listLoops: () => Promise.resolve({ status: 200, body: { serverId, host, loops: loops.status().map(loopStatus) } }),
  };
}

const loopStatus = ({ runningSince, lastEndedAt, counts, ...runs }: LoopRuns): LoopStatus => ({
  ...runs,
  runningSince: instantOrNull(runningSince),
  lastEndedAt: instantOrNull(lastEndedAt),
  counts: Object.entries(counts).map(([name, total]) => ({ name, total })),
});

const instantOrNull = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

export const loopMeasures = (loops: Loops): readonly Measure[] => [
  {
    kind: "gauge",
    name: "flotilla_loop_seconds",
    help: "how long the last run of a loop of this server took",
    labels: ["loop"],
    read: () =>
      loops.status().flatMap(({ name, lastMs }) => (lastMs === null ? [] : [[{ loop: name }, lastMs / 1000]])),
  },
  {
    kind: "counter",
    name: "flotilla_loop_errors_total",
    help: "runs of a loop of this server that failed, and items of its runs",
    labels: ["loop"],
    read: () => loops.status().map(({ name, errors }) => [{ loop: name }, errors]),
  },
];
