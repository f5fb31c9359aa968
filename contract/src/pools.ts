/**
 * Pools of started machines that wait to be claimed.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { IMAGE_FAULTS } from "./errors.ts";
import { CPUS_MAX, MEMORY_MB_MAX, MEMORY_MB_MIN, POOL_SIZE_MAX } from "./limits.ts";
import { MachineInfo } from "./machines.ts";
import { int32, int64, nullable, oneOf, optional, PageQuery, text, timestamp, Type } from "./schema.ts";

/**
 * `degraded`: the last machine could not be made or started, `error` says why. `ready`: as many wait as are
 * wanted.
 */
export const POOL_STATUSES = ["filling", "ready", "degraded"] as const;

const IDLE_SECONDS_MAX = 365 * 24 * 3600;

export const PoolConfig = Type.Object({
  image: text({ minLength: 1, maxLength: 512 }),
  cpus: optional(int32({ minimum: 1, maximum: CPUS_MAX })),
  memoryMb: optional(int32({ minimum: MEMORY_MB_MIN, maximum: MEMORY_MB_MAX })),
  network: optional(Type.Boolean({ description: "whether its machines reach the network; default: true" })),
  maxIdleSecs: optional(
    int64({ maximum: IDLE_SECONDS_MAX, description: "a machine that has waited longer is replaced; 0: never" }),
  ),
  targetSize: optional(int32({ maximum: POOL_SIZE_MAX, description: "how many machines wait; default: 1" })),
  tenantId: optional(text({ description: "admin only" })),
});

export const PoolInfo = Type.Object({
  id: Type.String(),
  image: Type.String(),
  targetSize: int32(),
  idleCount: int32({ description: "machines that run and can be claimed" }),
  busyCount: int32({ description: "claimed machines that were not deleted" }),
  status: oneOf(POOL_STATUSES),
  error: nullable(Type.String({ description: "with `degraded`: why a machine could not be made or started" })),
  cpus: nullable(int32({ description: "null: the default" })),
  memoryMb: nullable(int32({ description: "null: the default" })),
  network: Type.Boolean(),
  maxIdleSecs: nullable(int64()),
  createdAt: timestamp(),
});

export const poolEndpoints = {
  listPools: endpoint({
    method: "GET",
    path: "/v1/pools",
    family: "pools",
    summary: "List the tenant's pools",
    access: ["pool:write", "machine:read"],
    query: PageQuery,
    answers: { 200: json(Type.Array(PoolInfo)) },
    errors: ["invalid_body"],
  }),
  createPool: endpoint({
    method: "POST",
    path: "/v1/pools",
    family: "pools",
    summary: "Keep machines started and waiting",
    access: ["pool:write"],
    body: { kind: "json", schema: PoolConfig },
    answers: { 200: json(PoolInfo) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "missing_scope", "not_found", "quota_exceeded"],
  }),
  deletePool: endpoint({
    method: "DELETE",
    path: "/v1/pools/{id}",
    family: "pools",
    summary: "Delete a pool and the machines that wait in it; claimed ones stay",
    access: ["pool:write"],
    answers: { 204: empty() },
    errors: ["not_found"],
  }),
  claimMachine: endpoint({
    method: "POST",
    path: "/v1/pools/{id}/claim",
    family: "pools",
    summary: "Take a waiting machine out of a pool; when none waits, start one",
    access: ["machine:create"],
    answers: { 200: json(MachineInfo) },
    errors: [
      ...(["not_found", "invalid_request", "conflict", "quota_exceeded", "no_capacity"] as const),
      ...IMAGE_FAULTS,
      ...(["start_failed", "unavailable"] as const),
    ],
  }),
} as const;
