/**
 * Machines: shapes and endpoints of create, list, get, delete, start, stop, events and usage.
 *
 * Sources of the shapes: the API specification; the tagged `source`, `network`, `ports` and the additional
 * fields of MachineInfo follow what existing clients send and read.
 */
import { EVENT_LEVELS, eventPattern } from "./event-types.ts";
import { empty, endpoint, json, stream } from "./endpoint.ts";
import { IMAGE_FAULTS } from "./errors.ts";
import { HooksRequest, MachineHooks } from "./hooks.ts";
import {
  CPUS_DEFAULT,
  CPUS_MAX,
  DISK_GB_DEFAULT,
  DISK_GB_MAX,
  LABELS_MAX,
  MEMORY_MB_DEFAULT,
  MEMORY_MB_MAX,
  MEMORY_MB_MIN,
  PORTS_PER_MACHINE_MAX,
} from "./limits.ts";
import { LOG_PARTS, LogsQuery } from "./logs.ts";
import { LABEL_NAME, MACHINE_NAME, NODE_LABEL_NAME } from "./patterns.ts";
import {
  int64,
  nullable,
  oneOf,
  optional,
  pageQuery,
  type Static,
  stringMap,
  text,
  timestamp,
  Type,
} from "./schema.ts";
import { Operation } from "./operations.ts";
import { CostBreakdown, UsageResponse } from "./usage.ts";

/** The states that users see. Computed from desired and observed state; see server/src/machines/view.ts. */
export const MACHINE_STATES = ["creating", "started", "stopped", "error"] as const;
export type MachineState = (typeof MACHINE_STATES)[number];

export const MachineSource = Type.Object(
  {
    type: oneOf(["image", "smolmachine"], "an OCI image, or a packaged machine of the registry"),
    reference: text({
      minLength: 1,
      maxLength: 512,
      description: "such as `alpine`, `local/busybox`, `host:5000/app:1`",
    }),
    arch: optional(oneOf(["amd64", "arm64"])),
  },
  // Shown in the refusal of an invalid source, because callers often get the tagged form wrong.
  { examples: [{ type: "image", reference: "alpine" }] },
);
export type MachineSource = Static<typeof MachineSource>;

export const MachineResources = Type.Object({
  cpus: Type.Integer({ format: "int32", minimum: 1, maximum: CPUS_MAX }),
  memoryMb: Type.Integer({ format: "int32", minimum: MEMORY_MB_MIN, maximum: MEMORY_MB_MAX }),
  diskGb: nullable(Type.Integer({ format: "int32", minimum: 1, maximum: DISK_GB_MAX })),
});
export type MachineResources = Static<typeof MachineResources>;

export const ResourcesRequest = Type.Object({
  cpus: optional(
    Type.Integer({
      ...{ format: "int32", minimum: 1, maximum: CPUS_MAX },
      description: `default ${CPUS_DEFAULT}, even if the plan allows less: the machine is then refused`,
    }),
  ),
  memoryMb: optional(
    Type.Integer({
      ...{ format: "int32", minimum: MEMORY_MB_MIN, maximum: MEMORY_MB_MAX },
      description: `default ${MEMORY_MB_DEFAULT}, even if the plan allows less: the machine is then refused`,
    }),
  ),
  diskGb: optional(
    Type.Integer({
      ...{ format: "int32", minimum: 1, maximum: DISK_GB_MAX },
      description: `default ${DISK_GB_DEFAULT}, or what the plan allows if that is less`,
    }),
  ),
});

export const MachineNetwork = Type.Object({
  mode: oneOf(["open", "blocked", "allowCidrs"]),
  cidrs: Type.Optional(Type.Array(text({ maxLength: 64 }), { maxItems: 256, description: "with mode allowCidrs" })),
  hosts: Type.Optional(Type.Array(text({ maxLength: 253 }), { maxItems: 256, description: "with mode allowCidrs" })),
});
export type MachineNetwork = Static<typeof MachineNetwork>;

export const NetworkRequest = Type.Object({
  mode: MachineNetwork.properties.mode,
  cidrs: optional(Type.Array(text({ maxLength: 64 }), { maxItems: 256 })),
  hosts: optional(Type.Array(text({ maxLength: 253 }), { maxItems: 256 })),
});

const Port = Type.Integer({ minimum: 1, maximum: 65_535 });

export const MachinePort = Type.Object({ port: Port, hostPort: nullable(Port) });
export type MachinePort = Static<typeof MachinePort>;

export const PortRequest = Type.Object({
  port: Port,
  hostPort: optional(Type.Integer({ description: "accepted and ignored: the node chooses" })),
});

export const MachineMountSpec = Type.Object({
  volume: text({ description: "volume name" }),
  mountPath: text({ description: "path inside the machine" }),
  readonly: optional(Type.Boolean()),
});

/** Letters, digits, `.`, `_`, `-`; no leading `.` or `-`; 1 to 63 characters. */
export const MachineName = Type.String({ pattern: MACHINE_NAME });

export const Labels = Type.Unsafe<Record<string, string>>({
  type: "object",
  maxProperties: LABELS_MAX,
  propertyNames: { pattern: LABEL_NAME },
  additionalProperties: { type: "string", maxLength: 255, pattern: "^[^\\u0000]*$" },
});

/** Labels that a node must have; `flotilla node ls` shows those of the nodes. */
export const NodeLabels = Type.Unsafe<Record<string, string>>({
  type: "object",
  maxProperties: 16,
  propertyNames: { maxLength: 63, pattern: NODE_LABEL_NAME },
  additionalProperties: { type: "string", maxLength: 255, pattern: "^[^\\u0000]*$" },
  description: "labels that the machine's node must have, with their values",
});

/** What follows the unexpected end of a machine: its VM crashed or was killed, or its host went down. */
export const RESTARTS = ["always", "never"] as const;
export type Restart = (typeof RESTARTS)[number];
const RESTART_TEXT =
  "whether it is restarted when its VM ends unexpectedly or its host goes down; " +
  "never after it powers itself off; default: always";

/** What becomes of a running machine that moves to another node, by request or by a drain. */
export const DISRUPTIONS = ["migrate", "restart", "stop"] as const;
export type Disruption = (typeof DISRUPTIONS)[number];
const DISRUPTION_TEXT =
  "what a move or a drain does to it while it runs: `migrate` moves its memory with it, so its processes continue, and boots it " +
  "there where that is not possible; `restart` boots it there; `stop` moves its disk and leaves it stopped; default: migrate";

/** What becomes of a machine when its ttl is over. */
export const ENDS = ["delete", "suspend", "stop"] as const;
export type MachineEnd = (typeof ENDS)[number];
const END_TEXT =
  "what happens at the end of its ttl: `delete` deletes it in any state; `suspend` and `stop` end it while it runs, also when it is " +
  "started later without more time, and one that cannot be suspended is stopped; default: delete";

export const CreateMachineRequest = Type.Object({
  source: MachineSource,
  name: optional(
    Type.Unsafe<string>({ ...MachineName, description: "default: a generated name, such as `calm-harbor-3f2a`" }),
  ),
  resources: optional(ResourcesRequest),
  network: optional(NetworkRequest),
  env: optional(stringMap("environment of the machine and of every command in it")),
  secretEnv: optional(stringMap("as `env`, but encrypted at rest, never shown, and wiped when the machine is deleted")),
  workdir: optional(text({ maxLength: 4096, description: "absolute path; default: the image's, else /" })),
  ephemeral: optional(Type.Boolean({ description: "deleted once stopped" })),
  autoStopSeconds: optional(int64({ description: "stop after this long without activity" })),
  ttlSeconds: optional(int64({ description: "end it this long after creation, as `atEnd` says" })),
  atEnd: optional(oneOf(ENDS, END_TEXT)),
  restart: optional(oneOf(RESTARTS, RESTART_TEXT)),
  disruption: optional(oneOf(DISRUPTIONS, DISRUPTION_TEXT)),
  mounts: optional(Type.Array(MachineMountSpec, { description: "accepted; the machine starts without the storage" })),
  ports: optional(Type.Array(PortRequest, { maxItems: PORTS_PER_MACHINE_MAX })),
  public: optional(Type.Boolean({ description: "whether the machine's url needs no key" })),
  command: optional(Type.Array(text(), { description: "overrides the image's entrypoint and command" })),
  forkable: optional(Type.Boolean()),
  branchable: optional(Type.Boolean()),
  hooks: optional(HooksRequest),
  labels: optional(Labels),
  nodeLabels: optional(NodeLabels),
});
export type CreateMachineRequest = Static<typeof CreateMachineRequest>;

export const UpdateMachineRequest = Type.Object({
  disruption: optional(oneOf(DISRUPTIONS, DISRUPTION_TEXT)),
  ttlSeconds: optional(int64({ description: "end it this long after creation, as `atEnd` says; 0: never" })),
  atEnd: optional(oneOf(ENDS, END_TEXT)),
  labels: optional(Labels),
});
export type UpdateMachineRequest = Static<typeof UpdateMachineRequest>;

const milliseconds = (description: string) => Type.Optional(Type.Number({ minimum: 0, description }));

/** Where a start's VM came from: prepared before, restored from a template, or booted from the kernel. */
export const VM_ORIGINS = ["prepared", "template", "boot"] as const;
export type VmOrigin = (typeof VM_ORIGINS)[number];

/** Durations in ms of the phases of the machine's last start on its node; absent phases did not happen. */
export const StartTimings = Type.Object({
  vm: Type.Optional(oneOf(VM_ORIGINS, "where the VM came from: prepared before, restored from a template, or booted")),
  imageMs: milliseconds("finding or pulling the image"),
  diskMs: milliseconds("making the disk"),
  bootMs: milliseconds("from requesting a VM until its agent answered"),
  configureMs: milliseconds("configuring the guest: clock, disk, name, network"),
  totalMs: milliseconds("from the start request on the node until the machine ran"),
});
export type StartTimings = Readonly<Static<typeof StartTimings>>;

/** What may be done with a machine now. `branch` and `fork` are two names of one capability. */
export const MachineCapabilities = Type.Object({
  exec: Type.Boolean({ description: "whether a command runs immediately; a stopped machine is started first" }),
  branch: Type.Boolean(),
  branchBatch: Type.Boolean(),
  nestedBranch: Type.Boolean(),
  maxBranchBatch: Type.Integer({ format: "int32", minimum: 0 }),
  fork: Type.Boolean(),
  forkBatch: Type.Boolean(),
  nestedFork: Type.Boolean(),
  maxForkBatch: Type.Integer({ format: "int32", minimum: 0 }),
});

export const MachineInfo = Type.Object({
  id: Type.String({ description: "mach-<32 hex>" }),
  name: nullable(Type.String()),
  source: MachineSource,
  // Open in the description: to a client compiled for other values, a new one is not an error.
  state: Type.Unsafe<MachineState>({
    type: "string",
    description: `one of ${MACHINE_STATES.map((state) => `\`${state}\``).join(", ")}; later versions may add others`,
    examples: [...MACHINE_STATES],
  }),
  resources: MachineResources,
  network: MachineNetwork,
  env: stringMap("environment"),
  secretEnvNames: Type.Array(Type.String(), { description: "names of the variables whose values are not shown" }),
  ephemeral: Type.Boolean(),
  createdAt: timestamp(),
  updatedAt: timestamp(),
  autoStopSeconds: nullable(int64()),
  lastActivityAt: nullable(timestamp()),
  ttlSeconds: nullable(int64()),
  atEnd: oneOf(ENDS, END_TEXT),
  restart: oneOf(RESTARTS, RESTART_TEXT),
  disruption: oneOf(DISRUPTIONS, DISRUPTION_TEXT),
  workdir: nullable(Type.String()),
  pauseReason: nullable(
    Type.String({
      description:
        "why a `started` machine does nothing at present, such as a full disk of its host; it continues by itself",
    }),
  ),
  unresponsiveSince: nullable(
    timestamp("since when the agent of a `started` machine does not answer; a start restarts the machine"),
  ),
  suspendedAt: nullable(timestamp("since when the memory of a `stopped` machine is kept; null: a start boots it")),
  ready: Type.Boolean({
    description: "a published port has accepted a connection, or there is none, and the guest agent answers",
  }),
  readyAt: nullable(timestamp()),
  ports: Type.Array(MachinePort),
  url: nullable(Type.String()),
  arch: nullable(Type.String()),
  error: nullable(Type.String({ description: "why the state is `error`" })),
  labels: Labels,
  createdBy: nullable(Type.String()),
  parentMachineId: nullable(Type.String({ description: "the machine that it was branched from; it may be gone" })),
  forkable: Type.Boolean(),
  branchable: Type.Boolean(),
  hooks: nullable(MachineHooks),
  public: Type.Boolean(),
  command: nullable(Type.Array(Type.String())),
  nodeId: nullable(Type.String({ description: "the node that holds the machine's disk" })),
  nodeLabels: NodeLabels,
  startTimings: nullable(StartTimings),
  capabilities: MachineCapabilities,
});
export type MachineInfo = Static<typeof MachineInfo>;

export const EventInfo = Type.Object({
  id: Type.String(),
  type: Type.String({ description: "what happened, such as `machine.started`; later versions may add others" }),
  data: Type.Unsafe<Readonly<Record<string, unknown>>>({
    type: "object",
    additionalProperties: true,
    description: "the facts of this type; later versions may add fields",
  }),
  level: oneOf(EVENT_LEVELS),
  message: Type.String({ description: "printed from type and data, for people" }),
  createdAt: timestamp(),
});
export type EventInfo = Static<typeof EventInfo>;

export const MachineUsageResponse = Type.Object({
  machineId: Type.String(),
  from: timestamp(),
  to: timestamp(),
  usage: UsageResponse,
  cost: CostBreakdown,
});

export const ShareInfo = Type.Object({ token: Type.String(), url: nullable(Type.String()) });

export const machineEndpoints = {
  listMachines: endpoint({
    method: "GET",
    path: "/v1/machines",
    family: "machines",
    summary: "List the tenant's machines, newest first",
    access: ["machine:read"],
    query: Type.Object({
      label: Type.Optional(Type.Array(text({ maxLength: 320 }), { description: "`key=value`; repeat for more" })),
      ...pageQuery,
    }),
    answers: { 200: json(Type.Array(MachineInfo)) },
    errors: ["invalid_body"],
  }),
  createMachine: endpoint({
    method: "POST",
    path: "/v1/machines",
    family: "machines",
    summary: "Create a machine; it is `stopped` until it is started",
    access: ["machine:create"],
    body: { kind: "json", schema: CreateMachineRequest },
    answers: { 201: json(MachineInfo) },
    errors: [
      ...(["invalid_json", "invalid_request", "invalid_body", "not_found", "name_taken"] as const),
      ...(["quota_exceeded", "image_wrong_platform"] as const),
    ],
  }),
  getMachine: endpoint({
    method: "GET",
    path: "/v1/machines/{id}",
    family: "machines",
    summary: "Read one machine, by id",
    access: ["machine:read"],
    answers: { 200: json(MachineInfo) },
    errors: ["not_found"],
  }),
  updateMachine: endpoint({
    method: "PATCH",
    path: "/v1/machines/{id}",
    family: "machines",
    summary: "Change what may be changed of a machine; fields that are absent stay as they are",
    description: "A move that has begun is not affected.",
    access: ["machine:create"],
    body: { kind: "json", schema: UpdateMachineRequest },
    answers: { 200: json(MachineInfo) },
    errors: ["invalid_json", "invalid_body", "not_found"],
    isExtra: true,
  }),
  deleteMachine: endpoint({
    method: "DELETE",
    path: "/v1/machines/{id}",
    family: "machines",
    summary: "Delete a machine in any state",
    access: ["machine:delete"],
    query: Type.Object({ includeUsage: Type.Optional(Type.Boolean()) }),
    answers: { 200: json(MachineUsageResponse, "with includeUsage=true"), 204: empty() },
    errors: ["not_found"],
  }),
  startMachine: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/start",
    family: "machines",
    summary: "Start a machine; answers when it has booted",
    access: ["machine:create"],
    query: Type.Object({
      detach: Type.Optional(Type.Boolean({ description: "answer 202 immediately and boot in the background" })),
      forkable: Type.Optional(Type.Boolean({ description: "it may be branched from now on" })),
    }),
    answers: { 200: json(MachineInfo), 202: json(MachineInfo, "detached") },
    errors: ["not_found", "conflict", "quota_exceeded", "no_capacity", ...IMAGE_FAULTS, "start_failed", "unavailable"],
  }),
  stopMachine: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/stop",
    family: "machines",
    summary: "Stop a machine; its disk is kept",
    description:
      "With `keepMemory` the machine is suspended: its memory is kept on its node, and a start continues its processes. " +
      "A machine that cannot be suspended runs on. Commands and terminals in it end. A stop without `keepMemory` of a suspended machine discards its memory.",
    access: ["machine:create"],
    query: Type.Object({
      keepMemory: Type.Optional(Type.Boolean({ description: "suspend the machine: a start continues its processes" })),
    }),
    answers: { 200: json(MachineInfo) },
    errors: ["not_found", "conflict", "unavailable", "no_space"],
  }),
  moveMachine: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/move",
    family: "machines",
    summary: "Move a machine, with its disk, log and memory, to another node",
    description:
      "Answers immediately with an operation. What happens to a running machine is its `disruption`. " +
      "A suspended or stopped one stays so. " +
      "A start meanwhile waits for the end of the move. A move that fails or is canceled leaves the machine where it was. " +
      "The machine may be of any tenant.",
    access: ["admin"],
    body: {
      kind: "json",
      isOptional: true,
      schema: Type.Object({
        nodeId: optional(text({ maxLength: 128, description: "default: placement chooses" })),
        deadlineSeconds: optional(int64({ minimum: 1, description: "default: an hour; at most a day" })),
      }),
    },
    answers: { 202: json(Operation) },
    errors: ["invalid_json", "invalid_body", "not_found", "conflict", "no_capacity", "rate_limited", "unavailable"],
    isExtra: true,
  }),
  listMachineEvents: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/events",
    family: "machines",
    summary: "The machine's timeline, oldest first",
    description:
      "Every command is counted, and priced at zero, in the machine's usage. Here commands that end close together share " +
      "one line, so that the timeline of a busy machine stays readable. Without limit and cursor: the newest 1000.",
    access: ["machine:read"],
    query: Type.Object({
      ...pageQuery,
      type: Type.Optional(eventPattern("only those of this type; `machine.*`: all of the machine")),
    }),
    answers: { 200: json(Type.Array(EventInfo)) },
    errors: ["invalid_body", "not_found"],
  }),
  getMachineUsage: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/usage",
    family: "machines",
    summary: "One machine's totals and cost over a time range; readable for 30 days after deletion",
    access: ["machine:read", "usage:read"],
    query: Type.Object({
      from: Type.Optional(text({ description: "RFC 3339; default: the start of the month of `to`" })),
      to: Type.Optional(
        text({
          description:
            "RFC 3339; default: now, or the machine's deletion. Commands count by whole minutes, as in `GET /v1/usage`",
        }),
      ),
    }),
    answers: { 200: json(MachineUsageResponse) },
    errors: ["not_found", "invalid_request"],
  }),
  listMachineLogs: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/logs",
    family: "machines",
    summary: "The output of the machine's workload",
    description:
      "The last lines that the image's command, or the machine's own, has written to stdout and stderr, also while the " +
      "machine is stopped; the last 8 to 16 MiB are kept. With `follow`, new lines are sent as well, across " +
      "stops and starts, until the machine is deleted. A line of the node's own, such as how the workload ended, begins " +
      "with `flotilla: `. With `format=json` a line is a record: `timestamp`, `level`, `message`, `source`. " +
      LOG_PARTS,
    access: ["machine:read"],
    query: LogsQuery,
    answers: { 200: stream("text/event-stream", "one `data: <line>` for each line; an empty line means nothing") },
    errors: ["not_found", "invalid_request", "unavailable"],
    isExtra: true,
  }),
  createShare: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/share",
    family: "machines",
    summary: "Make the machine's share link; an earlier one stops working",
    access: ["machine:create"],
    alsoNeeds: ["machine:exec"],
    answers: { 200: json(ShareInfo) },
    errors: ["not_found"],
    isExtra: true,
  }),
  removeShare: endpoint({
    method: "DELETE",
    path: "/v1/machines/{id}/share",
    family: "machines",
    summary: "Revoke the machine's share link immediately",
    access: ["machine:create"],
    answers: { 204: empty() },
    errors: ["not_found"],
    isExtra: true,
  }),
  createSnapshot: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/snapshot",
    family: "machines",
    summary: "Snapshots are not implemented",
    access: ["machine:create"],
    answers: {},
    errors: ["not_implemented"],
  }),
  listSnapshots: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/snapshots",
    family: "machines",
    summary: "Snapshots are not implemented",
    access: ["machine:read"],
    answers: {},
    errors: ["not_implemented"],
  }),
} as const;
