/**
 * Pools of started machines that wait to be claimed.
 */
import { endpoint, json } from "./endpoint.ts";
import { MachineInfo } from "./machines.ts";
import { int32, int64, oneOf, optional, Type, text } from "./schema.ts";

export const POOL_STATUSES = ["filling", "ready", "degraded"] as const;

export const PoolConfig = Type.Object({
  image: text({ minLength: 1, maxLength: 512 }),
  cpus: optional(int32()),
  memoryMb: optional(int32()),
  network: optional(Type.Boolean()),
  maxIdleSecs: optional(int64()),
  targetSize: optional(int32()),
  tenantId: optional(text({ description: "admin only" })),
});

export const PoolInfo = Type.Object({
  id: Type.String(),
  image: Type.String(),
  targetSize: int32(),
  idleCount: int32(),
  busyCount: int32(),
  status: oneOf(POOL_STATUSES),
});

export const poolEndpoints = {
  listPools: endpoint({
    method: "GET",
    path: "/v1/pools",
    family: "pools",
    summary: "List the tenant's pools",
    access: ["pool:write", "machine:read"],
    answers: { 200: json(Type.Array(PoolInfo)) },
  }),
  createPool: endpoint({
    method: "POST",
    path: "/v1/pools",
    family: "pools",
    summary: "Keep machines started and waiting",
    access: ["pool:write"],
    body: { kind: "json", schema: PoolConfig },
    answers: { 200: json(PoolInfo) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "quota_exceeded"],
  }),
  claimMachine: endpoint({
    method: "POST",
    path: "/v1/pools/{id}/claim",
    family: "pools",
    summary: "Take a waiting machine out of a pool",
    access: ["machine:create"],
    answers: { 200: json(MachineInfo) },
    errors: ["not_found", "no_capacity", "quota_exceeded"],
  }),
} as const;
