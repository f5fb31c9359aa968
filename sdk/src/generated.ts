/**
 * Printed by scripts/generate-sdk.ts from the contract; not edited by hand: change contract/src and run
 * `npm run golden`.
 * One method for each endpoint, to which client.ts gives the transport, and the shapes of requests and answers.
 */
import { type ApiCall, type BytesBody, type CallOptions, rest, segment } from "./call.ts";

export abstract class Methods {
  protected abstract call<T>(call: ApiCall, options: CallOptions<unknown>): Promise<T>;
  protected abstract openSocket(path: string, options: CallOptions<unknown>): WebSocket;

  /**
   * Counts and uptime of the cluster.
   *
   * `GET /health`; needs no key.
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
   * Refuses with conflict.
   */
  getAccount(options: CallOptions = {}): Promise<AccountInfo> {
    return this.call({ method: "GET", path: "/v1/account", answer: "json" }, options);
  }

  /**
   * The key's owner and permissions.
   *
   * `GET /v1/me`; needs any key.
   */
  getCaller(options: CallOptions = {}): Promise<CallerInfo> {
    return this.call({ method: "GET", path: "/v1/me", answer: "json" }, options);
  }

  /**
   * Every tenant's metered usage and cost of the current month.
   *
   * `cost` is null for a tenant that costs more than 2^53 micros, which no JSON number holds exactly.
   *
   * `GET /v1/billing/meters`; needs scope admin.
   * Refuses with invalid_body.
   */
  listMeters(options: CallOptions<PageQuery> = {}): Promise<readonly TenantMeter[]> {
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
   * List the tenant's invoices, one for each month since it was made.
   *
   * `GET /v1/billing/invoices`; needs scope billing:read.
   * Refuses with conflict, invalid_body, not_found.
   */
  listInvoices(options: CallOptions<TenantPageQuery> = {}): Promise<readonly InvoiceInfo[]> {
    return this.call({ method: "GET", path: "/v1/billing/invoices", answer: "json" }, options);
  }

  /**
   * Read the invoice of a month, with its lines.
   *
   * `GET /v1/billing/invoices/{id}`; needs scope billing:read.
   * Refuses with conflict, not_found, invalid_request, invalid_body.
   */
  getInvoice(id: string, options: CallOptions<GetInvoiceQuery> = {}): Promise<Invoice> {
    return this.call({ method: "GET", path: `/v1/billing/invoices/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * List the intervals that an invoice was computed from, in the order in which they were recorded.
   *
   * 1000 at once without a limit, fewer if their labels are long: the page after the last interval is empty. A final
   * invoice lists them as it knew them; the sum of quantity × milliseconds is exact.
   *
   * `GET /v1/billing/invoices/{id}/intervals`; needs scope billing:read.
   * Refuses with not_found, invalid_body.
   */
  listInvoiceIntervals(
    id: string,
    options: CallOptions<ListInvoiceIntervalsQuery> = {},
  ): Promise<readonly InvoiceInterval[]> {
    return this.call({ method: "GET", path: `/v1/billing/invoices/${segment(id)}/intervals`, answer: "json" }, options);
  }

  /**
   * Divide the lines of an invoice over machines, API keys or the values of a label.
   *
   * The price of a line is rounded down once. In the order of their names its groups get the differences of the
   * rounded running sums, so amounts and prices of the groups add up to the line. Labels and keys are those of the
   * start of each run.
   *
   * `GET /v1/billing/invoices/{id}/costs`; needs scope billing:read.
   * Refuses with conflict, not_found, invalid_request, invalid_body.
   */
  listInvoiceCosts(id: string, options: CallOptions<ListInvoiceCostsQuery> = {}): Promise<readonly InvoiceCost[]> {
    return this.call({ method: "GET", path: `/v1/billing/invoices/${segment(id)}/costs`, answer: "json" }, options);
  }

  /**
   * Compare what a month cost each tenant of a plan with what it would cost at other prices.
   *
   * Changes nothing. Prices that are not given are those of the plan's newest rate, which may be in the future.
   *
   * `GET /v1/billing/plans/{id}/diff`; needs scope admin.
   * Refuses with invalid_request, invalid_body, not_found.
   */
  diffPlan(id: string, options: CallOptions<DiffPlanQuery> = {}): Promise<PlanDiff> {
    return this.call({ method: "GET", path: `/v1/billing/plans/${segment(id)}/diff`, answer: "json" }, options);
  }

  /**
   * List what changed the tenant's balance, in order, then what is held of its budget.
   *
   * A transaction of kind `hold` is not posted: it is what a running machine may still cost until it is checked
   * again. It is there while the machine runs, if the plan's budget blocks or stops.
   *
   * `GET /v1/billing/ledger`; needs scope billing:read.
   * Refuses with invalid_body.
   */
  listLedger(options: CallOptions<TenantPageQuery> = {}): Promise<readonly LedgerTransaction[]> {
    return this.call({ method: "GET", path: "/v1/billing/ledger", answer: "json" }, options);
  }

  /**
   * Give a tenant credit, or correct its balance.
   *
   * `POST /v1/billing/ledger`; needs scope admin.
   * Refuses with invalid_json, invalid_body, invalid_request, not_found.
   */
  postToLedger(body: PostToLedgerRequest, options: CallOptions = {}): Promise<LedgerTransaction> {
    return this.call({ method: "POST", path: "/v1/billing/ledger", json: body, answer: "json" }, options);
  }

  /**
   * List the tenant's API keys, without their secrets.
   *
   * `GET /v1/apikeys`; needs scope keys:write.
   * Refuses with missing_scope, invalid_body.
   */
  listApiKeys(options: CallOptions<TenantPageQuery> = {}): Promise<readonly ApiKeyInfo[]> {
    return this.call({ method: "GET", path: "/v1/apikeys", answer: "json" }, options);
  }

  /**
   * Create an API key; its secret is in this answer only.
   *
   * `POST /v1/apikeys`; needs scope keys:write.
   * Refuses with invalid_json, invalid_request, invalid_body, missing_scope, not_found, quota_exceeded.
   */
  createApiKey(body?: CreateApiKeyRequest, options: CallOptions = {}): Promise<ApiKeyCreated> {
    return this.call({ method: "POST", path: "/v1/apikeys", json: body, answer: "json" }, options);
  }

  /**
   * Revoke an API key, immediately on every server; connections opened with it end.
   *
   * Needs a key that could have made the revoked one, or the key itself. Keys made with it stay valid unless
   * `cascade` is set: their `createdBy` names it.
   *
   * `DELETE /v1/apikeys/{id}`; needs scope keys:write.
   * Refuses with missing_scope, invalid_body, not_found.
   */
  deleteApiKey(id: string, options: CallOptions<DeleteApiKeyQuery> = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/apikeys/${segment(id)}`, answer: "empty" }, options);
  }

  /**
   * Make a link that signs one browser in to the console, as the calling key; valid once, for ten minutes.
   *
   * `POST /v1/console/links`; needs any key.
   */
  createConsoleLink(options: CallOptions = {}): Promise<ConsoleLink> {
    return this.call({ method: "POST", path: "/v1/console/links", answer: "json" }, options);
  }

  /**
   * Sign a browser in with the token of a one-time link.
   *
   * The answer sets an `HttpOnly` cookie, which counts only in requests of the console's own pages.
   *
   * `POST /v1/console/sessions/link`; needs no key.
   * Refuses with invalid_json, invalid_request, invalid_body, unknown_key.
   */
  openConsoleLink(body: OpenConsoleLinkRequest, options: CallOptions = {}): Promise<ConsoleSession> {
    return this.call({ method: "POST", path: "/v1/console/sessions/link", json: body, answer: "json" }, options);
  }

  /**
   * Sign a browser in as the calling key.
   *
   * The answer sets an `HttpOnly` cookie, which counts only in requests of the console's own pages.
   *
   * `POST /v1/console/sessions`; needs any key.
   * Refuses with invalid_request.
   */
  createConsoleSession(options: CallOptions = {}): Promise<ConsoleSession> {
    return this.call({ method: "POST", path: "/v1/console/sessions", answer: "json" }, options);
  }

  /**
   * Sign the calling browser out; what it has open ends.
   *
   * `DELETE /v1/console/session`; needs any key.
   */
  deleteConsoleSession(options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: "/v1/console/session", answer: "empty" }, options);
  }

  /**
   * List the calls of the tenant's keys that changed something or were refused, oldest first unless asked otherwise.
   *
   * 100 at once without a limit. The cursor is the `sequence` of the last row that was read; with `all` its `at`,
   * `tenantId` and `sequence`, joined by commas. With `all` a row may appear up to seconds after its time.
   *
   * `GET /v1/audit`; needs scope audit:read.
   * Refuses with invalid_body, invalid_request.
   */
  listAudit(options: CallOptions<ListAuditQuery> = {}): Promise<readonly AuditEntry[]> {
    return this.call({ method: "GET", path: "/v1/audit", answer: "json" }, options);
  }

  /**
   * Read the end of the tenant's chain.
   *
   * `GET /v1/audit/chain`; needs scope audit:read.
   * Refuses with invalid_body.
   */
  getAuditChain(options: CallOptions<GetAuditChainQuery> = {}): Promise<AuditChain> {
    return this.call({ method: "GET", path: "/v1/audit/chain", answer: "json" }, options);
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
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, name_taken, quota_exceeded,
   * image_wrong_platform.
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
   * Change what may be changed of a machine; fields that are absent stay as they are.
   *
   * A move that has begun is not affected.
   *
   * `PATCH /v1/machines/{id}`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found.
   */
  updateMachine(id: string, body: UpdateMachineRequest, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call({ method: "PATCH", path: `/v1/machines/${segment(id)}`, json: body, answer: "json" }, options);
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
   * Refuses with not_found, conflict, quota_exceeded, no_capacity, image_not_found, image_refused,
   * image_not_allowed, image_wrong_platform, image_not_cached, start_failed, unavailable.
   */
  startMachine(id: string, options: CallOptions<StartMachineQuery> = {}): Promise<MachineInfo> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/start`, answer: "json" }, options);
  }

  /**
   * Stop a machine; its disk is kept.
   *
   * With `keepMemory` the machine is suspended: its memory is kept on its node, and a start continues its processes.
   * A machine that cannot be suspended runs on. Commands and terminals in it end. A stop without `keepMemory` of a
   * suspended machine discards its memory.
   *
   * `POST /v1/machines/{id}/stop`; needs scope machine:create.
   * Refuses with not_found, conflict, unavailable, no_space.
   */
  stopMachine(id: string, options: CallOptions<StopMachineQuery> = {}): Promise<MachineInfo> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/stop`, answer: "json" }, options);
  }

  /**
   * Move a machine, with its disk, log and memory, to another node.
   *
   * Answers immediately with an operation. What happens to a running machine is its `disruption`. A suspended or
   * stopped one stays so. A start meanwhile waits for the end of the move. A move that fails or is canceled leaves
   * the machine where it was. The machine may be of any tenant.
   *
   * `POST /v1/machines/{id}/move`; needs scope admin.
   * Refuses with invalid_json, invalid_body, not_found, conflict, no_capacity, rate_limited, unavailable.
   */
  moveMachine(id: string, body?: MoveMachineRequest, options: CallOptions = {}): Promise<Operation> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/move`, json: body, answer: "json" }, options);
  }

  /**
   * The machine's timeline, oldest first.
   *
   * Every command is counted, and priced at zero, in the machine's usage. Here commands that end close together
   * share one line, so that the timeline of a busy machine stays readable. Without limit and cursor: the newest
   * 1000.
   *
   * `GET /v1/machines/{id}/events`; needs scope machine:read.
   * Refuses with invalid_body, not_found.
   */
  listMachineEvents(id: string, options: CallOptions<ListMachineEventsQuery> = {}): Promise<readonly EventInfo[]> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/events`, answer: "json" }, options);
  }

  /**
   * One machine's totals and cost over a time range; readable for 30 days after deletion.
   *
   * `GET /v1/machines/{id}/usage`; needs scope machine:read or usage:read.
   * Refuses with not_found, invalid_request.
   */
  getMachineUsage(id: string, options: CallOptions<GetMachineUsageQuery> = {}): Promise<MachineUsageResponse> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/usage`, answer: "json" }, options);
  }

  /**
   * The output of the machine's workload.
   *
   * The last lines that the image's command, or the machine's own, has written to stdout and stderr, also while the
   * machine is stopped; the last 8 to 16 MiB are kept. With `follow`, new lines are sent as well, across stops and
   * starts, until the machine is deleted. A line of the node's own, such as how the workload ended, begins with
   * `flotilla: `. With `format=json` a line is a record: `timestamp`, `level`, `message`, `source`. `from`, `to`,
   * `after` and `before` choose a part of the log, `search` its lines with a text, and `format=plain` is a file of
   * lines with their times. With `cursors` each record has a `cursor`, which is a place before it for `after` and
   * `before`. Then records of a `cursor` alone come first, last and at times between: `edge` says whether it is the
   * `start` of the log, where earlier lines were removed (`trimmed`), or its present `end`; `isCut`, that lines
   * before it were removed which the request asked for. Such a reader continues after the last cursor without losing
   * or repeating a line.
   *
   * `GET /v1/machines/{id}/logs`; needs scope machine:read.
   * Refuses with not_found, invalid_request, unavailable.
   */
  listMachineLogs(id: string, options: CallOptions<LogsQuery> = {}): Promise<Response> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/logs`, answer: "stream" }, options);
  }

  /**
   * Make the machine's share link; an earlier one stops working.
   *
   * `POST /v1/machines/{id}/share`; needs scope machine:create and machine:exec.
   * Refuses with not_found.
   */
  createShare(id: string, options: CallOptions = {}): Promise<ShareInfo> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/share`, answer: "json" }, options);
  }

  /**
   * Revoke the machine's share link immediately.
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
   * List the tenant's events of the last 30 days, in the order in which they were recorded.
   *
   * To follow events, ask again with the cursor of the answer (`x-cursor`), or ask once with `follow=true` for
   * Server-Sent Events: each event's `id` is its cursor and its `data` the event as JSON, and a reader that connects
   * again with the header `Last-Event-ID` continues after it; an `id` alone moves the reader past events that the
   * filter left out. With `changes=true` events named `changed` come between them, without an `id`: their `data` is
   * `{"kind": "operation", "id": "op-…"}` when an operation of the tenant has begun, made a step or ended, `app`
   * when a rollout or an instance has, `node` when a node has another state (for admins), and `audit` when calls
   * were recorded (with audit:read). A reader that connects again reads these things again. The last event of a
   * stream that the server ends is an `error` with the reason. Events that are recorded at the same time appear
   * together and in one order for all readers. With `order=desc` the newest come first, and the cursor of an event
   * is followed by older ones. 100 at once without a limit.
   *
   * `GET /v1/events`; needs scope machine:read.
   * Refuses with invalid_body.
   */
  listEvents(options: CallOptions<ListEventsQuery> = {}): Promise<readonly TenantEvent[]> {
    return this.call({ method: "GET", path: "/v1/events", answer: "json" }, options);
  }

  /**
   * List the tenant's webhooks.
   *
   * `GET /v1/webhooks`; needs scope webhook:write.
   * Refuses with invalid_body.
   */
  listWebhooks(options: CallOptions<PageQuery> = {}): Promise<readonly WebhookInfo[]> {
    return this.call({ method: "GET", path: "/v1/webhooks", answer: "json" }, options);
  }

  /**
   * Create a webhook; its secret is in this answer only.
   *
   * Receives the tenant's events from now on, as `POST` with the headers `webhook-id`, `webhook-timestamp` and
   * `webhook-signature`. Any 2xx accepts an event; everything else is tried again. docs/webhooks.md has the details.
   *
   * `POST /v1/webhooks`; needs scope webhook:write and machine:read.
   * Refuses with invalid_json, invalid_request, invalid_body, quota_exceeded.
   */
  createWebhook(body: CreateWebhookRequest, options: CallOptions = {}): Promise<WebhookCreated> {
    return this.call({ method: "POST", path: "/v1/webhooks", json: body, answer: "json" }, options);
  }

  /**
   * Read one webhook.
   *
   * `GET /v1/webhooks/{id}`; needs scope webhook:write.
   * Refuses with not_found.
   */
  getWebhook(id: string, options: CallOptions = {}): Promise<WebhookInfo> {
    return this.call({ method: "GET", path: `/v1/webhooks/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * Change a webhook, or enable it again.
   *
   * Omitted fields keep their value; null clears description and types.
   *
   * `PATCH /v1/webhooks/{id}`; needs scope webhook:write and machine:read.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found.
   */
  updateWebhook(id: string, body: UpdateWebhookRequest, options: CallOptions = {}): Promise<WebhookInfo> {
    return this.call({ method: "PATCH", path: `/v1/webhooks/${segment(id)}`, json: body, answer: "json" }, options);
  }

  /**
   * Delete a webhook, with its deliveries.
   *
   * `DELETE /v1/webhooks/{id}`; needs scope webhook:write.
   * Refuses with not_found.
   */
  deleteWebhook(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/webhooks/${segment(id)}`, answer: "empty" }, options);
  }

  /**
   * Give a webhook a new secret; the previous one signs as well for a time.
   *
   * `POST /v1/webhooks/{id}/secret`; needs scope webhook:write.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found.
   */
  rotateWebhookSecret(id: string, body?: RotateSecretRequest, options: CallOptions = {}): Promise<WebhookSecret> {
    return this.call(
      { method: "POST", path: `/v1/webhooks/${segment(id)}/secret`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Send an event of type webhook.test.
   *
   * The list of deliveries shows its outcome.
   *
   * `POST /v1/webhooks/{id}/test`; needs scope webhook:write.
   * Refuses with not_found, conflict.
   */
  testWebhook(id: string, options: CallOptions = {}): Promise<WebhookDelivery> {
    return this.call({ method: "POST", path: `/v1/webhooks/${segment(id)}/test`, answer: "json" }, options);
  }

  /**
   * Deliver all events after a cursor again.
   *
   * `POST /v1/webhooks/{id}/replay`; needs scope webhook:write and machine:read.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict.
   */
  replayWebhook(id: string, body?: ReplayRequest, options: CallOptions = {}): Promise<WebhookInfo> {
    return this.call(
      { method: "POST", path: `/v1/webhooks/${segment(id)}/replay`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * List the deliveries of a webhook, newest first.
   *
   * Those that wait, and the last 1000 that ended. 100 at once without a limit.
   *
   * `GET /v1/webhooks/{id}/deliveries`; needs scope webhook:write and machine:read.
   * Refuses with invalid_body, not_found.
   */
  listWebhookDeliveries(
    id: string,
    options: CallOptions<ListWebhookDeliveriesQuery> = {},
  ): Promise<readonly WebhookDelivery[]> {
    return this.call({ method: "GET", path: `/v1/webhooks/${segment(id)}/deliveries`, answer: "json" }, options);
  }

  /**
   * Deliver one event again, immediately.
   *
   * `POST /v1/webhooks/{id}/deliveries/{event}/redeliver`; needs scope webhook:write and machine:read.
   * Refuses with not_found, conflict.
   */
  redeliverWebhook(id: string, event: string, options: CallOptions = {}): Promise<WebhookDelivery> {
    return this.call(
      { method: "POST", path: `/v1/webhooks/${segment(id)}/deliveries/${segment(event)}/redeliver`, answer: "json" },
      options,
    );
  }

  /**
   * Run a command; starts the machine if it is stopped.
   *
   * With `stream: true` the answer is the stream of `exec/stream`.
   *
   * `POST /v1/machines/{id}/exec`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded, no_capacity,
   * image_not_found, image_refused, image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable,
   * unavailable, start_failed.
   */
  exec(id: string, body: MachineCommandRequest, options: CallOptions<ExecQuery> = {}): Promise<MachineExecResponse> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/exec`, json: body, answer: "json" }, options);
  }

  /**
   * Run a command and stream its output as Server-Sent Events.
   *
   * Events `stdout` and `stderr` with text, then `exit` with `{"exitCode":N}`, or `error` with a sentence when it is
   * unknown how the command ended. Each `\n` of the text begins another `data:` line, and a carriage return is kept
   * in the data. Readers that follow the standard end lines there: for them `output=text` turns it into a line
   * break, and with `output=b64` the data is base64, byte for byte. With `Accept:
   * application/vnd.flotilla.exec-frames` the stream is binary, byte for byte and without a conversion: frames of a
   * kind (one byte), three zero bytes, the payload's length (four bytes, big endian) and the payload. Kinds: 0
   * keep-alive, 1 stdout, 2 stderr, 3 exit with `{"exitCode":N}`, 4 error with `{"code":"…","message":"…"}`; skip
   * others.
   *
   * `POST /v1/machines/{id}/exec/stream`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded, no_capacity,
   * image_not_found, image_refused, image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable,
   * unavailable, start_failed.
   */
  execStream(id: string, body: MachineCommandRequest, options: CallOptions<ExecQuery> = {}): Promise<Response> {
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
   * image_not_found, image_refused, image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable,
   * unavailable, start_failed.
   */
  runCode(id: string, body: MachineCodeRequest, options: CallOptions = {}): Promise<MachineExecResponse> {
    return this.call({ method: "POST", path: `/v1/machines/${segment(id)}/code`, json: body, answer: "json" }, options);
  }

  /**
   * An interactive terminal over WebSocket.
   *
   * The program ends with the connection. With `terminal` it is kept instead for a minute after a connection that
   * was lost, and is continued with `offset`, without losing output or input; its messages are described in
   * docs/terminals.md.
   *
   * `GET /v1/machines/{id}/exec/interactive`; needs scope machine:exec.
   * Refuses with invalid_request, invalid_body, not_found, conflict, quota_exceeded, no_capacity, image_not_found,
   * image_refused, image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable, unavailable,
   * start_failed.
   */
  openTerminal(id: string, options: CallOptions<OpenTerminalQuery> = {}): WebSocket {
    return this.openSocket(`/v1/machines/${segment(id)}/exec/interactive`, options);
  }

  /**
   * Watch a kept terminal over WebSocket.
   *
   * Shows the output of a terminal that was opened with `terminal`, from what is kept of it on. What a reader sends
   * has no effect. A reader that is slow misses output, never slows the terminal, and does not count as use of the
   * machine.
   *
   * `GET /v1/machines/{id}/exec/interactive/{terminal_id}`; needs scope machine:read.
   * Refuses with invalid_request, invalid_body, not_found, unavailable.
   */
  watchTerminal(id: string, terminalId: string, options: CallOptions<WatchTerminalQuery> = {}): WebSocket {
    return this.openSocket(`/v1/machines/${segment(id)}/exec/interactive/${segment(terminalId)}`, options);
  }

  /**
   * List the machine's sessions.
   *
   * `GET /v1/machines/{id}/sessions`; needs scope machine:read.
   * Refuses with invalid_body, not_found.
   */
  listSessions(id: string, options: CallOptions<PageQuery> = {}): Promise<readonly MachineSessionInfo[]> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/sessions`, answer: "json" }, options);
  }

  /**
   * Create a session: a working directory and environment kept between execs.
   *
   * `POST /v1/machines/{id}/sessions`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded.
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
   * The working directory and exported variables after a string command are those of the next one. With `stream:
   * true` the answer is the stream of `exec/stream`.
   *
   * `POST /v1/machines/{id}/sessions/{session_id}/exec`; needs scope machine:exec.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded, no_capacity,
   * image_not_found, image_refused, image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable,
   * unavailable, start_failed.
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
   * Refuses with invalid_request, not_found, conflict, quota_exceeded, no_capacity, image_not_found, image_refused,
   * image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable, unavailable, start_failed,
   * range_not_satisfiable.
   */
  readFile(id: string, options: CallOptions<ReadFileQuery> = {}): Promise<Response> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/files`, answer: "stream" }, options);
  }

  /**
   * Write a file.
   *
   * `POST /v1/machines/{id}/files`; needs scope machine:files.
   * Refuses with invalid_request, not_found, conflict, quota_exceeded, no_capacity, image_not_found, image_refused,
   * image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable, unavailable, start_failed,
   * no_space.
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
   * With `list=true` the answer is JSON, as of `readFile`. Only the bytes are declared here, because generated
   * clients that know one type for an answer would read files as JSON.
   *
   * `GET /v1/machines/{id}/files/{path...}`; needs scope machine:files.
   * Refuses with invalid_request, not_found, conflict, quota_exceeded, no_capacity, image_not_found, image_refused,
   * image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable, unavailable, start_failed,
   * range_not_satisfiable.
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
   * Refuses with invalid_request, not_found, conflict, quota_exceeded, no_capacity, image_not_found, image_refused,
   * image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable, unavailable, start_failed,
   * no_space.
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
   * Refuses with invalid_request, not_found, conflict, quota_exceeded, no_capacity, image_not_found, image_refused,
   * image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable, unavailable, start_failed,
   * no_space.
   */
  postFileAt(id: string, path: string, body: BytesBody, options: CallOptions = {}): Promise<void> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/files/${rest(path)}`, bytes: body, answer: "empty" },
      options,
    );
  }

  /**
   * Remove a file or an empty directory.
   *
   * `DELETE /v1/machines/{id}/files/{path...}`; needs scope machine:files.
   * Refuses with invalid_request, not_found, conflict, quota_exceeded, no_capacity, image_not_found, image_refused,
   * image_not_allowed, image_wrong_platform, image_not_cached, guest_unreachable, unavailable, start_failed.
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
   * The query and the body are forwarded unchanged, and so is the answer, including its status. A WebSocket
   * handshake opens a WebSocket with the guest; only then may the key be in the query, as `access_token`.
   *
   * `GET /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, guest_unreachable, unavailable.
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
   * The query and the body are forwarded unchanged, and so is the answer, including its status. A WebSocket
   * handshake opens a WebSocket with the guest; only then may the key be in the query, as `access_token`.
   *
   * `HEAD /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, guest_unreachable, unavailable.
   */
  connectHead(id: string, port: number, path: string, options: CallOptions = {}): Promise<Response> {
    return this.call(
      { method: "HEAD", path: `/v1/machines/${segment(id)}/connect/${segment(port)}/${rest(path)}`, answer: "stream" },
      options,
    );
  }

  /**
   * Forward a request to a published port; the guest's answer is passed through.
   *
   * The query and the body are forwarded unchanged, and so is the answer, including its status. A WebSocket
   * handshake opens a WebSocket with the guest; only then may the key be in the query, as `access_token`.
   *
   * `POST /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, guest_unreachable, unavailable.
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
   * The query and the body are forwarded unchanged, and so is the answer, including its status. A WebSocket
   * handshake opens a WebSocket with the guest; only then may the key be in the query, as `access_token`.
   *
   * `PUT /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, guest_unreachable, unavailable.
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
   * The query and the body are forwarded unchanged, and so is the answer, including its status. A WebSocket
   * handshake opens a WebSocket with the guest; only then may the key be in the query, as `access_token`.
   *
   * `PATCH /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, guest_unreachable, unavailable.
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
   * The query and the body are forwarded unchanged, and so is the answer, including its status. A WebSocket
   * handshake opens a WebSocket with the guest; only then may the key be in the query, as `access_token`.
   *
   * `DELETE /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, guest_unreachable, unavailable.
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
   * Forward a request to a published port; the guest's answer is passed through.
   *
   * The query and the body are forwarded unchanged, and so is the answer, including its status. A WebSocket
   * handshake opens a WebSocket with the guest; only then may the key be in the query, as `access_token`.
   *
   * `OPTIONS /v1/machines/{id}/connect/{port}/{path...}`; needs scope machine:exec.
   * Refuses with not_found, guest_unreachable, unavailable.
   */
  connectOptions(id: string, port: number, path: string, options: CallOptions = {}): Promise<Response> {
    return this.call(
      {
        method: "OPTIONS",
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
   * Refuses with not_found, invalid_json, invalid_body, quota_exceeded.
   */
  createConnectToken(id: string, body?: CreateConnectTokenRequest, options: CallOptions = {}): Promise<ConnectToken> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/connect-token`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Make a machine that continues as a running, branchable machine is now.
   *
   * `POST /v1/machines/{id}/branches`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, name_taken, quota_exceeded,
   * no_capacity, start_failed, unavailable, no_space.
   */
  createBranch(id: string, body: BranchRequest, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/branches`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Make many machines that continue as a running, branchable machine is now, all or none.
   *
   * `POST /v1/machines/{id}/branches/batch`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, name_taken, quota_exceeded,
   * no_capacity, start_failed, unavailable, no_space.
   */
  createBranches(id: string, body: BranchBatchRequest, options: CallOptions = {}): Promise<MadeBranches> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/branches/batch`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Branch a machine for a task, and lease the branch.
   *
   * The branch has the files, `/run/smol-task.json` and `/run/smol-secrets.json` before the answer. The same
   * `leaseId` asks for the same lease.
   *
   * `POST /v1/machines/{id}/assign`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, name_taken, quota_exceeded,
   * no_capacity, start_failed, unavailable, no_space, guest_unreachable.
   */
  assignBranch(id: string, body: AssignRequest, options: CallOptions = {}): Promise<AssignResponse> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/assign`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Give a branch the place of its source: name, url, ports and share link.
   *
   * The source is deleted, or kept under another name, which the answer has. Repeated, the answer is the same: what
   * was done.
   *
   * `POST /v1/machines/{id}/adopt`; needs scope machine:create and machine:delete.
   * Refuses with invalid_json, invalid_body, not_found, conflict.
   */
  adoptMachine(id: string, body?: AdoptRequest, options: CallOptions = {}): Promise<AdoptResponse> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/adopt`, json: body, answer: "json" },
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
   * Extend a lease.
   *
   * `POST /v1/leases/{id}/heartbeat`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found, not_owner, conflict.
   */
  heartbeatLease(id: string, body: HeartbeatLeaseRequest, options: CallOptions = {}): Promise<LeaseInfo> {
    return this.call(
      { method: "POST", path: `/v1/leases/${segment(id)}/heartbeat`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * End a lease and delete its branch.
   *
   * `POST /v1/leases/{id}/complete`; needs scope machine:create.
   * Refuses with invalid_json, invalid_body, not_found, not_owner, conflict.
   */
  completeLease(id: string, body: CompleteLeaseRequest, options: CallOptions = {}): Promise<LeaseInfo> {
    return this.call(
      { method: "POST", path: `/v1/leases/${segment(id)}/complete`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Keep an instant of a machine.
   *
   * Its disk, and while it runs its memory too, unless the request says otherwise. Answers when the checkpoint is
   * made.
   *
   * `POST /v1/machines/{id}/checkpoints`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, name_taken, quota_exceeded,
   * unavailable, no_space.
   */
  createCheckpoint(id: string, body?: CheckpointRequest, options: CallOptions = {}): Promise<CheckpointInfo> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/checkpoints`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * List the checkpoints of a machine, oldest first.
   *
   * `GET /v1/machines/{id}/checkpoints`; needs scope machine:read.
   * Refuses with not_found.
   */
  listMachineCheckpoints(id: string, options: CallOptions = {}): Promise<readonly CheckpointInfo[]> {
    return this.call({ method: "GET", path: `/v1/machines/${segment(id)}/checkpoints`, answer: "json" }, options);
  }

  /**
   * List the tenant's checkpoints, also of machines that are gone, oldest first.
   *
   * `GET /v1/checkpoints`; needs scope machine:read.
   * Refuses with invalid_body.
   */
  listCheckpoints(options: CallOptions<PageQuery> = {}): Promise<readonly CheckpointInfo[]> {
    return this.call({ method: "GET", path: "/v1/checkpoints", answer: "json" }, options);
  }

  /**
   * Read a checkpoint, by its id or its name.
   *
   * `GET /v1/checkpoints/{id}`; needs scope machine:read.
   * Refuses with not_found.
   */
  getCheckpoint(id: string, options: CallOptions = {}): Promise<CheckpointInfo> {
    return this.call({ method: "GET", path: `/v1/checkpoints/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * Delete a checkpoint; machines that were made from it stay.
   *
   * `DELETE /v1/checkpoints/{id}`; needs scope machine:delete.
   * Refuses with not_found.
   */
  deleteCheckpoint(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/checkpoints/${segment(id)}`, answer: "empty" }, options);
  }

  /**
   * Make a stopped machine that has the disk of a checkpoint.
   *
   * `POST /v1/checkpoints/{id}/restore`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, name_taken, quota_exceeded.
   */
  restoreCheckpoint(id: string, body: RestoreCheckpointRequest, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call(
      { method: "POST", path: `/v1/checkpoints/${segment(id)}/restore`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Make machines that continue as a checkpoint, or boot where it has no memory, all or none.
   *
   * `POST /v1/checkpoints/{id}/branches`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, name_taken, quota_exceeded,
   * no_capacity, start_failed, unavailable, no_space.
   */
  branchCheckpoint(id: string, body: CheckpointBranchesRequest, options: CallOptions = {}): Promise<MadeBranches> {
    return this.call(
      { method: "POST", path: `/v1/checkpoints/${segment(id)}/branches`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * The images that each node has cached.
   *
   * `GET /v1/images`; needs scope machine:read.
   * Refuses with invalid_body, unavailable.
   */
  listImages(options: CallOptions<PageQuery> = {}): Promise<readonly ImageInfo[]> {
    return this.call({ method: "GET", path: "/v1/images", answer: "json" }, options);
  }

  /**
   * Fetch an image to one node or to all, before a machine needs it.
   *
   * Answers immediately with an operation that has a step for each node. The image's registry is asked what the name
   * means now, even by a node that has the image.
   *
   * `POST /v1/images/pull`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, unavailable.
   */
  pullImage(body: PullImageRequest, options: CallOptions = {}): Promise<Operation> {
    return this.call({ method: "POST", path: "/v1/images/pull", json: body, answer: "json" }, options);
  }

  /**
   * Upload an image to a node as an archive: an OCI layout, a docker archive or a tar of a root file system.
   *
   * `POST /v1/images/import`; needs scope admin.
   * Refuses with invalid_request, invalid_body, not_found, unavailable, no_space.
   */
  importImage(body: BytesBody, options: CallOptions<ImportImageQuery> = {}): Promise<ImageInfo> {
    return this.call({ method: "POST", path: "/v1/images/import", bytes: body, answer: "json" }, options);
  }

  /**
   * Remove a local image from one node or from all.
   *
   * Its space is free at once, unless a machine's disk depends on it, or it was used in the last two minutes: then
   * once it may be removed for others. Images of registries are removed by themselves when room is needed. 503 when
   * a node does not answer: it may still have the image, and a repetition removes it there.
   *
   * `DELETE /v1/images`; needs scope admin.
   * Refuses with invalid_request, invalid_body, not_found, unavailable.
   */
  deleteImage(options: CallOptions<DeleteImageQuery> = {}): Promise<void> {
    return this.call({ method: "DELETE", path: "/v1/images", answer: "empty" }, options);
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
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, unavailable, image_not_found,
   * image_refused, image_not_allowed, image_wrong_platform.
   */
  pullMachineImage(id: string, body: PullMachineImageRequest, options: CallOptions = {}): Promise<ImageInfo> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/images/pull`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * Delete from the registry what no package needs any more.
   *
   * Answers immediately with an operation. It waits until nothing is pushed, and pushes that begin meanwhile wait
   * for it. The server requests one each day. Only of the registry that the server runs itself: another one has its
   * own rules.
   *
   * `POST /v1/registry/collections`; needs scope admin.
   * Refuses with conflict, rate_limited, unavailable.
   */
  collectRegistry(options: CallOptions = {}): Promise<Operation> {
    return this.call({ method: "POST", path: "/v1/registry/collections", answer: "json" }, options);
  }

  /**
   * Package a stopped machine's disk as an artifact of the registry.
   *
   * A start of the machine ends the export. An unchanged disk has the same digest, and only what changed is sent.
   * Answers 202 with the operation when the export takes longer than 30 s; an equal request finds an export that
   * runs.
   *
   * `POST /v1/machines/{id}/export`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict, quota_exceeded, rate_limited,
   * unavailable, no_space.
   */
  exportMachine(
    id: string,
    body?: ExportRequest,
    options: CallOptions<ExportMachineQuery> = {},
  ): Promise<ExportResponse | Operation> {
    return this.call(
      { method: "POST", path: `/v1/machines/${segment(id)}/export`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * List the tenant's packages and those of the library, by name, the newest first.
   *
   * `GET /v1/packages`; needs scope machine:read.
   * Refuses with invalid_body.
   */
  listPackages(options: CallOptions<PageQuery> = {}): Promise<readonly PackageInfo[]> {
    return this.call({ method: "GET", path: "/v1/packages", answer: "json" }, options);
  }

  /**
   * Delete a tag, or with a digest the package and all of its tags.
   *
   * Layers that other packages share stay. Machines that were started from it keep their disks.
   *
   * `DELETE /v1/packages`; needs scope machine:delete.
   * Refuses with invalid_request, invalid_body, not_found, conflict.
   */
  deletePackage(options: CallOptions<DeletePackageQuery> = {}): Promise<void> {
    return this.call({ method: "DELETE", path: "/v1/packages", answer: "empty" }, options);
  }

  /**
   * List how many tags of which packages are kept.
   *
   * `GET /v1/packages/retention`; needs scope machine:read.
   */
  listPackageRetention(options: CallOptions = {}): Promise<readonly PackageRetention[]> {
    return this.call({ method: "GET", path: "/v1/packages/retention", answer: "json" }, options);
  }

  /**
   * Keep only the newest tags of a package; older ones are deleted when a newer one is set.
   *
   * `PUT /v1/packages/retention`; needs scope machine:delete.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found.
   */
  setPackageRetention(body: SetPackageRetentionRequest, options: CallOptions = {}): Promise<PackageRetention> {
    return this.call({ method: "PUT", path: "/v1/packages/retention", json: body, answer: "json" }, options);
  }

  /**
   * Check that a package that was pushed to the registry is there.
   *
   * `POST /v1/registry/machines`; needs scope machine:create.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, conflict.
   */
  registerPackage(body: RegisterPackageRequest, options: CallOptions = {}): Promise<RegisterPackageAnswer> {
    return this.call({ method: "POST", path: "/v1/registry/machines", json: body, answer: "json" }, options);
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
   * Deploy an app, or update the existing one with its strategy.
   *
   * `POST /v1/apps`; needs scope app:write.
   * Refuses with invalid_json, invalid_request, invalid_body, conflict, name_taken, quota_exceeded, image_not_found,
   * image_refused, image_not_allowed, image_wrong_platform, image_not_cached, no_capacity, unavailable, no_space.
   */
  deployApp(body: DeployRequest, options: CallOptions = {}): Promise<AppInfo> {
    return this.call({ method: "POST", path: "/v1/apps", json: body, answer: "json" }, options);
  }

  /**
   * Say what a deploy would do, without doing it.
   *
   * `POST /v1/apps/-/plan`; needs scope app:write.
   * Refuses with invalid_json, invalid_request, invalid_body, conflict, name_taken, quota_exceeded, image_not_found,
   * image_refused, image_not_allowed, image_wrong_platform, image_not_cached, no_capacity, unavailable, no_space.
   */
  planDeploy(body: DeployRequest, options: CallOptions = {}): Promise<DeployPlan> {
    return this.call({ method: "POST", path: "/v1/apps/-/plan", json: body, answer: "json" }, options);
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
   * The lines of all instances in the order of their times; with `format=json` records with `instanceId`. `from`,
   * `to`, `after` and `before` choose a part of the log, `search` its lines with a text, and `format=plain` is a
   * file of lines with their times. With `cursors` each record has a `cursor`, which is a place before it for
   * `after` and `before`. Then records of a `cursor` alone come first, last and at times between: `edge` says
   * whether it is the `start` of the log, where earlier lines were removed (`trimmed`), or its present `end`;
   * `isCut`, that lines before it were removed which the request asked for. Such a reader continues after the last
   * cursor without losing or repeating a line.
   *
   * `GET /v1/apps/{name}/logs`; needs any key.
   * Refuses with invalid_body, invalid_request, not_found, unavailable.
   */
  listAppLogs(name: string, options: CallOptions<LogsQuery> = {}): Promise<Response> {
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
   * Deploy the inputs of an earlier release again, as a new one.
   *
   * `POST /v1/apps/{name}/rollback`; needs scope app:write.
   * Refuses with not_found, conflict, invalid_json, invalid_body, quota_exceeded, no_capacity, unavailable.
   */
  rollbackApp(name: string, body?: RollbackRequest, options: CallOptions = {}): Promise<AppInfo> {
    return this.call(
      { method: "POST", path: `/v1/apps/${segment(name)}/rollback`, json: body, answer: "json" },
      options,
    );
  }

  /**
   * List an app's releases, newest first.
   *
   * `GET /v1/apps/{name}/releases`; needs scope app:read or app:write.
   * Refuses with not_found.
   */
  listReleases(name: string, options: CallOptions = {}): Promise<readonly ReleaseInfo[]> {
    return this.call({ method: "GET", path: `/v1/apps/${segment(name)}/releases`, answer: "json" }, options);
  }

  /**
   * Say why an app is as it is, and what it waits for.
   *
   * `GET /v1/apps/{name}/explain`; needs any key.
   * Refuses with not_found.
   */
  explainApp(name: string, options: CallOptions = {}): Promise<AppExplanation> {
    return this.call({ method: "GET", path: `/v1/apps/${segment(name)}/explain`, answer: "json" }, options);
  }

  /**
   * Make the app's share link; an earlier one stops working.
   *
   * `POST /v1/apps/{name}/share`; needs scope app:write and machine:exec.
   * Refuses with not_found.
   */
  createAppShare(name: string, options: CallOptions = {}): Promise<ShareInfo> {
    return this.call({ method: "POST", path: `/v1/apps/${segment(name)}/share`, answer: "json" }, options);
  }

  /**
   * Revoke the app's share link immediately.
   *
   * `DELETE /v1/apps/{name}/share`; needs scope app:write.
   * Refuses with not_found.
   */
  removeAppShare(name: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/apps/${segment(name)}/share`, answer: "empty" }, options);
  }

  /**
   * Replace all instances with the same specification.
   *
   * `POST /v1/apps/{name}/redeploy`; needs scope app:write.
   * Refuses with not_found, conflict, quota_exceeded, image_not_found, image_refused, image_not_allowed,
   * image_wrong_platform, image_not_cached, no_capacity, unavailable, no_space.
   */
  redeployApp(name: string, options: CallOptions = {}): Promise<AppInfo> {
    return this.call({ method: "POST", path: `/v1/apps/${segment(name)}/redeploy`, answer: "json" }, options);
  }

  /**
   * Set the number of replicas.
   *
   * `POST /v1/apps/{name}/scale`; needs scope app:write.
   * Refuses with invalid_json, invalid_body, not_found, conflict, quota_exceeded, no_capacity.
   */
  scaleApp(name: string, body: ScaleRequest, options: CallOptions = {}): Promise<AppInfo> {
    return this.call({ method: "POST", path: `/v1/apps/${segment(name)}/scale`, json: body, answer: "json" }, options);
  }

  /**
   * List all nodes.
   *
   * `GET /v1/nodes`; needs scope admin.
   * Refuses with invalid_body.
   */
  listNodes(options: CallOptions<PageQuery> = {}): Promise<readonly NodeInfo[]> {
    return this.call({ method: "GET", path: "/v1/nodes", answer: "json" }, options);
  }

  /**
   * Register a node, or report that a known node is back.
   *
   * `POST /v1/nodes/register`; needs a join token.
   * Refuses with invalid_json, invalid_body, conflict, link_version, unavailable.
   */
  registerNode(body: RegisterNodeRequest, options: CallOptions = {}): Promise<RegisteredNode> {
    return this.call({ method: "POST", path: "/v1/nodes/register", json: body, answer: "json" }, options);
  }

  /**
   * Revoke a node's credential; the node's next call fails.
   *
   * `DELETE /v1/nodes/{id}/credential`; needs scope admin.
   * Refuses with not_found.
   */
  revokeNodeCredential(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/nodes/${segment(id)}/credential`, answer: "empty" }, options);
  }

  /**
   * Remove a node that leaves the fleet for good.
   *
   * Its row, its credential and what it has reported are removed, its connections end, and join tokens that were
   * made before do not admit it again. It is refused while the node has the disk of a machine, and names these
   * machines, and while the node is `ready` or `draining`: drain it first. Deleted machines whose deletion an
   * unreachable node has not confirmed do not keep it; their disks are then still on the host.
   *
   * `DELETE /v1/nodes/{id}`; needs scope admin.
   * Refuses with not_found, conflict.
   */
  decommissionNode(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/nodes/${segment(id)}`, answer: "empty" }, options);
  }

  /**
   * Place no new machines on a node.
   *
   * Machines that are on the node keep running, stop and start as before. It stays so, also across restarts, until
   * the node is uncordoned.
   *
   * `POST /v1/nodes/{id}/cordon`; needs scope admin.
   * Refuses with not_found.
   */
  cordonNode(id: string, options: CallOptions = {}): Promise<NodeInfo> {
    return this.call({ method: "POST", path: `/v1/nodes/${segment(id)}/cordon`, answer: "json" }, options);
  }

  /**
   * Expect a node to be away, because an operator works on it.
   *
   * The node is cordoned as well. Machines that are there keep running and start as before. When the node stops
   * reporting, its machines say that it is under maintenance, and no warning is written. It stays so, also across
   * restarts, until the node is uncordoned.
   *
   * `POST /v1/nodes/{id}/maintenance`; needs scope admin.
   * Refuses with not_found.
   */
  maintainNode(id: string, options: CallOptions = {}): Promise<NodeInfo> {
    return this.call({ method: "POST", path: `/v1/nodes/${segment(id)}/maintenance`, answer: "json" }, options);
  }

  /**
   * Place new machines on a node again, and end its maintenance.
   *
   * `POST /v1/nodes/{id}/uncordon`; needs scope admin.
   * Refuses with not_found.
   */
  uncordonNode(id: string, options: CallOptions = {}): Promise<NodeInfo> {
    return this.call({ method: "POST", path: `/v1/nodes/${segment(id)}/uncordon`, answer: "json" }, options);
  }

  /**
   * Move all machines of a node to other nodes, and start nothing more on it.
   *
   * Answers immediately; the operation shows the progress. Each machine is moved with its disk by an operation, two
   * at a time: a running one is stopped, moved and started again, a stopped one stays stopped. A machine that no
   * other node admits stays: its disk is kept there, and if it still runs after `deadlineSeconds` (600) it is
   * stopped. The node is `drained` when no machine runs there; the last step says which disks it still has, and why.
   * It is `ready` again when its agent registers after that.
   *
   * `POST /v1/nodes/{id}/drain`; needs scope admin.
   * Refuses with not_found, invalid_json, invalid_body, conflict, rate_limited, unavailable.
   */
  drainNode(id: string, body?: DrainNodeRequest, options: CallOptions = {}): Promise<DrainNodeAnswer> {
    return this.call({ method: "POST", path: `/v1/nodes/${segment(id)}/drain`, json: body, answer: "json" }, options);
  }

  /**
   * What a drain of the node would move and where, what would stay and why, and how long it would take.
   *
   * Nothing is changed or reserved, so a later drain may choose other nodes.
   *
   * `GET /v1/nodes/{id}/drain`; needs scope admin.
   * Refuses with not_found, unavailable.
   */
  planDrain(id: string, options: CallOptions = {}): Promise<DrainPlan> {
    return this.call({ method: "GET", path: `/v1/nodes/${segment(id)}/drain`, answer: "json" }, options);
  }

  /**
   * End the drain of a node, so that machines start on it again.
   *
   * The node is `ready` immediately, also when it is `drained`. The drain ends within seconds, and with it the moves
   * that it has begun: a machine that is being copied runs again where it was. Machines that have moved stay where
   * they are.
   *
   * `DELETE /v1/nodes/{id}/drain`; needs scope admin.
   * Refuses with not_found, conflict.
   */
  cancelDrain(id: string, options: CallOptions = {}): Promise<CancelDrainAnswer> {
    return this.call({ method: "DELETE", path: `/v1/nodes/${segment(id)}/drain`, answer: "json" }, options);
  }

  /**
   * Restart agents of nodes as the release that is installed on their hosts, one after the other.
   *
   * Without `nodeIds` all that are `ready`. Machines run on, and the new agent adopts them. The installed program is
   * run once before, so a broken installation ends no agent. A node is begun when the one before it has reported
   * everything it has; the first that fails ends the operation, and the others are not touched. Nothing is
   * installed: put the release on the hosts first. With `vmms` the machines of each node then get new VMMs of the
   * program that is installed there, two at a time and as their `disruption` permits: `migrate` while they run,
   * `restart` by a restart; with `stop` they are left and named, as are those that refuse.
   *
   * `POST /v1/nodes/upgrade`; needs scope admin.
   * Refuses with not_found, invalid_json, invalid_body, conflict, rate_limited, unavailable.
   */
  upgradeNodes(body?: UpgradeNodesRequest, options: CallOptions = {}): Promise<Operation> {
    return this.call({ method: "POST", path: "/v1/nodes/upgrade", json: body, answer: "json" }, options);
  }

  /**
   * The nodes that do not report, and which machines of them are, or would be, replaced.
   *
   * `GET /v1/nodes/replace-lost`; needs scope admin.
   */
  listLostNodes(options: CallOptions = {}): Promise<LostNodes> {
    return this.call({ method: "GET", path: "/v1/nodes/replace-lost", answer: "json" }, options);
  }

  /**
   * Replace machines of nodes that do not report, although so many are silent that nothing is replaced by itself.
   *
   * Of all unreachable nodes that are not under maintenance, or of those that are named. Machines that wait in pools
   * are deleted and made on other nodes. Machines of users are never replaced. When a node returns it ends what was
   * replaced first.
   *
   * `POST /v1/nodes/replace-lost`; needs scope admin.
   * Refuses with invalid_json, invalid_body, conflict.
   */
  replaceLostNodes(body?: ReplaceLostNodesRequest, options: CallOptions = {}): Promise<LostNodes> {
    return this.call({ method: "POST", path: "/v1/nodes/replace-lost", json: body, answer: "json" }, options);
  }

  /**
   * List the servers that run, with their versions.
   *
   * `GET /v1/nodes/servers`; needs scope admin.
   */
  listServers(options: CallOptions = {}): Promise<readonly ServerInfo[]> {
    return this.call({ method: "GET", path: "/v1/nodes/servers", answer: "json" }, options);
  }

  /**
   * What each server, node and authority of the fleet needs from an operator.
   *
   * One finding with severity `ok` for each that needs nothing. It calls every node that reports, so it takes as
   * long as the slowest.
   *
   * `GET /v1/nodes/findings`; needs scope admin.
   */
  listFindings(options: CallOptions = {}): Promise<readonly FleetFinding[]> {
    return this.call({ method: "GET", path: "/v1/nodes/findings", answer: "json" }, options);
  }

  /**
   * List the authorities that servers and nodes trust.
   *
   * `GET /v1/nodes/authorities`; needs scope admin.
   * Refuses with unavailable.
   */
  listFleetAuthorities(options: CallOptions = {}): Promise<readonly FleetAuthority[]> {
    return this.call({ method: "GET", path: "/v1/nodes/authorities", answer: "json" }, options);
  }

  /**
   * Replace the authority that signs certificates of nodes.
   *
   * Earlier authorities stay trusted. Every node gets a certificate of the new one with its next heartbeat, and no
   * connection is interrupted. When all nodes have reported since, remove the earlier one.
   *
   * `POST /v1/nodes/authorities`; needs scope admin.
   * Refuses with conflict, unavailable.
   */
  rotateFleetAuthority(options: CallOptions = {}): Promise<readonly FleetAuthority[]> {
    return this.call({ method: "POST", path: "/v1/nodes/authorities", answer: "json" }, options);
  }

  /**
   * End the trust in an authority that no longer signs.
   *
   * A node that has not reported since another one signs, and a join token that was made before, do not recognize
   * the servers any more: they need a new token.
   *
   * `DELETE /v1/nodes/authorities/{fingerprint}`; needs scope admin.
   * Refuses with not_found, conflict, unavailable.
   */
  removeFleetAuthority(fingerprint: string, options: CallOptions = {}): Promise<void> {
    return this.call(
      { method: "DELETE", path: `/v1/nodes/authorities/${segment(fingerprint)}`, answer: "empty" },
      options,
    );
  }

  /**
   * Report resources and the observed state of machines.
   *
   * The body is `Heartbeat` of contract/src/link/link.ts; without a body it only reports that the node runs.
   *
   * `POST /v1/nodes/{id}/heartbeat`; needs a node's credential.
   * Refuses with not_found, invalid_json, invalid_body, link_version.
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
   * Refuses with invalid_body.
   */
  listJoinTokens(options: CallOptions<PageQuery> = {}): Promise<readonly JoinTokenInfo[]> {
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
   * List the loops of the server that answers, with their last runs.
   *
   * `GET /v1/loops`; needs scope admin.
   */
  listLoops(options: CallOptions = {}): Promise<ServerLoops> {
    return this.call({ method: "GET", path: "/v1/loops", answer: "json" }, options);
  }

  /**
   * Explain on which node a new machine would be placed, and why not on the others.
   *
   * Nothing is created or reserved, so a later start may be placed elsewhere.
   *
   * `POST /v1/nodes/placement`; needs scope admin.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, image_wrong_platform.
   */
  explainPlacement(body: PlacementRequest, options: CallOptions = {}): Promise<PlacementExplanation> {
    return this.call({ method: "POST", path: "/v1/nodes/placement", json: body, answer: "json" }, options);
  }

  /**
   * Explain why a machine is on its node, or where it would be placed now.
   *
   * Of a machine of any tenant. Nothing is reserved.
   *
   * `GET /v1/nodes/placement`; needs scope admin.
   * Refuses with not_found, invalid_body.
   */
  explainMachinePlacement(options: CallOptions<ExplainMachinePlacementQuery> = {}): Promise<PlacementExplanation> {
    return this.call({ method: "GET", path: "/v1/nodes/placement", answer: "json" }, options);
  }

  /**
   * List the tenant's operations of the last 30 days, newest first.
   *
   * 1000 at once without a limit.
   *
   * `GET /v1/operations`; needs any key.
   * Refuses with invalid_body.
   */
  listOperations(options: CallOptions<PageQuery> = {}): Promise<readonly Operation[]> {
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
   * End an operation early; what it did is undone where that is possible.
   *
   * Answers immediately; the operation is `canceled` within seconds. One that has ended stays as it is, and one that
   * cannot be undone any more succeeds.
   *
   * `POST /v1/operations/{id}/cancel`; needs scope admin.
   * Refuses with not_found.
   */
  cancelOperation(id: string, options: CallOptions = {}): Promise<Operation> {
    return this.call({ method: "POST", path: `/v1/operations/${segment(id)}/cancel`, answer: "json" }, options);
  }

  /**
   * List all plans.
   *
   * `GET /v1/plans`; needs scope admin.
   * Refuses with invalid_body.
   */
  listPlans(options: CallOptions<PageQuery> = {}): Promise<readonly PlanInfo[]> {
    return this.call({ method: "GET", path: "/v1/plans", answer: "json" }, options);
  }

  /**
   * Create a plan; omitted values are the default plan's.
   *
   * `POST /v1/plans`; needs scope admin.
   * Refuses with invalid_json, invalid_body, name_taken.
   */
  createPlan(body: CreatePlanRequest, options: CallOptions = {}): Promise<PlanInfo> {
    return this.call({ method: "POST", path: "/v1/plans", json: body, answer: "json" }, options);
  }

  /**
   * Read one plan.
   *
   * `GET /v1/plans/{id}`; needs scope admin.
   * Refuses with not_found.
   */
  getPlan(id: string, options: CallOptions = {}): Promise<PlanInfo> {
    return this.call({ method: "GET", path: `/v1/plans/${segment(id)}`, answer: "json" }, options);
  }

  /**
   * Change a plan's name, ceilings or budget, for all of its tenants.
   *
   * Omitted fields keep their value; of `maxEgressGb`, `maxPackageGb` and `monthlyBudgetMicros`, null is none.
   * Machines that run keep running when a ceiling is lowered below what they use.
   *
   * `PATCH /v1/plans/{id}`; needs scope admin.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found, name_taken.
   */
  updatePlan(id: string, body: UpdatePlanRequest, options: CallOptions = {}): Promise<PlanInfo> {
    return this.call({ method: "PATCH", path: `/v1/plans/${segment(id)}`, json: body, answer: "json" }, options);
  }

  /**
   * List a plan's prices, past and future, in the order of their times.
   *
   * `GET /v1/plans/{id}/rates`; needs scope admin.
   * Refuses with not_found, invalid_body.
   */
  listRates(id: string, options: CallOptions<PageQuery> = {}): Promise<readonly RateInfo[]> {
    return this.call({ method: "GET", path: `/v1/plans/${segment(id)}/rates`, answer: "json" }, options);
  }

  /**
   * Set a plan's prices from an instant on; what was used before keeps its price.
   *
   * `POST /v1/plans/{id}/rates`; needs scope admin.
   * Refuses with invalid_json, invalid_body, invalid_request, not_found, name_taken.
   */
  createRate(id: string, body: CreateRateRequest, options: CallOptions = {}): Promise<RateInfo> {
    return this.call({ method: "POST", path: `/v1/plans/${segment(id)}/rates`, json: body, answer: "json" }, options);
  }

  /**
   * List the tenant's pools.
   *
   * `GET /v1/pools`; needs scope pool:write or machine:read.
   * Refuses with invalid_body.
   */
  listPools(options: CallOptions<PageQuery> = {}): Promise<readonly PoolInfo[]> {
    return this.call({ method: "GET", path: "/v1/pools", answer: "json" }, options);
  }

  /**
   * Keep machines started and waiting.
   *
   * `POST /v1/pools`; needs scope pool:write.
   * Refuses with invalid_json, invalid_request, invalid_body, missing_scope, not_found, quota_exceeded.
   */
  createPool(body: PoolConfig, options: CallOptions = {}): Promise<PoolInfo> {
    return this.call({ method: "POST", path: "/v1/pools", json: body, answer: "json" }, options);
  }

  /**
   * Delete a pool and the machines that wait in it; claimed ones stay.
   *
   * `DELETE /v1/pools/{id}`; needs scope pool:write.
   * Refuses with not_found.
   */
  deletePool(id: string, options: CallOptions = {}): Promise<void> {
    return this.call({ method: "DELETE", path: `/v1/pools/${segment(id)}`, answer: "empty" }, options);
  }

  /**
   * Take a waiting machine out of a pool; when none waits, start one.
   *
   * `POST /v1/pools/{id}/claim`; needs scope machine:create.
   * Refuses with not_found, invalid_request, conflict, quota_exceeded, no_capacity, image_not_found, image_refused,
   * image_not_allowed, image_wrong_platform, image_not_cached, start_failed, unavailable.
   */
  claimMachine(id: string, options: CallOptions = {}): Promise<MachineInfo> {
    return this.call({ method: "POST", path: `/v1/pools/${segment(id)}/claim`, answer: "json" }, options);
  }

  /**
   * List volume records.
   *
   * `GET /v1/volumes`; needs any key.
   * Refuses with invalid_body.
   */
  listVolumes(options: CallOptions<PageQuery> = {}): Promise<readonly VolumeInfo[]> {
    return this.call({ method: "GET", path: "/v1/volumes", answer: "json" }, options);
  }

  /**
   * Create a volume record, without storage.
   *
   * `POST /v1/volumes`; needs any key.
   * Refuses with invalid_json, invalid_request, invalid_body, name_taken, quota_exceeded.
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
   * Refuses with invalid_body.
   */
  listTenants(options: CallOptions<PageQuery> = {}): Promise<readonly TenantInfo[]> {
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
   * Omitted fields keep their value. null clears: the default plan, no billing id, the plan's ceiling.
   *
   * `PATCH /v1/tenants/{id}`; needs scope admin.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found.
   */
  updateTenant(id: string, body: UpdateTenantRequest, options: CallOptions = {}): Promise<TenantInfo> {
    return this.call({ method: "PATCH", path: `/v1/tenants/${segment(id)}`, json: body, answer: "json" }, options);
  }

  /**
   * Move the billing time of a tenant with a test clock forward.
   *
   * Machines that run are billed for the time in between; months that end become invoices.
   *
   * `POST /v1/tenants/{id}/clock`; needs scope admin.
   * Refuses with invalid_json, invalid_request, invalid_body, not_found.
   */
  advanceTenant(id: string, body: AdvanceTenantRequest, options: CallOptions = {}): Promise<TenantInfo> {
    return this.call({ method: "POST", path: `/v1/tenants/${segment(id)}/clock`, json: body, answer: "json" }, options);
  }

  /**
   * Suspend a tenant: all its calls are answered with 402.
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

export interface AccountInfo {
  tenantId: string;
  status: string;
  /** the tenant's billing time; null: it has no test clock */
  testClock: string | null;
  plan: PlanInfo | null;
  effectiveMaxCpus: number;
  effectiveMaxMemoryMb: number;
  effectiveMaxMachines: number;
  effectiveMaxDiskGb: number;
  effectiveMaxTotalCpus: number;
  effectiveMaxTotalMemoryMb: number;
  effectiveMaxTotalDiskGb: number;
  monthlyBudgetMicros: number | null;
  /** the budget less the cost of the month; what is held is not subtracted */
  budgetRemainingMicros: number | null;
  /**
   * what running machines may still cost until they are checked again, at most 60 s later; 0 unless the budget's
   * policy is block or stop
   */
  heldMicros: number;
  /** what is left of credit after the final invoices */
  prepaidCreditMicros: number;
  /** 0: there is no notice of a low balance */
  lowBalanceThresholdMicros: number;
  periodUsage: UsageResponse;
  periodCost: CostBreakdown;
}

export interface AdoptRequest {
  /** `keep`: the source stays, under another name; default: it is deleted */
  source?: "delete" | "keep" | null | undefined;
}

export interface AdoptResponse {
  machine: MachineInfo;
  source: MachineInfo | null;
}

export interface AdvanceTenantRequest {
  /** RFC 3339; later than the tenant's billing time, and at most ten years ahead */
  to: string;
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

export interface AppExplanation {
  status: "deploying" | "running" | "awaitingPromotion" | "degraded" | "failed" | "stopped";
  waitingFor: string | null;
  /** what would be done now, each with its reason */
  next: readonly string[];
  instances: readonly {
    id: string;
    /** what it is, and why */
    sentence: string;
  }[];
  /** instances that failed in a row */
  failures: number;
  /** before then no instance is made, because others failed */
  retryAt: string | null;
  lastFailure: string | null;
}

export interface AppInfo {
  id: string;
  name: string;
  image: string;
  /** how many instances are asked */
  replicas: number;
  status: "deploying" | "running" | "awaitingPromotion" | "degraded" | "failed" | "stopped";
  port: number;
  domain: string | null;
  instances: readonly InstanceInfo[];
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
  url: string;
  /** the release that was rolled out last; null: none was */
  release: number | null;
  /** why it is as it is, where that is not obvious */
  message: string | null;
  /** the key that changed it last, with which its instances are made */
  createdBy: string;
  rollout: RolloutInfo | null;
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
  /** default: those of the machine */
  ports?: readonly PortRequest[] | null | undefined;
  /** it ends after this long; 0: when its owner says so */
  ttlSecs?: number | null | undefined;
  /** it ends when its owner is silent for this long; 0: it may be */
  heartbeatSecs?: number | null | undefined;
}

export interface AssignResponse {
  leaseId: string;
  machineId: string;
  ownerToken: string;
  state: string;
  machine: MachineInfo;
}

export interface AuditChain {
  tenantId: string;
  /** of the last row; 0: there is none */
  sequence: number;
  /** of the last row; keep it elsewhere to detect a log that was rewritten as a whole */
  hash: string;
}

export interface AuditEntry {
  /** RFC 3339, UTC */
  at: string;
  requestId: string;
  /**
   * the first part of the path after `/v1`, and the operationId of this description: `machines.createMachine`;
   * `operator.restore`: an operator restored a backup
   */
  type: string;
  /** the id that the call named or made */
  resource: string | null;
  /**
   * who called; for the registration of a node `join-token:` with the prefix of its token, or `node:` with its id;
   * `operator` for a restore
   */
  keyId: string;
  /** of the key */
  scopes: readonly string[];
  /** from where the call came */
  address: string;
  /**
   * of the answer; 102: a command, a terminal or a file was sent to the machine and not answered yet; its answer has
   * a row too, with the same `requestId`
   */
  status: number;
  /** of a refusal */
  errorCode: string | null;
  /**
   * how many refused or failed calls the row is for: a key made more than ten alike in a minute, which ends at `at`.
   * The rest is that of the last one, and `resource` is null if they named several. Absent: one call
   */
  calls?: number | undefined;
  tenantId: string;
  sequence: number;
  /** the fields above as the JSON text that was hashed */
  record: string;
  previousHash: string;
  /** SHA-256 in hex of previousHash, tenantId, sequence and record, joined by newlines */
  hash: string;
}

export interface AuditRecord {
  /** RFC 3339, UTC */
  at: string;
  requestId: string;
  /**
   * the first part of the path after `/v1`, and the operationId of this description: `machines.createMachine`;
   * `operator.restore`: an operator restored a backup
   */
  type: string;
  /** the id that the call named or made */
  resource: string | null;
  /**
   * who called; for the registration of a node `join-token:` with the prefix of its token, or `node:` with its id;
   * `operator` for a restore
   */
  keyId: string;
  /** of the key */
  scopes: readonly string[];
  /** from where the call came */
  address: string;
  /**
   * of the answer; 102: a command, a terminal or a file was sent to the machine and not answered yet; its answer has
   * a row too, with the same `requestId`
   */
  status: number;
  /** of a refusal */
  errorCode: string | null;
  /**
   * how many refused or failed calls the row is for: a key made more than ten alike in a minute, which ends at `at`.
   * The rest is that of the last one, and `resource` is null if they named several. Absent: one call
   */
  calls?: number | undefined;
}

export interface BlueGreenStrategy {
  type: "blueGreen";
}

export interface BranchBatchRequest {
  count?: number | null | undefined;
  /** one for each; wins over count */
  names?: readonly MachineName[] | null | undefined;
  /** of names such as `web-1`; default: the name of what is branched */
  namePrefix?: string | null | undefined;
  /** default: those of the machine */
  ports?: readonly PortRequest[] | null | undefined;
  /**
   * what branches have of the machine's secret variables: the same values, those of `secretEnv`, or a machine with
   * some is not branched; default: reissue if there is `secretEnv`, otherwise refuse
   */
  secrets?: "inherit" | "reissue" | "refuse" | null | undefined;
  /** new values, for `reissue`: of each of the machine's secret variables */
  secretEnv?: Record<string, string> | null | undefined;
}

export interface BranchRequest {
  name: MachineName;
  /** default: those of the machine */
  ports?: readonly PortRequest[] | null | undefined;
  /**
   * what branches have of the machine's secret variables: the same values, those of `secretEnv`, or a machine with
   * some is not branched; default: reissue if there is `secretEnv`, otherwise refuse
   */
  secrets?: "inherit" | "reissue" | "refuse" | null | undefined;
  /** new values, for `reissue`: of each of the machine's secret variables */
  secretEnv?: Record<string, string> | null | undefined;
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

export interface CanaryStrategy {
  type: "canary";
  /** default: 1 */
  canaryCount?: number | null | undefined;
  /** default: true; false: once the canaries serve, a promotion is awaited */
  autoPromote?: boolean | null | undefined;
}

export interface CancelDrainAnswer {
  id: string;
  /** where servers reach the node's agent; `parked:` when it dials out to them */
  address: string;
  smolvmAddress: string;
  /** `unreachable`: it does not report, or the server that answers has no connection to it */
  status: "ready" | "draining" | "drained" | "unreachable" | "revoked";
  totalCpus: number;
  availableCpus: number;
  totalMemoryMb: number;
  availableMemoryMb: number;
  totalDiskGb: number;
  availableDiskGb: number;
  /** facts from the operator and observed ones, such as the accelerator */
  labels: Record<string, string>;
  /** RFC 3339, UTC, with milliseconds */
  registeredAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastHeartbeatAt: string | null;
  /** RFC 3339, UTC, with milliseconds */
  cordonedAt: string | null;
  /** since when an operator works on it, so that its absence is expected */
  maintenanceAt: string | null;
  /** what was decided of its machines that can be replaced, since it does not report; null: nothing */
  replacement: {
    decision: "replaced" | "held";
    /** RFC 3339, UTC, with milliseconds */
    decidedAt: string;
    /** why nothing is replaced */
    reason: string | null;
  } | null;
  /** of the link between server and nodes; null: it has not reported yet */
  linkVersion: number | null;
  /** the version of its agent; null: it has not said */
  release: string | null;
  /** the last error that its agent has logged since it started; null: none */
  lastError: {
    /** RFC 3339, UTC, with milliseconds */
    at: string;
    message: string;
  } | null;
  /** how far its clock was ahead of the server's with its last report; negative: behind */
  clockAheadMs: number | null;
  /** of a node on another host; it is renewed when half of its day has passed */
  certificateExpiresAt: string | null;
  /** machines that it has and that are unknown here, for example after a restore; it keeps them; at most 1000 */
  unknownMachines: readonly string[];
  /**
   * machines that run in a VMM of another program than the one that is installed on the host, such as an older QEMU;
   * at most 1000; null: not reported
   */
  outdatedVmms: readonly string[] | null;
  runtime: string | null;
  usedCpus: number;
  usedMemoryMb: number;
  usedDiskGb: number;
  /** how much processes of its host wait for resources (pressure stall information of its kernel); null: not reported */
  pressure: {
    cpu: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
    memory: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
    io: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
  } | null;
  /** the drain that is being canceled; null: none was running */
  operationId: string | null;
}

export interface CheckpointBranchesRequest {
  count?: number | null | undefined;
  /** one for each; wins over count */
  names?: readonly MachineName[] | null | undefined;
  /** of names such as `web-1`; default: the name of what is branched */
  namePrefix?: string | null | undefined;
  /** default: those of the machine */
  ports?: readonly PortRequest[] | null | undefined;
}

export interface CheckpointInfo {
  id: string;
  name: string | null;
  /** the machine; it may be gone */
  machineId: string;
  /** its name at that time */
  machineName: string | null;
  status: "creating" | "available" | "failed";
  /** why it failed */
  error: string | null;
  /** whether branches continue its processes; otherwise they boot */
  hasMemory: boolean;
  /** what it takes on its node beside earlier instants; 0: it is not made yet */
  sizeBytes: number;
  /** the node that has it, where machines from it start */
  nodeId: string | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
}

export interface CheckpointRequest {
  /** unique among the tenant's checkpoints */
  name?: string | null | undefined;
  /** whether its memory is kept too, for which it must be branchable; default: if it runs */
  memory?: boolean | null | undefined;
  /**
   * whether machines from it have the secret variables of the machine; `refuse`: of a machine with some none is
   * made; default: refuse
   */
  secrets?: "inherit" | "refuse" | null | undefined;
}

export interface ClusterHealth {
  clusterId: string;
  version: string;
  nodesTotal: number;
  nodesReady: number;
  appsTotal: number;
  poolsTotal: number;
  uptimeSecs: number;
  /** false: the counts are the last known ones */
  databaseUp: boolean;
}

export type CommandSpec = string | readonly string[];

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

export interface ConsoleLink {
  /** to be appended to the server's address; opened once, it signs a browser in */
  path: string;
  /** RFC 3339, UTC, with milliseconds */
  expiresAt: string;
}

export interface ConsoleSession {
  /** RFC 3339, UTC, with milliseconds */
  expiresAt: string;
}

export interface CostBreakdown {
  cpuMicros: number;
  memoryMicros: number;
  /** always 0: commands are free */
  execMicros: number;
  /** 0: disks are metered and have no price */
  diskMicros: number;
  /** what machines sent */
  egressMicros: number;
  /** what the tenant had in the registry */
  registryMicros: number;
  /** 0: there is no price per machine */
  baseMicros: number;
  /** 0: plans have no fee */
  monthlyFeeMicros: number;
  /** 0: there are no discounts */
  volumeDiscountMicros: number;
  /** 0: a plan gives no credit */
  freeCreditMicros: number;
  /** 0: credit is applied to the balance */
  creditAppliedMicros: number;
  /** the sum of the lines */
  totalMicros: number;
  /** the total: credit is applied to the balance, when the month is invoiced */
  amountDueMicros: number;
}

export interface CreateApiKeyRequest {
  description?: string | null | undefined;
  /** default: when the creator's key expires, if it does; a key does not outlive its creator's key */
  expiresInDays?: number | null | undefined;
  /** instead of `expiresInDays` */
  expiresInSeconds?: number | null | undefined;
  /** default: the creator's */
  scopes?: readonly string[] | null | undefined;
  /** admin only */
  tenantId?: string | null | undefined;
}

export interface CreateConnectTokenRequest {
  ttlSeconds?: number | null | undefined;
}

export interface CreateJoinTokenRequest {
  description?: string | null | undefined;
  /** default: an hour */
  expiresInSeconds?: number | null | undefined;
  maxUses?: number | null | undefined;
  /** labels of the node that joins */
  labels?: Record<string, string> | null | undefined;
}

export interface CreateMachineRequest {
  source: MachineSource;
  /** default: a generated name, such as `calm-harbor-3f2a` */
  name?: string | null | undefined;
  resources?: ResourcesRequest | null | undefined;
  network?: NetworkRequest | null | undefined;
  /** environment of the machine and of every command in it */
  env?: Record<string, string> | null | undefined;
  /** as `env`, but encrypted at rest, never shown, and wiped when the machine is deleted */
  secretEnv?: Record<string, string> | null | undefined;
  /** absolute path; default: the image's, else / */
  workdir?: string | null | undefined;
  /** deleted once stopped */
  ephemeral?: boolean | null | undefined;
  /** stop after this long without activity */
  autoStopSeconds?: number | null | undefined;
  /** end it this long after creation, as `atEnd` says */
  ttlSeconds?: number | null | undefined;
  /**
   * what happens at the end of its ttl: `delete` deletes it in any state; `suspend` and `stop` end it while it runs,
   * also when it is started later without more time, and one that cannot be suspended is stopped; default: delete
   */
  atEnd?: "delete" | "suspend" | "stop" | null | undefined;
  /**
   * whether it is restarted when its VM ends unexpectedly or its host goes down; never after it powers itself off;
   * default: always
   */
  restart?: "always" | "never" | null | undefined;
  /**
   * what a move or a drain does to it while it runs: `migrate` moves its memory with it, so its processes continue,
   * and boots it there where that is not possible; `restart` boots it there; `stop` moves its disk and leaves it
   * stopped; default: migrate
   */
  disruption?: "migrate" | "restart" | "stop" | null | undefined;
  /** accepted; the machine starts without the storage */
  mounts?: readonly MachineMountSpec[] | null | undefined;
  ports?: readonly PortRequest[] | null | undefined;
  /** whether the machine's url needs no key */
  public?: boolean | null | undefined;
  /** overrides the image's entrypoint and command */
  command?: readonly string[] | null | undefined;
  forkable?: boolean | null | undefined;
  branchable?: boolean | null | undefined;
  /**
   * commands that run in the machine at moments of its life. `fork`: in a branch of it, which does not start when it
   * fails. `resume`: after a start continues its memory. `suspend`: before its memory is saved. `stop`: before its
   * programs get the signal to end. The failure of one but `fork` is an event of the machine.
   */
  hooks?: HooksRequest | null | undefined;
  labels?: Labels | null | undefined;
  /** labels that the machine's node must have, with their values */
  nodeLabels?: NodeLabels | null | undefined;
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
  maxTotalCpus?: number | null | undefined;
  maxTotalMemoryMb?: number | null | undefined;
  maxTotalDiskGb?: number | null | undefined;
  rateCpuHourMicros?: number | null | undefined;
  rateMemoryGbHourMicros?: number | null | undefined;
  rateEgressGbMicros?: number | null | undefined;
  rateRegistryGbHourMicros?: number | null | undefined;
  rateExecMicros?: number | null | undefined;
  rateRequestsPerSecond?: number | null | undefined;
  rateBurst?: number | null | undefined;
  maxEgressGb?: number | null | undefined;
  maxPackageGb?: number | null | undefined;
  monthlyBudgetMicros?: number | null | undefined;
}

export interface CreateRateRequest {
  /** RFC 3339, at least a minute ahead; default: in a minute */
  activeFrom?: string | null | undefined;
  /** default: as before */
  rateCpuHourMicros?: number | null | undefined;
  /** default: as before */
  rateMemoryGbHourMicros?: number | null | undefined;
  /** default: as before */
  rateEgressGbMicros?: number | null | undefined;
  /** default: as before */
  rateRegistryGbHourMicros?: number | null | undefined;
}

export interface CreateTenantRequest {
  name: string;
  id?: string | null | undefined;
  planId?: string | null | undefined;
  /** whether its billing time can be moved, to rehearse months; never changes later. Default: false */
  testClock?: boolean | null | undefined;
}

export interface CreateVolumeRequest {
  /** unique in the tenant */
  name: string;
  sizeGb: number;
  /** repeated in `nodeId` */
  node?: string | null | undefined;
}

export interface CreateWebhookRequest {
  /** https:// without a user name; http:// and private addresses only where the operator allows them */
  url: string;
  description?: string | null | undefined;
  types?: readonly string[] | null | undefined;
}

export interface DeleteApiKeyQuery {
  /** also every key made with it, with one of those, and so on */
  cascade?: boolean | undefined;
}

export interface DeleteImageQuery {
  /** such as `local/tools:1` */
  reference: string;
  nodeId?: string | undefined;
}

export interface DeleteMachineQuery {
  includeUsage?: boolean | undefined;
}

export interface DeletePackageQuery {
  /** such as `web:1` or `web@sha256:…` */
  reference: string;
}

export interface DeployPlan {
  /** what the request would do; `none`: no input differs */
  effect: "create" | "begin" | "supersede" | "none";
  why: string;
  /** the number that its release would get */
  release: number | null;
  /** the inputs that differ from the present release */
  differences: readonly string[];
  /** what would happen, one sentence after the other */
  steps: readonly string[];
}

export interface DeployRequest {
  /** a host label, unique in the tenant */
  name: string;
  image: string;
  /** how many instances serve; default: as before, 1 for a new app */
  replicas?: number | null | undefined;
  /** default: 1 */
  cpus?: number | null | undefined;
  /** default: 512 */
  memoryMb?: number | null | undefined;
  /** where instances listen; default: the lowest that the image exposes, else 8080 */
  port?: number | null | undefined;
  /** a host name to serve besides its own; default: as before */
  domain?: string | null | undefined;
  env?: readonly EnvVar[] | null | undefined;
  /** as `env`, but encrypted at rest and shown nowhere */
  secretEnv?: readonly EnvVar[] | null | undefined;
  health?: HealthCheck | null | undefined;
  /** whether instances reach the network; default: true */
  network?: boolean | null | undefined;
  /** how long open requests of an instance that leaves may continue; default: 10 */
  stopGraceSecs?: number | null | undefined;
  strategy?: DeployStrategy | null | undefined;
  volume?: VolumeMount | null | undefined;
  /** the app beside whose instances its own are placed */
  coLocateWith?: string | null | undefined;
  /** whether its address needs no key; default: as before, true for a new app */
  publicIngress?: boolean | null | undefined;
  /** how long instances may take to start before it is rolled back; default: 60 */
  placingDeadlineSecs?: number | null | undefined;
  /** how long they may then take to become healthy before it is rolled back; default: 180 */
  healthDeadlineSecs?: number | null | undefined;
}

export type DeployStrategy = RollingStrategy | CanaryStrategy | BlueGreenStrategy;

export interface DiffPlanQuery {
  /** such as 2026-07; one that has begun; default: the last one */
  month?: string | undefined;
  /** for one virtual processor for an hour */
  rateCpuHourMicros?: number | undefined;
  /** for one GiB of memory for an hour */
  rateMemoryGbHourMicros?: number | undefined;
  /** for one GiB that machines send */
  rateEgressGbMicros?: number | undefined;
  /** for one GiB in the registry for an hour */
  rateRegistryGbHourMicros?: number | undefined;
}

export interface DrainNodeAnswer {
  id: string;
  /** where servers reach the node's agent; `parked:` when it dials out to them */
  address: string;
  smolvmAddress: string;
  /** `unreachable`: it does not report, or the server that answers has no connection to it */
  status: "ready" | "draining" | "drained" | "unreachable" | "revoked";
  totalCpus: number;
  availableCpus: number;
  totalMemoryMb: number;
  availableMemoryMb: number;
  totalDiskGb: number;
  availableDiskGb: number;
  /** facts from the operator and observed ones, such as the accelerator */
  labels: Record<string, string>;
  /** RFC 3339, UTC, with milliseconds */
  registeredAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastHeartbeatAt: string | null;
  /** RFC 3339, UTC, with milliseconds */
  cordonedAt: string | null;
  /** since when an operator works on it, so that its absence is expected */
  maintenanceAt: string | null;
  /** what was decided of its machines that can be replaced, since it does not report; null: nothing */
  replacement: {
    decision: "replaced" | "held";
    /** RFC 3339, UTC, with milliseconds */
    decidedAt: string;
    /** why nothing is replaced */
    reason: string | null;
  } | null;
  /** of the link between server and nodes; null: it has not reported yet */
  linkVersion: number | null;
  /** the version of its agent; null: it has not said */
  release: string | null;
  /** the last error that its agent has logged since it started; null: none */
  lastError: {
    /** RFC 3339, UTC, with milliseconds */
    at: string;
    message: string;
  } | null;
  /** how far its clock was ahead of the server's with its last report; negative: behind */
  clockAheadMs: number | null;
  /** of a node on another host; it is renewed when half of its day has passed */
  certificateExpiresAt: string | null;
  /** machines that it has and that are unknown here, for example after a restore; it keeps them; at most 1000 */
  unknownMachines: readonly string[];
  /**
   * machines that run in a VMM of another program than the one that is installed on the host, such as an older QEMU;
   * at most 1000; null: not reported
   */
  outdatedVmms: readonly string[] | null;
  runtime: string | null;
  usedCpus: number;
  usedMemoryMb: number;
  usedDiskGb: number;
  /** how much processes of its host wait for resources (pressure stall information of its kernel); null: not reported */
  pressure: {
    cpu: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
    memory: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
    io: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
  } | null;
  operationId: string;
}

export interface DrainNodeRequest {
  deadlineSeconds?: number | null | undefined;
}

export interface DrainPlan {
  nodeId: string;
  /** in the order in which they would begin */
  moves: readonly {
    machineId: string;
    name: string | null;
    tenantId: string;
    /** as in MachineInfo */
    state: string;
    toNodeId: string;
    /**
     * what happens to it: `none`: it is stopped; `migrate`: its memory moves with it; `restart`: it boots there, a
     * suspended one at its next start; `stop`: it is stopped and stays so
     */
    disruption: "none" | "migrate" | "restart" | "stop";
    /** why its memory would be lost, although it could move */
    reason: string | null;
    /**
     * of its disk and log, of its memory if it is suspended, and of the base of its disk for the first machine of an
     * image that goes to a node
     */
    bytes: number;
    /** how long it would be away, by the estimate */
    seconds: number;
  }[];
  /** machines that would stay; those that run are stopped at the deadline */
  blocked: readonly {
    machineId: string;
    name: string | null;
    tenantId: string;
    /** as in MachineInfo */
    state: string;
    reason: string;
  }[];
  /** of all moves; less when nodes have the bases already */
  bytes: number;
  /** of all moves, by the estimate */
  seconds: number;
  /** how `seconds` was computed */
  estimate: string;
}

export interface EnvVar {
  key: string;
  value: string;
}

export interface EventInfo {
  id: string;
  /** what happened, such as `machine.started`; later versions may add others */
  type: string;
  /** the facts of this type; later versions may add fields */
  data: Record<string, unknown>;
  level: "info" | "warn" | "error";
  /** printed from type and data, for people */
  message: string;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
}

export interface ExecQuery {
  output?: "both" | "text" | "b64" | undefined;
}

export interface ExplainMachinePlacementQuery {
  machineId: string;
}

export interface ExportMachineQuery {
  /** answer 202 immediately, with the operation */
  detach?: boolean | undefined;
}

export interface ExportRequest {
  /** default: latest */
  tag?: string | null | undefined;
  /** of the package, such as `web`; default: the machine's name, in lower case */
  name?: string | null | undefined;
  /** whether the machine's environment is in the package; never what is in its secret variables */
  includeEnv?: boolean | null | undefined;
}

export interface ExportResponse {
  /** such as `tenants/<your tenant>/web:latest` */
  reference: string;
  /** of the manifest; the same for the same disk */
  digest: string;
  /** of all layers, as they are stored */
  sizeBytes: number;
  platforms: readonly string[];
}

export interface FileEntry {
  name: string;
  kind: "file" | "directory" | "link" | "other";
  size: number;
  /** four octal digits */
  mode: string;
  /** RFC 3339, UTC, with milliseconds */
  modifiedAt: string;
}

export interface FleetAuthority {
  /** SHA-256 of its certificate, in hex */
  fingerprint: string;
  /** false: it is still trusted, until it is removed */
  isSigning: boolean;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  expiresAt: string;
}

export interface FleetFinding {
  code:
    | "server_runs"
    | "server_silent"
    | "no_nodes"
    | "versions_apart"
    | "versions_differ"
    | "node_ready"
    | "node_unreachable"
    | "node_revoked"
    | "node_draining"
    | "node_cordoned"
    | "node_in_maintenance"
    | "node_never_reported"
    | "node_does_not_answer"
    | "node_error"
    | "memory_short"
    | "memory_pressure"
    | "processor_pressure"
    | "disk_short"
    | "disk_pressure"
    | "clock_off"
    | "certificate_expires"
    | "unknown_machines"
    | "outdated_vmms"
    | "replacement_held"
    | "authority_signs"
    | "authority_expires"
    | "authority_not_yet_valid"
    | "authority_retired"
    | "authorities_unreadable";
  /** `bad` needs an operator now, `warn` deserves a look */
  severity: "ok" | "warn" | "bad";
  subject: {
    kind: "fleet" | "server" | "node" | "authority";
    /** a node's id, an authority's fingerprint, a server's host */
    id: string | null;
  };
  /** what was found */
  message: string;
  /** what it means and what to do; empty: nothing */
  action: string;
  /** the numbers and names of the message */
  data: Record<string, number | string>;
}

export interface FleetMembership {
  /** certificates of the authorities that servers and nodes trust */
  authorities: readonly string[];
  /** the node's new certificate, as PEM; null: it keeps the one it has */
  certificate: string | null;
  /** where running servers listen for nodes, as host:port */
  listeners: readonly {
    id: string;
    addresses: readonly string[];
  }[];
  /** where running ingresses listen for nodes, as host:port */
  ingresses?:
    | readonly {
        id: string;
        addresses: readonly string[];
      }[]
    | null
    | undefined;
}

export interface FollowedChange {
  /** `audit`: calls were recorded */
  kind: "operation" | "app" | "node" | "audit";
  /** null: the whole list */
  id: string | null;
}

export interface GetAuditChainQuery {
  /** another tenant's; admin only */
  tenantId?: string | undefined;
}

export interface GetInvoiceQuery {
  /** another tenant's; admin only */
  tenantId?: string | undefined;
  /** RFC 3339, in the past: what was known then. What was in use then counts up to then */
  asOf?: string | undefined;
}

export interface GetMachineUsageQuery {
  /** RFC 3339; default: the start of the month of `to` */
  from?: string | undefined;
  /** RFC 3339; default: now, or the machine's deletion. Commands count by whole minutes, as in `GET /v1/usage` */
  to?: string | undefined;
}

export interface GetUsageQuery {
  /** RFC 3339; default: the start of the month of `to` */
  from?: string | undefined;
  /** RFC 3339; default: now. Commands count by whole minutes: those of each minute that begins in the range */
  to?: string | undefined;
}

export interface HealthCheck {
  type: HealthCheckType;
  /** of http: what is asked for; default: / */
  path?: string | null | undefined;
  /** default: the app's port */
  port?: number | null | undefined;
  /** of exec: healthy if it exits with 0 */
  command?: readonly string[] | null | undefined;
  /** default: 10 */
  intervalSecs?: number | null | undefined;
  /** default: 5 */
  timeoutSecs?: number | null | undefined;
  /** failures in a row after which an instance is unhealthy; default: 3 */
  retries?: number | null | undefined;
}

export type HealthCheckType = "http" | "tcp" | "exec";

export interface HeartbeatLeaseRequest {
  ownerToken: string;
}

export interface HeartbeatNodeAnswer {
  /** RFC 3339, UTC, with milliseconds */
  acceptedAt: string;
  link: LinkVersions;
  acknowledgedRuns?: number | null | undefined;
  absentMachines?:
    | readonly {
        machineId: string;
        generation: number;
      }[]
    | null
    | undefined;
  endedMoves?: readonly string[] | null | undefined;
  fleet?: FleetMembership | null | undefined;
  closedToGuests?: readonly string[] | null | undefined;
}

export interface HookRequest {
  /** the program and its arguments, bounded as those of exec; it runs as a command of exec does */
  command: readonly string[];
  /** it is killed after this long; default: 10 */
  timeoutSecs?: number | null | undefined;
}

export interface HooksRequest {
  fork?: HookRequest | null | undefined;
  resume?: HookRequest | null | undefined;
  suspend?: HookRequest | null | undefined;
  stop?: HookRequest | null | undefined;
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

export interface ImportImageQuery {
  /** the image's new name, such as `local/tools:1` */
  reference: string;
  /** needed when there are several nodes */
  nodeId?: string | undefined;
}

export interface InstanceInfo {
  id: string;
  /** empty until it is placed */
  nodeId: string;
  status: "starting" | "healthy" | "unhealthy" | "draining" | "stopped" | "failed" | "lost";
  /** the number of its release */
  generation: number;
  hostPort: number | null;
  /** the machine that it is; GET /v1/machines/{id} finds it */
  machineId: string;
  /** it is in the table of targets, and every ingress knows it */
  isServing: boolean;
  /** of an instance that leaves */
  openRequests: number;
  /** why it failed, is unhealthy or leaves */
  reason: string | null;
}

export interface Invoice {
  /** the month, such as 2026-07; unique within the tenant */
  id: string;
  tenantId: string;
  status: "draft" | "grace" | "finalized";
  /**
   * null until the control plane is first restored from a backup, which begins a new series of numbers; then when it
   * was restored, such as 20260723T120000Z
   */
  series: string | null;
  /**
   * counts the final invoices of the series, without gaps: with it the invoice's name for good; null: not final, or
   * a test
   */
  number: number | null;
  /** of a tenant with a test clock: a rehearsal, not to be paid */
  isTest: boolean;
  /** the start of the month */
  from: string;
  /** the end of the month, exclusive */
  to: string;
  /** when the grace period ends; the invoice becomes final within a minute after it */
  finalFrom: string;
  /** RFC 3339, UTC, with milliseconds */
  finalizedAt: string | null;
  /** the sum of the lines; adjustments may make it negative */
  totalMicros: number;
  /** the instant that `?asOf=` named; null: as it is known now */
  asOf: string | null;
  lines: readonly InvoiceLine[];
  /** which price held for the tenant when, up to the end of the month */
  rates: readonly InvoiceRate[];
}

export interface InvoiceCost {
  /** the machine, the API key or the value of the label; null: it has none, or it is not known */
  group: string | null;
  kind: "usage" | "adjustment";
  /** when it was used */
  month: string;
  meter: "uptime" | "cpu" | "memory" | "disk" | "egress" | "registry";
  rateId: string;
  /** exact, as of lines; the groups of a line add up to it */
  amount: string;
  /** the group's part of the line's price: the groups of a line add up to it */
  micros: number;
}

export interface InvoiceInfo {
  /** the month, such as 2026-07; unique within the tenant */
  id: string;
  tenantId: string;
  status: "draft" | "grace" | "finalized";
  /**
   * null until the control plane is first restored from a backup, which begins a new series of numbers; then when it
   * was restored, such as 20260723T120000Z
   */
  series: string | null;
  /**
   * counts the final invoices of the series, without gaps: with it the invoice's name for good; null: not final, or
   * a test
   */
  number: number | null;
  /** of a tenant with a test clock: a rehearsal, not to be paid */
  isTest: boolean;
  /** the start of the month */
  from: string;
  /** the end of the month, exclusive */
  to: string;
  /** when the grace period ends; the invoice becomes final within a minute after it */
  finalFrom: string;
  /** RFC 3339, UTC, with milliseconds */
  finalizedAt: string | null;
  /** the sum of the lines; adjustments may make it negative */
  totalMicros: number;
}

export interface InvoiceInterval {
  /** pass it as `?cursor=` to read the intervals after this one */
  id: number;
  /** the machine may be deleted; null: of the registry */
  machineId: string | null;
  /** the run of the machine; null for its disk, and of the registry */
  bootId: string | null;
  meter: "uptime" | "cpu" | "memory" | "disk" | "egress" | "registry";
  /**
   * 1, virtual processors, MiB of memory, GiB of disk or MiB in the registry; of egress the bytes that were counted
   * together, in an interval of one millisecond
   */
  quantity: number;
  /** RFC 3339, UTC, with milliseconds */
  startedAt: string;
  /** null: the invoice knows no end of it */
  endedAt: string | null;
  /** the end; without one the end of the month, or the last heartbeat of its node before that */
  countedUntil: string;
  /** when the start was recorded */
  recordedAt: string;
  /** null while it has no end: `rates` of the invoice say which held when */
  rateId: string | null;
  /**
   * the API key whose call or command started the machine, or created it if none had; of the disk the one that
   * created it. As of the interval's start; null: not known
   */
  keyId: string | null;
  /** the machine's labels as of the interval's start */
  labels: Record<string, string>;
}

export interface InvoiceLine {
  kind: "usage" | "adjustment";
  /** when it was used; for an adjustment an earlier month than the invoice's */
  month: string;
  meter: "uptime" | "cpu" | "memory" | "disk" | "egress" | "registry";
  rateId: string;
  /**
   * exact: quantity × milliseconds, where the quantity is 1, virtual processors, MiB of memory, GiB of disk or MiB
   * in the registry; of egress the bytes; for an adjustment the difference
   */
  amount: string;
  /** the price of all that was used in `month` at this rate, rounded down once, less what earlier invoices have of it */
  micros: number;
  /** the path that lists the intervals it was computed from */
  intervals: string;
}

export interface InvoiceRate {
  id: string;
  /** RFC 3339, UTC, with milliseconds */
  activeFrom: string;
  /** null: not before the end of the month */
  activeUntil: string | null;
  cpuHourMicros: number;
  memoryGbHourMicros: number;
  egressGbMicros: number;
  registryGbHourMicros: number;
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
  /** where servers listen for nodes on other hosts, as host:port; without one no such node can join */
  nodeAddresses: readonly string[];
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

export type Labels = Record<string, string>;

export interface LeaseInfo {
  leaseId: string;
  machineId: string;
  state: string;
  reason?: string | null | undefined;
  score?: number | null | undefined;
  result?: unknown | undefined;
}

export interface LedgerTransaction {
  id: string;
  kind: "invoice" | "credit" | "adjustment" | "hold";
  /** of an invoice: its month */
  invoice: string | null;
  note: string;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** the sum is 0; `balance` is what the tenant has, or owes when it is negative */
  entries: readonly {
    account: "balance" | "usage" | "adjustment" | "credit" | "budget" | "held";
    micros: number;
  }[];
  /** the tenant's balance after it */
  balanceMicros: number;
}

export interface Lineage {
  rootMachineId: string;
  machines: readonly MachineInfo[];
  /** of those that run, and whose nodes answer */
  memory: readonly {
    machineId: string;
    /** what its host would have free if it ended */
    ownBytes: number;
    /** what it uses together with others: pages that neither has changed, and programs */
    sharedBytes: number;
  }[];
}

export interface LinkVersions {
  version: number;
  lowest: number;
}

export interface ListAuditQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
  /** another tenant's; admin only */
  tenantId?: string | undefined;
  /** of all tenants; admin only */
  all?: boolean | undefined;
  /** only calls of this key */
  keyId?: string | undefined;
  /** only calls that named this id, or made it; the first if a path has more */
  resource?: string | undefined;
  /** only calls of this type; `machines.*`: of all types of a family */
  type?: string | undefined;
  /** RFC 3339, inclusive */
  from?: string | undefined;
  /** RFC 3339, exclusive */
  to?: string | undefined;
  /** `desc`: the newest first */
  order?: "asc" | "desc" | undefined;
}

export interface ListEventsQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
  /** only those of the machine with this id */
  machine?: string | undefined;
  /** only those of the app with this id, and of its instances */
  app?: string | undefined;
  /** only those of this type; `machine.*`: of all types of a subject */
  type?: string | undefined;
  /** `desc`: the newest first; not with `follow` */
  order?: "asc" | "desc" | undefined;
  /** with `follow`: also say when what has no events has changed */
  changes?: boolean | undefined;
  /** answer with Server-Sent Events: those after the cursor, then new ones */
  follow?: boolean | undefined;
}

export interface ListInvoiceCostsQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
  /** another tenant's; admin only */
  tenantId?: string | undefined;
  /** RFC 3339, in the past: what was known then. What was in use then counts up to then */
  asOf?: string | undefined;
  /** `machine` (default), `app` (the label `app`), `key`, or `label:` with the name of a label, such as `label:team` */
  by?: string | undefined;
}

export interface ListInvoiceIntervalsQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
  /** another tenant's; admin only */
  tenantId?: string | undefined;
  /** what the invoice knew of an earlier month; default: its own */
  month?: string | undefined;
  meter?: "uptime" | "cpu" | "memory" | "disk" | "egress" | "registry" | undefined;
}

export interface ListMachineEventsQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
  /** only those of this type; `machine.*`: all of the machine */
  type?: string | undefined;
}

export interface ListMachineImagesAnswer {
  images: readonly ImageInfo[];
}

export interface ListMachinesQuery {
  /** `key=value`; repeat for more */
  label?: readonly string[] | undefined;
  limit?: number | undefined;
  cursor?: string | undefined;
}

export interface ListWebhookDeliveriesQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
  status?: "pending" | "delivered" | "failed" | undefined;
}

export interface LogsQuery {
  /** continue with new lines; not with `before`, `to` and `limit` */
  follow?: boolean | undefined;
  /**
   * at most so many lines, the last ones before the end: at most 10,000; default: 100 without `from` and `after`,
   * else all
   */
  tail?: number | undefined;
  format?: "text" | "json" | "plain" | undefined;
  /** RFC 3339, inclusive */
  from?: string | undefined;
  /** RFC 3339, exclusive */
  to?: string | undefined;
  /** a cursor of this log: lines after it */
  after?: string | undefined;
  /** a cursor of this log: lines before it */
  before?: string | undefined;
  /** at most so many lines, the first ones after `from` or `after` */
  limit?: number | undefined;
  /** only lines that contain this text, in upper or lower case; at most 200 characters */
  search?: string | undefined;
  /** with `format=json` */
  cursors?: boolean | undefined;
}

export interface LoopStatus {
  name: string;
  purpose: string;
  /** it runs at least this often, unless it is running */
  periodMs: number;
  /** RFC 3339, UTC, with milliseconds; null: it waits */
  runningSince: string | null;
  /** RFC 3339, UTC, with milliseconds; null: it has not ended a run */
  lastEndedAt: string | null;
  /** how long the last run took */
  lastMs: number | null;
  /** runs that have ended since the server started, also those that failed */
  runs: number;
  /** runs that failed, and items of runs */
  errors: number;
  /** what it found and did since the server started */
  counts: readonly {
    name: string;
    total: number;
  }[];
  /** how many runs in a row had errors, up to the last one */
  failures: number;
  /** of the last run that had one */
  lastError: string | null;
}

export interface LostNodes {
  /** whether nothing is replaced by itself */
  isHeld: boolean;
  /** why */
  reason: string | null;
  nodes: readonly {
    nodeId: string;
    /** RFC 3339, UTC, with milliseconds */
    lastHeartbeatAt: string | null;
    decision: "replaced" | "held";
    /** RFC 3339, UTC, with milliseconds */
    decidedAt: string | null;
    /** why its machines are not replaced */
    reason: string | null;
    /** machines that are, or would be, replaced: they are in use by no user and have ended there */
    replaceable: number;
    /** other machines that are to run: they wait for the node */
    staying: number;
  }[];
}

export interface MachineCapabilities {
  /** whether a command runs immediately; a stopped machine is started first */
  exec: boolean;
  branch: boolean;
  branchBatch: boolean;
  nestedBranch: boolean;
  maxBranchBatch: number;
  fork: boolean;
  forkBatch: boolean;
  nestedFork: boolean;
  maxForkBatch: number;
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
  /**
   * a string runs as `sh -lc`; an array is the program and its arguments. The string, or one argument, has less than
   * 128 KiB, which is the kernel's limit; longer scripts go through stdin, to `sh -l`, or into a file
   */
  command: CommandSpec;
  cwd?: string | null | undefined;
  /** added to the machine's environment */
  env?: Record<string, string> | null | undefined;
  stdin?: string | null | undefined;
  /** answer with Server-Sent Events */
  stream?: boolean | null | undefined;
  /** default 600 */
  timeoutSeconds?: number | null | undefined;
  /** answer immediately with `pid=<n>` in stdout */
  background?: boolean | null | undefined;
  /** name or uid, optionally with `:group`; default: the image's */
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
  /** whether `stdout` is incomplete */
  stdoutTruncated: boolean;
  /** whether `stderr` is incomplete */
  stderrTruncated: boolean;
  /**
   * base64 of the first 16 MiB, byte for byte; absent with output=text. `exec/stream?output=b64` gives all of it,
   * without a cap
   */
  stdoutB64?: string | undefined;
  /**
   * base64 of the first 16 MiB, byte for byte; absent with output=text. `exec/stream?output=b64` gives all of it,
   * without a cap
   */
  stderrB64?: string | undefined;
  /**
   * whether the base64 is incomplete: it ends at its cap, or earlier where commands that run at the same time have
   * used up the server's memory for all of them; absent with output=text
   */
  stdoutB64Truncated?: boolean | undefined;
  /**
   * whether the base64 is incomplete: it ends at its cap, or earlier where commands that run at the same time have
   * used up the server's memory for all of them; absent with output=text
   */
  stderrB64Truncated?: boolean | undefined;
}

export interface MachineHook {
  /** the program and its arguments, bounded as those of exec; it runs as a command of exec does */
  command: readonly string[];
  /** it is killed after this long; default: 10 */
  timeoutSecs?: number | undefined;
}

export interface MachineHooks {
  fork?: MachineHook | undefined;
  resume?: MachineHook | undefined;
  suspend?: MachineHook | undefined;
  stop?: MachineHook | undefined;
}

export interface MachineInfo {
  /** mach-<32 hex> */
  id: string;
  name: string | null;
  source: MachineSource;
  /** one of `creating`, `started`, `stopped`, `error`; later versions may add others */
  state: string;
  resources: MachineResources;
  network: MachineNetwork;
  /** environment */
  env: Record<string, string>;
  /** names of the variables whose values are not shown */
  secretEnvNames: readonly string[];
  ephemeral: boolean;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
  autoStopSeconds: number | null;
  /** RFC 3339, UTC, with milliseconds */
  lastActivityAt: string | null;
  ttlSeconds: number | null;
  /**
   * what happens at the end of its ttl: `delete` deletes it in any state; `suspend` and `stop` end it while it runs,
   * also when it is started later without more time, and one that cannot be suspended is stopped; default: delete
   */
  atEnd: "delete" | "suspend" | "stop";
  /**
   * whether it is restarted when its VM ends unexpectedly or its host goes down; never after it powers itself off;
   * default: always
   */
  restart: "always" | "never";
  /**
   * what a move or a drain does to it while it runs: `migrate` moves its memory with it, so its processes continue,
   * and boots it there where that is not possible; `restart` boots it there; `stop` moves its disk and leaves it
   * stopped; default: migrate
   */
  disruption: "migrate" | "restart" | "stop";
  workdir: string | null;
  /** why a `started` machine does nothing at present, such as a full disk of its host; it continues by itself */
  pauseReason: string | null;
  /** since when the agent of a `started` machine does not answer; a start restarts the machine */
  unresponsiveSince: string | null;
  /** since when the memory of a `stopped` machine is kept; null: a start boots it */
  suspendedAt: string | null;
  /** a published port has accepted a connection, or there is none, and the guest agent answers */
  ready: boolean;
  /** RFC 3339, UTC, with milliseconds */
  readyAt: string | null;
  ports: readonly MachinePort[];
  url: string | null;
  arch: string | null;
  /** why the state is `error` */
  error: string | null;
  labels: Labels;
  createdBy: string | null;
  /** the machine that it was branched from; it may be gone */
  parentMachineId: string | null;
  forkable: boolean;
  branchable: boolean;
  hooks: MachineHooks | null;
  public: boolean;
  command: readonly string[] | null;
  /** the node that holds the machine's disk */
  nodeId: string | null;
  /** labels that the machine's node must have, with their values */
  nodeLabels: NodeLabels;
  startTimings: StartTimings | null;
  capabilities: MachineCapabilities;
}

export interface MachineMountSpec {
  /** volume name */
  volume: string;
  /** path inside the machine */
  mountPath: string;
  readonly?: boolean | null | undefined;
}

export type MachineName = string;

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

export interface MadeBranches {
  clones: readonly MachineInfo[];
}

export interface MoveMachineRequest {
  /** default: placement chooses */
  nodeId?: string | null | undefined;
  /** default: an hour; at most a day */
  deadlineSeconds?: number | null | undefined;
}

export interface NetworkRequest {
  mode: "open" | "blocked" | "allowCidrs";
  cidrs?: readonly string[] | null | undefined;
  hosts?: readonly string[] | null | undefined;
}

export interface NodeInfo {
  id: string;
  /** where servers reach the node's agent; `parked:` when it dials out to them */
  address: string;
  smolvmAddress: string;
  /** `unreachable`: it does not report, or the server that answers has no connection to it */
  status: "ready" | "draining" | "drained" | "unreachable" | "revoked";
  totalCpus: number;
  availableCpus: number;
  totalMemoryMb: number;
  availableMemoryMb: number;
  totalDiskGb: number;
  availableDiskGb: number;
  /** facts from the operator and observed ones, such as the accelerator */
  labels: Record<string, string>;
  /** RFC 3339, UTC, with milliseconds */
  registeredAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastHeartbeatAt: string | null;
  /** RFC 3339, UTC, with milliseconds */
  cordonedAt: string | null;
  /** since when an operator works on it, so that its absence is expected */
  maintenanceAt: string | null;
  /** what was decided of its machines that can be replaced, since it does not report; null: nothing */
  replacement: {
    decision: "replaced" | "held";
    /** RFC 3339, UTC, with milliseconds */
    decidedAt: string;
    /** why nothing is replaced */
    reason: string | null;
  } | null;
  /** of the link between server and nodes; null: it has not reported yet */
  linkVersion: number | null;
  /** the version of its agent; null: it has not said */
  release: string | null;
  /** the last error that its agent has logged since it started; null: none */
  lastError: {
    /** RFC 3339, UTC, with milliseconds */
    at: string;
    message: string;
  } | null;
  /** how far its clock was ahead of the server's with its last report; negative: behind */
  clockAheadMs: number | null;
  /** of a node on another host; it is renewed when half of its day has passed */
  certificateExpiresAt: string | null;
  /** machines that it has and that are unknown here, for example after a restore; it keeps them; at most 1000 */
  unknownMachines: readonly string[];
  /**
   * machines that run in a VMM of another program than the one that is installed on the host, such as an older QEMU;
   * at most 1000; null: not reported
   */
  outdatedVmms: readonly string[] | null;
  runtime: string | null;
  usedCpus: number;
  usedMemoryMb: number;
  usedDiskGb: number;
  /** how much processes of its host wait for resources (pressure stall information of its kernel); null: not reported */
  pressure: {
    cpu: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
    memory: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
    io: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
  } | null;
}

export type NodeLabels = Record<string, string>;

export interface OpenConsoleLinkRequest {
  token: string;
}

export interface OpenTerminalQuery {
  /** keeps the terminal under this id, which is 32 random hexadecimal digits drawn by the client */
  terminal?: string | undefined;
  /** continues the kept terminal after so many bytes of its output; it never begins one, or starts a machine */
  offset?: number | undefined;
  cmd?: string | undefined;
  command?: string | undefined;
  /** an argument of `cmd`; repeat for more */
  arg?: readonly string[] | undefined;
  cwd?: string | undefined;
  /** as in exec */
  user?: string | undefined;
  /** `NAME=value`; repeat for more */
  env?: readonly string[] | undefined;
  /** 0, as of a terminal whose size is not known: 80 */
  cols?: number | undefined;
  /** 0, as of a terminal whose size is not known: 24 */
  rows?: number | undefined;
  access_token?: string | undefined;
}

export interface Operation {
  id: string;
  tenantId: string;
  kind:
    | "app deploy"
    | "app scale"
    | "app promote"
    | "app redeploy"
    | "app rollback"
    | "app destroy"
    | "node drain"
    | "node upgrade"
    | "machine export"
    | "machine branch"
    | "machine checkpoint"
    | "machine move"
    | "image pull"
    | "registry collection";
  status: "running" | "succeeded" | "failed" | "canceled";
  resource: {
    kind: string;
    id: string;
    name: string | null;
  };
  steps: readonly OperationStep[];
  error: string | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
}

export interface OperationStep {
  name: string;
  status: "pending" | "running" | "succeeded" | "failed";
  /** RFC 3339, UTC, with milliseconds */
  startedAt: string | null;
  /** RFC 3339, UTC, with milliseconds */
  finishedAt: string | null;
  /** progress while it runs; afterwards its result */
  message: string | null;
  /** of a move or a branch: how long the machine did not run, by its nodes' clocks */
  downtimeMs?: number | undefined;
  /** of an export: the package */
  reference?: string | undefined;
  /** of an export: of the manifest */
  digest?: string | undefined;
  /** of an export: of all layers */
  sizeBytes?: number | undefined;
  /** of an export: of the layers that the registry did not have */
  sentBytes?: number | undefined;
  /** of an export */
  platforms?: readonly string[] | undefined;
}

export interface PackageInfo {
  /** with the newest tag */
  reference: string;
  digest: string;
  /** the newest first */
  tags: readonly string[];
  /** of all that it needs, also of what other packages share with it */
  sizeBytes: number;
  /** the smallest disk of a machine from it; null: it is not a machine's disk */
  diskGb: number | null;
  architecture: string | null;
  /** what the machine was made from */
  image: string | null;
  imageDigest: string | null;
  /** the machine whose disk it is; it may be gone */
  machineId: string | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** when its newest tag was set */
  updatedAt: string;
}

export interface PackageRetention {
  name: string;
  /** how many tags are kept, the newest; null: all */
  keepLast: number | null;
}

export interface PageQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
}

export interface PlacementExplanation {
  /** the node that has the machine's disk, else the one that would be chosen */
  nodeId: string | null;
  /** whether the machine's disk is on `nodeId` */
  hasDisk: boolean;
  reason: string;
  /** what an operator can do about it; null: nothing is needed */
  advice: string | null;
  /** in the order in which they apply */
  filters: readonly {
    name:
      | "status"
      | "cordon"
      | "image"
      | "architecture"
      | "labels"
      | "size"
      | "processors"
      | "promisedMemory"
      | "memory"
      | "pressure"
      | "disk";
    /** nodes left by it */
    left: number;
  }[];
  /**
   * best first, then the excluded ones. Where `hasDisk`, a start uses `nodeId` only, and the others show where a
   * move may go
   */
  nodes: readonly {
    nodeId: string;
    /** the first filter that excludes it; of the node that has the disk: that refuses a start there */
    filter:
      | "status"
      | "cordon"
      | "image"
      | "architecture"
      | "labels"
      | "size"
      | "processors"
      | "promisedMemory"
      | "memory"
      | "pressure"
      | "disk"
      | null;
    /** why it is excluded */
    reason: string | null;
    score: {
      /** share of its processors or memory, or of its ceiling for them, that would be promised to machines */
      promised: number;
      /** 0 up to half of its ceiling; beyond, it is lower for a fuller node, so that large machines still fit elsewhere */
      packing: number;
      /** share of its processors or memory that is in use now */
      busy: number;
      /**
       * share of the last minute in which processes of its host waited for a processor, memory or the disk, whichever is
       * larger; 0 if it is not reported
       */
      pressure: number;
      /** the cost of fetching the image; 0 where it is */
      image: number;
      /** the sum; the lowest is the best */
      total: number;
    } | null;
  }[];
}

export interface PlacementRequest {
  source: MachineSource;
  resources?: ResourcesRequest | null | undefined;
  network?: NetworkRequest | null | undefined;
  /** labels that the machine's node must have, with their values */
  nodeLabels?: NodeLabels | null | undefined;
}

export interface PlanDiff {
  planId: string;
  month: string;
  cpuHourMicros: number;
  memoryGbHourMicros: number;
  egressGbMicros: number;
  registryGbHourMicros: number;
  tenants: readonly {
    tenantId: string;
    /** what its usage under the plan costs in the month; null, also below: more than 2^53 */
    micros: number | null;
    /** what the same usage costs at the given prices, rounded down once for each meter */
    plannedMicros: number | null;
    differenceMicros: number | null;
  }[];
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
  /** in all states */
  maxMachines: number;
  /** started and creating */
  maxConcurrentMachines: number;
  /** sum of all machines that are started or creating */
  maxTotalCpus: number;
  /** sum of all machines that are started or creating */
  maxTotalMemoryMb: number;
  /** sum of all machines in any state, and of the memory of suspended ones */
  maxTotalDiskGb: number;
  /** as it is now; `/v1/plans/{id}/rates` has every price with its time */
  rateCpuHourMicros: number;
  /** as it is now */
  rateMemoryGbHourMicros: number;
  /** commands are free */
  rateExecMicros: number;
  /** 0: there is no price per machine */
  rateBaseHourMicros: number;
  /** 0: disks have no price */
  rateDiskGbHourMicros: number;
  /** per GB that machines send, 2^30 bytes; as it is now */
  rateEgressGbMicros: number;
  /** per GB in the registry and hour; as it is now */
  rateRegistryGbHourMicros: number;
  /** 0: plans have no fee */
  monthlyFeeMicros: number;
  /** 0: a plan gives no credit */
  freeCreditMicros: number;
  /** refill of the tenant's token bucket */
  rateRequestsPerSecond: number;
  /** size of the tenant's token bucket */
  rateBurst: number;
  /** GB that all machines may send in a calendar month; then starts are refused and running machines are stopped */
  maxEgressGb: number | null;
  /** GB that a tenant may store in the registry */
  maxPackageGb: number | null;
  monthlyBudgetMicros: number | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
}

export interface PoolConfig {
  image: string;
  cpus?: number | null | undefined;
  memoryMb?: number | null | undefined;
  /** whether its machines reach the network; default: true */
  network?: boolean | null | undefined;
  /** a machine that has waited longer is replaced; 0: never */
  maxIdleSecs?: number | null | undefined;
  /** how many machines wait; default: 1 */
  targetSize?: number | null | undefined;
  /** admin only */
  tenantId?: string | null | undefined;
}

export interface PoolInfo {
  id: string;
  image: string;
  targetSize: number;
  /** machines that run and can be claimed */
  idleCount: number;
  /** claimed machines that were not deleted */
  busyCount: number;
  status: "filling" | "ready" | "degraded";
  /** with `degraded`: why a machine could not be made or started */
  error: string | null;
  /** null: the default */
  cpus: number | null;
  /** null: the default */
  memoryMb: number | null;
  network: boolean;
  maxIdleSecs: number | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
}

export interface PortRequest {
  port: number;
  /** accepted and ignored: the node chooses */
  hostPort?: number | null | undefined;
}

export interface PostToLedgerRequest {
  tenantId: string;
  /** what is added to the tenant's balance; below 0 only for an adjustment */
  micros: number;
  /** default: credit */
  kind?: "credit" | "adjustment" | null | undefined;
  /** for people */
  note?: string | null | undefined;
}

export interface PullImageRequest {
  reference: string;
  nodeId?: string | null | undefined;
}

export interface PullMachineImageRequest {
  image: string;
  ociPlatform?: string | null | undefined;
}

export interface RateInfo {
  id: string;
  planId: string;
  /** it holds from then on, until the next one */
  activeFrom: string;
  rateCpuHourMicros: number;
  rateMemoryGbHourMicros: number;
  rateEgressGbMicros: number;
  rateRegistryGbHourMicros: number;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
}

export interface ReadFileAtQuery {
  list?: boolean | undefined;
}

export interface ReadFileQuery {
  path?: string | undefined;
  list?: boolean | undefined;
}

export interface RefusalDetails {
  /** the field of the request that is at fault, as a path: `resources.cpus` */
  field?: string | undefined;
  /** what its schema says of the field, to be read after its name: `be at most 64` */
  must?: string | undefined;
  limit?: RefusalLimit | undefined;
  /** what is missing, or of another kind */
  resource?:
    | {
        kind:
          | "apikey"
          | "app"
          | "authority"
          | "checkpoint"
          | "directory"
          | "file"
          | "image"
          | "invoice"
          | "machine"
          | "node"
          | "path"
          | "plan"
          | "pool"
          | "tenant"
          | "token"
          | "webhook";
        id?: string | undefined;
      }
    | undefined;
  /** a call that helps: `GET /v1/plans` */
  call?: string | undefined;
}

export interface RefusalLimit {
  /** of a field: its value, the length of its text, the number of its entries; or a ceiling of the plan */
  of:
    | "value"
    | "characters"
    | "entries"
    | "maxApps"
    | "maxMachines"
    | "maxConcurrentMachines"
    | "maxTotalCpus"
    | "maxTotalMemoryMb"
    | "maxTotalDiskGb"
    | "maxCpus"
    | "maxMemoryMb"
    | "maxDiskGb"
    | "maxEgressGb";
  bound: "<=" | ">=" | "<" | ">";
  value: number;
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
  /** P-256, as PEM; of a node on another host than the server */
  publicKey?: string | null | undefined;
  /** signature with that key, in base64: contract/src/link/fleet.ts */
  proof?: string | null | undefined;
  link?: LinkVersions | null | undefined;
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
  /** where servers reach the node's agent; `parked:` when it dials out to them */
  address: string;
  smolvmAddress: string;
  /** `unreachable`: it does not report, or the server that answers has no connection to it */
  status: "ready" | "draining" | "drained" | "unreachable" | "revoked";
  totalCpus: number;
  availableCpus: number;
  totalMemoryMb: number;
  availableMemoryMb: number;
  totalDiskGb: number;
  availableDiskGb: number;
  /** facts from the operator and observed ones, such as the accelerator */
  labels: Record<string, string>;
  /** RFC 3339, UTC, with milliseconds */
  registeredAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastHeartbeatAt: string | null;
  /** RFC 3339, UTC, with milliseconds */
  cordonedAt: string | null;
  /** since when an operator works on it, so that its absence is expected */
  maintenanceAt: string | null;
  /** what was decided of its machines that can be replaced, since it does not report; null: nothing */
  replacement: {
    decision: "replaced" | "held";
    /** RFC 3339, UTC, with milliseconds */
    decidedAt: string;
    /** why nothing is replaced */
    reason: string | null;
  } | null;
  /** of the link between server and nodes; null: it has not reported yet */
  linkVersion: number | null;
  /** the version of its agent; null: it has not said */
  release: string | null;
  /** the last error that its agent has logged since it started; null: none */
  lastError: {
    /** RFC 3339, UTC, with milliseconds */
    at: string;
    message: string;
  } | null;
  /** how far its clock was ahead of the server's with its last report; negative: behind */
  clockAheadMs: number | null;
  /** of a node on another host; it is renewed when half of its day has passed */
  certificateExpiresAt: string | null;
  /** machines that it has and that are unknown here, for example after a restore; it keeps them; at most 1000 */
  unknownMachines: readonly string[];
  /**
   * machines that run in a VMM of another program than the one that is installed on the host, such as an older QEMU;
   * at most 1000; null: not reported
   */
  outdatedVmms: readonly string[] | null;
  runtime: string | null;
  usedCpus: number;
  usedMemoryMb: number;
  usedDiskGb: number;
  /** how much processes of its host wait for resources (pressure stall information of its kernel); null: not reported */
  pressure: {
    cpu: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
    memory: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
    io: {
      /** percent of the last minute in which at least one process waited for it */
      some: number;
      /** in which all processes that had something to do waited for it */
      full: number;
    };
  } | null;
  /** shown once; null when the node called with its credential */
  credential: string | null;
  fleet: FleetMembership | null;
  link: LinkVersions;
}

export interface ReleaseInfo {
  number: number;
  image: string;
  digest: string;
  /** why it was made, in a sentence */
  why: string;
  /** of its rollout; null: it is under way */
  outcome: "succeeded" | "failed" | "superseded" | null;
  outcomeReason: string | null;
  isCurrent: boolean;
  env: readonly EnvVar[];
  secretEnvNames: readonly string[];
  cpus: number;
  memoryMb: number;
  port: number;
  health: HealthCheck | null;
  network: boolean;
  stopGraceSecs: number;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
}

export interface ReplaceLostNodesRequest {
  nodeIds?: readonly string[] | null | undefined;
}

export interface ReplayRequest {
  /** of an event; default: from the oldest event that is kept (30 days) */
  cursor?: string | null | undefined;
}

export interface ResourcesRequest {
  /** default 4, even if the plan allows less: the machine is then refused */
  cpus?: number | null | undefined;
  /** default 8192, even if the plan allows less: the machine is then refused */
  memoryMb?: number | null | undefined;
  /** default 20, or what the plan allows if that is less */
  diskGb?: number | null | undefined;
}

export interface RestoreCheckpointRequest {
  name: MachineName;
}

export interface RollbackRequest {
  /** whose inputs are deployed again; default: the one before the present one */
  release?: number | null | undefined;
}

export interface RollingStrategy {
  type: "rolling";
  /** default: 1 */
  batchSize?: number | null | undefined;
  /** default: true; false: an instance serves once its port accepts connections */
  useHealthCheck?: boolean | null | undefined;
  /** default: 5; between batches without the health check */
  waitSeconds?: number | null | undefined;
}

export interface RolloutInfo {
  phase: "placing" | "checking" | "routing" | "pausing" | "awaitingPromotion" | "retiring" | "failed";
  strategy: "rolling" | "canary" | "blueGreen";
  /** the release that is replaced; null: the first one is rolled out */
  from: number | null;
  to: number;
  /** what happens, or why it failed, in a sentence */
  message: string;
  /** what has to happen next */
  waitingFor: string | null;
  /** RFC 3339, UTC, with milliseconds */
  startedAt: string;
  /** when it is rolled back unless something happens; null: it has no deadline now */
  deadline: string | null;
  operationId: string;
}

export interface RotateSecretRequest {
  /** how long the previous secret also signs; default 24 */
  keepPreviousHours?: number | null | undefined;
}

export interface ScaleRequest {
  /** 0: none serves */
  count: number;
}

export interface ServerInfo {
  /** of this run of the server */
  id: string;
  host: string;
  /** its version */
  release: string;
  /** of the link between server and nodes */
  linkVersion: number;
  /** RFC 3339, UTC, with milliseconds */
  startedAt: string;
  /** when it last announced itself; it does so every 10 s, and is left out after 45 s */
  seenAt: string;
}

export interface ServerLoops {
  /** of the server that answers: each runs all loops, and knows only its own runs */
  serverId: string;
  host: string;
  loops: readonly LoopStatus[];
}

export interface SetPackageRetentionRequest {
  /** such as `web` or `library/tools` */
  name: string;
  /** null: all */
  keepLast: number | null;
}

export interface ShareInfo {
  token: string;
  url: string | null;
}

export interface StartMachineQuery {
  /** answer 202 immediately and boot in the background */
  detach?: boolean | undefined;
  /** it may be branched from now on */
  forkable?: boolean | undefined;
}

export interface StartTimings {
  /** where the VM came from: prepared before, restored from a template, or booted */
  vm?: "prepared" | "template" | "boot" | undefined;
  /** finding or pulling the image */
  imageMs?: number | undefined;
  /** making the disk */
  diskMs?: number | undefined;
  /** from requesting a VM until its agent answered */
  bootMs?: number | undefined;
  /** configuring the guest: clock, disk, name, network */
  configureMs?: number | undefined;
  /** from the start request on the node until the machine ran */
  totalMs?: number | undefined;
}

export interface StopMachineQuery {
  /** suspend the machine: a start continues its processes */
  keepMemory?: boolean | undefined;
}

export interface TenantEvent {
  id: string;
  /** what happened, such as `machine.started`; later versions may add others */
  type: string;
  /** the facts of this type; later versions may add fields */
  data: Record<string, unknown>;
  level: "info" | "warn" | "error";
  /** printed from type and data, for people */
  message: string;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** what the event is about; it may be deleted */
  subject: {
    /** such as `machine`, the first part of the type */
    kind: string;
    id: string;
  };
  /** pass it as `?cursor=` to read the events after this one */
  cursor: string;
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
  /** what is left of its credit, as `prepaidCreditMicros` of the account */
  freeCreditMicros: number;
  /** its billing time, which an operator moves; null: it has no test clock */
  testClock: string | null;
}

export interface TenantMeter {
  tenantId: string;
  cpuHours: number;
  memoryGbHours: number;
  diskGbHours: number;
  /** what machines sent, in units of 2^30 bytes */
  egressGb: number;
  /** what the tenant had in the registry */
  registryGbHours: number;
  execCount: number;
  cost: CostBreakdown | null;
  externalBillingId: string | null;
}

export interface TenantPageQuery {
  limit?: number | undefined;
  cursor?: string | undefined;
  /** another tenant's; admin only */
  tenantId?: string | undefined;
}

export interface UpdateMachineRequest {
  /**
   * what a move or a drain does to it while it runs: `migrate` moves its memory with it, so its processes continue,
   * and boots it there where that is not possible; `restart` boots it there; `stop` moves its disk and leaves it
   * stopped; default: migrate
   */
  disruption?: "migrate" | "restart" | "stop" | null | undefined;
  /** end it this long after creation, as `atEnd` says; 0: never */
  ttlSeconds?: number | null | undefined;
  /**
   * what happens at the end of its ttl: `delete` deletes it in any state; `suspend` and `stop` end it while it runs,
   * also when it is started later without more time, and one that cannot be suspended is stopped; default: delete
   */
  atEnd?: "delete" | "suspend" | "stop" | null | undefined;
  labels?: Labels | null | undefined;
}

export interface UpdatePlanRequest {
  name?: string | null | undefined;
  /** only as it is: a new default plan is made with POST /v1/plans */
  isDefault?: boolean | null | undefined;
  budgetPolicy?: "none" | "notify" | "block" | "stop" | null | undefined;
  maxApps?: number | null | undefined;
  maxCpus?: number | null | undefined;
  maxMemoryMb?: number | null | undefined;
  maxDiskGb?: number | null | undefined;
  maxMachines?: number | null | undefined;
  maxConcurrentMachines?: number | null | undefined;
  maxTotalCpus?: number | null | undefined;
  maxTotalMemoryMb?: number | null | undefined;
  maxTotalDiskGb?: number | null | undefined;
  /** only as it is: prices are set with POST /v1/plans/{id}/rates */
  rateCpuHourMicros?: number | null | undefined;
  /** only as it is */
  rateMemoryGbHourMicros?: number | null | undefined;
  /** only as it is */
  rateEgressGbMicros?: number | null | undefined;
  /** only as it is */
  rateRegistryGbHourMicros?: number | null | undefined;
  rateExecMicros?: number | null | undefined;
  rateRequestsPerSecond?: number | null | undefined;
  rateBurst?: number | null | undefined;
  /** null: no limit */
  maxEgressGb?: number | null | undefined;
  /** null: no limit */
  maxPackageGb?: number | null | undefined;
  /** null: no budget */
  monthlyBudgetMicros?: number | null | undefined;
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

export interface UpdateWebhookRequest {
  /** https:// without a user name; http:// and private addresses only where the operator allows them */
  url?: string | null | undefined;
  description?: string | null | undefined;
  types?: readonly string[] | null | undefined;
  /** true: deliveries continue where they ended */
  enabled?: boolean | null | undefined;
}

export interface UpgradeNodesRequest {
  nodeIds?: readonly string[] | null | undefined;
  vmms?: boolean | null | undefined;
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
  /** what machines sent, in units of 2^30 bytes */
  egressGb: number;
  /** what the tenant had in the registry */
  registryGbHours: number;
  machineCount: number;
  execCount: number;
  execDurationMs: number;
}

export interface VolumeInfo {
  id: string;
  name: string;
  /** empty when the request named no node */
  nodeId: string;
  sizeGb: number;
  /** always `unsupported`: there is no storage */
  status: string;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  appInstanceId: string | null;
}

export interface VolumeMount {
  name: string;
  mountPath: string;
  sizeGb?: number | null | undefined;
}

export interface WatchTerminalQuery {
  /** begins after so many bytes of the output, if they are still kept; default 0 */
  offset?: number | undefined;
  access_token?: string | undefined;
}

export interface WebhookCreated {
  id: string;
  url: string;
  description: string | null;
  /** null: events of every type */
  types: readonly string[] | null;
  enabled: boolean;
  /** why the server disabled it; null: it did not */
  disabledReason: string | null;
  /** failed attempts since the last successful one */
  failures: number;
  /** RFC 3339, UTC, with milliseconds */
  failingSince: string | null;
  /** events that wait to be delivered again, or for the first time */
  pending: number;
  /** of the last event that was read for it */
  cursor: string | null;
  /** until then deliveries are signed with the previous secret as well */
  previousSecretUntil: string | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
  /** `whsec_` and base64; shown only here */
  secret: string;
}

export interface WebhookDelivery {
  /** of the event; sent as `webhook-id` */
  id: string;
  type: string;
  status: "pending" | "delivered" | "failed";
  attempts: number;
  /** RFC 3339, UTC, with milliseconds */
  queuedAt: string;
  /** RFC 3339, UTC, with milliseconds */
  lastAttemptAt: string | null;
  /** null: no further attempt */
  nextAttemptAt: string | null;
  /** the HTTP status of the last attempt; null: there was no answer */
  lastStatus: number | null;
  /** why the last attempt failed */
  lastError: string | null;
  /** what is sent, byte for byte */
  body: string;
}

export interface WebhookInfo {
  id: string;
  url: string;
  description: string | null;
  /** null: events of every type */
  types: readonly string[] | null;
  enabled: boolean;
  /** why the server disabled it; null: it did not */
  disabledReason: string | null;
  /** failed attempts since the last successful one */
  failures: number;
  /** RFC 3339, UTC, with milliseconds */
  failingSince: string | null;
  /** events that wait to be delivered again, or for the first time */
  pending: number;
  /** of the last event that was read for it */
  cursor: string | null;
  /** until then deliveries are signed with the previous secret as well */
  previousSecretUntil: string | null;
  /** RFC 3339, UTC, with milliseconds */
  createdAt: string;
  /** RFC 3339, UTC, with milliseconds */
  updatedAt: string;
}

export interface WebhookSecret {
  id: string;
  /** `whsec_` and base64; shown only here */
  secret: string;
}

export interface WriteFileQuery {
  path?: string | undefined;
}
