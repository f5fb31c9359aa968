/**
 * The node agent: start order and stop order, nothing else.
 *
 * Machines outlive it. It is stopped by SIGTERM, SIGINT or SIGHUP, or by the end of the program that started it with an
 * IPC channel (`flotilla up`); then it lets go of the machines' VMs, which run on, and ends all others. A stop that takes
 * longer than STOP_DEADLINE_MS, and one that is asked for again, ends those VMs and the process without waiting for
 * anything else. A crash needs nothing of this: adopt.ts takes up whatever is found.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { lockDirectory } from "@flotilla/base/directory-lock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { NodeFacts } from "@flotilla/contract/link";
import { type NodeConfig, readNodeConfig } from "./config.ts";
import { type Equipment, nodeArch, openEquipment } from "./equipment.ts";
import { lowerOomScore } from "./host/out-of-memory.ts";
import { Outbox } from "./link/outbox.ts";
import { Reporter } from "./link/report.ts";
import { serveLink } from "./link/server.ts";
import { linkSocketPath } from "./link/socket-path.ts";
import { makeLog } from "./log.ts";
import { adoptMachines, describeAdoption } from "./machines/adopt.ts";
import { keepAlive, readLastAlive } from "./machines/alive-file.ts";
import { Fleet } from "./machines/fleet.ts";
import { makeSurroundings } from "./machines/surroundings.ts";

/** After this the process ends whatever has not been closed: the machines do not need it. */
const STOP_DEADLINE_MS = 8_000;
/** How long an agent is waited for that is stopping, because what started it was killed: longer than it takes to stop. */
const LOCK_WAIT_MS = 12_000;
/** Signals within this time are one: npm passes on what the terminal has sent to everyone. */
const SAME_SIGNAL_MS = 1_000;

async function run(config: NodeConfig, log: Log): Promise<void> {
  const outbox = new Outbox(systemClock);
  // Made before the fleet, which needs it; asked only when machines are there.
  const machines: { fleet?: Fleet } = {};
  const stop = stopSignal(log, () => endAtOnce(machines.fleet, log));
  await lowerOomScore();
  await prepareDirectories(config);
  const equipment = await openEquipment({
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
  const alivePath = join(config.nodeDirectory, "alive");
  const around = makeSurroundings({
    ...equipment,
    machinesDirectory: config.machinesDirectory,
    preparedDirectory: config.preparedDirectory,
    lastAliveAt: await readLastAlive(alivePath),
    clock: systemClock,
    log,
    onEvent: (machineId, level, message) => outbox.event(machineId, level, message),
    onChange: (machineId) => outbox.change(machineId),
  });
  const fleet = new Fleet(around);
  machines.fleet = fleet;
  const facts = nodeFacts(config, equipment);
  const socketPath = linkSocketPath(config.nodeDirectory);
  const reporter = makeReporter({ config, log, fleet, facts, equipment, outbox, address: `unix:${socketPath}` });
  void keepAlive(alivePath, systemClock, log, stop);
  const adoption = await adoptMachines(fleet, around);
  log.info({ ...adoption }, describeAdoption(adoption));
  await equipment.prepareImages();
  const { temporaryDirectory } = config;
  const { images } = equipment;
  const link = await serveLink({
    socketPath,
    serverUid: config.serverUid,
    temporaryDirectory,
    fleet,
    images,
    clock: systemClock,
    log,
  });
  log.info({ ...facts, socketPath, pid: process.pid }, "the node agent is ready");
  process.send?.({ kind: "ready" });
  await around.prepared.begin();
  const reporting = reporter.run(stop);

  await reporting;
  await link[Symbol.asyncDispose]();
  await fleet.release();
  await equipment[Symbol.asyncDispose]();
  log.info({}, "the node agent has stopped; its machines run on");
  process.exit(0);
}

/** Aborted when the agent is to stop. Calls `insist` when that takes too long or is asked for again. */
function stopSignal(log: Log, insist: () => void): AbortSignal {
  const stop = new AbortController();
  let askedAt = 0;
  const ask = (why: string) => (): void => {
    const now = systemClock.monotonic();
    if (stop.signal.aborted) {
      if (now - askedAt >= SAME_SIGNAL_MS) insist();
      return;
    }
    askedAt = now;
    log.info({ why }, "the node agent stops");
    systemClock.timer(STOP_DEADLINE_MS, insist);
    stop.abort(new Error(why));
  };
  process.on("SIGTERM", ask("SIGTERM"));
  process.on("SIGINT", ask("SIGINT"));
  process.on("SIGHUP", ask("SIGHUP"));
  // It never insists: a program that was asked to stop goes on.
  const onDisconnect = ask("the program that started it has ended");
  process.on("disconnect", () => {
    if (!stop.signal.aborted) onDisconnect();
  });
  return stop.signal;
}

/** Before the journals have been read it is not known which VMs are machines': the next agent ends the others. */
function endAtOnce(fleet: Fleet | undefined, log: Log): void {
  void Promise.resolve(fleet?.endOthers())
    .catch((error: unknown) => log.error({ error }, "the VMs of no machine could not be ended"))
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

function nodeFacts(config: NodeConfig, { driver }: Equipment): NodeFacts {
  const { name, accelerator, acceleratorReason, runtime } = driver.facts;
  return { nodeId: config.nodeId, driver: name, accelerator, acceleratorReason, runtime, arch: nodeArch() };
}

function makeReporter(parts: {
  readonly config: NodeConfig;
  readonly log: Log;
  readonly fleet: Fleet;
  readonly facts: NodeFacts;
  readonly equipment: Equipment;
  readonly outbox: Outbox;
  readonly address: string;
}): Reporter {
  const { config, log, fleet, facts, equipment, outbox, address } = parts;
  return new Reporter({
    serverUrl: config.serverUrl,
    serverSocket: config.nodeSocket,
    joinToken: config.joinToken,
    nodeDirectory: config.nodeDirectory,
    address,
    facts,
    outbox,
    observeResources: equipment.observeResources,
    observe: (machineId) => fleet.observe(machineId),
    observeAll: () => fleet.list().map((machine) => machine.observe()),
    clock: systemClock,
    log,
  });
}

try {
  const config = readNodeConfig();
  const log = makeLog({ level: config.logLevel, clock: systemClock });
  await run(config, log).catch((error: unknown) => {
    log.error({ error }, `the node agent can not run: ${messageOf(error)}`);
    process.exit(1);
  });
} catch (error) {
  process.stderr.write(`flotilla node: ${messageOf(error)}\n`);
  process.exit(2);
}
