/**
 * Apps: replicated instances of an image with a rollout strategy. `/v1/groups` is a newer name of the same
 * routes.
 */
import { empty, endpoint, json, stream } from "./endpoint.ts";
import { IMAGE_FAULTS } from "./errors.ts";
import {
  APP_CPUS_DEFAULT,
  APP_MEMORY_MB_DEFAULT,
  APP_PORT_DEFAULT,
  CPUS_MAX,
  DEADLINE_SECONDS_MAX,
  HEALTH_INTERVAL_MS_DEFAULT,
  HEALTH_RETRIES_DEFAULT,
  HEALTH_TIMEOUT_MS_DEFAULT,
  HEALTHY_SECONDS_DEFAULT,
  MEMORY_MB_MAX,
  MEMORY_MB_MIN,
  PLACING_SECONDS_DEFAULT,
  PORT_MAX,
  REPLICAS_MAX,
  STOP_GRACE_SECONDS_DEFAULT,
  STOP_GRACE_SECONDS_MAX,
} from "./limits.ts";
import { LOG_PARTS, LogsQuery } from "./logs.ts";
import { ShareInfo } from "./machines.ts";
import { int32, int64, nullable, oneOf, optional, type Static, Type, text, timestamp } from "./schema.ts";

/**
 * `deploying`: a rollout is under way. `awaitingPromotion`: its canaries serve, and a person decides.
 * `running`: as many instances serve as are asked. `degraded`: fewer do. `failed`: none does, and none will.
 * `stopped`: none is asked.
 */
export const APP_STATUSES = ["deploying", "running", "awaitingPromotion", "degraded", "failed", "stopped"] as const;
export type AppStatus = (typeof APP_STATUSES)[number];
/** `draining`: it gets no new requests, and ends. `lost`: its node is. */
export const INSTANCE_STATUSES = ["starting", "healthy", "unhealthy", "draining", "stopped", "failed", "lost"] as const;
export type InstanceStatus = (typeof INSTANCE_STATUSES)[number];

/**
 * `placing`: instances are made and started. `checking`: they run, and their health is awaited. `routing`:
 * every ingress gets to know them. `pausing`: between batches. `retiring`: what was replaced ends its
 * requests. `failed`: the last rollout was rolled back.
 */
export const ROLLOUT_PHASES = [
  "placing",
  "checking",
  "routing",
  "pausing",
  "awaitingPromotion",
  "retiring",
  "failed",
] as const;
export type RolloutPhase = (typeof ROLLOUT_PHASES)[number];
export const STRATEGIES = ["rolling", "canary", "blueGreen"] as const;
export const ROLLOUT_OUTCOMES = ["succeeded", "failed", "superseded"] as const;

/** A check that is made less often than once an hour shows nothing. */
const CHECK_SECONDS_MAX = 3600;

export const InstanceInfo = Type.Object({
  id: Type.String(),
  nodeId: Type.String({ description: "empty until it is placed" }),
  status: oneOf(INSTANCE_STATUSES),
  generation: int64({ description: "the number of its release" }),
  hostPort: nullable(int32()),
  machineId: Type.String({ description: "the machine that it is; GET /v1/machines/{id} finds it" }),
  isServing: Type.Boolean({ description: "it is in the table of targets, and every ingress knows it" }),
  openRequests: int32({ description: "of an instance that leaves" }),
  reason: nullable(Type.String({ description: "why it failed, is unhealthy or leaves" })),
});
export type InstanceInfo = Static<typeof InstanceInfo>;

export const RolloutInfo = Type.Object({
  phase: oneOf(ROLLOUT_PHASES),
  strategy: oneOf(STRATEGIES),
  from: nullable(int32({ description: "the release that is replaced; null: the first one is rolled out" })),
  to: int32(),
  message: Type.String({ description: "what happens, or why it failed, in a sentence" }),
  waitingFor: nullable(Type.String({ description: "what has to happen next" })),
  startedAt: timestamp(),
  deadline: nullable(timestamp("when it is rolled back unless something happens; null: it has no deadline now")),
  operationId: Type.String(),
});
export type RolloutInfo = Static<typeof RolloutInfo>;

export const AppInfo = Type.Object({
  id: Type.String(),
  name: Type.String(),
  image: Type.String(),
  replicas: int32({ description: "how many instances are asked" }),
  status: oneOf(APP_STATUSES),
  port: int32(),
  domain: nullable(Type.String()),
  instances: Type.Array(InstanceInfo),
  createdAt: timestamp(),
  updatedAt: timestamp(),
  url: Type.String(),
  release: nullable(int32({ description: "the release that was rolled out last; null: none was" })),
  message: nullable(Type.String({ description: "why it is as it is, where that is not obvious" })),
  createdBy: Type.String({ description: "the key that changed it last, with which its instances are made" }),
  rollout: nullable(RolloutInfo),
});
export type AppInfo = Static<typeof AppInfo>;

export const HealthCheckType = oneOf(["http", "tcp", "exec"]);

export const HealthCheck = Type.Object({
  type: HealthCheckType,
  path: optional(text({ maxLength: 4096, description: "of http: what is asked for; default: /" })),
  port: optional(int32({ minimum: 1, maximum: PORT_MAX, description: "default: the app's port" })),
  command: optional(
    Type.Array(text(), { minItems: 1, maxItems: 256, description: "of exec: healthy if it exits with 0" }),
  ),
  intervalSecs: optional(
    int64({ minimum: 1, maximum: CHECK_SECONDS_MAX, description: `default: ${HEALTH_INTERVAL_MS_DEFAULT / 1000}` }),
  ),
  timeoutSecs: optional(
    int64({ minimum: 1, maximum: CHECK_SECONDS_MAX, description: `default: ${HEALTH_TIMEOUT_MS_DEFAULT / 1000}` }),
  ),
  retries: optional(
    int32({
      ...{ minimum: 1, maximum: 100 },
      description: `failures in a row after which an instance is unhealthy; default: ${HEALTH_RETRIES_DEFAULT}`,
    }),
  ),
});
export type HealthCheck = Static<typeof HealthCheck>;

export const RollingStrategy = Type.Object({
  type: oneOf(["rolling"]),
  batchSize: optional(int32({ minimum: 1, maximum: REPLICAS_MAX, description: "default: 1" })),
  useHealthCheck: optional(
    Type.Boolean({ description: "default: true; false: an instance serves once its port accepts connections" }),
  ),
  waitSeconds: optional(
    int64({ maximum: CHECK_SECONDS_MAX, description: "default: 5; between batches without the health check" }),
  ),
});
export const CanaryStrategy = Type.Object({
  type: oneOf(["canary"]),
  canaryCount: optional(int32({ minimum: 1, maximum: REPLICAS_MAX, description: "default: 1" })),
  autoPromote: optional(
    Type.Boolean({ description: "default: true; false: once the canaries serve, a promotion is awaited" }),
  ),
});
export const BlueGreenStrategy = Type.Object({ type: oneOf(["blueGreen"]) });

const ofStrategy = (name: string): string => `#/components/schemas/${name}`;
export const DeployStrategy = Type.Union([RollingStrategy, CanaryStrategy, BlueGreenStrategy], {
  discriminator: {
    propertyName: "type",
    mapping: {
      rolling: ofStrategy("RollingStrategy"),
      canary: ofStrategy("CanaryStrategy"),
      blueGreen: ofStrategy("BlueGreenStrategy"),
    },
  },
});
export type DeployStrategy = Static<typeof DeployStrategy>;

export const EnvVar = Type.Object({ key: text({ minLength: 1 }), value: text() });

export const VolumeMount = Type.Object({ name: text(), mountPath: text(), sizeGb: optional(int64()) });

const replicas = (description: string) => int32({ maximum: REPLICAS_MAX, description });
const deadline = (what: string, seconds: number) =>
  optional(
    int64({
      minimum: 1,
      maximum: DEADLINE_SECONDS_MAX,
      description: `${what} before it is rolled back; default: ${seconds}`,
    }),
  );

export const DeployRequest = Type.Object({
  name: text({ minLength: 1, maxLength: 63, description: "a host label, unique in the tenant" }),
  image: text({ minLength: 1, maxLength: 512 }),
  replicas: optional(replicas("how many instances serve; default: as before, 1 for a new app")),
  cpus: optional(int32({ minimum: 1, maximum: CPUS_MAX, description: `default: ${APP_CPUS_DEFAULT}` })),
  memoryMb: optional(
    int32({ minimum: MEMORY_MB_MIN, maximum: MEMORY_MB_MAX, description: `default: ${APP_MEMORY_MB_DEFAULT}` }),
  ),
  port: optional(
    int32({
      minimum: 1,
      maximum: PORT_MAX,
      description: `where instances listen; default: the lowest that the image exposes, else ${APP_PORT_DEFAULT}`,
    }),
  ),
  domain: optional(text({ maxLength: 253, description: "a host name to serve besides its own; default: as before" })),
  env: optional(Type.Array(EnvVar)),
  secretEnv: optional(Type.Array(EnvVar, { description: "as `env`, but encrypted at rest and shown nowhere" })),
  health: optional(HealthCheck),
  network: optional(Type.Boolean({ description: "whether instances reach the network; default: true" })),
  stopGraceSecs: optional(
    int64({
      maximum: STOP_GRACE_SECONDS_MAX,
      description: `how long open requests of an instance that leaves may continue; default: ${STOP_GRACE_SECONDS_DEFAULT}`,
    }),
  ),
  strategy: optional(DeployStrategy),
  volume: optional(VolumeMount),
  coLocateWith: optional(text({ maxLength: 63, description: "the app beside whose instances its own are placed" })),
  publicIngress: optional(
    Type.Boolean({ description: "whether its address needs no key; default: as before, true for a new app" }),
  ),
  placingDeadlineSecs: deadline("how long instances may take to start", PLACING_SECONDS_DEFAULT),
  healthDeadlineSecs: deadline("how long they may then take to become healthy", HEALTHY_SECONDS_DEFAULT),
});
export type DeployRequest = Static<typeof DeployRequest>;

export const ScaleRequest = Type.Object({ count: replicas("0: none serves") });

export const RollbackRequest = Type.Object({
  release: optional(
    int32({ minimum: 1, description: "whose inputs are deployed again; default: the one before the present one" }),
  ),
});

export const ReleaseInfo = Type.Object({
  number: int32(),
  image: Type.String(),
  digest: Type.String(),
  why: Type.String({ description: "why it was made, in a sentence" }),
  outcome: nullable(oneOf(ROLLOUT_OUTCOMES, "of its rollout; null: it is under way")),
  outcomeReason: nullable(Type.String()),
  isCurrent: Type.Boolean(),
  env: Type.Array(EnvVar),
  secretEnvNames: Type.Array(Type.String()),
  cpus: int32(),
  memoryMb: int32(),
  port: int32(),
  health: nullable(HealthCheck),
  network: Type.Boolean(),
  stopGraceSecs: int64(),
  createdAt: timestamp(),
});
export type ReleaseInfo = Static<typeof ReleaseInfo>;

export const DeployPlan = Type.Object({
  effect: oneOf(["create", "begin", "supersede", "none"], "what the request would do; `none`: no input differs"),
  why: Type.String(),
  release: nullable(int32({ description: "the number that its release would get" })),
  differences: Type.Array(Type.String(), { description: "the inputs that differ from the present release" }),
  steps: Type.Array(Type.String(), { description: "what would happen, one sentence after the other" }),
});
export type DeployPlan = Static<typeof DeployPlan>;

export const AppExplanation = Type.Object({
  status: oneOf(APP_STATUSES),
  waitingFor: nullable(Type.String()),
  next: Type.Array(Type.String(), { description: "what would be done now, each with its reason" }),
  instances: Type.Array(
    Type.Object({ id: Type.String(), sentence: Type.String({ description: "what it is, and why" }) }),
  ),
  failures: int32({ description: "instances that failed in a row" }),
  retryAt: nullable(timestamp("before then no instance is made, because others failed")),
  lastFailure: nullable(Type.String()),
});
export type AppExplanation = Static<typeof AppExplanation>;

const changes = ["not_found", "conflict"] as const;
const resolves = [...IMAGE_FAULTS, "no_capacity", "unavailable", "no_space"] as const;
const refusesDeploy = [
  ...(["invalid_json", "invalid_request", "invalid_body", "conflict", "name_taken", "quota_exceeded"] as const),
  ...resolves,
] as const;

export const appEndpoints = {
  listApps: endpoint({
    method: "GET",
    path: "/v1/apps",
    aliases: ["/v1/groups"],
    family: "apps",
    summary: "List the tenant's apps",
    access: "anyKey",
    answers: { 200: json(Type.Array(AppInfo)) },
  }),
  deployApp: endpoint({
    method: "POST",
    path: "/v1/apps",
    aliases: ["/v1/groups"],
    family: "apps",
    summary: "Deploy an app, or update the existing one with its strategy",
    access: ["app:write"],
    body: { kind: "json", schema: DeployRequest },
    answers: { 200: json(AppInfo) },
    errors: refusesDeploy,
  }),
  planDeploy: endpoint({
    method: "POST",
    path: "/v1/apps/-/plan",
    aliases: ["/v1/groups/-/plan"],
    family: "apps",
    summary: "Say what a deploy would do, without doing it",
    access: ["app:write"],
    body: { kind: "json", schema: DeployRequest },
    answers: { 200: json(DeployPlan) },
    errors: refusesDeploy,
    isExtra: true,
  }),
  getApp: endpoint({
    method: "GET",
    path: "/v1/apps/{name}",
    aliases: ["/v1/groups/{name}"],
    family: "apps",
    summary: "Read one app, by name",
    access: "anyKey",
    answers: { 200: json(AppInfo) },
    errors: ["not_found"],
  }),
  destroyApp: endpoint({
    method: "DELETE",
    path: "/v1/apps/{name}",
    aliases: ["/v1/groups/{name}"],
    family: "apps",
    summary: "Destroy an app and its instances",
    access: ["app:write"],
    answers: { 204: empty() },
    errors: ["not_found"],
  }),
  listAppLogs: endpoint({
    method: "GET",
    path: "/v1/apps/{name}/logs",
    aliases: ["/v1/groups/{name}/logs"],
    family: "apps",
    summary: "Stream the instances' log lines",
    description:
      "The lines of all instances in the order of their times; with `format=json` records with `instanceId`. " +
      LOG_PARTS,
    access: "anyKey",
    query: LogsQuery,
    answers: { 200: stream("text/event-stream", "`data: [<instanceId>] <line>`") },
    errors: ["invalid_body", "invalid_request", "not_found", "unavailable"],
  }),
  promoteApp: endpoint({
    method: "POST",
    path: "/v1/apps/{name}/promote",
    aliases: ["/v1/groups/{name}/promote"],
    family: "apps",
    summary: "Promote the canary",
    access: ["app:write"],
    answers: { 200: json(AppInfo) },
    errors: changes,
  }),
  rollbackApp: endpoint({
    method: "POST",
    path: "/v1/apps/{name}/rollback",
    aliases: ["/v1/groups/{name}/rollback"],
    family: "apps",
    summary: "Deploy the inputs of an earlier release again, as a new one",
    access: ["app:write"],
    body: { kind: "json", schema: RollbackRequest, isOptional: true },
    answers: { 200: json(AppInfo) },
    errors: [...changes, "invalid_json", "invalid_body", "quota_exceeded", "no_capacity", "unavailable"],
    isExtra: true,
  }),
  listReleases: endpoint({
    method: "GET",
    path: "/v1/apps/{name}/releases",
    aliases: ["/v1/groups/{name}/releases"],
    family: "apps",
    summary: "List an app's releases, newest first",
    access: ["app:read", "app:write"],
    answers: { 200: json(Type.Array(ReleaseInfo)) },
    errors: ["not_found"],
    isExtra: true,
  }),
  explainApp: endpoint({
    method: "GET",
    path: "/v1/apps/{name}/explain",
    aliases: ["/v1/groups/{name}/explain"],
    family: "apps",
    summary: "Say why an app is as it is, and what it waits for",
    access: "anyKey",
    answers: { 200: json(AppExplanation) },
    errors: ["not_found"],
    isExtra: true,
  }),
  createAppShare: endpoint({
    method: "POST",
    path: "/v1/apps/{name}/share",
    aliases: ["/v1/groups/{name}/share"],
    family: "apps",
    summary: "Make the app's share link; an earlier one stops working",
    access: ["app:write"],
    alsoNeeds: ["machine:exec"],
    answers: { 200: json(ShareInfo) },
    errors: ["not_found"],
    isExtra: true,
  }),
  removeAppShare: endpoint({
    method: "DELETE",
    path: "/v1/apps/{name}/share",
    aliases: ["/v1/groups/{name}/share"],
    family: "apps",
    summary: "Revoke the app's share link immediately",
    access: ["app:write"],
    answers: { 204: empty() },
    errors: ["not_found"],
    isExtra: true,
  }),
  redeployApp: endpoint({
    method: "POST",
    path: "/v1/apps/{name}/redeploy",
    aliases: ["/v1/groups/{name}/redeploy"],
    family: "apps",
    summary: "Replace all instances with the same specification",
    access: ["app:write"],
    answers: { 200: json(AppInfo) },
    errors: [...changes, "quota_exceeded", ...resolves],
  }),
  scaleApp: endpoint({
    method: "POST",
    path: "/v1/apps/{name}/scale",
    aliases: ["/v1/groups/{name}/scale"],
    family: "apps",
    summary: "Set the number of replicas",
    access: ["app:write"],
    body: { kind: "json", schema: ScaleRequest },
    answers: { 200: json(AppInfo) },
    errors: ["invalid_json", "invalid_body", "not_found", "conflict", "quota_exceeded", "no_capacity"],
  }),
} as const;
