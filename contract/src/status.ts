/**
 * Health of the whole service. Unversioned paths; all but /metrics are public.
 */
import { empty, endpoint, json, stream } from "./endpoint.ts";
import { int32, int64, type Static, Type } from "./schema.ts";

export const ClusterHealth = Type.Object({
  clusterId: Type.String(),
  version: Type.String(),
  nodesTotal: int32(),
  nodesReady: int32(),
  appsTotal: int32(),
  poolsTotal: int32(),
  uptimeSecs: int64(),
  databaseUp: Type.Boolean({ description: "false: the counts are the last known ones" }),
});
export type ClusterHealth = Static<typeof ClusterHealth>;

export const statusEndpoints = {
  getHealth: endpoint({
    method: "GET",
    path: "/health",
    family: "status",
    summary: "Counts and uptime of the cluster",
    access: "public",
    answers: { 200: json(ClusterHealth) },
  }),
  getLiveness: endpoint({
    method: "GET",
    path: "/livez",
    family: "status",
    summary: "Whether the process answers",
    access: "public",
    answers: { 200: empty() },
  }),
  getReadiness: endpoint({
    method: "GET",
    path: "/readyz",
    family: "status",
    summary: "Whether the state backend is reachable",
    access: "public",
    answers: { 200: empty() },
    errors: ["unavailable"],
  }),
  getMetrics: endpoint({
    method: "GET",
    path: "/metrics",
    family: "status",
    summary: "Metrics in Prometheus' text format",
    access: ["admin"],
    worksWithoutDatabase: true,
    answers: { 200: stream("text/plain; version=0.0.4; charset=utf-8") },
  }),
  getOpenapi: endpoint({
    method: "GET",
    path: "/openapi.json",
    family: "status",
    summary: "This description, as OpenAPI 3.1",
    access: "public",
    answers: { 200: json(Type.Unknown()) },
    isExtra: true,
  }),
} as const;
