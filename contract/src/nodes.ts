/**
 * Nodes (hosts) and the join tokens with which they register.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { type Heartbeat, REPORT_BYTES_MAX } from "./link/reports.ts";
import { Operation } from "./operations.ts";
import { NODE_ID } from "./patterns.ts";
import {
  int32,
  int64,
  nullable,
  oneOf,
  optional,
  PageQuery,
  type Static,
  stringMap,
  text,
  timestamp,
  Type,
} from "./schema.ts";

export const NODE_STATUSES = ["ready", "draining", "drained", "unreachable", "revoked"] as const;
export type NodeStatus = (typeof NODE_STATUSES)[number];

/** `replaced`: its machines that can be replaced are made on other nodes. `held`: they are not. */
export const REPLACEMENT_DECISIONS = ["replaced", "held"] as const;

const Waits = Type.Object({
  some: Type.Number({ description: "percent of the last minute in which at least one process waited for it" }),
  full: Type.Number({ description: "in which all processes that had something to do waited for it" }),
});

export const NodeInfo = Type.Object({
  id: Type.String(),
  address: Type.String({ description: "where servers reach the node's agent; `parked:` when it dials out to them" }),
  smolvmAddress: Type.String(),
  status: oneOf(NODE_STATUSES, "`unreachable`: it does not report, or the server that answers has no connection to it"),
  totalCpus: int32(),
  availableCpus: int32(),
  totalMemoryMb: int64(),
  availableMemoryMb: int64(),
  totalDiskGb: int64(),
  availableDiskGb: int64(),
  labels: stringMap("facts from the operator and observed ones, such as the accelerator"),
  registeredAt: timestamp(),
  lastHeartbeatAt: nullable(timestamp()),
  cordonedAt: nullable(timestamp()),
  maintenanceAt: nullable(timestamp("since when an operator works on it, so that its absence is expected")),
  replacement: nullable(
    Type.Object(
      {
        decision: oneOf(REPLACEMENT_DECISIONS),
        decidedAt: timestamp(),
        reason: nullable(Type.String({ description: "why nothing is replaced" })),
      },
      { description: "what was decided of its machines that can be replaced, since it does not report; null: nothing" },
    ),
  ),
  linkVersion: nullable(int32({ description: "of the link between server and nodes; null: it has not reported yet" })),
  release: nullable(Type.String({ description: "the version of its agent; null: it has not said" })),
  lastError: nullable(
    Type.Object(
      { at: timestamp(), message: Type.String() },
      { description: "the last error that its agent has logged since it started; null: none" },
    ),
  ),
  clockAheadMs: nullable(
    int64({
      minimum: Number.MIN_SAFE_INTEGER,
      description: "how far its clock was ahead of the server's with its last report; negative: behind",
    }),
  ),
  certificateExpiresAt: nullable(timestamp("of a node on another host; it is renewed when half of its day has passed")),
  unknownMachines: Type.Array(Type.String(), {
    description:
      "machines that it has and that are unknown here, for example after a restore; it keeps them; at most 1000",
  }),
  outdatedVmms: nullable(
    Type.Array(Type.String(), {
      description:
        "machines that run in a VMM of another program than the one that is installed on the host, such as an older QEMU; at most 1000; null: not reported",
    }),
  ),
  runtime: nullable(Type.String()),
  usedCpus: Type.Number(),
  usedMemoryMb: int64(),
  usedDiskGb: int64(),
  pressure: nullable(
    Type.Object(
      { cpu: Waits, memory: Waits, io: Waits },
      {
        description:
          "how much processes of its host wait for resources (pressure stall information of its kernel); null: not reported",
      },
    ),
  ),
});
export type NodeInfo = Static<typeof NodeInfo>;

/**
 * Which versions of the link between server and nodes a side works with; a node that names none has version
 * 1.
 */
export const LinkVersions = Type.Object({ version: int32({ minimum: 1 }), lowest: int32({ minimum: 1 }) });

/** Lenient: clients send whole NodeInfo records; fields that the server itself determines are ignored. */
export const RegisterNodeRequest = Type.Object({
  id: Type.String({ pattern: NODE_ID }),
  address: text({ minLength: 1, maxLength: 512 }),
  totalCpus: optional(int32()),
  totalMemoryMb: optional(int64()),
  totalDiskGb: optional(int64()),
  labels: optional(stringMap("facts")),
  runtime: optional(text({ maxLength: 200 })),
  publicKey: optional(
    text({ maxLength: 1_000, description: "P-256, as PEM; of a node on another host than the server" }),
  ),
  proof: optional(
    text({ maxLength: 200, description: "signature with that key, in base64: contract/src/link/fleet.ts" }),
  ),
  link: optional(LinkVersions),
});
export type RegisterNodeRequest = Static<typeof RegisterNodeRequest>;

/** What a node on another host needs for mutual TLS. */
export const FleetMembership = Type.Object({
  authorities: Type.Array(Type.String({ description: "PEM" }), {
    description: "certificates of the authorities that servers and nodes trust",
  }),
  certificate: nullable(
    Type.String({ description: "the node's new certificate, as PEM; null: it keeps the one it has" }),
  ),
  listeners: Type.Array(Type.Object({ id: Type.String(), addresses: Type.Array(Type.String()) }), {
    description: "where running servers listen for nodes, as host:port",
  }),
  ingresses: optional(
    Type.Array(Type.Object({ id: Type.String(), addresses: Type.Array(Type.String()) }), {
      description: "where running ingresses listen for nodes, as host:port",
    }),
  ),
});

export type FleetMembership = Static<typeof FleetMembership>;

/** NodeInfo, and the credential for the node's later calls. */
export const RegisteredNode = Type.Object({
  ...NodeInfo.properties,
  credential: nullable(Type.String({ description: "shown once; null when the node called with its credential" })),
  fleet: nullable(FleetMembership),
  link: LinkVersions,
});
export type RegisteredNode = Static<typeof RegisteredNode>;

export const JoinTokenInfo = Type.Object({
  prefix: Type.String(),
  description: nullable(Type.String()),
  createdAt: timestamp(),
  expiresAt: timestamp(),
  maxUses: int32(),
  uses: int32(),
});

export const JoinTokenCreated = Type.Object({
  ...JoinTokenInfo.properties,
  token: Type.String(),
  nodeAddresses: Type.Array(Type.String(), {
    description: "where servers listen for nodes on other hosts, as host:port; without one no such node can join",
  }),
});

/** A server that runs, on the database of the one that answers. */
export const ServerInfo = Type.Object({
  id: Type.String({ description: "of this run of the server" }),
  host: Type.String(),
  release: Type.String({ description: "its version" }),
  linkVersion: int32({ description: "of the link between server and nodes" }),
  startedAt: timestamp(),
  seenAt: timestamp("when it last announced itself; it does so every 10 s, and is left out after 45 s"),
});
export type ServerInfo = Static<typeof ServerInfo>;

/** Signs the certificates of nodes on other hosts and of servers. */
export const FleetAuthority = Type.Object({
  fingerprint: Type.String({ description: "SHA-256 of its certificate, in hex" }),
  isSigning: Type.Boolean({ description: "false: it is still trusted, until it is removed" }),
  createdAt: timestamp(),
  expiresAt: timestamp(),
});

export const FINDING_CODES = [
  "server_runs",
  "server_silent",
  "no_nodes",
  "versions_apart",
  "versions_differ",
  "node_ready",
  "node_unreachable",
  "node_revoked",
  "node_draining",
  "node_cordoned",
  "node_in_maintenance",
  "node_never_reported",
  "node_does_not_answer",
  "node_error",
  "memory_short",
  "memory_pressure",
  "processor_pressure",
  "disk_short",
  "disk_pressure",
  "clock_off",
  "certificate_expires",
  "unknown_machines",
  "outdated_vmms",
  "replacement_held",
  "authority_signs",
  "authority_expires",
  "authority_not_yet_valid",
  "authority_retired",
  "authorities_unreadable",
] as const;

export const FleetFinding = Type.Object({
  code: oneOf(FINDING_CODES),
  severity: oneOf(["ok", "warn", "bad"], "`bad` needs an operator now, `warn` deserves a look"),
  subject: Type.Object({
    kind: oneOf(["fleet", "server", "node", "authority"]),
    id: nullable(Type.String({ description: "a node's id, an authority's fingerprint, a server's host" })),
  }),
  message: Type.String({ description: "what was found" }),
  action: Type.String({ description: "what it means and what to do; empty: nothing" }),
  data: Type.Unsafe<Record<string, number | string>>({
    type: "object",
    additionalProperties: { anyOf: [{ type: "number" }, { type: "string" }] },
    description: "the numbers and names of the message",
  }),
});
export type FleetFinding = Static<typeof FleetFinding>;

const DrainedMachine = {
  machineId: Type.String(),
  name: nullable(Type.String()),
  tenantId: Type.String(),
  state: Type.String({ description: "as in MachineInfo" }),
};

/** What a drain of a node would do now. */
export const DrainPlan = Type.Object({
  nodeId: Type.String(),
  moves: Type.Array(
    Type.Object({
      ...DrainedMachine,
      toNodeId: Type.String(),
      disruption: oneOf(
        ["none", "migrate", "restart", "stop"],
        "what happens to it: `none`: it is stopped; `migrate`: its memory moves with it; `restart`: it boots there, a suspended one " +
          "at its next start; `stop`: it is stopped and stays so",
      ),
      reason: nullable(Type.String({ description: "why its memory would be lost, although it could move" })),
      bytes: int64({
        description:
          "of its disk and log, of its memory if it is suspended, and of the base of its disk for the first machine of an image that goes to a node",
      }),
      seconds: int64({ description: "how long it would be away, by the estimate" }),
    }),
    { description: "in the order in which they would begin" },
  ),
  blocked: Type.Array(Type.Object({ ...DrainedMachine, reason: Type.String() }), {
    description: "machines that would stay; those that run are stopped at the deadline",
  }),
  bytes: int64({ description: "of all moves; less when nodes have the bases already" }),
  seconds: int64({ description: "of all moves, by the estimate" }),
  estimate: Type.String({ description: "how `seconds` was computed" }),
});
export type DrainPlan = Static<typeof DrainPlan>;

/** The nodes that do not report, and what becomes of the machines that were there. */
export const LostNodes = Type.Object({
  isHeld: Type.Boolean({ description: "whether nothing is replaced by itself" }),
  reason: nullable(Type.String({ description: "why" })),
  nodes: Type.Array(
    Type.Object({
      nodeId: Type.String(),
      lastHeartbeatAt: nullable(timestamp()),
      decision: oneOf(REPLACEMENT_DECISIONS),
      decidedAt: nullable(timestamp()),
      reason: nullable(Type.String({ description: "why its machines are not replaced" })),
      replaceable: int32({
        description: "machines that are, or would be, replaced: they are in use by no user and have ended there",
      }),
      staying: int32({ description: "other machines that are to run: they wait for the node" }),
    }),
  ),
});
export type LostNodes = Static<typeof LostNodes>;

export const nodeEndpoints = {
  listNodes: endpoint({
    method: "GET",
    path: "/v1/nodes",
    family: "nodes",
    summary: "List all nodes",
    access: ["admin"],
    query: PageQuery,
    answers: { 200: json(Type.Array(NodeInfo)) },
    errors: ["invalid_body"],
  }),
  registerNode: endpoint({
    method: "POST",
    path: "/v1/nodes/register",
    family: "nodes",
    summary: "Register a node, or report that a known node is back",
    access: "joinToken",
    body: { kind: "json", schema: RegisterNodeRequest },
    answers: { 200: json(RegisteredNode) },
    errors: ["invalid_json", "invalid_body", "conflict", "link_version", "unavailable"],
  }),
  revokeNodeCredential: endpoint({
    method: "DELETE",
    path: "/v1/nodes/{id}/credential",
    family: "nodes",
    summary: "Revoke a node's credential; the node's next call fails",
    access: ["admin"],
    answers: { 204: empty() },
    errors: ["not_found"],
  }),
  decommissionNode: endpoint({
    method: "DELETE",
    path: "/v1/nodes/{id}",
    family: "nodes",
    summary: "Remove a node that leaves the fleet for good",
    description:
      "Its row, its credential and what it has reported are removed, its connections end, and join tokens that were made " +
      "before do not admit it again. It is refused while the node has the disk of a machine, and names these machines, and " +
      "while the node is `ready` or `draining`: drain it first. Deleted machines whose deletion an unreachable node has not " +
      "confirmed do not keep it; their disks are then still on the host.",
    access: ["admin"],
    answers: { 204: empty() },
    errors: ["not_found", "conflict"],
  }),
  cordonNode: endpoint({
    method: "POST",
    path: "/v1/nodes/{id}/cordon",
    family: "nodes",
    summary: "Place no new machines on a node",
    description:
      "Machines that are on the node keep running, stop and start as before. It stays so, also across restarts, until the " +
      "node is uncordoned.",
    access: ["admin"],
    answers: { 200: json(NodeInfo) },
    errors: ["not_found"],
  }),
  maintainNode: endpoint({
    method: "POST",
    path: "/v1/nodes/{id}/maintenance",
    family: "nodes",
    summary: "Expect a node to be away, because an operator works on it",
    description:
      "The node is cordoned as well. Machines that are there keep running and start as before. When the node stops reporting, its " +
      "machines say that it is under maintenance, and no warning is written. It stays so, also across restarts, until the node " +
      "is uncordoned.",
    access: ["admin"],
    answers: { 200: json(NodeInfo) },
    errors: ["not_found"],
  }),
  uncordonNode: endpoint({
    method: "POST",
    path: "/v1/nodes/{id}/uncordon",
    family: "nodes",
    summary: "Place new machines on a node again, and end its maintenance",
    access: ["admin"],
    answers: { 200: json(NodeInfo) },
    errors: ["not_found"],
  }),
  drainNode: endpoint({
    method: "POST",
    path: "/v1/nodes/{id}/drain",
    family: "nodes",
    summary: "Move all machines of a node to other nodes, and start nothing more on it",
    description:
      "Answers immediately; the operation shows the progress. Each machine is moved with its disk by an operation, two at a time: " +
      "a running one is stopped, moved and started again, a stopped one stays stopped. A machine that no other node admits " +
      "stays: its disk is kept there, and if it still runs after `deadlineSeconds` (600) it is stopped. The node is `drained` " +
      "when no machine runs there; the last step says which disks it still has, and why. It is `ready` again when its agent " +
      "registers after that.",
    access: ["admin"],
    body: { kind: "json", isOptional: true, schema: Type.Object({ deadlineSeconds: optional(int64()) }) },
    answers: { 200: json(Type.Object({ ...NodeInfo.properties, operationId: Type.String() })) },
    errors: ["not_found", "invalid_json", "invalid_body", "conflict", "rate_limited", "unavailable"],
  }),
  planDrain: endpoint({
    method: "GET",
    path: "/v1/nodes/{id}/drain",
    family: "nodes",
    summary: "What a drain of the node would move and where, what would stay and why, and how long it would take",
    description: "Nothing is changed or reserved, so a later drain may choose other nodes.",
    access: ["admin"],
    answers: { 200: json(DrainPlan) },
    errors: ["not_found", "unavailable"],
  }),
  cancelDrain: endpoint({
    method: "DELETE",
    path: "/v1/nodes/{id}/drain",
    family: "nodes",
    summary: "End the drain of a node, so that machines start on it again",
    description:
      "The node is `ready` immediately, also when it is `drained`. The drain ends within seconds, and with it the moves that it " +
      "has begun: a machine that is being copied runs again where it was. Machines that have moved stay where they are.",
    access: ["admin"],
    answers: {
      200: json(
        Type.Object({
          ...NodeInfo.properties,
          operationId: nullable(
            Type.String({ description: "the drain that is being canceled; null: none was running" }),
          ),
        }),
      ),
    },
    errors: ["not_found", "conflict"],
  }),
  upgradeNodes: endpoint({
    method: "POST",
    path: "/v1/nodes/upgrade",
    family: "nodes",
    summary: "Restart agents of nodes as the release that is installed on their hosts, one after the other",
    description:
      "Without `nodeIds` all that are `ready`. Machines run on, and the new agent adopts them. The installed program is run once before, " +
      "so a broken installation ends no agent. A node is begun when the one before it has reported everything it has; the first that " +
      "fails ends the operation, and the others are not touched. Nothing is installed: put the release on the hosts first. With `vmms` " +
      "the machines of each node then get new VMMs of the program that is installed there, two at a time and as their `disruption` " +
      "permits: `migrate` while they run, `restart` by a restart; with `stop` they are left and named, as are those that refuse.",
    access: ["admin"],
    body: {
      kind: "json",
      isOptional: true,
      schema: Type.Object({
        nodeIds: optional(Type.Array(text({ minLength: 1, maxLength: 128 }), { minItems: 1, maxItems: 1_000 })),
        vmms: optional(Type.Boolean()),
      }),
    },
    answers: { 202: json(Operation) },
    errors: ["not_found", "invalid_json", "invalid_body", "conflict", "rate_limited", "unavailable"],
  }),
  listLostNodes: endpoint({
    method: "GET",
    path: "/v1/nodes/replace-lost",
    family: "nodes",
    summary: "The nodes that do not report, and which machines of them are, or would be, replaced",
    access: ["admin"],
    answers: { 200: json(LostNodes) },
  }),
  replaceLostNodes: endpoint({
    method: "POST",
    path: "/v1/nodes/replace-lost",
    family: "nodes",
    summary:
      "Replace machines of nodes that do not report, although so many are silent that nothing is replaced by itself",
    description:
      "Of all unreachable nodes that are not under maintenance, or of those that are named. Machines that wait in pools are deleted and made " +
      "on other nodes. Machines of users are never replaced. When a node returns it ends what was replaced first.",
    access: ["admin"],
    body: {
      kind: "json",
      isOptional: true,
      schema: Type.Object({
        nodeIds: optional(Type.Array(text({ minLength: 1, maxLength: 128 }), { minItems: 1, maxItems: 1_000 })),
      }),
    },
    answers: { 200: json(LostNodes) },
    errors: ["invalid_json", "invalid_body", "conflict"],
  }),
  listServers: endpoint({
    method: "GET",
    path: "/v1/nodes/servers",
    family: "nodes",
    summary: "List the servers that run, with their versions",
    access: ["admin"],
    answers: { 200: json(Type.Array(ServerInfo)) },
  }),
  listFindings: endpoint({
    method: "GET",
    path: "/v1/nodes/findings",
    family: "nodes",
    summary: "What each server, node and authority of the fleet needs from an operator",
    description:
      "One finding with severity `ok` for each that needs nothing. It calls every node that reports, so it takes as long as the slowest.",
    access: ["admin"],
    answers: { 200: json(Type.Array(FleetFinding)) },
    isExtra: true,
  }),
  listFleetAuthorities: endpoint({
    method: "GET",
    path: "/v1/nodes/authorities",
    family: "nodes",
    summary: "List the authorities that servers and nodes trust",
    access: ["admin"],
    answers: { 200: json(Type.Array(FleetAuthority)) },
    errors: ["unavailable"],
  }),
  rotateFleetAuthority: endpoint({
    method: "POST",
    path: "/v1/nodes/authorities",
    family: "nodes",
    summary: "Replace the authority that signs certificates of nodes",
    description:
      "Earlier authorities stay trusted. Every node gets a certificate of the new one with its next heartbeat, and no " +
      "connection is interrupted. When all nodes have reported since, remove the earlier one.",
    access: ["admin"],
    answers: { 200: json(Type.Array(FleetAuthority)) },
    errors: ["conflict", "unavailable"],
  }),
  removeFleetAuthority: endpoint({
    method: "DELETE",
    path: "/v1/nodes/authorities/{fingerprint}",
    family: "nodes",
    summary: "End the trust in an authority that no longer signs",
    description:
      "A node that has not reported since another one signs, and a join token that was made before, do not recognize the " +
      "servers any more: they need a new token.",
    access: ["admin"],
    answers: { 204: empty() },
    errors: ["not_found", "conflict", "unavailable"],
  }),
  heartbeatNode: endpoint({
    method: "POST",
    path: "/v1/nodes/{id}/heartbeat",
    family: "nodes",
    summary: "Report resources and the observed state of machines",
    description:
      "The body is `Heartbeat` of contract/src/link/link.ts; without a body it only reports that the node runs.",
    access: "nodeCredential",
    body: {
      kind: "json",
      isOptional: true,
      message: "heartbeat",
      schema: Type.Unsafe<Heartbeat>({}),
      maxBytes: REPORT_BYTES_MAX,
    },
    answers: {
      200: json(
        Type.Object({
          acceptedAt: timestamp(),
          link: LinkVersions,
          acknowledgedRuns: optional(int64()),
          absentMachines: optional(Type.Array(Type.Object({ machineId: Type.String(), generation: int64() }))),
          endedMoves: optional(Type.Array(Type.String())),
          fleet: optional(FleetMembership),
          closedToGuests: optional(Type.Array(Type.String())),
        }),
      ),
    },
    errors: ["not_found", "invalid_json", "invalid_body", "link_version"],
  }),
  listJoinTokens: endpoint({
    method: "GET",
    path: "/v1/tokens",
    family: "tokens",
    summary: "List join tokens, without their secrets",
    access: ["admin"],
    query: PageQuery,
    answers: { 200: json(Type.Array(JoinTokenInfo)) },
    errors: ["invalid_body"],
  }),
  createJoinToken: endpoint({
    method: "POST",
    path: "/v1/tokens",
    family: "tokens",
    summary: "Create a join token; it is shown in this answer only",
    access: ["admin"],
    body: {
      kind: "json",
      isOptional: true,
      schema: Type.Object({
        description: optional(text({ maxLength: 500 })),
        expiresInSeconds: optional(
          int64({ minimum: 1, maximum: 10 * 365 * 24 * 3600, description: "default: an hour" }),
        ),
        maxUses: optional(int32({ minimum: 1 })),
        labels: optional(stringMap("labels of the node that joins")),
      }),
    },
    answers: { 200: json(JoinTokenCreated) },
    errors: ["invalid_json", "invalid_body"],
  }),
  deleteJoinToken: endpoint({
    method: "DELETE",
    path: "/v1/tokens/{prefix}",
    family: "tokens",
    summary: "Revoke a join token",
    access: ["admin"],
    answers: { 204: empty() },
    errors: ["not_found"],
  }),
} as const;
