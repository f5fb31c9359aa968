/**
 * Branches of a running machine, and leases on them. Checkpoints: checkpoints.ts.
 */
import { endpoint, json } from "./endpoint.ts";
import { BRANCHES_MAX, PORTS_PER_MACHINE_MAX } from "./limits.ts";
import { MachineInfo, MachineName, PortRequest } from "./machines.ts";
import { int64, nullable, oneOf, optional, stringMap, Type, text } from "./schema.ts";

const ports = optional(
  Type.Array(PortRequest, { maxItems: PORTS_PER_MACHINE_MAX, description: "default: those of the machine" }),
);
const secrets = {
  secrets: optional(
    oneOf(
      ["inherit", "reissue", "refuse"],
      "what branches have of the machine's secret variables: the same values, those of `secretEnv`, or a machine with some is not branched; default: reissue if there is `secretEnv`, otherwise refuse",
    ),
  ),
  secretEnv: optional(stringMap("new values, for `reissue`: of each of the machine's secret variables")),
};

export const BranchRequest = Type.Object({ name: MachineName, ports, ...secrets });

/** How many branches are made, and their names. */
export const batch = {
  count: optional(Type.Integer({ minimum: 1, maximum: BRANCHES_MAX })),
  names: optional(Type.Array(MachineName, { maxItems: BRANCHES_MAX, description: "one for each; wins over count" })),
  namePrefix: optional(
    text({ maxLength: 60, description: "of names such as `web-1`; default: the name of what is branched" }),
  ),
  ports,
};

export const BranchBatchRequest = Type.Object({ ...batch, ...secrets });

export const MadeBranches = Type.Object({ clones: Type.Array(MachineInfo) });

export const AssignRequest = Type.Object({
  leaseId: text({ minLength: 1, maxLength: 128 }),
  task: Type.Optional(Type.Unknown()),
  files: optional(Type.Array(Type.Object({ path: text(), contentB64: Type.String() }))),
  secrets: optional(stringMap("written to /run/smol-secrets.json of the clone")),
  ports,
  ttlSecs: optional(int64({ description: "it ends after this long; 0: when its owner says so" })),
  heartbeatSecs: optional(int64({ description: "it ends when its owner is silent for this long; 0: it may be" })),
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

export const AdoptRequest = Type.Object({
  source: optional(oneOf(["delete", "keep"], "`keep`: the source stays, under another name; default: it is deleted")),
});

export const AdoptResponse = Type.Object({
  machine: MachineInfo,
  source: nullable(MachineInfo),
});

const MachineMemory = Type.Object({
  machineId: Type.String(),
  ownBytes: int64({ description: "what its host would have free if it ended" }),
  sharedBytes: int64({
    description: "what it uses together with others: pages that neither has changed, and programs",
  }),
});

export const Lineage = Type.Object({
  rootMachineId: Type.String(),
  machines: Type.Array(MachineInfo),
  memory: Type.Array(MachineMemory, { description: "of those that run, and whose nodes answer" }),
});

/** The refusals of a branch. */
export const branchErrors = [
  ...(["invalid_json", "invalid_request", "invalid_body", "not_found", "conflict", "name_taken"] as const),
  ...(["quota_exceeded", "no_capacity", "start_failed", "unavailable", "no_space"] as const),
] as const;
const leaseOwner = Type.Object({ ownerToken: text({ maxLength: 256 }) });

export const branchEndpoints = {
  createBranch: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/branches",
    aliases: ["/v1/machines/{id}/fork"],
    family: "machines",
    summary: "Make a machine that continues as a running, branchable machine is now",
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
    summary: "Make many machines that continue as a running, branchable machine is now, all or none",
    access: ["machine:create"],
    body: { kind: "json", schema: BranchBatchRequest },
    answers: { 201: json(MadeBranches) },
    errors: branchErrors,
    isExtra: true,
  }),
  assignBranch: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/assign",
    family: "machines",
    summary: "Branch a machine for a task, and lease the branch",
    description:
      "The branch has the files, `/run/smol-task.json` and `/run/smol-secrets.json` before the answer. The same `leaseId` asks for the same lease.",
    access: ["machine:create"],
    body: { kind: "json", schema: AssignRequest },
    answers: { 201: json(AssignResponse) },
    errors: [...branchErrors, "guest_unreachable"],
    isExtra: true,
  }),
  adoptMachine: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/adopt",
    family: "machines",
    summary: "Give a branch the place of its source: name, url, ports and share link",
    description:
      "The source is deleted, or kept under another name, which the answer has. Repeated, the answer is the same: what was done.",
    access: ["machine:create"],
    alsoNeeds: ["machine:delete"],
    body: { kind: "json", isOptional: true, schema: AdoptRequest },
    answers: { 200: json(AdoptResponse) },
    errors: ["invalid_json", "invalid_body", "not_found", "conflict"],
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
    errors: ["invalid_json", "invalid_body", "not_found", "not_owner", "conflict"],
    isExtra: true,
  }),
  completeLease: endpoint({
    method: "POST",
    path: "/v1/leases/{id}/complete",
    family: "leases",
    summary: "End a lease and delete its branch",
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
    errors: ["invalid_json", "invalid_body", "not_found", "not_owner", "conflict"],
    isExtra: true,
  }),
} as const;
