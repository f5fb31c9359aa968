/**
 * Assembles the server: what families share, the families (families.ts), and what runs their parts.
 *
 * The only file besides families.ts that knows them; http/ and api/ import none.
 */
import { hostname } from "node:os";
import type { Resolve } from "@flotilla/base/checked-request";
import { LINK_VERSION } from "@flotilla/contract/link/version";
import { RELEASE } from "@flotilla/contract/release";
import type { FindTarget } from "./api/exchange.ts";
import type { AnyHandlers } from "./api/handler.ts";
import { AuditRecorder } from "./audit/recorder.ts";
import { countApps } from "./apps/store.ts";
import type { NodeAuthenticator } from "./auth/authenticate.ts";
import type { KeyCache } from "./auth/key-cache.ts";
import type { ServerSettings } from "./config.ts";
import type { Context } from "./context.ts";
import { FairSemaphore } from "./fairness/semaphore.ts";
import { familiesOf, handlersOf } from "./families.ts";
import type { Family } from "./family.ts";
import { HostTable } from "./hosts/table.ts";
import { AccessTable } from "./ingress/access.ts";
import type { IngressServices } from "./ingress/admit.ts";
import { AppCounts } from "./ingress/apps/app-counts.ts";
import { AppRoutes } from "./ingress/apps/app-routes.ts";
import { connectTokenAuthenticator } from "./ingress/connect/tokens.ts";
import { IdleConnections } from "./ingress/idle-connections.ts";
import type { LargeJson } from "./json/large-json.ts";
import { nodesAwaitedBy } from "./link/nodes-awaited.ts";
import type { Fleet } from "./link/reach.ts";
import { requireMachine } from "./machines/running.ts";
import { type MachineServices, openMachineServices } from "./machines/services.ts";
import { nodeAuthenticator } from "./nodes/credentials.ts";
import type { ServerIdentity } from "./nodes/servers-store.ts";
import { countNodes, hasReported } from "./nodes/store.ts";
import { OperationRunner } from "./operations/run.ts";
import { countPools } from "./pools/store.ts";
import { Loops } from "./reconcilers/driver.ts";
import { purgeReconciler } from "./reconcilers/purges.ts";
import { openRegistry } from "./registry/open.ts";
import type { Registry } from "./registry/registry.ts";
import type { Secrets } from "./secrets.ts";
import { openServices } from "./services.ts";
import type { Metrics } from "./status/metrics.ts";
import type { WebhookTimes } from "./webhooks/deliver.ts";

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
  readonly nodeJson: LargeJson;
  readonly registry: Registry;
  readonly secrets: Secrets;
  /** Starts the background work. `url`: where the server listens. */
  start(url: string): void;
  /** Ends it; called after the last request has ended. */
  stop(): Promise<void>;
}

export function assemble({ context, keys, settings, ...options }: AssemblyOptions): Assembly {
  const services = openServices(context, { ...settings, nodeWaitMs: options.nodeWaitMs });
  const registry = openRegistry(services, settings);
  const machines = openMachineServices(services, registry, settings);
  const semaphore = new FairSemaphore(context.clock);
  const audit = new AuditRecorder(context);
  const operations = new OperationRunner(context, semaphore);
  const loops = new Loops(context);
  const hosts = new HostTable(context.db);
  const access = new AccessTable(context);
  const idle = new IdleConnections(context.clock, options.idleConnectionsMax);
  const apps = new AppRoutes(context);
  const appCounts = new AppCounts((id) => apps.has(id));
  const families: readonly Family[] = familiesOf({
    ...{ settings, keys, operations, loops },
    ...{ resolve: options.resolve, webhookTimes: options.webhookTimes },
    services: { ...machines, access, apps, idle },
    health: { ...options, ...nodesForHealth(context, settings, services.fleet) },
    server: thisServer(context),
  });
  options.metrics.add(families.flatMap(({ measures = [] }) => measures));
  options.metrics.addText(() => appCounts.text(apps.open.byApp()));
  operations.add(families.flatMap(({ workers = [] }) => workers));
  loops.add(families.flatMap((family) => family.loops ?? []));
  const purges = families.flatMap((family) => Object.entries(family.purges ?? {}));
  loops.add([purgeReconciler(context, Object.fromEntries(purges))]);
  return {
    handlers: handlersOf(families),
    nodes: nodeAuthenticator(context, settings.joinToken),
    ingress: {
      ...{ ...machines, hosts, access, apps, appCounts, idle },
      connectTokens: connectTokenAuthenticator(context),
    },
    semaphore,
    audit,
    fleet: services.fleet,
    nodeJson: services.link.nodeJson,
    registry,
    secrets: services.secrets,
    findTarget: targetFinder(machines),
    start(url) {
      machines.addresses.listensAt(url);
      machines.start();
      loops.start();
    },
    async stop() {
      // First what begins work, then the families, from the last one down, while they have their services.
      // Commands that end with the services are still recorded.
      for (const part of [loops, operations, ...families.toReversed(), services, machines, audit]) await part.stop?.();
    },
  };
}

/** Looks for the machine that a path is about. */
function targetFinder(machines: MachineServices): FindTarget {
  return (endpoint, params, tenantId) => {
    if (!endpoint.path.startsWith("/v1/machines/{id}/")) return undefined;
    return requireMachine(machines, { tenantId, id: params["id"] ?? "" });
  };
}

function nodesForHealth(
  { db, clock }: Context,
  { expectsNode, nodeListen }: ServerSettings,
  { parked }: Pick<Fleet, "parked">,
) {
  const startedAt = clock.now();
  const count = async () => {
    const [nodes, poolsTotal, appsTotal] = await Promise.all([countNodes(db), countPools(db), countApps(db)]);
    return { ...nodes, poolsTotal, appsTotal };
  };
  const reports = async () => ((await hasReported(db, startedAt)) ? null : "no node has reported yet");
  const parks = nodeListen === null ? null : nodesAwaitedBy({ db, clock }, parked);
  return { count, nodesAwaited: expectsNode ? reports : parks };
}

const thisServer = ({ randomBytes }: Context): ServerIdentity => ({
  id: `server-${randomBytes(8).toString("hex")}`,
  host: hostname(),
  release: RELEASE,
  linkVersion: LINK_VERSION,
});
