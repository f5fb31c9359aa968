/**
 * Printed by scripts/generate-sdk.ts from the contract; not edited by hand: change contract/src and run
 * `npm run golden`.
 * One method for each endpoint; client.ts gives them their transport.
 */
import { type ApiCall, type BytesBody, type CallOptions, rest, segment } from "./call.ts";
import type {
  AccountInfo,
  ApiKeyCreated,
  ApiKeyInfo,
  AppInfo,
  AssignRequest,
  AssignResponse,
  BranchBatchRequest,
  BranchRequest,
  CallerInfo,
  ClusterHealth,
  CompleteLeaseRequest,
  ConnectToken,
  CreateApiKeyRequest,
  CreateBranchesAnswer,
  CreateConnectTokenRequest,
  CreateJoinTokenRequest,
  CreateMachineRequest,
  CreateMachineSessionRequest,
  CreatePlanRequest,
  CreateTenantRequest,
  CreateVolumeRequest,
  DeleteMachineQuery,
  DeployRequest,
  DrainNodeAnswer,
  DrainNodeRequest,
  EventInfo,
  ExecQuery,
  ExportMachineRequest,
  ExportResponse,
  GetUsageQuery,
  HeartbeatLeaseRequest,
  HeartbeatNodeAnswer,
  ImageInfo,
  JoinTokenCreated,
  JoinTokenInfo,
  LeaseInfo,
  Lineage,
  ListMachineEventsQuery,
  ListMachineImagesAnswer,
  ListMachineLogsQuery,
  ListMachinesQuery,
  MachineCodeRequest,
  MachineCommandRequest,
  MachineExecResponse,
  MachineInfo,
  MachineSessionInfo,
  MachineUsageResponse,
  NodeInfo,
  OpenTerminalQuery,
  Operation,
  PlanInfo,
  PoolConfig,
  PoolInfo,
  PullImageRequest,
  PullMachineImageRequest,
  ReadFileAtQuery,
  ReadFileQuery,
  RegisterNodeRequest,
  RegisterPackageAnswer,
  RegisterPackageRequest,
  RegisteredNode,
  ScaleRequest,
  ShareInfo,
  StartMachineQuery,
  TenantInfo,
  TenantMeter,
  UpdateTenantRequest,
  UsageResponse,
  VolumeInfo,
  WriteFileQuery,
} from "./generated-types.ts";

export abstract class Methods {
  protected abstract call<T>(call: ApiCall, options: CallOptions<unknown>): Promise<T>;
  protected abstract openSocket(path: string, options: CallOptions<unknown>): WebSocket;

  /**
   * Counts and uptime of the cluster.
   *
   * `GET /health`; needs no key.
   * Refuses with unavailable.
   */
  getHealth(options: CallOptions = {}): Promise<ClusterHealth> {
    return this.call({ method: "GET", path: "/health", answer: "json" }, options);
  }

  /**
   * Whether the process answers.
   *
   * `GET /livez`; needs no key.
   */
  getLiveness(options: CallOptions = {}): Promise<void> {
    return this.call({ method: "GET", path: "/livez", answer: "empty" }, options);
  }

  /**
   * Whether the state backend is reachable.
   *
   * `GET /readyz`; needs no key.
   * Refuses with unavailable.
   */
  getReadiness(options: CallOptions = {}): Promise<void> {
    return this.call({ method: "GET", path: "/readyz", answer: "empty" }, options);
  }

  /**
   * Metrics in Prometheus' text format.
   *
   * `GET /metrics`; needs scope admin.
   */
  getMetrics(options: CallOptions = {}): Promise<Response> {
    return this.call({ method: "GET", path: "/metrics", answer: "stream" }, options);
  }

  /**
   * This description, as OpenAPI 3.1.
   *
   * `GET /openapi.json`; needs no key.
   */
  getOpenapi(options: CallOptions = {}): Promise<unknown> {
    return this.call({ method: "GET", path: "/openapi.json", answer: "json" }, options);
  }

  /**
   * The tenant's plan, ceilings, and this month's usage and cost.
   *
   * `GET /v1/account`; needs scope usage:read or machine:read.
   */
  getAccount(options: CallOptions = {}): Promise<AccountInfo> {
    return this.call({ method: "GET", path: "/v1/account", answer: "json" }, options);
  }

  /**
   * Whom the key belongs to and what it may do.
   *
   * `GET /v1/me`; needs any key.
   */
  getCaller(options: CallOptions = {}): Promise<CallerInfo> {
    return this.call({ method: "GET", path: "/v1/me", answer: "json" }, options);
  }

  /**
   * Every tenant's metered usage and cost of the current month.
   *
   * `GET /v1/billing/meters`; needs scope admin.
   */
  listMeters(options: CallOptions = {}): Promise<readonly TenantMeter[]> {
    return this.call({ method: "GET", path: "/v1/billing/meters", answer: "json" }, options);
  }

  /**
   * The tenant's usage over a time range; default: the current calendar month in UTC.
   *
   * `GET /v1/usage`; needs scope usage:read or machine:read.
   * Refuses with invalid_request.
   */
  getUsage(options: CallOptions<GetUsageQuery> = {}): Promise<UsageResponse> {
    return this.call({ method: "GET", path: "/v1/usage", answer: "json" }, options);
  }

  /**
   * List the tenant's API keys, without their secrets.
   *
   * `GET /v1/apikeys`; needs scope keys:write.
   */
  listApiKeys(options: CallOptions = {}): Promise<readonly ApiKeyInfo[]> {
    return this.call({ method: "GET", path: "/v1/apikeys", answer: "json" }, options);
  }

  /**
   * Create an API key; its secret is in this answer only.
   *
   * `POST /v1/apikeys`; needs scope keys:write.
   * Refuses with invalid_json, invalid_request, invalid_body, missing_scope, not_found.
   */
  createApiKey(body?: CreateApiKeyRequest, options: CallOptions = {}): Promise<ApiKeyCreated> {
    return this.call({ method: "POST", path: "/v1/apikeys", json: body, answer: "json" }, options);
  }

  /**
   * Revoke an API key, at once on every server.
   *
   * `DELETE /v1/apikeys/{id}`; needs scope keys:write.
   * Refuses with not_found.
   */
  deleteApiKey(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/apikeys/${segment(id)}`, answer: "empty" }, options);
  }

  /**
   * List the tenant's machines, newest first.
   *
   * `GET /v1/machines`; needs scope machine:read.
   * Refuses with invalid_body.
   */
  listMachines(options: CallOptions<ListMachinesQuery> = {}): Promise<readonly MachineInfo[]> {
    return this.call({ method: "GET", path: "/v1/machines", answer: "json" }, options);
  }

  /**
   * Create a machine; it is `stopped` until it is started.
   *
   * `POST /v1/machines`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, name_taken, quota_exceeded, no_capacity.
   */
  createMachine(body: CreateMachineRequest, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call({ method: "POST", path: "/v1/machines", json: body, answer: "json" }, options);
  }

  /**
   * Read one machine, by id.
   *
   * `GET /v1/machines/{id}`; needs scope machine:read.
   * Refuses with not_found.
   */
  getMachine(id: string, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * Delete a machine in any state.
   *
   * `DELETE /v1/machines/{id}`; needs scope machine:delete.
   * Refuses with not_found.
   */
  deleteMachine(id: string, options: CallOptions<DeleteMachineQuery> = {}): Promise<MachineUsageResponse | undefined> {
    return this.call({ method: "DELETE", path: `/v1/machines/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * Start a machine; answers when it has booted.
   *
   * `POST /v1/machines/{id}/start`; needs scope machine:create.
   * Refuses with not_found, conflict, quota_exceeded, no_capacity, start_failed, start_timeout, unavailable.
   */
  startMachine(id: string, options: CallOptions<StartMachineQuery> = {}): Promise<MachineInfo> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/start`, answer: "json" }, options);
  }

  /**
   * Stop a machine; its disk is kept.
   *
   * `POST /v1/machines/{id}/stop`; needs scope machine:create.
   * Refuses with not_found, unavailable.
   */
  stopMachine(id: string, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/stop`, answer: "json" }, options);
  }

  /**
   * The machine's timeline, oldest first.
   *
   * `GET /v1/machines/{id}/events`; needs scope machine:read.
   * Refuses with not_found.
   */
  listMachineEvents(id: string, options: CallOptions<ListMachineEventsQuery> = {}): Promise<readonly EventInfo[]> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/events`, answer: "json" }, options);
  }

  /**
   * One machine's totals and cost in the current period; readable for 30 days after deletion.
   *
   * `GET /v1/machines/{id}/usage`; needs scope machine:read or usage:read.
   * Refuses with not_found.
   */
  getMachineUsage(id: string, options: CallOptions = {}): Promise<MachineUsageResponse> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/usage`, answer: "json" }, options);
  }

  /**
   * The output of the machine's workload.
   *
   * `GET /v1/machines/{id}/logs`; needs scope machine:read.
   * Refuses with not_found, invalid_request.
   */
  listMachineLogs(id: string, options: CallOptions<ListMachineLogsQuery> = {}): Promise<Response> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/logs`, answer: "stream" }, options);
  }

  /**
   * Make the machine's one share link; an earlier one stops working.
   *
   * `POST /v1/machines/{id}/share`; needs scope machine:create.
   * Refuses with not_found.
   */
  createShare(id: string, options: CallOptions = {}): Promise<ShareInfo> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/share`, answer: "json" }, options);
  }

  /**
   * Revoke the machine's share link at once.
   *
   * `DELETE /v1/machines/{id}/share`; needs scope machine:create.
   * Refuses with not_found.
   */
  removeShare(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/machines/${segment(id)}/share`, answer: "empty" }, options);
  }

  /**
   * Snapshots are not implemented.
   *
   * `POST /v1/machines/{id}/snapshot`; needs scope machine:create.
   * Refuses with not_implemented.
   */
  createSnapshot(id: string, options: CallOptions = {}): Promise<never> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/snapshot`, answer: "empty" }, options);
  }

  /**
   * Snapshots are not implemented.
   *
   * `GET /v1/machines/{id}/snapshots`; needs scope machine:read.
   * Refuses with not_implemented.
   */
  listSnapshots(id: string, options: CallOptions = {}): Promise<never> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/snapshots`, answer: "empty" }, options);
  }

  /**
   * Run a command; starts the machine if it is stopped.
   *
   * With `stream: true` the answer is the event stream of `exec/stream`.
   *
   * `POST /v1/machines/{id}/exec`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded, no_capacity,
   * guest_unreachable, unavailable, start_failed, start_timeout.
   */
  exec(id: string, body: MachineCommandRequest, options: CallOptions<ExecQuery> = {}): Promise<MachineExecResponse> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/exec`, json: body, answer: "json" }, options);
  }

  /**
   * Run a command and stream its output as Server-Sent Events.
   *
   * `POST /v1/machines/{id}/exec/stream`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded, no_capacity,
   * guest_unreachable, unavailable, start_failed, start_timeout.
   */
  execStream(id: string, body: MachineCommandRequest, options: CallOptions = {}): Promise<Response> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/exec/stream`, json: body, answer: "stream" },
      options,
    );
  }

  /**
   * Run Python or JavaScript with the image's interpreter.
   *
   * `POST /v1/machines/{id}/code`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded, no_capacity,
   * guest_unreachable, unavailable, start_failed, start_timeout.
   */
  runCode(id: string, body: MachineCodeRequest, options: CallOptions = {}): Promise<MachineExecResponse> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/code`, json: body, answer: "json" }, options);
  }

  /**
   * An interactive terminal over WebSocket.
   *
   * `GET /v1/machines/{id}/exec/interactive`; needs scope machine:exec.
   * Refuses with not_found, invalid_body, guest_unreachable, start_failed.
   */
  openTerminal(id: string, options: CallOptions<OpenTerminalQuery> = {}): WebSocket {
    return this.openSocket(`/v1/machines/${segment(id)}/exec/interactive`, options);
  }

  /**
   * List the machine's sessions.
   *
   * `GET /v1/machines/{id}/sessions`; needs scope machine:read.
   * Refuses with not_found.
   */
  listSessions(id: string, options: CallOptions = {}): Promise<readonly MachineSessionInfo[]> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/sessions`, answer: "json" }, options);
  }

  /**
   * Create a session: a working directory and environment kept between execs.
   *
   * `POST /v1/machines/{id}/sessions`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_body, not_found, conflict.
   */
  createSession(
    id: string,
    body?: CreateMachineSessionRequest,
    options: CallOptions = {},
  ): Promise<MachineSessionInfo> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/sessions`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Delete a session.
   *
   * `DELETE /v1/machines/{id}/sessions/{session_id}`; needs scope machine:exec.
   * Refuses with not_found.
   */
  deleteSession(id: string, sessionId: string, options: CallOptions = {}): Promise<void> {
    return this.call(
      { method: "DELETE", path: `/v1/machines/${segment(id)}/sessions/${segment(sessionId)}`, answer: "empty" },
      options,
    );
  }

  /**
   * Run a command in a session.
   *
   * `POST /v1/machines/{id}/sessions/{session_id}/exec`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded, no_capacity,
   * guest_unreachable, unavailable, start_failed, start_timeout.
   */
  execInSession(
    id: string,
    sessionId: string,
    body: MachineCommandRequest,
    options: CallOptions<ExecQuery> = {},
  ): Promise<MachineExecResponse> {
    return this.call(
      {
        method: "POST",
        path: `/v1/machines/${segment(id)}/sessions/${segment(sessionId)}/exec`,
        json: body,
        answer: "json",
      },
      options,
    );
  }

  /**
   * Read a file.
   *
   * `GET /v1/machines/{id}/files`; needs scope machine:files.
   * Refuses with not_found, invalid_request, conflict, no_space, guest_unreachable, start_failed.
   */
  readFile(id: string, options: CallOptions<ReadFileQuery> = {}): Promise<Response> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/files`, answer: "stream" }, options);
  }

  /**
   * Write a file.
   *
   * `POST /v1/machines/{id}/files`; needs scope machine:files.
   * Refuses with not_found, invalid_request, conflict, no_space, guest_unreachable, start_failed.
   */
  writeFile(id: string, body: BytesBody, options: CallOptions<WriteFileQuery> = {}): Promise<void> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/files`, bytes: body, answer: "empty" },
      options,
    );
  }

  /**
   * Read a file, its path in the URL.
   *
   * `GET /v1/machines/{id}/files/{path...}`; needs scope machine:files.
   * Refuses with not_found, invalid_request, conflict, no_space, guest_unreachable, start_failed.
   */
  readFileAt(id: string, path: string, options: CallOptions<ReadFileAtQuery> = {}): Promise<Response> {
    return this.call(
      { method: "GET", path: `/v1/machines/${segment(id)}/files/${rest(path)}`, answer: "stream" },
      options,
    );
  }

  /**
   * Write a file, its path in the URL.
   *
   * `PUT /v1/machines/{id}/files/{path...}`; needs scope machine:files.
   * Refuses with not_found, invalid_request, conflict, no_space, guest_unreachable, start_failed.
   */
  putFileAt(id: string, path: string, body: BytesBody, options: CallOptions = {}): Promise<void> {
    return this.call(
      { method: "PUT", path: `/v1/machines/${segment(id)}/files/${rest(path)}`, bytes: body, answer: "empty" },
      options,
    );
  }

  /**
   * Write a file, its path in the URL.
   *
   * `POST /v1/machines/{id}/files/{path...}`; needs scope machine:files.
   * Refuses with not_found, invalid_request, conflict, no_space, guest_unreachable, start_failed.
   */
  postFileAt(id: string, path: string, body: BytesBody, options: CallOptions = {}): Promise<void> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/files/${rest(path)}`, bytes: body, answer: "empty" },
      options,
    );
  }

  /**
   * Remove a file.
   *
   * `DELETE /v1/machines/{id}/files/{path...}`; needs scope machine:files.
   * Refuses with not_found, invalid_request, conflict, no_space, guest_unreachable, start_failed.
   */
  deleteFileAt(id: string, path: string, options: CallOptions = {}): Promise<void> {
    return this.call(
      { method: "DELETE", path: `/v1/machines/${segment(id)}/files/${rest(path)}`, answer: "empty" },
      options,
    );
  }

  /**
   * Forward a request to a published port; the guest's answer is passed through.
   *
   * `GET /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, unavailable.
   */
  connectGet(id: string, port: number, path: string, options: CallOptions = {}): Promise<Response> {
    return this.call(
      { method: "GET", path: `/v1/machines/${segment(id)}/connect/${segment(port)}/${rest(path)}`, answer: "stream" },
      options,
    );
  }

  /**
   * Forward a request to a published port; the guest's answer is passed through.
   *
   * `POST /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, unavailable.
   */
  connectPost(id: string, port: number, path: string, body: BytesBody, options: CallOptions = {}): Promise<Response> {
    return this.call(
      {
        method: "POST",
        path: `/v1/machines/${segment(id)}/connect/${segment(port)}/${rest(path)}`,
        bytes: body,
        answer: "stream",
      },
      options,
    );
  }

  /**
   * Forward a request to a published port; the guest's answer is passed through.
   *
   * `PUT /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, unavailable.
   */
  connectPut(id: string, port: number, path: string, body: BytesBody, options: CallOptions = {}): Promise<Response> {
    return this.call(
      {
        method: "PUT",
        path: `/v1/machines/${segment(id)}/connect/${segment(port)}/${rest(path)}`,
        bytes: body,
        answer: "stream",
      },
      options,
    );
  }

  /**
   * Forward a request to a published port; the guest's answer is passed through.
   *
   * `PATCH /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, unavailable.
   */
  connectPatch(id: string, port: number, path: string, body: BytesBody, options: CallOptions = {}): Promise<Response> {
    return this.call(
      {
        method: "PATCH",
        path: `/v1/machines/${segment(id)}/connect/${segment(port)}/${rest(path)}`,
        bytes: body,
        answer: "stream",
      },
      options,
    );
  }

  /**
   * Forward a request to a published port; the guest's answer is passed through.
   *
   * `DELETE /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, unavailable.
   */
  connectDelete(id: string, port: number, path: string, options: CallOptions = {}): Promise<Response> {
    return this.call(
      {
        method: "DELETE",
        path: `/v1/machines/${segment(id)}/connect/${segment(port)}/${rest(path)}`,
        answer: "stream",
      },
      options,
    );
  }

  /**
   * A short-lived token that opens only the connect bridge of this machine.
   *
   * `POST /v1/machines/{id}/connect-token`; needs scope machine:exec.
   * Refuses with not_found, invalid_json, invalid_body.
   */
  createConnectToken(id: string, body?: CreateConnectTokenRequest, options: CallOptions = {}): Promise<ConnectToken> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/connect-token`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Clone a running, branchable machine.
   *
   * `POST /v1/machines/{id}/branches`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found, conflict, name_taken, quota_exceeded.
   */
  createBranch(id: string, body: BranchRequest, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/branches`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Clone a running, branchable machine many times, all or nothing.
   *
   * `POST /v1/machines/{id}/branches/batch`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found, conflict, name_taken, quota_exceeded.
   */
  createBranches(id: string, body: BranchBatchRequest, options: CallOptions = {}): Promise<CreateBranchesAnswer> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/branches/batch`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Clone a machine for a task and lease the clone.
   *
   * `POST /v1/machines/{id}/assign`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found, conflict, name_taken, quota_exceeded.
   */
  assignBranch(id: string, body: AssignRequest, options: CallOptions = {}): Promise<AssignResponse> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/assign`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * The machine's ancestors and branches.
   *
   * `GET /v1/machines/{id}/lineage`; needs scope machine:read.
   * Refuses with not_found.
   */
  getLineage(id: string, options: CallOptions = {}): Promise<Lineage> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/lineage`, answer: "json" }, options);
  }

  /**
   * Read a lease.
   *
   * `GET /v1/leases/{id}`; needs scope machine:read.
   * Refuses with not_found.
   */
  getLease(id: string, options: CallOptions = {}): Promise<LeaseInfo> {
    return this.call({ method: "GET", path: `/v1/leases/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * Keep a lease.
   *
   * `POST /v1/leases/{id}/heartbeat`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found, conflict.
   */
  heartbeatLease(id: string, body: HeartbeatLeaseRequest, options: CallOptions = {}): Promise<LeaseInfo> {
    return this.call(
      { method: "POST", path: `/v1/leases/${segment(id)}/heartbeat`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * End a lease and destroy its clone.
   *
   * `POST /v1/leases/{id}/complete`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found, conflict.
   */
  completeLease(id: string, body: CompleteLeaseRequest, options: CallOptions = {}): Promise<LeaseInfo> {
    return this.call(
      { method: "POST", path: `/v1/leases/${segment(id)}/complete`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Package a stopped machine's disk as an artifact of the registry.
   *
   * `POST /v1/machines/{id}/export`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found, conflict, unavailable.
   */
  exportMachine(id: string, body?: ExportMachineRequest, options: CallOptions = {}): Promise<ExportResponse> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/export`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Note a packaged machine that was pushed to the registry.
   *
   * `POST /v1/registry/machines`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body.
   */
  registerPackage(body: RegisterPackageRequest, options: CallOptions = {}): Promise<RegisterPackageAnswer> {
    return this.call({ method: "POST", path: "/v1/registry/machines", json: body, answer: "json" }, options);
  }

  /**
   * The images that each node has cached.
   *
   * `GET /v1/images`; needs scope machine:read.
   * Refuses with unavailable.
   */
  listImages(options: CallOptions = {}): Promise<readonly ImageInfo[]> {
    return this.call({ method: "GET", path: "/v1/images", answer: "json" }, options);
  }

  /**
   * Fetch an image to one node or to all, before it is needed.
   *
   * `POST /v1/images/pull`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, unavailable.
   */
  pullImage(body: PullImageRequest, options: CallOptions = {}): Promise<Operation> {
    return this.call({ method: "POST", path: "/v1/images/pull", json: body, answer: "json" }, options);
  }

  /**
   * The image of the machine, as cached on its node.
   *
   * `GET /v1/machines/{id}/images`; needs scope machine:read.
   * Refuses with not_found, unavailable.
   */
  listMachineImages(id: string, options: CallOptions = {}): Promise<ListMachineImagesAnswer> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/images`, answer: "json" }, options);
  }

  /**
   * Fetch an image to the machine's node.
   *
   * `POST /v1/machines/{id}/images/pull`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, unavailable.
   */
  pullMachineImage(id: string, body: PullMachineImageRequest, options: CallOptions = {}): Promise<ImageInfo> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/images/pull`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * List the tenant's apps.
   *
   * `GET /v1/apps`; needs any key.
   */
  listApps(options: CallOptions = {}): Promise<readonly AppInfo[]> {
    return this.call({ method: "GET", path: "/v1/apps", answer: "json" }, options);
  }

  /**
   * Deploy an app, or update the one of that name with its strategy.
   *
   * `POST /v1/apps`; needs scope app:write.
   * Refuses with invalid_json, invalid_request, invalid_body, conflict, quota_exceeded.
   */
  deployApp(body: DeployRequest, options: CallOptions = {}): Promise<AppInfo> {
    return this.call({ method: "POST", path: "/v1/apps", json: body, answer: "json" }, options);
  }

  /**
   * Read one app, by name.
   *
   * `GET /v1/apps/{name}`; needs any key.
   * Refuses with not_found.
   */
  getApp(name: string, options: CallOptions = {}): Promise<AppInfo> {
    return this.call({ method: "GET", path: `/v1/apps/${segment(name)}`, answer: "json" }, options);
  }

  /**
   * Destroy an app and its instances.
   *
   * `DELETE /v1/apps/{name}`; needs scope app:write.
   * Refuses with not_found.
   */
  destroyApp(name: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/apps/${segment(name)}`, answer: "empty" }, options);
  }

  /**
   * Stream the instances' log lines.
   *
   * `GET /v1/apps/{name}/logs`; needs any key.
   * Refuses with not_found.
   */
  listAppLogs(name: string, options: CallOptions<ListMachineLogsQuery> = {}): Promise<Response> {
    return this.call({ method: "GET", path: `/v1/apps/${segment(name)}/logs`, answer: "stream" }, options);
  }

  /**
   * Promote the canary.
   *
   * `POST /v1/apps/{name}/promote`; needs scope app:write.
   * Refuses with not_found, conflict.
   */
  promoteApp(name: string, options: CallOptions = {}): Promise<AppInfo> {
    return this.call({ method: "POST", path: `/v1/apps/${segment(name)}/promote`, answer: "json" }, options);
  }

  /**
   * Replace all instances with the same specification.
   *
   * `POST /v1/apps/{name}/redeploy`; needs scope app:write.
   * Refuses with not_found, conflict.
   */
  redeployApp(name: string, options: CallOptions = {}): Promise<AppInfo> {
    return this.call({ method: "POST", path: `/v1/apps/${segment(name)}/redeploy`, answer: "json" }, options);
  }

  /**
   * Set the number of replicas.
   *
   * `POST /v1/apps/{name}/scale`; needs scope app:write.
   * Refuses with invalid_json, invalid_body, not_found, conflict, quota_exceeded.
   */
  scaleApp(name: string, body: ScaleRequest, options: CallOptions = {}): Promise<AppInfo> {
    return this.call({ method: "POST", path: `/v1/apps/${segment(name)}/scale`, json: body, answer: "json" }, options);
  }

  /**
   * List all nodes.
   *
   * `GET /v1/nodes`; needs scope admin.
   */
  listNodes(options: CallOptions = {}): Promise<readonly NodeInfo[]> {
    return this.call({ method: "GET", path: "/v1/nodes", answer: "json" }, options);
  }

  /**
   * Enter the cluster, or say that a known node is back.
   *
   * `POST /v1/nodes/register`; needs a join token.
   * Refuses with invalid_json, invalid_body, conflict.
   */
  registerNode(body: RegisterNodeRequest, options: CallOptions = {}): Promise<RegisteredNode> {
    return this.call({ method: "POST", path: "/v1/nodes/register", json: body, answer: "json" }, options);
  }

  /**
   * Revoke a node's credential; its next call fails.
   *
   * `DELETE /v1/nodes/{id}/credential`; needs scope admin.
   * Refuses with not_found.
   */
  revokeNodeCredential(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/nodes/${segment(id)}/credential`, answer: "empty" }, options);
  }

  /**
   * Move work off a node and place nothing new on it.
   *
   * `POST /v1/nodes/{id}/drain`; needs scope admin.
   * Refuses with not_found, invalid_json, invalid_body.
   */
  drainNode(id: string, body?: DrainNodeRequest, options: CallOptions = {}): Promise<DrainNodeAnswer> {
    return this.call({ method: "POST", path: `/v1/nodes/${segment(id)}/drain`, json: body, answer: "json" }, options);
  }

  /**
   * Report resources and what was observed of machines.
   *
   * The body is `Heartbeat` of contract/src/link.ts; without one it only says that the node lives.
   *
   * `POST /v1/nodes/{id}/heartbeat`; needs a node's credential.
   * Refuses with not_found, invalid_json, invalid_body.
   */
  heartbeatNode(id: string, body?: unknown, options: CallOptions = {}): Promise<HeartbeatNodeAnswer> {
    return this.call(
      { method: "POST", path: `/v1/nodes/${segment(id)}/heartbeat`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * List join tokens, without their secrets.
   *
   * `GET /v1/tokens`; needs scope admin.
   */
  listJoinTokens(options: CallOptions = {}): Promise<readonly JoinTokenInfo[]> {
    return this.call({ method: "GET", path: "/v1/tokens", answer: "json" }, options);
  }

  /**
   * Create a join token; it is shown in this answer only.
   *
   * `POST /v1/tokens`; needs scope admin.
   * Refuses with invalid_json, invalid_body.
   */
  createJoinToken(body?: CreateJoinTokenRequest, options: CallOptions = {}): Promise<JoinTokenCreated> {
    return this.call({ method: "POST", path: "/v1/tokens", json: body, answer: "json" }, options);
  }

  /**
   * Revoke a join token.
   *
   * `DELETE /v1/tokens/{prefix}`; needs scope admin.
   * Refuses with not_found.
   */
  deleteJoinToken(prefix: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/tokens/${segment(prefix)}`, answer: "empty" }, options);
  }

  /**
   * List the tenant's operations, newest first.
   *
   * `GET /v1/operations`; needs any key.
   */
  listOperations(options: CallOptions = {}): Promise<readonly Operation[]> {
    return this.call({ method: "GET", path: "/v1/operations", answer: "json" }, options);
  }

  /**
   * Read one operation.
   *
   * `GET /v1/operations/{id}`; needs any key.
   * Refuses with not_found.
   */
  getOperation(id: string, options: CallOptions = {}): Promise<Operation> {
    return this.call({ method: "GET", path: `/v1/operations/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * List all plans.
   *
   * `GET /v1/plans`; needs scope admin.
   */
  listPlans(options: CallOptions = {}): Promise<readonly PlanInfo[]> {
    return this.call({ method: "GET", path: "/v1/plans", answer: "json" }, options);
  }

  /**
   * Create a plan; what is left out is taken from the default plan.
   *
   * `POST /v1/plans`; needs scope admin.
   * Refuses with invalid_json, invalid_body, name_taken.
   */
  createPlan(body: CreatePlanRequest, options: CallOptions = {}): Promise<PlanInfo> {
    return this.call({ method: "POST", path: "/v1/plans", json: body, answer: "json" }, options);
  }

  /**
   * List the tenant's pools.
   *
   * `GET /v1/pools`; needs scope pool:write or machine:read.
   */
  listPools(options: CallOptions = {}): Promise<readonly PoolInfo[]> {
    return this.call({ method: "GET", path: "/v1/pools", answer: "json" }, options);
  }

  /**
   * Keep machines started and waiting.
   *
   * `POST /v1/pools`; needs scope pool:write.
   * Refuses with invalid_json, invalid_request, invalid_body, quota_exceeded.
   */
  createPool(body: PoolConfig, options: CallOptions = {}): Promise<PoolInfo> {
    return this.call({ method: "POST", path: "/v1/pools", json: body, answer: "json" }, options);
  }

  /**
   * Take a waiting machine out of a pool.
   *
   * `POST /v1/pools/{id}/claim`; needs scope machine:create.
   * Refuses with not_found, no_capacity, quota_exceeded.
   */
  claimMachine(id: string, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call({ method: "POST", path: `/v1/pools/${segment(id)}/claim`, answer: "json" }, options);
  }

  /**
   * List volume records.
   *
   * `GET /v1/volumes`; needs any key.
   */
  listVolumes(options: CallOptions = {}): Promise<readonly VolumeInfo[]> {
    return this.call({ method: "GET", path: "/v1/volumes", answer: "json" }, options);
  }

  /**
   * Create a volume record; no storage stands behind it.
   *
   * `POST /v1/volumes`; needs any key.
   * Refuses with invalid_json, invalid_body, name_taken.
   */
  createVolume(body: CreateVolumeRequest, options: CallOptions = {}): Promise<VolumeInfo> {
    return this.call({ method: "POST", path: "/v1/volumes", json: body, answer: "json" }, options);
  }

  /**
   * Read a volume record.
   *
   * `GET /v1/volumes/{id}`; needs any key.
   * Refuses with not_found.
   */
  getVolume(id: string, options: CallOptions = {}): Promise<VolumeInfo> {
    return this.call({ method: "GET", path: `/v1/volumes/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * Delete a volume record.
   *
   * `DELETE /v1/volumes/{id}`; needs any key.
   * Refuses with not_found.
   */
  deleteVolume(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/volumes/${segment(id)}`, answer: "empty" }, options);
  }

  /**
   * List all tenants.
   *
   * `GET /v1/tenants`; needs scope admin.
   */
  listTenants(options: CallOptions = {}): Promise<readonly TenantInfo[]> {
    return this.call({ method: "GET", path: "/v1/tenants", answer: "json" }, options);
  }

  /**
   * Create a tenant.
   *
   * `POST /v1/tenants`; needs scope admin.
   * Refuses with invalid_json, invalid_request, invalid_body, name_taken.
   */
  createTenant(body: CreateTenantRequest, options: CallOptions = {}): Promise<TenantInfo> {
    return this.call({ method: "POST", path: "/v1/tenants", json: body, answer: "json" }, options);
  }

  /**
   * Read one tenant.
   *
   * `GET /v1/tenants/{id}`; needs scope admin.
   * Refuses with not_found.
   */
  getTenant(id: string, options: CallOptions = {}): Promise<TenantInfo> {
    return this.call({ method: "GET", path: `/v1/tenants/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * Change a tenant's plan, status or ceilings.
   *
   * `PATCH /v1/tenants/{id}`; needs scope admin.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found.
   */
  updateTenant(id: string, body: UpdateTenantRequest, options: CallOptions = {}): Promise<TenantInfo> {
    return this.call({ method: "PATCH", path: `/v1/tenants/${segment(id)}`, json: body, answer: "json" }, options);
  }

  /**
   * Answer 402 to every call of the tenant.
   *
   * `POST /v1/tenants/{id}/suspend`; needs scope admin.
   * Refuses with not_found.
   */
  suspendTenant(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "POST", path: `/v1/tenants/${segment(id)}/suspend`, answer: "empty" }, options);
  }

  /**
   * End a tenant's suspension.
   *
   * `POST /v1/tenants/{id}/reactivate`; needs scope admin.
   * Refuses with not_found.
   */
  reactivateTenant(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "POST", path: `/v1/tenants/${segment(id)}/reactivate`, answer: "empty" }, options);
  }
}
