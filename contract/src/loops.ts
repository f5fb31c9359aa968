/**
 * The server's loops, which make the observed state the desired one: what each has done in the server that
 * answers.
 */
import { endpoint, json } from "./endpoint.ts";
import { int32, int64, nullable, type Static, timestamp, Type } from "./schema.ts";

const LoopCount = Type.Object({ name: Type.String(), total: int64() });

export const LoopStatus = Type.Object({
  name: Type.String(),
  purpose: Type.String(),
  periodMs: int64({ description: "it runs at least this often, unless it is running" }),
  runningSince: nullable(timestamp("RFC 3339, UTC, with milliseconds; null: it waits")),
  lastEndedAt: nullable(timestamp("RFC 3339, UTC, with milliseconds; null: it has not ended a run")),
  lastMs: nullable(int64({ description: "how long the last run took" })),
  runs: int64({ description: "runs that have ended since the server started, also those that failed" }),
  errors: int64({ description: "runs that failed, and items of runs" }),
  counts: Type.Array(LoopCount, { description: "what it found and did since the server started" }),
  failures: int32({ description: "how many runs in a row had errors, up to the last one" }),
  lastError: nullable(Type.String({ description: "of the last run that had one" })),
});
export type LoopStatus = Static<typeof LoopStatus>;

export const ServerLoops = Type.Object({
  serverId: Type.String({
    description: "of the server that answers: each runs all loops, and knows only its own runs",
  }),
  host: Type.String(),
  loops: Type.Array(LoopStatus),
});
export type ServerLoops = Static<typeof ServerLoops>;

export const loopEndpoints = {
  listLoops: endpoint({
    method: "GET",
    path: "/v1/loops",
    family: "loops",
    summary: "List the loops of the server that answers, with their last runs",
    access: ["admin"],
    answers: { 200: json(ServerLoops) },
    isExtra: true,
  }),
} as const;
