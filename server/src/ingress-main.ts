/**
 * The ingress as its own process: the addresses of machines and apps, share links and the connect bridge,
 * beside servers on the same database. Starts and stops it; everything else is in ingress/.
 *
 * Run as a program it reads settings, starts, and prints `{"url":…}` as one line of JSON on standard output
 * when it serves. SIGTERM, SIGINT and SIGHUP stop it: after the configured delay requests have
 * STOP_DEADLINE_MS to finish; a second signal ends them.
 *
 * Always:
 * - it has no API, runs no loop, takes no call of a node, and reads neither the admin key nor the key of
 *   machines' secrets;
 * - with FLOTILLA_NODE_LISTEN nodes on other hosts park connections here, on which it can open ports of
 *   machines and do nothing else; until they have, it is not ready, for a while;
 * - it migrates nothing: servers do; until the schema exists it answers 503;
 * - what it writes is activity of machines, the last use of keys, and its lease for apps. A crash loses the
 *   last seconds of the first two and every open connection, and leaves the lease for seconds.
 */
import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import { countBuffersWithHeap } from "@flotilla/base/garbage-collection";
import type { Log } from "@flotilla/base/log";
import { AccessWatch } from "./auth/access-watch.ts";
import { KeyCache } from "./auth/key-cache.ts";
import { LastUsed } from "./auth/last-used.ts";
import { type IngressSettings, readIngressSettings, settingsOrExit } from "./config.ts";
import type { Context } from "./context.ts";
import { openDatabase } from "./db/postgres.ts";
import { createMetrics } from "./status/metrics.ts";
import { readiness } from "./status/ready.ts";
import type { RequestSeen } from "./status/request-counts.ts";
import { Admission } from "./fairness/admission.ts";
import { FairSemaphore } from "./fairness/semaphore.ts";
import { type ConnectionBounds, connectionBounds, descriptorLimit } from "./fairness/bounds.ts";
import { HostTable } from "./hosts/table.ts";
import { requestIds } from "./http/request-id.ts";
import { startHttp } from "./http/server.ts";
import { randomIds } from "./ids.ts";
import { AccessTable } from "./ingress/access.ts";
import { AppCounts } from "./ingress/apps/app-counts.ts";
import { AppRoutes } from "./ingress/apps/app-routes.ts";
import { connectTokenAuthenticator } from "./ingress/connect/tokens.ts";
import { IdleConnections } from "./ingress/idle-connections.ts";
import { probeService } from "./ingress/probes.ts";
import { ingressService } from "./ingress/serve.ts";
import { FleetConnections } from "./link/fleet-connections.ts";
import { startFleetListener } from "./link/fleet-listener.ts";
import { IngressTrust } from "./link/ingress-trust.ts";
import { nodesAwaitedBy } from "./link/nodes-awaited.ts";
import { NodeLink } from "./link/node-link.ts";
import { ParkedConnections } from "./link/parked.ts";
import { createLog } from "./log.ts";
import { Activity } from "./machines/activity.ts";
import { MachineAddresses } from "./machines/addresses.ts";
import { MachineCache } from "./machines/machine-cache.ts";
import { type StopOptions, StopSteps, stopSignals } from "./stop.ts";

export interface RunningIngress {
  /** `http://host:port`. */
  readonly url: string;
  /** Lets running requests finish, then stops everything that was started. */
  stop(options?: StopOptions): Promise<void>;
}

const STOP_DEADLINE_MS = 30_000;
/** Max connections: the process makes few queries, one per machine and half second, and batches. */
const DATABASE_CONNECTIONS_MAX = 8;

export interface IngressOptions extends IngressSettings {
  readonly databaseUrl: string;
  readonly clock?: Clock;
}

/** Rejects when it cannot listen. The database may be unreachable at the start. */
export async function startIngress(settings: IngressOptions): Promise<RunningIngress> {
  const clock = settings.clock ?? systemClock;
  const log: Log = createLog(settings.logLevel);
  const undo = new StopSteps(log);
  try {
    const connection = { connectionString: settings.databaseUrl };
    // The database answers in real time, whatever clock this process has.
    const db = openDatabase({ connection, clock: systemClock, log, connectionsMax: DATABASE_CONNECTIONS_MAX });
    undo.push(() => db.close());
    const context: Context = { db, clock, log, ids: randomIds(randomBytes), randomBytes };
    const bounds = connectionBounds(await descriptorLimit(), settings.connectionsPerAddress);
    const { http, addresses } = await serve(settings, { context, bounds, undo });
    const { host, port } = http.address;
    const url = `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
    addresses.listensAt(url);
    undo.push(({ deadlineMs = STOP_DEADLINE_MS, hurry }) => http.close({ deadlineMs, hurry }));
    undo.push(({ delayMs = 0, hurry }) => http.delayStop({ ms: delayMs, hurry }));
    log.info({ url }, "serving machines and apps");
    return { url, stop: (options) => undo.run(options) };
  } catch (error) {
    await undo.run();
    throw error;
  }
}

interface Parts {
  readonly context: Context;
  readonly bounds: ConnectionBounds;
  /** Gets what must be stopped. */
  readonly undo: StopSteps;
}

/** Opens what requests need, then the listener. */
async function serve(settings: IngressSettings, { context, bounds, undo }: Parts) {
  const { clock, db, log } = context;
  const keys = new KeyCache(db);
  const access = new AccessWatch(context);
  undo.push(() => access.close());
  const lastUsed = new LastUsed(context);
  undo.push(() => lastUsed.stop());
  const metrics = createMetrics();
  undo.push(() => metrics.close());
  const fleet = openFleet(context, undo);
  const link = new NodeLink(log, clock, fleet);
  undo.push(() => link.close());
  const cache = new MachineCache(context);
  const activity = new Activity(context, (id, at) => cache.touched(id, at));
  undo.push(() => activity.stop());
  const idle = new IdleConnections(clock, bounds.idleToGuests);
  undo.push(() => idle.close());
  const addresses = new MachineAddresses(settings);
  const shared = {
    context,
    keys,
    lastUsed,
    admission: new Admission({ context, bounds, trustedProxies: settings.trustedProxies }),
    semaphore: new FairSemaphore(clock),
    requestIds: requestIds(randomBytes),
    observe: (seen: RequestSeen) => metrics.observeRequest(seen),
  };
  const nodesAwaited = settings.nodeListen === null ? null : nodesAwaitedBy(context, fleet.parked);
  const ready = { isStopping: () => undo.hasBegun, isDiskFull: () => false, nodesAwaited };
  const probes = probeService({
    ...shared,
    metrics,
    isDatabaseUp: () => db.isListening(),
    checkReady: readiness(context, ready),
  });
  const apps = new AppRoutes(context);
  undo.push(() => apps.stop());
  const appCounts = new AppCounts((id) => apps.has(id));
  metrics.addText(() => appCounts.text(apps.open.byApp()));
  await apps.start();
  const ways = {
    ...{ addresses, apps, appCounts },
    hosts: new HostTable(db),
    access: new AccessTable(context),
    connectTokens: connectTokenAuthenticator(context),
    rights: access,
  };
  const service = ingressService({ ...shared, ...ways, link, cache, activity, idle }, probes);
  const connections = { max: bounds.connections, perAddress: bounds.perAddress };
  const http = await startHttp({ listen: settings.listen, connections, nodeListens: [] }, { ...shared, service });
  await listenForNodes(settings, { context, fleet, undo });
  activity.start();
  lastUsed.start();
  return { http, addresses };
}

/** What is needed to reach nodes on other hosts. */
function openFleet(context: Context, undo: StopSteps) {
  const { clock } = context;
  const trust = new IngressTrust(context);
  const fleet = { trust, clock, parked: new ParkedConnections(clock), connections: new FleetConnections(context) };
  undo.push(() => {
    fleet.parked.close();
    fleet.connections.close();
    trust.close();
  });
  return fleet;
}

/** Listens for nodes on other hosts, if it is configured. */
async function listenForNodes(
  { nodeListen, nodeAddresses }: IngressSettings,
  { context, fleet, undo }: Pick<Parts, "context" | "undo"> & { readonly fleet: ReturnType<typeof openFleet> },
): Promise<void> {
  if (nodeListen === null) return;
  const serveHttp = (socket: Duplex): void => void socket.destroy();
  const listening = { context, listen: nodeListen, addresses: nodeAddresses, announcer: fleet.trust, identity: null };
  const listener = await startFleetListener({ ...listening, ...fleet, serveHttp });
  undo.push(() => listener.close());
}

async function main(): Promise<void> {
  countBuffersWithHeap();
  const { ask, hurry } = stopSignals();
  const settings = settingsOrExit("ingress", () => {
    const { databaseUrl, ...others } = readIngressSettings(process.argv.slice(2));
    if (databaseUrl === null)
      throw new Error("DATABASE_URL is not set: the ingress needs the address of the servers' PostgreSQL");
    return { ...others, databaseUrl };
  });
  let ingress: RunningIngress;
  try {
    ingress = await startIngress(settings);
  } catch (error) {
    process.stderr.write(`flotilla ingress: ${ownMessageOf(error)}\n`);
    process.exit(1);
  }
  const delayMs = settings.stopDelaySeconds * 1_000;
  const stop = () => void ingress.stop({ delayMs, hurry }).then(() => process.exit(0));
  if (ask.aborted) return stop();
  ask.addEventListener("abort", stop, { once: true });
  process.stdout.write(`${JSON.stringify({ url: ingress.url })}\n`);
}

if (import.meta.main) await main();
