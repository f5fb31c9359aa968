/**
 * Starts and stops the server, in order; contains nothing else.
 *
 * Run as a program it reads settings, starts, and prints one line of JSON on standard output when it serves
 * (`{"url":…,"adminKeyFile":…,"isAdminKeyNew":…}`). SIGTERM, SIGINT and SIGHUP stop it: after the configured
 * delay, in which /readyz fails and all else is served, endless streams end with a message, other requests
 * may finish for at most STOP_DEADLINE_MS, then the embedded database is stopped. During the start they
 * cancel the start. Under `flotilla up` the node stops first, or has lost its parent too, so nothing that
 * waits for a node can finish, and ORPHAN_DEADLINE_MS is enough. A later signal cuts off what runs.
 *
 * Always: the embedded database is stopped before the process ends, unless the process is killed.
 */
import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Resolve } from "@flotilla/base/checked-request";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { countBuffersWithHeap } from "@flotilla/base/garbage-collection";
import type { Log } from "@flotilla/base/log";
import { Refusal } from "@flotilla/contract/errors";
import { API_VERSION, openApiDocument } from "@flotilla/contract/openapi";
import type { ListenAddress } from "@flotilla/contract/setting-values";
import { AccessWatch } from "./auth/access-watch.ts";
import { type AdminKey, ensureAdminKey } from "./auth/admin-key.ts";
import { KeyCache } from "./auth/key-cache.ts";
import { LastReaders } from "./auth/last-readers.ts";
import { LastUsed } from "./auth/last-used.ts";
import { refusePending } from "./backup/pending.ts";
import { readSettings, type ServerSettings, settingsOrExit } from "./config.ts";
import { consolePages } from "./console/pages.ts";
import type { Context } from "./context.ts";
import { failureText } from "./db/full-disk.ts";
import { migrate } from "./db/migrate.ts";
import { type ConnectionOptions, openDatabase } from "./db/postgres.ts";
import { whileUnavailable } from "./db/retry.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "./embedded-postgres/embedded.ts";
import { reorderRestoredEvents } from "./events/store.ts";
import { type Assembly, assemble } from "./assemble.ts";
import { documentationPages } from "./status/documentation.ts";
import { createMetrics, type Metrics } from "./status/metrics.ts";
import type { RequestSeen } from "./status/request-counts.ts";
import { Admission } from "./fairness/admission.ts";
import { type ConnectionBounds, connectionBounds, descriptorLimit } from "./fairness/bounds.ts";
import { apiService } from "./api/handle.ts";
import { IdempotencyUse } from "./api/idempotency-use.ts";
import { LargeJson } from "./json/large-json.ts";
import { requestIds } from "./http/request-id.ts";
import { buildRouteTable } from "./api/route-table.ts";
import { makeRouter } from "./api/router.ts";
import { type HttpServer, startHttp } from "./http/server.ts";
import { randomIds } from "./ids.ts";
import { ingressService } from "./ingress/serve.ts";
import { createLog } from "./log.ts";
import { type FleetListener, serverAnnouncer, startFleetListener } from "./link/fleet-listener.ts";
import { nodeListensOf } from "./nodes/listen.ts";
import { registryService } from "./registry/serve.ts";
import { UploadTurns } from "./registry/upload-turns.ts";
import type { WebhookTimes } from "./webhooks/deliver.ts";
import { type StopOptions, StopSteps, stopSignals } from "./stop.ts";

export interface ServerOptions extends ServerSettings {
  readonly clock?: Clock;
  readonly log?: Log;
  /** Checks every answer against the contract; a mismatch is a 500. For tests. */
  readonly checkAnswers?: boolean;
  /** How long one request to a node waits, instead of NODE_WAIT_MS. For tests. */
  readonly nodeWaitMs?: number;
  /** How often callers that request it get an interim answer. For tests. */
  readonly processingMs?: number;
  /** How many descriptors the process may have, instead of the system's value. For tests. */
  readonly descriptorLimit?: number;
  /** How long a connection may wait for its next request. For tests. */
  readonly keepAliveMs?: number;
  /** Cancels a start in progress: it rejects then, and has stopped what it had started. */
  readonly signal?: AbortSignal;
  /** How soon deliveries of webhooks are retried, and how long a server leases a webhook. For tests. */
  readonly webhookTimes?: WebhookTimes;
  /** Resolves the hosts of webhooks, instead of the system's resolver. For tests. */
  readonly resolve?: Resolve;
  /** How long the head of a request may take. For tests. */
  readonly headMs?: number;
}

export interface RunningServer {
  readonly address: ListenAddress;
  /** `http://host:port`. */
  readonly url: string;
  /**
   * Where nodes connect, separate from other callers: `unix:/path`, then `https://host:port` where
   * configured.
   */
  readonly nodeUrls: readonly string[];
  readonly adminKey: AdminKey;
  readonly context: Context;
  /** Lets running requests finish, then stops everything that was started. */
  stop(options?: StopOptions): Promise<void>;
}

const STOP_DEADLINE_MS = 30_000;
const ORPHAN_DEADLINE_MS = 2_000;

export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const clock = options.clock ?? systemClock;
  const log = options.log ?? createLog(options.logLevel);
  const { signal } = options;
  const patience = { clock, log, signal };
  const undo = new StopSteps(log);
  try {
    await mkdir(options.dataDirectory, { recursive: true, mode: 0o700 });
    await refusePending(options.dataDirectory);
    const embedded = options.databaseUrl === null ? await startEmbedded(options, clock, log) : undefined;
    if (embedded !== undefined) undo.pushAlways(({ hurry }) => embedded.stop(hurry));
    const connection: ConnectionOptions = embedded?.connection ?? { connectionString: options.databaseUrl ?? "" };
    await whileUnavailable(() => migrate({ connection, log, signal }), patience);
    // The database answers in real time, whatever clock this server has.
    const db = openDatabase({ connection, clock: systemClock, log, makeRoom: embedded?.makeRoom });
    undo.push(() => db.close());
    const context: Context = { db, clock, log, ids: randomIds(randomBytes), randomBytes };
    const adminKey = await whileUnavailable(() => ensureAdminKey(context, options.dataDirectory), patience);
    await whileUnavailable(() => reorderRestoredEvents(db), patience);
    const keys = new KeyCache(db);
    const access = new AccessWatch(context);
    undo.push(() => access.close());
    const lastUsed = new LastUsed(context);
    undo.push(() => lastUsed.stop());
    const metrics = createMetrics();
    undo.push(() => metrics.close());
    const descriptors = options.descriptorLimit ?? (await descriptorLimit());
    const bounds = connectionBounds(descriptors, options.connectionsPerAddress);
    const assembly = assemble({
      context,
      settings: options,
      keys,
      metrics,
      version: API_VERSION,
      openapi: openApiDocument(),
      nodeWaitMs: options.nodeWaitMs,
      webhookTimes: options.webhookTimes,
      resolve: options.resolve,
      isStopping: () => undo.hasBegun,
      isDiskFull: () => embedded?.isDiskFull() ?? false,
      idleConnectionsMax: bounds.idleToGuests,
    });
    undo.push(() => assembly.stop());
    await assembly.ingress.apps.start();
    const http = await serve(options, { context, keys, access, lastUsed, metrics, assembly, bounds });
    undo.push(({ deadlineMs = STOP_DEADLINE_MS, hurry }) => http.close({ deadlineMs, hurry }));
    const forNodes = await whileUnavailable(() => listenForNodes(options, context, assembly, http), patience);
    undo.push(() => forNodes?.close());
    // Before nodes lose this server: what is accepted meanwhile may need one.
    undo.push(({ delayMs = 0, hurry }) => http.delayStop({ ms: delayMs, hurry }));
    signal?.throwIfAborted();
    lastUsed.start();
    const url = urlOf(http.address);
    assembly.start(url);
    log.info({ url }, "serving");
    const { address } = http;
    const nodeUrls = [
      ...http.nodeAddresses,
      ...(forNodes === null ? [] : [`https${urlOf(forNodes.address).slice(4)}`]),
    ];
    return { address, url, nodeUrls, adminKey, context, stop: (stopOptions) => undo.run(stopOptions) };
  } catch (error) {
    await undo.run();
    throw error;
  }
}

/** null: it listens for no nodes of other hosts. */
async function listenForNodes(
  { nodeListen, nodeAddresses, databaseUrl }: ServerOptions,
  context: Context,
  { fleet }: Assembly,
  http: HttpServer,
): Promise<FleetListener | null> {
  if (nodeListen === null) return null;
  const serveHttp = http.serveNode;
  const identity = await fleet.trust.identity().catch((error: unknown) => {
    // A server that has another key than the others' must not start. The only one serves what it can.
    if (databaseUrl !== null || !(error instanceof Refusal)) throw error;
    context.log.error({ error }, "this server lacks the secrets.key of its database, so no other node can connect");
    return null;
  });
  if (identity === null) return null;
  const listening = { context, listen: nodeListen, addresses: nodeAddresses, announcer: serverAnnouncer(context.db) };
  return await startFleetListener({ ...listening, ...fleet, identity, serveHttp });
}

interface Served {
  readonly context: Context;
  readonly keys: KeyCache;
  readonly access: AccessWatch;
  readonly lastUsed: LastUsed;
  readonly metrics: Metrics;
  readonly assembly: Assembly;
  readonly bounds: ConnectionBounds;
}

/** Opens the listeners. */
async function serve(options: ServerOptions, { assembly, metrics, bounds, ...rest }: Served): Promise<HttpServer> {
  const { context } = rest;
  const table = buildRouteTable(assembly.handlers, { checkAnswers: options.checkAnswers ?? false });
  const connections = { max: bounds.connections, perAddress: bounds.perAddress };
  const shared = {
    ...rest,
    admission: new Admission({ context, bounds, trustedProxies: options.trustedProxies }),
    semaphore: assembly.semaphore,
    requestIds: requestIds(randomBytes),
    observe: (seen: RequestSeen) => metrics.observeRequest(seen),
  };
  const api = apiService({
    ...assembly,
    ...shared,
    find: makeRouter([...table, ...documentationPages, ...consolePages()]),
    largeJson: new LargeJson(),
    nodeJson: assembly.nodeJson,
    readers: new LastReaders(),
    idempotency: new IdempotencyUse(context),
    processingMs: options.processingMs,
  });
  const { registry, secrets, nodes } = assembly;
  const turns = new UploadTurns(context.clock);
  const packages = registryService({ ...shared, registry, secrets, nodes, turns, publicUrl: options.publicUrl }, api);
  const service = ingressService(
    { ...assembly.ingress, ...shared, rights: rest.access, access: assembly.ingress.access },
    packages,
  );
  return startHttp({ ...options, connections, nodeListens: nodeListensOf(options) }, { ...shared, service });
}

const startEmbedded = ({ dataDirectory, signal }: ServerOptions, clock: Clock, log: Log): Promise<EmbeddedPostgres> =>
  startEmbeddedPostgres({ directory: join(dataDirectory, "postgres"), clock, log, randomBytes, signal });

const urlOf = ({ host, port }: ListenAddress): string => `http://${host.includes(":") ? `[${host}]` : host}:${port}`;

async function main(): Promise<void> {
  countBuffersWithHeap();
  // Registered first: an interrupted start must not leave its database running.
  const { ask, hurry } = stopSignals();
  const isUnderUp = process.send !== undefined;
  const settings = settingsOrExit("server", () => readSettings(process.argv.slice(2)));
  let server: RunningServer;
  try {
    server = await startServer({ ...settings, signal: ask });
  } catch (error) {
    if (ask.aborted) process.exit(0);
    process.stderr.write(`flotilla server: ${failureText(error)}\n`);
    process.exit(1);
  }
  const patience = isUnderUp ? { deadlineMs: ORPHAN_DEADLINE_MS } : { delayMs: settings.stopDelaySeconds * 1_000 };
  const stop = () => void server.stop({ hurry, ...patience }).then(() => process.exit(0));
  if (ask.aborted) return stop();
  ask.addEventListener("abort", stop, { once: true });
  const { url, adminKey } = server;
  const line = { url, adminKeyFile: adminKey.path, isAdminKeyNew: adminKey.isNew };
  process.stdout.write(`${JSON.stringify(line)}\n`);
  // `flotilla up` shows it to the user, and may have ended in the meantime: that stops this server.
  const nodeSocket = server.nodeUrls.find((address) => address.startsWith("unix:"))?.slice("unix:".length) ?? null;
  const listening = { kind: "listening", url, nodeSocket, adminKey: adminKey.isNew ? adminKey.key : null };
  process.send?.(listening, undefined, undefined, () => undefined);
}

if (import.meta.main) await main();
