/**
 * Branches of a running machine, leases on them, export, and packaged machines.
 */
import { endpoint, json } from "./endpoint.ts";
import { MachineInfo, PortRequest } from "./machines.ts";
import { int32, int64, nullable, oneOf, optional, stringMap, Type, text } from "./schema.ts";

export const BranchRequest = Type.Object({
  name: text({ minLength: 1, maxLength: 63 }),
  ports: optional(Type.Array(PortRequest)),
});

export const BranchBatchRequest = Type.Object({
  count: optional(Type.Integer({ minimum: 1, maximum: 64 })),
  names: optional(Type.Array(text({ maxLength: 63 }), { maxItems: 64 })),
  namePrefix: optional(text({ maxLength: 60 })),
  ports: optional(Type.Array(PortRequest)),
});

export const AssignRequest = Type.Object({
  leaseId: text({ minLength: 1, maxLength: 128 }),
  task: Type.Optional(Type.Unknown()),
  files: optional(Type.Array(Type.Object({ path: text(), contentB64: Type.String() }))),
  secrets: optional(stringMap("written to /run/smol-secrets.json of the clone")),
  ports: optional(Type.Array(PortRequest)),
  ttlSecs: optional(int64()),
  heartbeatSecs: optional(int64()),
});

export const LeaseInfo = Type.Object({
  leaseId: Type.String(),
  machineId: Type.String(),
  state: Type.String(),
  reason: Type.Optional(nullable(Type.String())),
  score: Type.Optional(nullable(Type.Number())),
  result: Type.Optional(Type.Unknown()),
});

export const AssignResponse = Type.Object({
  leaseId: Type.String(),
  machineId: Type.String(),
  ownerToken: Type.String(),
  state: Type.String(),
  machine: MachineInfo,
});

export const ExportResponse = Type.Object({
  reference: Type.String(),
  digest: Type.String(),
  sizeBytes: int64(),
  platforms: Type.Array(Type.String()),
});

export const Lineage = Type.Object({ rootMachineId: Type.String(), machines: Type.Array(MachineInfo) });

const branchErrors = ["invalid_json", "invalid_body", "not_found", "conflict", "name_taken", "quota_exceeded"] as const;
const leaseOwner = Type.Object({ ownerToken: text({ maxLength: 256 }) });

export const branchEndpoints = {
  createBranch: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/branches",
    aliases: ["/v1/machines/{id}/fork"],
    family: "machines",
    summary: "Clone a running, branchable machine",
    access: ["machine:create"],
    body: { kind: "json", schema: BranchRequest },
    answers: { 201: json(MachineInfo) },
    errors: branchErrors,
    isExtra: true,
  }),
  createBranches: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/branches/batch",
    aliases: ["/v1/machines/{id}/fork-batch"],
    family: "machines",
    summary: "Clone a running, branchable machine many times, all or nothing",
    access: ["machine:create"],
    body: { kind: "json", schema: BranchBatchRequest },
    answers: { 201: json(Type.Object({ clones: Type.Array(MachineInfo) })) },
    errors: branchErrors,
    isExtra: true,
  }),
  assignBranch: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/assign",
    family: "machines",
    summary: "Clone a machine for a task and lease the clone",
    access: ["machine:create"],
    body: { kind: "json", schema: AssignRequest },
    answers: { 201: json(AssignResponse) },
    errors: branchErrors,
    isExtra: true,
  }),
  getLineage: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/lineage",
    family: "machines",
    summary: "The machine's ancestors and branches",
    access: ["machine:read"],
    answers: { 200: json(Lineage) },
    errors: ["not_found"],
    isExtra: true,
  }),
  getLease: endpoint({
    method: "GET",
    path: "/v1/leases/{id}",
    family: "leases",
    summary: "Read a lease",
    access: ["machine:read"],
    answers: { 200: json(LeaseInfo) },
    errors: ["not_found"],
    isExtra: true,
  }),
  heartbeatLease: endpoint({
    method: "POST",
    path: "/v1/leases/{id}/heartbeat",
    family: "leases",
    summary: "Extend a lease",
    access: ["machine:create"],
    body: { kind: "json", schema: leaseOwner },
    answers: { 200: json(LeaseInfo) },
    errors: ["invalid_json", "invalid_body", "not_found", "conflict"],
    isExtra: true,
  }),
  completeLease: endpoint({
    method: "POST",
    path: "/v1/leases/{id}/complete",
    family: "leases",
    summary: "End a lease and destroy its clone",
    access: ["machine:create"],
    body: {
      kind: "json",
      schema: Type.Object({
        ...leaseOwner.properties,
        reason: oneOf(["done", "agent_failed", "infra_failed", "cancelled"]),
        score: optional(Type.Number()),
        result: Type.Optional(Type.Unknown()),
      }),
    },
    answers: { 200: json(LeaseInfo) },
    errors: ["invalid_json", "invalid_body", "not_found", "conflict"],
    isExtra: true,
  }),
  exportMachine: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/export",
    family: "machines",
    summary: "Package a stopped machine's disk as an artifact of the registry",
    access: ["machine:create"],
    body: { kind: "json", isOptional: true, schema: Type.Object({ tag: optional(text({ maxLength: 128 })) }) },
    answers: { 200: json(ExportResponse) },
    errors: ["invalid_json", "invalid_body", "not_found", "conflict", "unavailable"],
  }),
  registerPackage: endpoint({
    method: "POST",
    path: "/v1/registry/machines",
    family: "registry",
    summary: "Record a packaged machine that was pushed to the registry",
    access: ["machine:create"],
    body: {
      kind: "json",
      schema: Type.Object({
        repo: text(),
        tag: text(),
        digest: text(),
        sizeBytes: int64(),
        platforms: Type.Array(text()),
        manifest: text(),
      }),
    },
    answers: {
      200: json(Type.Object({ repo: Type.String(), tag: Type.String(), digest: Type.String(), count: int32() })),
    },
    errors: ["invalid_json", "invalid_body"],
    isExtra: true,
  }),
} as const;
