/**
 * The node agent: start order and stop order, nothing else.
 *
 * Machines outlive it. SIGTERM, SIGINT or SIGHUP stop it, or the end of the program that started it with an IPC channel
 * (`flotilla up`). It then releases the machines' VMs, which continue to run, and kills all others. A stop that takes longer
 * than STOP_DEADLINE_MS, or a second request, kills those VMs and exits without waiting for anything else. A crash needs
 * none of this: adopt.ts adopts whatever it finds.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { lockDirectory } from "@flotilla/base/directory-lock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { NodeFacts } from "@flotilla/contract/link";
import { type NodeConfig, readNodeConfig } from "./config.ts";
import { isNearlyFull } from "./disks/disks.ts";
import { type NodeBackends, nodeArch, openNodeBackends } from "./node-backends.ts";
import { lowerOomScore } from "./host/out-of-memory.ts";
import { LastError } from "./link/last-error.ts";
import { Outbox } from "./link/outbox.ts";
import { openReach, type Reach } from "./link/reach.ts";
import { Reporter } from "./link/report.ts";
import { type ServedLink, serveLink } from "./link/server.ts";
import { linkSocketPath } from "./link/socket-path.ts";
import { makeLog } from "./log.ts";
import { adoptMachines, describeAdoption } from "./machines/adopt.ts";
import { keepAlive, readLastAlive } from "./machines/alive-file.ts";
import { Fleet } from "./machines/fleet.ts";
import { Incoming } from "./machines/incoming.ts";
import { RunJournal } from "./machines/run-journal.ts";
import { type MachineDeps, makeMachineDeps } from "./machines/machine-deps.ts";

/** After this time the process exits without closing the rest; machines do not depend on it. */
const STOP_DEADLINE_MS = 8_000;
/** How long to wait for an agent that is still stopping because its parent was killed; longer than a stop takes. */
const LOCK_WAIT_MS = 12_000;
/** Signals within this time count as one: npm forwards a signal that the terminal has already sent to every process. */
const SAME_SIGNAL_MS = 1_000;

async function run(config: NodeConfig, log: Log, errors: LastError): Promise<void> {
  const outbox = new Outbox(systemClock);
  // Filled in below: the backends are created before the fleet, but use it only when machines exist.
  const machines: { fleet?: Fleet } = {};
  const stop = stopSignal(log, () => killOthersAndExit(machines.fleet, log));
  await lowerOomScore();
  await prepareDirectories(config);
  const runs = await RunJournal.open({
    path: join(config.nodeDirectory, "runs.journal"),
    clock: systemClock,
    log,
    onChange: () => outbox.wake(),
  });
  const backends = await openNodeBackends({
    config,
    clock: systemClock,
    log,
    imagesInUse: async () => {
      if (machines.fleet === undefined) throw new Error("the machines have not been read yet");
      return await machines.fleet.imagesInUse();
    },
    environmentOf: (machineId) => machines.fleet?.find(machineId)?.spec?.env ?? {},
    onEvent: (machineId, level, message) => outbox.event(machineId, level, message),
  });
  backends.images.watch(() => outbox.changeImages());
  const alivePath = join(config.nodeDirectory, "alive");
  const deps = makeMachineDeps({
    ...backends,
    machinesDirectory: config.machinesDirectory,
    preparedDirectory: config.preparedDirectory,
    runs,
    lastAliveAt: await readLastAlive(alivePath),
    clock: systemClock,
    log,
    onEvent: (machineId, level, message) => outbox.event(machineId, level, message),
    onChange: (machineId) => outbox.change(machineId),
  });
  const fleet = new Fleet(deps);
  machines.fleet = fleet;
  const facts = nodeFacts(config, backends);
  const socketPath = linkSocketPath(config.nodeDirectory);
  const reach = await openReach({ ...config, clock: systemClock, log });
  const address = reach?.address ?? `unix:${socketPath}`;
  const reporter = makeReporter({ config, log, fleet, facts, backends, outbox, runs, reach, address, errors });
  void keepAlive(alivePath, systemClock, log, stop);
  const adoption = await adoptMachines(fleet, deps);
  log.info({ ...adoption }, describeAdoption(adoption));
  await backends.prepareImages();
  const link = await openLink({ config, socketPath, fleet, deps, log });
  const reached = await reach?.open(link.serve);
  log.info({ ...facts, address, pid: process.pid }, "the node agent is ready");
  process.send?.({ kind: "ready" });
  await deps.prepared.begin();
  const reporting = reporter.run(stop);

  await reporting;
  await reached?.[Symbol.asyncDispose]();
  await link[Symbol.asyncDispose]();
  await fleet.release();
  await runs.saved();
  await backends[Symbol.asyncDispose]();
  log.info({}, "the node agent has stopped; its machines continue to run");
  process.exit(0);
}

/** Serves the server, after what an earlier agent had received of machines has been found. */
async function openLink(parts: {
  readonly config: NodeConfig;
  readonly socketPath: string;
  readonly fleet: Fleet;
  readonly deps: MachineDeps;
  readonly log: Log;
}): Promise<ServedLink> {
  const { config, deps } = parts;
  const incoming = new Incoming({ directory: join(config.nodeDirectory, "incoming"), ...parts });
  await incoming.open();
  const { images, clock } = deps;
  return await serveLink({ ...config, ...parts, incoming, outgoing: deps, images, isNearlyFull, clock });
}

/** Aborted when the agent should stop. Calls `forceStop` when that takes too long or is requested again. */
function stopSignal(log: Log, forceStop: () => void): AbortSignal {
  const stop = new AbortController();
  let requestedAt = 0;
  const request = (why: string) => (): void => {
    const now = systemClock.monotonic();
    if (stop.signal.aborted) {
      if (now - requestedAt >= SAME_SIGNAL_MS) forceStop();
      return;
    }
    requestedAt = now;
    log.info({ why }, "the node agent is stopping");
    systemClock.timer(STOP_DEADLINE_MS, forceStop);
    stop.abort(new Error(why));
  };
  process.on("SIGTERM", request("SIGTERM"));
  process.on("SIGINT", request("SIGINT"));
  process.on("SIGHUP", request("SIGHUP"));
  // Never forces a stop: the stop that was requested before continues.
  const onDisconnect = request("the program that started it has ended");
  process.on("disconnect", () => {
    if (!stop.signal.aborted) onDisconnect();
  });
  return stop.signal;
}

/** Before the journals are read it is unknown which VMs belong to machines; the next agent kills the others. */
function killOthersAndExit(fleet: Fleet | undefined, log: Log): void {
  void Promise.resolve(fleet?.endUnknownVms())
    .catch((error: unknown) => log.error({ error }, "the VMs without a machine could not be killed"))
    .finally(() => process.exit(0));
}

async function prepareDirectories(config: NodeConfig): Promise<void> {
  await mkdir(config.nodeDirectory, { recursive: true, mode: 0o700 });
  await lockDirectory(config.nodeDirectory, {
    clock: systemClock,
    name: "flotilla-node",
    otherHolder: "another node agent",
    runningWaitMs: LOCK_WAIT_MS,
    stoppingWaitMs: LOCK_WAIT_MS,
  });
  await rm(config.temporaryDirectory, { recursive: true, force: true });
  await mkdir(config.temporaryDirectory, { mode: 0o700 });
}

function nodeFacts(config: NodeConfig, { driver }: NodeBackends): NodeFacts {
  const { name, accelerator, acceleratorReason, runtime } = driver.facts;
  const { nodeId } = config;
  const { memoryFormat } = driver;
  return { nodeId, driver: name, accelerator, acceleratorReason, runtime, arch: nodeArch(), memoryFormat };
}

function makeReporter(parts: {
  readonly config: NodeConfig;
  readonly log: Log;
  readonly fleet: Fleet;
  readonly facts: NodeFacts;
  readonly backends: NodeBackends;
  readonly outbox: Outbox;
  readonly runs: RunJournal;
  readonly reach: Reach | null;
  readonly address: string;
  readonly errors: LastError;
}): Reporter {
  const { config, log, fleet, facts, backends, outbox, runs, reach, address, errors } = parts;
  return new Reporter({
    serverUrl: config.serverUrl,
    serverSocket: config.nodeSocket,
    remote: reach?.server ?? null,
    joinToken: config.joinToken,
    nodeDirectory: config.nodeDirectory,
    address,
    facts,
    outbox,
    runs,
    observeResources: backends.observeResources,
    listImages: () => backends.images.list(),
    observe: (machineId) => fleet.observe(machineId),
    observeAll: () => fleet.list().map((machine) => machine.observe()),
    lastError: () => errors.last,
    clock: systemClock,
    log,
  });
}

try {
  const config = readNodeConfig();
  const errors = new LastError(systemClock);
  const log = makeLog({ level: config.logLevel, clock: systemClock, onError: (message) => errors.note(message) });
  await run(config, log, errors).catch((error: unknown) => {
    log.error({ error }, `the node agent cannot run: ${messageOf(error)}`);
    process.exit(1);
  });
} catch (error) {
  process.stderr.write(`flotilla node: ${messageOf(error)}\n`);
  process.exit(2);
}
