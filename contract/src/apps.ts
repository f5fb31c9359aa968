/**
 * Apps: replicated instances of an image with a rollout strategy. `/v1/groups` is a newer name of the same
 * routes.
 */
import { empty, endpoint, json, stream } from "./endpoint.ts";
import { int32, int64, nullable, oneOf, optional, Type, text, timestamp } from "./schema.ts";

export const APP_STATUSES = ["deploying", "running", "awaitingPromotion", "degraded", "failed", "stopped"] as const;
export const INSTANCE_STATUSES = ["starting", "healthy", "unhealthy", "draining", "stopped", "failed", "lost"] as const;

export const InstanceInfo = Type.Object({
  id: Type.String(),
  nodeId: Type.String(),
  status: oneOf(INSTANCE_STATUSES),
  generation: int64(),
  hostPort: nullable(int32()),
});

export const AppInfo = Type.Object({
  id: Type.String(),
  name: Type.String(),
  image: Type.String(),
  replicas: int32(),
  status: oneOf(APP_STATUSES),
  port: int32(),
  domain: nullable(Type.String()),
  instances: Type.Array(InstanceInfo),
  createdAt: timestamp(),
  updatedAt: timestamp(),
});

export const HealthCheckType = oneOf(["http", "tcp", "exec"]);

export const HealthCheck = Type.Object({
  type: HealthCheckType,
  path: optional(text()),
  port: optional(int32()),
  intervalSecs: optional(int64()),
  timeoutSecs: optional(int64()),
  retries: optional(int32()),
});

export const RollingStrategy = Type.Object({
  type: oneOf(["rolling"]),
  batchSize: optional(int32({ description: "default: 1" })),
  useHealthCheck: optional(Type.Boolean()),
  waitSeconds: optional(int64({ description: "default: 5" })),
});
export const CanaryStrategy = Type.Object({
  type: oneOf(["canary"]),
  canaryCount: optional(int32({ description: "default: 1" })),
  autoPromote: optional(Type.Boolean()),
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

export const EnvVar = Type.Object({ key: text(), value: text() });

export const VolumeMount = Type.Object({ name: text(), mountPath: text(), sizeGb: optional(int64()) });

export const DeployRequest = Type.Object({
  name: text({ minLength: 1, maxLength: 63 }),
  image: text({ minLength: 1, maxLength: 512 }),
  cpus: optional(int32()),
  memoryMb: optional(int32()),
  port: optional(int32()),
  domain: optional(text({ maxLength: 253 })),
  env: optional(Type.Array(EnvVar)),
  health: optional(HealthCheck),
  network: optional(Type.Boolean()),
  stopGraceSecs: optional(int64()),
  strategy: optional(DeployStrategy),
  volume: optional(VolumeMount),
  coLocateWith: optional(text()),
  publicIngress: optional(Type.Boolean()),
});

export const ScaleRequest = Type.Object({ count: int32() });

const changes = ["not_found", "conflict"] as const;

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
    errors: ["invalid_json", "invalid_request", "invalid_body", "conflict", "quota_exceeded"],
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
    access: "anyKey",
    query: Type.Object({
      follow: Type.Optional(Type.Boolean()),
      tail: Type.Optional(Type.Integer({ minimum: 0 })),
      format: Type.Optional(oneOf(["text", "json"])),
    }),
    answers: { 200: stream("text/event-stream", "`data: [<instanceId>] <line>`") },
    errors: ["not_found"],
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
  redeployApp: endpoint({
    method: "POST",
    path: "/v1/apps/{name}/redeploy",
    aliases: ["/v1/groups/{name}/redeploy"],
    family: "apps",
    summary: "Replace all instances with the same specification",
    access: ["app:write"],
    answers: { 200: json(AppInfo) },
    errors: changes,
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
    errors: ["invalid_json", "invalid_body", "not_found", "conflict", "quota_exceeded"],
  }),
} as const;
