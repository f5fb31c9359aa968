/**
 * The life of one node agent: what it opens, in which order, and in which order it ends. main.ts makes it a
 * process.
 *
 * Time, the backends and the signal that stops it are parameters, so that a simulation runs the same agent.
 *
 * Always: what an earlier agent left is found before the link answers. When `runAgent` resolves, VMs of
 * machines still run and all others have ended.
 */
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { NodeFacts } from "@flotilla/contract/link/link";
import { Branches } from "./branches/branches.ts";
import type { NodeConfig } from "./config.ts";
import type { LastError } from "./link/last-error.ts";
import { Outbox } from "./link/outbox.ts";
import { openReach, type Reach } from "./link/reach.ts";
import { Reporter } from "./link/report.ts";
import type { AgentRestart } from "./link/host.ts";
import { serveLink } from "./link/server.ts";
import { openServerCalls } from "./link/server-calls.ts";
import { linkSocketPath } from "./link/socket-path.ts";
import { adoptMachines, describeAdoption } from "./machines/adopt.ts";
import { keepAlive, readLastAlive } from "./machines/alive-file.ts";
import { meterEgress } from "./machines/egress-meter.ts";
import { Fleet } from "./machines/fleet.ts";
import { Incoming } from "./moves/incoming.ts";
import { makeMachineDeps } from "./machines/machine-deps.ts";
import { Exports } from "./packages/exports.ts";
import { RunJournal } from "./machines/run-journal.ts";
import { Replacements } from "./replacing/replacements.ts";
import { type NodeBackends, type NodeBackendsOptions, nodeArch } from "./node-backends.ts";

export interface AgentOptions {
  readonly config: NodeConfig;
  readonly clock: Clock;
  readonly log: Log;
  readonly errors: LastError;
  /** Ends the agent. */
  readonly stop: AbortSignal;
  readonly openBackends: (options: NodeBackendsOptions) => Promise<NodeBackends>;
  /** Restarts the agent as the installed program; absent: it cannot. */
  readonly restart?: AgentRestart;
  /** Called with the machines before any of them is read. */
  readonly onFleet?: (fleet: Fleet) => void;
  /** Called when servers can reach the agent. */
  readonly onReady?: () => void;
}

/** Resolves when the agent has ended. Rejects with an Error for the operator when it cannot run. */
export async function runAgent(options: AgentOptions): Promise<void> {
  const { config, clock, log, errors, stop, openBackends, onFleet, onReady, restart } = options;
  const outbox = new Outbox(clock);
  // Filled in below: the backends are created before the fleet, but use it only when machines exist.
  const machines: { fleet?: Fleet } = {};
  const runs = await openRuns(config.nodeDirectory, { clock, log, outbox });
  const reach = await openReach({ ...config, clock, log });
  const calls = openServerCalls({ ...config, remote: reach?.server ?? null });
  const backends = await openBackends({
    config,
    callServer: calls.call,
    clock,
    log,
    imagesInUse: async () => {
      if (machines.fleet === undefined) throw new Error("the machines have not been read yet");
      return await machines.fleet.imagesInUse();
    },
    environmentOf: (machineId) => machines.fleet?.find(machineId)?.known?.journal.spec?.env ?? {},
    onEvent: (machineId, event) => outbox.event(machineId, event),
  });
  backends.images.watch(() => outbox.changeImages());
  const alivePath = join(config.nodeDirectory, "alive");
  const deps = makeMachineDeps({
    ...backends,
    machinesDirectory: config.machinesDirectory,
    preparedDirectory: config.preparedDirectory,
    runs,
    lastAliveAt: await readLastAlive(alivePath),
    clock,
    log,
    onEvent: (machineId, event) => outbox.event(machineId, event),
    onChange: (machineId) => outbox.change(machineId),
  });
  const fleet = new Fleet(deps);
  machines.fleet = fleet;
  onFleet?.(fleet);
  const facts = nodeFacts(config, backends);
  const socketPath = linkSocketPath(config.nodeDirectory);
  const address = reach?.address ?? `unix:${socketPath}`;
  const parts = { config, clock, log, fleet, facts, backends };
  const replacements = new Replacements({ fleet, driver: backends.driver });
  const exports = new Exports({ ...config, callServer: calls.call, arch: nodeArch(), fleet, deps, clock, log });
  const incoming = new Incoming({ directory: join(config.nodeDirectory, "incoming"), fleet, deps, log });
  const reporter = makeReporter({ ...parts, incoming, replacements, outbox, runs, reach, address, errors });
  void keepAlive(alivePath, clock, log, stop);
  const adoption = await adoptMachines(fleet, deps);
  log.info({ ...adoption }, describeAdoption(adoption));
  const metering = meterEgress({ runs, clock, senders: () => fleet.senders() }, stop);
  await backends.prepareImages();
  // After the journals were read.
  await incoming.open();
  const link = await serveLink({
    ...{ ...config, socketPath, fleet, incoming, replacements, outgoing: deps, images: deps.images, clock, log },
    ...{ branches: new Branches(fleet, deps), exports, bootId: reporter.bootId, ...(restart && { restart }) },
  });
  const reached = await reach?.open(link.serve);
  log.info({ ...facts, address, pid: process.pid }, "the node agent is ready");
  onReady?.();
  await deps.prepared.begin();
  await reporter.run(stop);

  await reached?.[Symbol.asyncDispose]();
  await link[Symbol.asyncDispose]();
  await metering;
  await fleet.release();
  await runs.saved();
  await backends[Symbol.asyncDispose]();
  calls[Symbol.dispose]();
}

function openRuns(
  nodeDirectory: string,
  { clock, log, outbox }: { readonly clock: Clock; readonly log: Log; readonly outbox: Outbox },
): Promise<RunJournal> {
  return RunJournal.open({
    path: join(nodeDirectory, "runs.journal"),
    clock,
    log,
    onChange: () => outbox.wake(),
  });
}

function nodeFacts(config: NodeConfig, { driver }: NodeBackends): NodeFacts {
  const { name, accelerator, acceleratorReason, runtime } = driver.facts;
  const { nodeId } = config;
  const memoryFormat = driver.memory?.format ?? null;
  return { nodeId, driver: name, accelerator, acceleratorReason, runtime, arch: nodeArch(), memoryFormat };
}

function makeReporter(parts: {
  readonly config: NodeConfig;
  readonly clock: Clock;
  readonly log: Log;
  readonly fleet: Fleet;
  readonly incoming: Incoming;
  readonly replacements: Replacements;
  readonly facts: NodeFacts;
  readonly backends: NodeBackends;
  readonly outbox: Outbox;
  readonly runs: RunJournal;
  readonly reach: Reach | null;
  readonly address: string;
  readonly errors: LastError;
}): Reporter {
  const { config, clock, log, fleet, incoming, replacements, facts, backends, outbox, runs, reach, address, errors } =
    parts;
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
    canFence: backends.driver.canFence,
    closeToGuests: (places) => void backends.closeToGuests(places),
    acknowledged: (sentAt, absent) => fleet.acknowledged(sentAt, absent),
    outdatedVmms: () => replacements.outdated(),
    lastError: () => errors.last,
    incoming,
    clock,
    log,
  });
}
