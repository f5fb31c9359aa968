/**
 * Printed by scripts/generate-sdk.ts from the contract; not edited by hand: change contract/src and run
 * `npm run golden`.
 * The shapes of requests and answers.
 */
export interface AccountInfo {
  tenantId: string;
  status: string;
  plan: PlanInfo | null;
  effectiveMaxCpus: number;
  effectiveMaxMemoryMb: number;
  effectiveMaxMachines: number;
  effectiveMaxDiskGb: number;
  monthlyBudgetMicros: number | null;
  budgetRemainingMicros: number | null;
  periodUsage: UsageResponse;
  periodCost: CostBreakdown;
}

export interface ApiKeyCreated {
  id: string;
  key: string;
}

export interface ApiKeyInfo {
  id: string;
  description: string | null;
  scopes: readonly string[];
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  expiresAt: string | null;
  /** RFC 3339, UTC, with milliseconds */
  lastUsedAt: string | null;
  createdBy: string | null;
}

export interface AppInfo {
  id: string;
  name: string;
  image: string;
  replicas: number;
  status: "deploying" | "running" | "awaitingPromotion" | "degraded" | "failed" | "stopped";
  port: number;
  domain: string | null;
  instances: readonly InstanceInfo[];
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
}

export interface AssignRequest {
  leaseId: string;
  task?: unknown | undefined;
  files?:
    | readonly {
        path: string;
        contentB64: string;
      }[]
    | null
    | undefined;
  /** written to /run/smol-secrets.json of the clone */
  secrets?: Record<string, string> | null | undefined;
  ports?: readonly PortRequest[] | null | undefined;
  ttlSecs?: number | null | undefined;
  heartbeatSecs?: number | null | undefined;
}

export interface AssignResponse {
  leaseId: string;
  machineId: string;
  ownerToken: string;
  state: string;
  machine: MachineInfo;
}

export interface BranchBatchRequest {
  count?: number | null | undefined;
  names?: readonly string[] | null | undefined;
  namePrefix?: string | null | undefined;
  ports?: readonly PortRequest[] | null | undefined;
}

export interface BranchRequest {
  name: string;
  ports?: readonly PortRequest[] | null | undefined;
}

export interface CallerInfo {
  /** the id of the key */
  subject: string;
  scopes: readonly string[];
  tenantId: string;
  tenantName: string;
  tenantStatus: string;
  registryNamespace: string;
}

export interface ClusterHealth {
  clusterId: string;
  version: string;
  nodesTotal: number;
  nodesReady: number;
  appsTotal: number;
  poolsTotal: number;
  uptimeSecs: number;
}

export interface CompleteLeaseRequest {
  ownerToken: string;
  reason: "done" | "agent_failed" | "infra_failed" | "cancelled";
  score?: number | null | undefined;
  result?: unknown | undefined;
}

export interface ConnectToken {
  token: string;
  /** RFC 3339, UTC, with milliseconds */
  expiresAt: string;
  machineId: string;
}

export interface CostBreakdown {
  cpuMicros: number;
  memoryMicros: number;
  execMicros: number;
  totalMicros: number;
}

export interface CreateApiKeyRequest {
  description?: string | null | undefined;
  expiresInDays?: number | null | undefined;
  /** default: the creator's */
  scopes?: readonly string[] | null | undefined;
  /** admin only */
  tenantId?: string | null | undefined;
}

export interface CreateBranchesAnswer {
  clones: readonly MachineInfo[];
}

export interface CreateConnectTokenRequest {
  ttlSeconds?: number | null | undefined;
}

export interface CreateJoinTokenRequest {
  description?: string | null | undefined;
  expiresInSeconds?: number | null | undefined;
  maxUses?: number | null | undefined;
  /** given to the node that joins */
  labels?: Record<string, string> | null | undefined;
}

export interface CreateMachineRequest {
  source: MachineSource;
  name?: string | null | undefined;
  resources?:
    | {
        cpus?: number | null | undefined;
        memoryMb?: number | null | undefined;
        diskGb?: number | null | undefined;
      }
    | null
    | undefined;
  network?:
    | {
        mode: "open" | "blocked" | "allowCidrs";
        cidrs?: readonly string[] | null | undefined;
        hosts?: readonly string[] | null | undefined;
      }
    | null
    | undefined;
  /** environment of the machine and of every command in it */
  env?: Record<string, string> | null | undefined;
  /** absolute path; default: the image's, else / */
  workdir?: string | null | undefined;
  /** deleted once stopped */
  ephemeral?: boolean | null | undefined;
  /** stop after this long without activity */
  autoStopSeconds?: number | null | undefined;
  /** delete this long after creation */
  ttlSeconds?: number | null | undefined;
  /** accepted; the machine comes up without the storage */
  mounts?: readonly MachineMountSpec[] | null | undefined;
  ports?: readonly PortRequest[] | null | undefined;
  /** whether the machine's url needs no key */
  public?: boolean | null | undefined;
  /** overrides the image's entrypoint and command */
  command?: readonly string[] | null | undefined;
  forkable?: boolean | null | undefined;
  branchable?: boolean | null | undefined;
  labels?: Record<string, string> | null | undefined;
}

export interface CreateMachineSessionRequest {
  id?: string | null | undefined;
  cwd?: string | null | undefined;
  /** environment of the session */
  env?: Record<string, string> | null | undefined;
}

export interface CreatePlanRequest {
  name: string;
  id?: string | null | undefined;
  isDefault?: boolean | null | undefined;
  budgetPolicy?: "none" | "notify" | "block" | "stop" | null | undefined;
  maxApps?: number | null | undefined;
  maxCpus?: number | null | undefined;
  maxMemoryMb?: number | null | undefined;
  maxDiskGb?: number | null | undefined;
  maxMachines?: number | null | undefined;
  maxConcurrentMachines?: number | null | undefined;
  rateCpuHourMicros?: number | null | undefined;
  rateMemoryGbHourMicros?: number | null | undefined;
  rateExecMicros?: number | null | undefined;
  rateRequestsPerSecond?: number | null | undefined;
  rateBurst?: number | null | undefined;
  maxEgressGb?: number | null | undefined;
  monthlyBudgetMicros?: number | null | undefined;
}

export interface CreateTenantRequest {
  name: string;
  id?: string | null | undefined;
  planId?: string | null | undefined;
}

export interface CreateVolumeRequest {
  name: string;
  sizeGb: number;
  node?: string | null | undefined;
}

export interface DeleteMachineQuery {
  includeUsage?: boolean | undefined;
}

export interface DeployRequest {
  name: string;
  image: string;
  cpus?: number | null | undefined;
  memoryMb?: number | null | undefined;
  port?: number | null | undefined;
  domain?: string | null | undefined;
  env?:
    | readonly {
        key: string;
        value: string;
      }[]
    | null
    | undefined;
  health?: HealthCheck | null | undefined;
  network?: boolean | null | undefined;
  stopGraceSecs?: number | null | undefined;
  strategy?: DeployStrategy | null | undefined;
  volume?:
    | {
        name: string;
        mountPath: string;
        sizeGb?: number | null | undefined;
      }
    | null
    | undefined;
  coLocateWith?: string | null | undefined;
  publicIngress?: boolean | null | undefined;
}

export type DeployStrategy =
  | {
      type: "rolling";
      batchSize?: number | null | undefined;
      useHealthCheck?: boolean | null | undefined;
      waitSeconds?: number | null | undefined;
    }
  | {
      type: "canary";
      canaryCount?: number | null | undefined;
      autoPromote?: boolean | null | undefined;
    }
  | {
      type: "blueGreen";
    };

export interface DrainNodeAnswer {
  id: string;
  /** where the server reaches the node's agent */
  address: string;
  smolvmAddress: string;
  status: "ready" | "draining" | "drained" | "unreachable" | "revoked";
  totalCpus: number;
  availableCpus: number;
  totalMemoryMb: number;
  availableMemoryMb: number;
  totalDiskGb: number;
  availableDiskGb: number;
  /** operator's and observed facts, such as the accelerator */
  labels: Record<string, string>;
  /** RFC 3339, UTC, with milliseconds */
  registeredAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastHeartbeatAt: string | null;
  runtime: string | null;
  usedCpus: number;
  usedMemoryMb: number;
  usedDiskGb: number;
  operationId: string;
}

export interface DrainNodeRequest {
  deadlineSeconds?: number | null | undefined;
}

export interface EventInfo {
  id: string;
  level: "info" | "warn" | "error";
  message: string;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
}

export interface ExecQuery {
  output?: "both" | "text" | "b64" | undefined;
}

export interface ExportMachineRequest {
  tag?: string | null | undefined;
}

export interface ExportResponse {
  reference: string;
  digest: string;
  sizeBytes: number;
  platforms: readonly string[];
}

export interface GetUsageQuery {
  /** RFC 3339 */
  from?: string | undefined;
  /** RFC 3339 */
  to?: string | undefined;
}

export interface HealthCheck {
  type: "http" | "tcp" | "exec";
  path?: string | null | undefined;
  port?: number | null | undefined;
  intervalSecs?: number | null | undefined;
  timeoutSecs?: number | null | undefined;
  retries?: number | null | undefined;
}

export interface HeartbeatLeaseRequest {
  ownerToken: string;
}

export interface HeartbeatNodeAnswer {
  /** RFC 3339, UTC, with milliseconds */
  acceptedAt: string;
}

export interface ImageInfo {
  reference: string;
  /** of the image manifest */
  digest: string;
  /** bytes on the node's disk */
  size: number;
  architecture: string;
  os: string;
  layerCount: number;
  nodeId: string;
  /** RFC 3339, UTC, with milliseconds */
  lastUsedAt: string | null;
}

export interface InstanceInfo {
  id: string;
  nodeId: string;
  status: "starting" | "healthy" | "unhealthy" | "draining" | "stopped" | "failed" | "lost";
  generation: number;
  hostPort: number | null;
}

export interface JoinTokenCreated {
  prefix: string;
  description: string | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  expiresAt: string;
  maxUses: number;
  uses: number;
  token: string;
}

export interface JoinTokenInfo {
  prefix: string;
  description: string | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  expiresAt: string;
  maxUses: number;
  uses: number;
}

export interface LeaseInfo {
  leaseId: string;
  machineId: string;
  state: string;
  reason?: string | null | undefined;
  score?: number | null | undefined;
  result?: unknown | undefined;
}

export interface Lineage {
  rootMachineId: string;
  machines: readonly MachineInfo[];
}

export interface ListMachineEventsQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
}

export interface ListMachineImagesAnswer {
  images: readonly ImageInfo[];
}

export interface ListMachineLogsQuery {
  follow?: boolean | undefined;
  tail?: number | undefined;
  format?: "text" | "json" | undefined;
}

export interface ListMachinesQuery {
  /** `key=value`; repeat for more */
  label?: readonly string[] | undefined;
  limit?: number | undefined;
  cursor?: string | undefined;
}

export interface MachineCodeRequest {
  /** `python` or `javascript` (aliases `node`, `js`) */
  language: string;
  code: string;
  cwd?: string | null | undefined;
  /** added to the machine's environment */
  env?: Record<string, string> | null | undefined;
  timeoutSeconds?: number | null | undefined;
}

export interface MachineCommandRequest {
  /** a string runs as `sh -lc`; an array is the program and its arguments */
  command: string | readonly string[];
  cwd?: string | null | undefined;
  /** added to the machine's environment */
  env?: Record<string, string> | null | undefined;
  stdin?: string | null | undefined;
  /** answer with Server-Sent Events */
  stream?: boolean | null | undefined;
  /** default 600 */
  timeoutSeconds?: number | null | undefined;
  /** answer at once with `pid=<n>` in stdout */
  background?: boolean | null | undefined;
  /** name or uid, with `:group` if wanted; default: the image's */
  user?: string | null | undefined;
}

export interface MachineExecResponse {
  /** UTF-8, capped at 1 MiB; empty with output=b64 */
  stdout: string;
  /** UTF-8, capped at 1 MiB; empty with output=b64 */
  stderr: string;
  exitCode: number;
  durationMs: number;
  machineId: string;
  stdoutTruncated: boolean;
  stderrTruncated: boolean;
  /** byte-exact; absent with output=text */
  stdoutB64?: string | undefined;
  /** byte-exact; absent with output=text */
  stderrB64?: string | undefined;
}

export interface MachineInfo {
  /** mach-<32 hex> */
  id: string;
  name: string | null;
  source: MachineSource;
  state: "creating" | "started" | "stopped" | "error";
  resources: MachineResources;
  network: MachineNetwork;
  /** environment */
  env: Record<string, string>;
  ephemeral: boolean;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
  autoStopSeconds: number | null;
  /** RFC 3339, UTC, with milliseconds */
  lastActivityAt: string | null;
  ttlSeconds: number | null;
  workdir: string | null;
  /** a published port accepts connections, or, with none, the guest agent answers */
  ready: boolean;
  /** RFC 3339, UTC, with milliseconds */
  readyAt: string | null;
  ports: readonly MachinePort[];
  url: string | null;
  arch: string | null;
  /** why the state is `error` */
  error: string | null;
  labels: Record<string, string>;
  createdBy: string | null;
  forkable: boolean;
  branchable: boolean;
  public: boolean;
  command: readonly string[] | null;
  /** the node that holds the machine's disk */
  nodeId: string | null;
}

export interface MachineMountSpec {
  /** volume name */
  volume: string;
  /** path inside the machine */
  mountPath: string;
  readonly?: boolean | null | undefined;
}

export interface MachineNetwork {
  mode: "open" | "blocked" | "allowCidrs";
  /** with mode allowCidrs */
  cidrs?: readonly string[] | undefined;
  /** with mode allowCidrs */
  hosts?: readonly string[] | undefined;
}

export interface MachinePort {
  port: number;
  hostPort: number | null;
}

export interface MachineResources {
  cpus: number;
  memoryMb: number;
  diskGb: number | null;
}

export interface MachineSessionInfo {
  id: string;
  machineId: string;
  status: "active";
  cwd: string | null;
  /** environment of the session */
  env: Record<string, string>;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastExecAt: string | null;
}

export interface MachineSource {
  /** an OCI image, or a packaged machine of the registry */
  type: "image" | "smolmachine";
  /** such as `alpine`, `local/busybox`, `host:5000/app:1` */
  reference: string;
  arch?: "amd64" | "arm64" | null | undefined;
}

export interface MachineUsageResponse {
  machineId: string;
  /** RFC 3339, UTC, with milliseconds */
  from: string;
  /** RFC 3339, UTC, with milliseconds */
  to: string;
  usage: UsageResponse;
  cost: CostBreakdown;
}

export interface NodeInfo {
  id: string;
  /** where the server reaches the node's agent */
  address: string;
  smolvmAddress: string;
  status: "ready" | "draining" | "drained" | "unreachable" | "revoked";
  totalCpus: number;
  availableCpus: number;
  totalMemoryMb: number;
  availableMemoryMb: number;
  totalDiskGb: number;
  availableDiskGb: number;
  /** operator's and observed facts, such as the accelerator */
  labels: Record<string, string>;
  /** RFC 3339, UTC, with milliseconds */
  registeredAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastHeartbeatAt: string | null;
  runtime: string | null;
  usedCpus: number;
  usedMemoryMb: number;
  usedDiskGb: number;
}

export interface OpenTerminalQuery {
  cmd?: string | undefined;
  command?: string | undefined;
  cols?: number | undefined;
  rows?: number | undefined;
  access_token?: string | undefined;
}

export interface Operation {
  id: string;
  tenantId: string;
  /** such as `image pull`, `node drain`, `app deploy` */
  kind: string;
  status: "running" | "succeeded" | "failed" | "canceled";
  resource: {
    kind: string;
    id: string;
    name: string | null;
  };
  steps: readonly {
    name: string;
    status: string;
    /** RFC 3339, UTC, with milliseconds */
    startedAt: string | null;
    /** RFC 3339, UTC, with milliseconds */
    finishedAt: string | null;
    message: string | null;
  }[];
  error: string | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
}

export interface PlanInfo {
  id: string;
  name: string;
  isDefault: boolean;
  budgetPolicy: "none" | "notify" | "block" | "stop";
  maxApps: number;
  /** per machine */
  maxCpus: number;
  /** per machine */
  maxMemoryMb: number;
  /** per machine */
  maxDiskGb: number;
  /** over all states */
  maxMachines: number;
  /** started and creating */
  maxConcurrentMachines: number;
  rateCpuHourMicros: number;
  rateMemoryGbHourMicros: number;
  rateExecMicros: number;
  /** refill of the tenant's token bucket */
  rateRequestsPerSecond: number;
  /** size of the tenant's token bucket */
  rateBurst: number;
  maxEgressGb: number | null;
  monthlyBudgetMicros: number | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
}

export interface PoolConfig {
  image: string;
  cpus?: number | null | undefined;
  memoryMb?: number | null | undefined;
  network?: boolean | null | undefined;
  maxIdleSecs?: number | null | undefined;
  targetSize?: number | null | undefined;
  /** admin only */
  tenantId?: string | null | undefined;
}

export interface PoolInfo {
  id: string;
  image: string;
  targetSize: number;
  idleCount: number;
  busyCount: number;
  status: "filling" | "ready" | "degraded";
}

export interface PortRequest {
  port: number;
  /** accepted and ignored: the node chooses */
  hostPort?: number | null | undefined;
}

export interface PullImageRequest {
  reference: string;
  nodeId?: string | null | undefined;
}

export interface PullMachineImageRequest {
  image: string;
  ociPlatform?: string | null | undefined;
}

export interface ReadFileAtQuery {
  list?: boolean | undefined;
}

export interface ReadFileQuery {
  path?: string | undefined;
  list?: boolean | undefined;
}

export interface RegisterNodeRequest {
  id: string;
  address: string;
  totalCpus?: number | null | undefined;
  totalMemoryMb?: number | null | undefined;
  totalDiskGb?: number | null | undefined;
  /** facts */
  labels?: Record<string, string> | null | undefined;
  runtime?: string | null | undefined;
}

export interface RegisterPackageAnswer {
  repo: string;
  tag: string;
  digest: string;
  count: number;
}

export interface RegisterPackageRequest {
  repo: string;
  tag: string;
  digest: string;
  sizeBytes: number;
  platforms: readonly string[];
  manifest: string;
}

export interface RegisteredNode {
  id: string;
  /** where the server reaches the node's agent */
  address: string;
  smolvmAddress: string;
  status: "ready" | "draining" | "drained" | "unreachable" | "revoked";
  totalCpus: number;
  availableCpus: number;
  totalMemoryMb: number;
  availableMemoryMb: number;
  totalDiskGb: number;
  availableDiskGb: number;
  /** operator's and observed facts, such as the accelerator */
  labels: Record<string, string>;
  /** RFC 3339, UTC, with milliseconds */
  registeredAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastHeartbeatAt: string | null;
  runtime: string | null;
  usedCpus: number;
  usedMemoryMb: number;
  usedDiskGb: number;
  /** shown once; null when the node called with its credential */
  credential: string | null;
}

export interface ScaleRequest {
  count: number;
}

export interface ShareInfo {
  token: string;
  url: string | null;
}

export interface StartMachineQuery {
  /** answer 202 at once and boot in the background */
  detach?: boolean | undefined;
  forkable?: boolean | undefined;
}

export interface TenantInfo {
  id: string;
  name: string;
  status: "active" | "suspended";
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
  planId: string | null;
  externalBillingId: string | null;
  maxApps: number | null;
  maxCpus: number | null;
  maxMemoryMb: number | null;
  maxDiskGb: number | null;
  maxSandboxPools: number | null;
}

export interface TenantMeter {
  tenantId: string;
  cpuHours: number;
  memoryGbHours: number;
  execCount: number;
  cost: CostBreakdown;
  externalBillingId: string | null;
}

export interface UpdateTenantRequest {
  externalBillingId?: string | null | undefined;
  planId?: string | null | undefined;
  status?: "active" | "suspended" | null | undefined;
  maxApps?: number | null | undefined;
  maxCpus?: number | null | undefined;
  maxMemoryMb?: number | null | undefined;
  maxDiskGb?: number | null | undefined;
}

export interface UsageResponse {
  tenantId: string;
  /** RFC 3339, UTC, with milliseconds */
  from: string;
  /** RFC 3339, UTC, with milliseconds */
  to: string;
  totalUptimeSeconds: number;
  cpuHours: number;
  memoryGbHours: number;
  diskGbHours: number;
  egressGb: number;
  machineCount: number;
  execCount: number;
  execDurationMs: number;
}

export interface VolumeInfo {
  id: string;
  name: string;
  nodeId: string;
  sizeGb: number;
  status: string;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  appInstanceId: string | null;
}

export interface WriteFileQuery {
  path?: string | undefined;
}
