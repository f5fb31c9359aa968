/**
 * The node agent as a process: its signals, its lock and its exit. agent.ts is what runs in it.
 *
 * Machines outlive it. SIGTERM, SIGINT or SIGHUP stop it, or the end of the program that started it with an
 * IPC channel (`flotilla up`). It then releases the machines' VMs, which continue to run, and kills all
 * others. A stop that takes longer than STOP_DEADLINE_MS, or a second request, kills those VMs and exits
 * without waiting for anything else. A crash needs none of this: adopt.ts adopts whatever it finds. A restart
 * in place (installed.ts) is a stop, and then the installed program.
 */
import { mkdir, rm } from "node:fs/promises";
import { systemClock } from "@flotilla/base/clock";
import { lockDirectory } from "@flotilla/base/directory-lock";
import { messageOf } from "@flotilla/base/errors";
import { countBuffersWithHeap } from "@flotilla/base/garbage-collection";
import type { Log } from "@flotilla/base/log";
import { STOP_SIGNALS } from "@flotilla/base/stop-signals";
import { RELEASE } from "@flotilla/contract/release";
import { runAgent } from "./agent.ts";
import { type NodeConfig, readNodeConfig } from "./config.ts";
import { lowerOomScore } from "./host/out-of-memory.ts";
import { becomeInstalled, installedRelease, RELEASE_FLAG, SET_UP_FLAG } from "./installed.ts";
import { LastError } from "./link/last-error.ts";
import { makeLog } from "./log.ts";
import type { Fleet } from "./machines/fleet.ts";
import { checkSetUp, openNodeBackends } from "./node-backends.ts";

/** After this time the process exits without closing the rest; machines do not depend on it. */
const STOP_DEADLINE_MS = 8_000;
/**
 * How long to wait for an agent that is still stopping because its parent was killed; longer than a stop
 * takes.
 */
const LOCK_WAIT_MS = 12_000;
/**
 * Signals within this time count as one: npm forwards a signal that the terminal has already sent to every
 * process.
 */
const SAME_SIGNAL_MS = 1_000;

async function run(config: NodeConfig, log: Log, errors: LastError): Promise<void> {
  const machines: { fleet?: Fleet } = {};
  const stopping = stopOnSignals(log, () => killOthersAndExit(machines.fleet, log, exit));
  const exit = (): never => (stopping.isRestart() ? becomeInstalled() : process.exit(0));
  await lowerOomScore();
  await prepareDirectories(config);
  await runAgent({
    config,
    clock: systemClock,
    log,
    errors,
    stop: stopping.signal,
    openBackends: openNodeBackends,
    restart: {
      installedRelease: () => installedRelease(),
      begin: (release) => stopping.request(`it restarts as release ${release}`, { isRestart: true }),
    },
    onFleet: (fleet) => {
      machines.fleet = fleet;
    },
    // `flotilla up` may have ended in the meantime: then the stop is under way, or about to begin.
    onReady: () => process.send?.({ kind: "ready" }, undefined, undefined, () => undefined),
  });
  log.info({}, "the node agent has stopped; its machines continue to run");
  exit();
}

interface Stopping {
  readonly signal: AbortSignal;
  readonly request: (why: string, options?: { readonly isRestart: boolean }) => void;
  /** Whether the agent is to run again. A signal during a restart ends it for good. */
  readonly isRestart: () => boolean;
}

/**
 * The signal is aborted when the agent should stop. Calls `forceStop` when that takes too long or is
 * requested again.
 */
function stopOnSignals(log: Log, forceStop: () => void): Stopping {
  const stop = new AbortController();
  let requestedAt = 0;
  let isRestart = false;
  const request: Stopping["request"] = (why, options) => {
    const now = systemClock.monotonic();
    isRestart = options?.isRestart === true;
    if (stop.signal.aborted) {
      if (now - requestedAt >= SAME_SIGNAL_MS) forceStop();
      return;
    }
    requestedAt = now;
    log.info({ why }, "the node agent is stopping");
    systemClock.timer(STOP_DEADLINE_MS, forceStop);
    stop.abort(new Error(why));
  };
  for (const name of STOP_SIGNALS) process.on(name, () => request(name));
  // Never forces a stop: the stop that was requested before continues.
  process.on("disconnect", () => {
    if (!stop.signal.aborted) request("the program that started it has ended");
  });
  return { signal: stop.signal, request, isRestart: () => isRestart };
}

/**
 * Before the journals are read it is unknown which VMs belong to machines; the next agent kills the others.
 */
function killOthersAndExit(fleet: Fleet | undefined, log: Log, exit: () => never): void {
  void Promise.resolve(fleet?.endUnknownVms())
    .catch((error: unknown) => log.error({ error }, "the VMs without a machine could not be killed"))
    .finally(exit);
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

try {
  if (process.argv.includes(RELEASE_FLAG)) {
    const flags = process.argv.slice(2).filter((each) => each !== RELEASE_FLAG && each !== SET_UP_FLAG);
    if (process.argv.includes(SET_UP_FLAG)) await checkSetUp(readNodeConfig(flags));
    process.stdout.write(`${RELEASE}\n`);
    process.exit(0);
  }
  countBuffersWithHeap();
  const config = readNodeConfig();
  const errors = new LastError(systemClock);
  const log = makeLog({
    level: config.logLevel,
    clock: systemClock,
    isForPeople: process.stderr.isTTY,
    onError: (message) => errors.note(message),
  });
  await run(config, log, errors).catch((error: unknown) => {
    log.error({ error }, `the node agent cannot run: ${messageOf(error)}`);
    process.exit(1);
  });
} catch (error) {
  process.stderr.write(`flotilla node: ${messageOf(error)}\n`);
  process.exit(2);
}
