/**
 * Assembles the server: every handler, the node authenticator, and the background work.
 *
 * The only file that imports all families; http/ imports none of them.
 */
import { hostname } from "node:os";
import type { Resolve } from "@flotilla/base/checked-request";
import { LINK_VERSION } from "@flotilla/contract/link/version";
import { RELEASE } from "@flotilla/contract/release";
import type { NodeAuthenticator } from "./auth/authenticate.ts";
import type { KeyCache } from "./auth/key-cache.ts";
import type { ServerSettings } from "./config.ts";
import type { Context } from "./context.ts";
import { accountHandlers } from "./account/routes.ts";
import { AuditRecorder } from "./audit/recorder.ts";
import { purgeAudit } from "./audit/store.ts";
import { auditHandlers } from "./audit/routes.ts";
import { purgeKeys } from "./apikeys/store.ts";
import { apiKeyHandlers } from "./apikeys/routes.ts";
import type { Billing } from "./billing/invoices.ts";
import { billingHandlers } from "./billing/routes.ts";
import type { Metrics } from "./status/metrics.ts";
import { statusHandlers } from "./status/routes.ts";
import { FairSemaphore } from "./fairness/semaphore.ts";
import type { FindTarget } from "./api/exchange.ts";
import type { AnyHandlers, Handlers } from "./api/handler.ts";
import { imagePullWorker } from "./images/pull.ts";
import { imageHandlers } from "./images/routes.ts";
import { codeHandlers } from "./machines/code/routes.ts";
import { AccessTable } from "./ingress/access.ts";
import { purgeConnectTokens } from "./ingress/connect/store.ts";
import { connectHandlers } from "./ingress/connect/routes.ts";
import { connectTokenAuthenticator } from "./ingress/connect/tokens.ts";
import { CommandAnswers } from "./machines/exec/answer.ts";
import { execHandlers } from "./machines/exec/routes.ts";
import { fileHandlers } from "./machines/files/routes.ts";
import type { Fleet } from "./link/reach.ts";
import { logHandlers } from "./machines/logs/routes.ts";
import { machineHandlers } from "./machines/routes.ts";
import { IdleConnections } from "./ingress/idle-connections.ts";
import type { IngressServices } from "./ingress/admit.ts";
import { purgeTombstones } from "./machines/store.ts";
import { requireMachine } from "./machines/running.ts";
import { type MachineServices, openMachineServices } from "./machines/services.ts";
import { shareHandlers } from "./ingress/share/routes.ts";
import { sessionHandlers } from "./machines/sessions/routes.ts";
import { terminalHandlers } from "./machines/terminal/routes.ts";
import { poolHandlers } from "./pools/routes.ts";
import { countPools } from "./pools/store.ts";
import { moveHandlers } from "./moves/routes.ts";
import { machineMoveWorker } from "./moves/worker.ts";
import { nodeAuthenticator } from "./nodes/credentials.ts";
import { nodeDrainWorker } from "./nodes/drain-worker.ts";
import { nodeUpgradeWorker } from "./nodes/upgrade-worker.ts";
import { authorityHandlers, nodeHandlers, placementHandlers } from "./nodes/routes.ts";
import { removeServer, type ServerIdentity } from "./nodes/servers-store.ts";
import { countNodes, hasReported } from "./nodes/store.ts";
import { purgeEvents } from "./events/store.ts";
import { eventHandlers } from "./events/routes.ts";
import { purgeOperations } from "./operations/store.ts";
import { operationHandlers } from "./operations/routes.ts";
import { OperationRunner } from "./operations/run.ts";
import type { OperationWorker, Purge, Reconciler } from "./family.ts";
import { planHandlers } from "./plans/routes.ts";
import { Loops } from "./reconcilers/driver.ts";
import { clockReconciler } from "./reconcilers/clocks.ts";
import { copyReconciler } from "./moves/copies-loop.ts";
import { budgetReconciler } from "./machines/lifetime/budgets-loop.ts";
import { ingressReconciler } from "./ingress/ingresses-loop.ts";
import { invoiceReconciler } from "./billing/invoices-loop.ts";
import { lifetimeReconciler } from "./machines/lifetime/lifetimes-loop.ts";
import { machineReconciler } from "./machines/machines-loop.ts";
import { noticeReconciler } from "./usage/notices-loop.ts";
import { nodeReconciler } from "./nodes/nodes-loop.ts";
import { operationReconciler } from "./operations/operations-loop.ts";
import { poolReconciler } from "./pools/pools-loop.ts";
import { purgeReconciler } from "./reconcilers/purges.ts";
import { serverReconciler } from "./nodes/servers-loop.ts";
import { webhookReconciler } from "./webhooks/webhooks-loop.ts";
import { loopHandlers, loopMeasures } from "./reconcilers/routes.ts";
import { openServices } from "./services.ts";
import { tenantHandlers } from "./tenants/routes.ts";
import { purgeJoinTokens } from "./tokens/store.ts";
import { tokenHandlers } from "./tokens/routes.ts";
import { volumeHandlers } from "./volumes/routes.ts";
import { WebhookRunner, type WebhookTimes } from "./webhooks/deliver.ts";
import { webhookResolver } from "./webhooks/resolve.ts";
import { webhookHandlers } from "./webhooks/routes.ts";
import { WebhookTargets } from "./webhooks/target.ts";

export interface AssemblyOptions {
  readonly context: Context;
  readonly settings: ServerSettings;
  readonly keys: KeyCache;
  readonly metrics: Metrics;
  readonly version: string;
  readonly openapi: unknown;
  /** Replaces the contract's NODE_WAIT_MS. */
  readonly nodeWaitMs: number | undefined;
  /** Replaces the times of webhooks, and the resolver of their hosts. For tests. */
  readonly webhookTimes: WebhookTimes | undefined;
  readonly resolve: Resolve | undefined;
  readonly isStopping: () => boolean;
  readonly isDiskFull: () => boolean;
  /** How many connections to guests may wait for another request. */
  readonly idleConnectionsMax: number;
}

export interface Assembly {
  readonly handlers: AnyHandlers;
  readonly nodes: NodeAuthenticator;
  readonly ingress: IngressServices;
  readonly findTarget: FindTarget;
  readonly semaphore: FairSemaphore;
  readonly audit: AuditRecorder;
  readonly fleet: Fleet;
  /** Starts the background work. `url`: where the server listens. */
  start(url: string): void;
  /** Ends it; called after the last request has ended. */
  stop(): Promise<void>;
}

const workersOf = (services: MachineServices): readonly OperationWorker[] => [
  imagePullWorker(services),
  machineMoveWorker(services),
  nodeDrainWorker(services),
  nodeUpgradeWorker(services),
];

export function assemble({ context, keys, settings, ...options }: AssemblyOptions): Assembly {
  const services = openServices(context, { ...settings, nodeWaitMs: options.nodeWaitMs });
  const machines = openMachineServices(services, settings);
  const semaphore = new FairSemaphore(context.clock);
  const audit = new AuditRecorder(context);
  const billing = { context, graceHours: settings.invoiceGraceHours };
  const operations = new OperationRunner(context, semaphore, workersOf(machines));
  const webhooks = deliveryOptionsOf(machines, settings, options);
  const deliveries = new WebhookRunner(webhooks);
  const server = thisServer(context);
  const loops = new Loops(
    context,
    reconcilersOf(machines, { server, operations, webhooks: deliveries, billing, auditDays: settings.auditDays }),
  );
  options.metrics.add(loopMeasures(loops));
  const access = new AccessTable(context);
  const idle = new IdleConnections(context.clock, options.idleConnectionsMax);
  const answers = new CommandAnswers(machines);
  const handlers = {
    ...statusHandlers(context, { ...options, ...nodesForHealth(context, settings) }),
    ...recordHandlers(context),
    ...billingHandlers(billing),
    ...apiKeyHandlers(context, keys),
    ...machineHandlers(machines),
    ...execHandlers(machines, answers),
    ...codeHandlers(machines, answers),
    ...sessionHandlers(machines, answers),
    ...terminalHandlers(machines),
    ...fileHandlers(machines),
    ...connectHandlers(context),
    ...moveHandlers(machines),
    ...logHandlers(machines),
    ...shareHandlers(machines),
    ...imageHandlers(services),
    ...nodeHandlers(machines),
    ...authorityHandlers(services.fleet),
    ...loopHandlers(loops, server),
    ...placementHandlers(machines),
    ...poolHandlers(machines),
    ...webhookHandlers(webhooks),
    ...tokenHandlers(context, services.fleet),
  } satisfies Handlers;
  return {
    // Each handler was checked against the contract above; the pipeline calls them all the same way.
    handlers: handlers as unknown as AnyHandlers,
    nodes: nodeAuthenticator(context, settings.joinToken),
    ingress: { ...machines, access, idle, connectTokens: connectTokenAuthenticator(context) },
    semaphore,
    audit,
    fleet: services.fleet,
    findTarget: (endpoint, params, tenantId) => {
      if (!endpoint.path.startsWith("/v1/machines/{id}/")) return undefined;
      return requireMachine(machines, { tenantId, id: params["id"] ?? "" });
    },
    start(url) {
      machines.addresses.listensAt(url);
      machines.start();
      loops.start();
    },
    async stop() {
      idle.close();
      // Commands that end with the others are still recorded.
      for (const part of [loops, operations, deliveries, services, machines, audit]) await part.stop();
      access.close();
      // A row that stays is ignored soon.
      await removeServer(context, server).catch(() => undefined);
    },
  };
}

/** The handlers of families that work on the database alone. */
const recordHandlers = (context: Context) => ({
  ...accountHandlers(context),
  ...auditHandlers(context),
  ...planHandlers(context),
  ...tenantHandlers(context),
  ...eventHandlers(context),
  ...operationHandlers(context),
  ...volumeHandlers(context),
});

function nodesForHealth({ db, clock }: Context, { expectsNode }: ServerSettings) {
  const startedAt = clock.now();
  const count = async () => {
    const [nodes, poolsTotal] = await Promise.all([countNodes(db), countPools(db)]);
    return { ...nodes, poolsTotal };
  };
  return { count, hasNode: expectsNode ? () => hasReported(db, startedAt) : null };
}

function deliveryOptionsOf(
  { context, secrets }: MachineServices,
  { webhookNetworks: networks, webhookHttp: allowsHttp }: ServerSettings,
  { resolve = webhookResolver(), webhookTimes: times }: Pick<AssemblyOptions, "resolve" | "webhookTimes">,
) {
  return { context, secrets, targets: new WebhookTargets({ networks, allowsHttp }), resolve, times };
}

interface Workers {
  readonly server: ServerIdentity;
  readonly operations: OperationRunner;
  readonly webhooks: WebhookRunner;
  readonly auditDays: number;
  readonly billing: Billing;
}

const thisServer = ({ randomBytes }: Context): ServerIdentity => ({
  id: `server-${randomBytes(8).toString("hex")}`,
  host: hostname(),
  release: RELEASE,
  linkVersion: LINK_VERSION,
});

function reconcilersOf(machines: MachineServices, workers: Workers): Reconciler[] {
  const { server, operations, webhooks, billing, auditDays } = workers;
  return [
    machineReconciler(machines),
    lifetimeReconciler(machines),
    copyReconciler(machines),
    budgetReconciler(machines),
    invoiceReconciler(billing),
    noticeReconciler(machines.context),
    poolReconciler(machines),
    nodeReconciler(machines.context),
    serverReconciler(machines.context, server),
    ingressReconciler(machines.fleet.trust),
    operationReconciler(machines.context, operations),
    webhookReconciler(webhooks),
    purgeReconciler(machines.context, purgesOf(auditDays)),
    clockReconciler(machines.context),
  ];
}

/** `auditDays`: how long recorded calls are kept. */
const purgesOf = (auditDays: number): Readonly<Record<string, Purge>> => ({
  /** Deleted machines, with their runs: their usage stays readable for 30 days. */
  machines: purgeTombstones,
  /** Events of tenants, after 30 days. */
  events: purgeEvents,
  /** Operations, 30 days after they ended. */
  operations: purgeOperations,
  /** API keys, 30 days after they were revoked or expired. */
  keys: ({ db, clock }, max) => purgeKeys(db, clock.now(), max),
  /** Join tokens, 30 days after they expired. */
  joinTokens: ({ db, clock }, max) => purgeJoinTokens(db, clock.now(), max),
  /** Connect tokens that have expired. */
  connectTokens: purgeConnectTokens,
  audit: (context, max) => purgeAudit(context, auditDays, max),
});
