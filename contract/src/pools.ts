/**
 * Pools of started machines that wait to be claimed, and volumes (listed by the description, not supported).
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { MachineInfo } from "./machines.ts";
import { int32, int64, nullable, oneOf, optional, Type, text, timestamp } from "./schema.ts";

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

export const CreateVolumeRequest = Type.Object({
  name: text({ minLength: 1, maxLength: 63 }),
  sizeGb: int64(),
  node: optional(text({ maxLength: 128 })),
});

export const VolumeInfo = Type.Object({
  id: Type.String(),
  name: Type.String(),
  nodeId: Type.String(),
  sizeGb: int64(),
  status: Type.String(),
  createdAt: timestamp(),
  appInstanceId: nullable(Type.String()),
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
  listVolumes: endpoint({
    method: "GET",
    path: "/v1/volumes",
    family: "volumes",
    summary: "List volume records",
    access: "anyKey",
    answers: { 200: json(Type.Array(VolumeInfo)) },
    isUnsupported: true,
  }),
  createVolume: endpoint({
    method: "POST",
    path: "/v1/volumes",
    family: "volumes",
    summary: "Create a volume record, without storage",
    access: "anyKey",
    body: { kind: "json", schema: CreateVolumeRequest },
    answers: { 200: json(VolumeInfo) },
    errors: ["invalid_json", "invalid_body", "name_taken"],
    isUnsupported: true,
  }),
  getVolume: endpoint({
    method: "GET",
    path: "/v1/volumes/{id}",
    family: "volumes",
    summary: "Read a volume record",
    access: "anyKey",
    answers: { 200: json(VolumeInfo) },
    errors: ["not_found"],
    isUnsupported: true,
  }),
  deleteVolume: endpoint({
    method: "DELETE",
    path: "/v1/volumes/{id}",
    family: "volumes",
    summary: "Delete a volume record",
    access: "anyKey",
    answers: { 204: empty() },
    errors: ["not_found"],
    isUnsupported: true,
  }),
} as const;
