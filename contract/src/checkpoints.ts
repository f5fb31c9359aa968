/**
 * Checkpoints: instants of machines that are kept, from which other machines are made also when the machine
 * is gone.
 */
import { batch, branchErrors, MadeBranches } from "./branches.ts";
import { empty, endpoint, json } from "./endpoint.ts";
import { MachineInfo, MachineName } from "./machines.ts";
import { int64, nullable, oneOf, optional, PageQuery, type Static, timestamp, Type } from "./schema.ts";

/** `failed`: its files are gone. One that is being deleted is not shown. */
const CHECKPOINT_STATUSES = ["creating", "available", "failed"] as const;

export const CheckpointRequest = Type.Object({
  name: optional(Type.Unsafe<string>({ ...MachineName, description: "unique among the tenant's checkpoints" })),
  memory: optional(
    Type.Boolean({
      description: "whether its memory is kept too, for which it must be branchable; default: if it runs",
    }),
  ),
  secrets: optional(
    oneOf(
      ["inherit", "refuse"],
      "whether machines from it have the secret variables of the machine; `refuse`: of a machine with some none is made; default: refuse",
    ),
  ),
});

export const CheckpointInfo = Type.Object({
  id: Type.String(),
  name: nullable(Type.String()),
  machineId: Type.String({ description: "the machine; it may be gone" }),
  machineName: nullable(Type.String({ description: "its name at that time" })),
  status: oneOf(CHECKPOINT_STATUSES),
  error: nullable(Type.String({ description: "why it failed" })),
  hasMemory: Type.Boolean({ description: "whether branches continue its processes; otherwise they boot" }),
  sizeBytes: int64({ description: "what it takes on its node beside earlier instants; 0: it is not made yet" }),
  nodeId: nullable(Type.String({ description: "the node that has it, where machines from it start" })),
  createdAt: timestamp(),
});
export type CheckpointInfo = Static<typeof CheckpointInfo>;

export const RestoreCheckpointRequest = Type.Object({ name: MachineName });

export const CheckpointBranchesRequest = Type.Object(batch);

export const checkpointEndpoints = {
  createCheckpoint: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/checkpoints",
    family: "machines",
    summary: "Keep an instant of a machine",
    description:
      "Its disk, and while it runs its memory too, unless the request says otherwise. Answers when the checkpoint is made.",
    access: ["machine:create"],
    body: { kind: "json", isOptional: true, schema: CheckpointRequest },
    answers: { 201: json(CheckpointInfo) },
    errors: [
      ...(["invalid_json", "invalid_request", "invalid_body", "not_found", "conflict", "name_taken"] as const),
      ...(["quota_exceeded", "unavailable", "no_space"] as const),
    ],
    isExtra: true,
  }),
  listMachineCheckpoints: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/checkpoints",
    family: "machines",
    summary: "List the checkpoints of a machine, oldest first",
    access: ["machine:read"],
    answers: { 200: json(Type.Array(CheckpointInfo)) },
    errors: ["not_found"],
    isExtra: true,
  }),
  listCheckpoints: endpoint({
    method: "GET",
    path: "/v1/checkpoints",
    family: "checkpoints",
    summary: "List the tenant's checkpoints, also of machines that are gone, oldest first",
    access: ["machine:read"],
    query: PageQuery,
    answers: { 200: json(Type.Array(CheckpointInfo)) },
    errors: ["invalid_body"],
    isExtra: true,
  }),
  getCheckpoint: endpoint({
    method: "GET",
    path: "/v1/checkpoints/{id}",
    family: "checkpoints",
    summary: "Read a checkpoint, by its id or its name",
    access: ["machine:read"],
    answers: { 200: json(CheckpointInfo) },
    errors: ["not_found"],
    isExtra: true,
  }),
  deleteCheckpoint: endpoint({
    method: "DELETE",
    path: "/v1/checkpoints/{id}",
    family: "checkpoints",
    summary: "Delete a checkpoint; machines that were made from it stay",
    access: ["machine:delete"],
    answers: { 204: empty() },
    errors: ["not_found"],
    isExtra: true,
  }),
  restoreCheckpoint: endpoint({
    method: "POST",
    path: "/v1/checkpoints/{id}/restore",
    family: "checkpoints",
    summary: "Make a stopped machine that has the disk of a checkpoint",
    access: ["machine:create"],
    body: { kind: "json", schema: RestoreCheckpointRequest },
    answers: { 201: json(MachineInfo) },
    errors: [
      ...(["invalid_json", "invalid_request", "invalid_body", "not_found", "conflict", "name_taken"] as const),
      "quota_exceeded",
    ],
    isExtra: true,
  }),
  branchCheckpoint: endpoint({
    method: "POST",
    path: "/v1/checkpoints/{id}/branches",
    family: "checkpoints",
    summary: "Make machines that continue as a checkpoint, or boot where it has no memory, all or none",
    access: ["machine:create"],
    body: { kind: "json", schema: CheckpointBranchesRequest },
    answers: { 201: json(MadeBranches) },
    errors: branchErrors,
    isExtra: true,
  }),
} as const;
