/**
 * The postmaster process of the embedded PostgreSQL: found, started, watched and stopped.
 *
 * Always:
 * - It is identified by its working directory, which is our data directory, not by a process id alone.
 * - It is started only when no process works in the data directory.
 * - When it ends it is restarted, until this server stops.
 * - A stop is a fast shutdown, then an immediate one, then SIGKILL. Nothing that was acknowledged is lost in
 *   any of them.
 *
 * It is detached: when this process is killed it continues to run, and the next process finds it here.
 */
import { open, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import pg from "pg";
import type { ConnectionOptions } from "../db/postgres.ts";
import { failureInLog, logSize } from "./cluster.ts";
import { type Installation, launch, linkLibraries } from "./process.ts";

export interface PostmasterOptions {
  /** `<data dir>/postgres`. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Additional settings, `name=value`; for tests. */
  readonly settings?: readonly string[];
}

/** Without the time in which it recovers from its log, which depends on the disk. */
const START_TIMEOUT_MS = 60_000;
/**
 * The limit of a fast shutdown. Longer than a checkpoint takes; recovery from a crash does not stop for it
 * immediately.
 */
const FAST_STOP_MS = 20_000;
/**
 * The same while another Flotilla waits. Its start recovers from the log within a second or two; a checkpoint
 * on a slow disk, or a process of PostgreSQL's that hangs, would keep it waiting for all of FAST_STOP_MS.
 */
const WAITED_STOP_MS = 3_000;
/** PostgreSQL itself kills processes that have not ended 5 s after an immediate shutdown began. */
const IMMEDIATE_STOP_MS = 7_000;
/** How often the process is checked; the end of a child process is noticed immediately. */
const WATCH_MS = 200;
const RESTART_MS_MAX = 10_000;
const POLL_MS = 20;
const RESTART_PAUSE_MS = 100;
/**
 * After a kill, the old process's children hold its memory for a moment, and starts fail until they have
 * ended.
 */
const STARTS_MAX = 100;

/** Little memory, for a laptop that also runs machines; enough connections for the pools of a few servers. */
const SETTINGS = [
  "listen_addresses=",
  "unix_socket_directories=.",
  "unix_socket_permissions=0700",
  "max_connections=100",
  "shared_buffers=32MB",
  "huge_pages=off",
  "io_method=sync",
  "jit=off",
  "max_parallel_workers=0",
  "max_wal_size=256MB",
  "log_min_messages=warning",
  "log_line_prefix=%m [%p] ",
];

export interface PostmasterState {
  readonly options: PostmasterOptions;
  /** Called before each start with the number of those that have failed: on a full disk it needs some room. */
  readonly makeRoom: (failures: number) => Promise<void>;
  readonly dataDirectory: string;
  readonly connection: ConnectionOptions;
  readonly installation: Installation;
  readonly stopping: AbortController;
  postmaster: Postmaster;
}

export interface Postmaster {
  readonly pid: number;
  /** Aborted when it ends; null for an adopted one, which is not our child. */
  readonly ended: AbortSignal | null;
}

/** The postmaster that has our data directory as its working directory, if one runs. */
export async function runningPid(dataDirectory: string): Promise<number | undefined> {
  let pid: number;
  try {
    pid = Number((await readFile(join(dataDirectory, "postmaster.pid"), "utf8")).split("\n")[0]);
  } catch {
    return undefined;
  }
  return (await isAlive(pid, dataDirectory)) ? pid : undefined;
}

/**
 * False for a process id that another program has now, and for a process that has ended but was not reaped.
 */
async function isAlive(pid: number, dataDirectory: string): Promise<boolean> {
  try {
    const [theirs, ours] = await Promise.all([stat(`/proc/${pid}/cwd`), stat(dataDirectory)]);
    return theirs.dev === ours.dev && theirs.ino === ours.ino;
  } catch {
    return false;
  }
}

/** Starts it, or waits for the running one, until it accepts connections. */
export async function bringUp(state: PostmasterState): Promise<void> {
  const { clock, directory } = state.options;
  const from = await logSize(directory);
  let deadline = clock.monotonic() + START_TIMEOUT_MS;
  let lastError: unknown;
  let starts = 0;
  while (clock.monotonic() < deadline && starts < STARTS_MAX && !state.stopping.signal.aborted) {
    if (!(await isRunning(state))) {
      await state.makeRoom(starts++);
      const pid = await runningPid(state.dataDirectory);
      if (lastError !== undefined) await clock.sleep(RESTART_PAUSE_MS, state.stopping.signal);
      state.postmaster = pid === undefined ? await spawnPostmaster(state) : { pid, ended: null };
    }
    lastError = await tryToConnect(state);
    if (lastError === undefined) return;
    // Ended now, a recovery would begin again with the next start.
    if (isComingUp(lastError)) deadline = clock.monotonic() + START_TIMEOUT_MS;
    await clock.sleep(POLL_MS, state.postmaster.ended ?? undefined);
  }
  const reason = ownMessageOf(lastError);
  throw await failureInLog(`the embedded PostgreSQL did not start: ${reason}`, { directory, from });
}

/**
 * Whether it runs. Only the end of a child counts: before it becomes PostgreSQL, its working directory
 * is another one.
 */
async function isRunning({ postmaster, dataDirectory }: PostmasterState): Promise<boolean> {
  if (postmaster.ended !== null) return !postmaster.ended.aborted;
  return postmaster.pid !== 0 && (await isAlive(postmaster.pid, dataDirectory));
}

async function spawnPostmaster({ options, dataDirectory, installation }: PostmasterState): Promise<Postmaster> {
  await removeStalePidFile(dataDirectory);
  await linkLibraries(installation);
  const log = await open(join(options.directory, "log"), "a", 0o600);
  try {
    const settings = [...SETTINGS, ...(options.settings ?? [])];
    const child = launch(installation, {
      program: "postgres",
      directory: dataDirectory,
      args: (inside) => ["-D", inside, ...settings.flatMap((item) => ["-c", item])],
      logFd: log.fd,
      isDetached: true,
    });
    const ended = new AbortController();
    child.once("exit", () => ended.abort());
    child.once("error", (error) => {
      options.log.error({ reason: error.message }, "the embedded PostgreSQL could not be run");
      ended.abort();
    });
    child.unref();
    return { pid: child.pid ?? 0, ended: ended.signal };
  } finally {
    await log.close();
  }
}

/**
 * PostgreSQL decides by whether the process id in its lock file is alive. After a crash it may belong to
 * another program, or to a dead process that was not reaped, and PostgreSQL would refuse to start. The file
 * also keeps it from starting beside children of the old one that still write, so it is removed only when no
 * process at all is in the data directory.
 */
async function removeStalePidFile(dataDirectory: string): Promise<void> {
  const path = join(dataDirectory, "postmaster.pid");
  const read = () => readFile(path, "utf8").catch(() => undefined);
  const found = await read();
  if (found === undefined) return;
  for (const name of await readdir("/proc")) {
    if (/^\d+$/.test(name) && (await isAlive(Number(name), dataDirectory))) return;
  }
  // A different text belongs to a server that a killed process of ours was starting.
  if ((await read()) === found) await rm(path, { force: true });
}

/** Whether the server runs and does not accept connections yet (cannot_connect_now). */
const isComingUp = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && error.code === "57P03" && !error.message.includes("shutting down");

/** The error, or undefined when a connection was made; SCRAM proves that both sides know the password. */
async function tryToConnect(state: PostmasterState): Promise<unknown> {
  const client = new pg.Client({ ...state.connection, database: "postgres", connectionTimeoutMillis: 5_000 });
  client.on("error", () => undefined);
  try {
    await client.connect();
    return undefined;
  } catch (error) {
    return error;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/**
 * Restarts it whenever it has ended, until we stop. What keeps it from starting, such as a full disk, lasts:
 * so each try waits longer.
 */
export async function watch(state: PostmasterState): Promise<void> {
  const { clock, log } = state.options;
  const stopping = state.stopping.signal;
  let failures = 0;
  while (!stopping.aborted) {
    const { ended } = state.postmaster;
    // The end of one that could not be started is known already.
    const isNew = failures === 0 && ended !== null;
    const waitMs = Math.min(RESTART_MS_MAX, WATCH_MS * 2 ** failures);
    await clock.sleep(waitMs, isNew ? AbortSignal.any([stopping, ended]) : stopping);
    if (stopping.aborted) return;
    if (await isRunning(state)) {
      failures = 0;
      continue;
    }
    log.error({ pid: state.postmaster.pid }, "the embedded PostgreSQL ended; restarting it");
    try {
      await bringUp(state);
      failures = 0;
      log.info({ pid: state.postmaster.pid }, "the embedded PostgreSQL runs again");
    } catch (error) {
      failures += 1;
      log.error({ error }, "the embedded PostgreSQL could not be restarted; trying again");
    }
  }
}

export interface ShutDownOptions {
  /** Aborted when another Flotilla waits for this one's end. */
  readonly waiting: AbortSignal;
  /** Aborted: stops immediately. */
  readonly hurry?: AbortSignal | undefined;
}

/**
 * Requests a fast shutdown, which ends open transactions and writes all data to disk; when that takes too
 * long, an immediate one, which loses nothing that was acknowledged. SIGKILL would leave its children
 * running.
 */
export async function shutDown(state: PostmasterState, { waiting, hurry }: ShutDownOptions): Promise<void> {
  const { clock, log } = state.options;
  const { pid } = state.postmaster;
  const startedAt = clock.monotonic();
  const isLate = (): boolean =>
    hurry?.aborted === true || clock.monotonic() - startedAt > (waiting.aborted ? WAITED_STOP_MS : FAST_STOP_MS);
  if (await endWith(state, "SIGINT", isLate)) return;
  if (hurry?.aborted !== true) {
    const why = waiting.aborted ? "another Flotilla waits for it" : "it did not stop in time";
    log.warn({ pid, why }, "stopping the embedded PostgreSQL without a checkpoint");
  }
  const quitAt = clock.monotonic();
  if (await endWith(state, "SIGQUIT", () => clock.monotonic() - quitAt > IMMEDIATE_STOP_MS)) return;
  log.warn({ pid }, "the embedded PostgreSQL did not stop and is killed; nothing acknowledged is lost");
  signalProcess(pid, "SIGKILL");
}

/** Whether it ended before it was late. */
async function endWith(state: PostmasterState, signal: NodeJS.Signals, isLate: () => boolean): Promise<boolean> {
  const { clock } = state.options;
  if (!(await isRunning(state))) return true;
  signalProcess(state.postmaster.pid, signal);
  while (await isRunning(state)) {
    if (isLate()) return false;
    await clock.sleep(POLL_MS, state.postmaster.ended ?? undefined);
  }
  return true;
}

/** A process that has ended in the meantime needs no signal. */
function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
