/**
 * The embedded PostgreSQL: a real server in `<data dir>/postgres`, started, adopted, supervised and stopped here.
 *
 * Owns `<data dir>/postgres`: `data/` (the cluster), `password` (0600), `log`, `lib/` (links to libraries),
 * `reserve`.
 *
 * Always:
 * - It listens on a Unix socket inside `data/`, which only its own user can enter, with a generated password. The
 *   socket is opened through a descriptor of the directory (`/proc/self/fd/N`), so the path is never too long.
 * - It is detached: when this process is killed it keeps running, and the next one adopts it. It is identified by its
 *   working directory, which is our data directory, not by a process id alone.
 * - When it dies it is restarted; queries in between fail with DatabaseUnavailable.
 * - It is durable: fsync and synchronous commit stay on.
 *
 * A crash while the cluster is being made leaves a folder `init-…` that the next start removes.
 */
import { closeSync, openSync } from "node:fs";
import { chown, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { lockDirectory } from "@flotilla/base/directory-lock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import pg from "pg";
import { DatabaseUnavailable } from "../db/database.ts";
import { type ConnectionOptions, isConnectionLoss } from "../db/postgres.ts";
import { whileUnavailable } from "../db/retry.ts";
import { DiskReserve } from "./disk-reserve.ts";
import { findInstallation, type Installation, launch, linkLibraries } from "./process.ts";

export interface EmbeddedPostgres {
  readonly connection: ConnectionOptions;
  /** The postmaster's current process id, which changes with a restart. */
  pid(): number;
  /** Whether its disk has no space left except the reserve. */
  isDiskFull(): boolean;
  /**
   * Shuts it down cleanly and releases the directory. Once `hurry` is aborted it stops without a checkpoint, and the
   * next start recovers from its log.
   */
  stop(hurry?: AbortSignal): Promise<void>;
}

export interface EmbeddedOptions {
  /** `<data dir>/postgres`; made when missing. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly randomBytes: (size: number) => Buffer;
  /** Aborted when this server is to stop: cancels a start in progress. */
  readonly signal?: AbortSignal | undefined;
  /** Additional settings, `name=value`; for tests. */
  readonly settings?: readonly string[];
}

const USER = "flotilla";
const DATABASE = "flotilla";
/** How long to wait for a server whose parent was killed and that has not noticed it yet. */
const RUNNING_WAIT_MS = 2_000;
/** The duration of an orderly stop. */
const STOPPING_WAIT_MS = 45_000;
const START_TIMEOUT_MS = 60_000;
/**
 * The limit of a fast shutdown. Longer than a checkpoint takes; recovery from a crash does not stop for it
 * immediately.
 */
const FAST_STOP_MS = 20_000;
/** PostgreSQL itself kills processes that have not ended 5 s after an immediate shutdown began. */
const IMMEDIATE_STOP_MS = 7_000;
/** How often the process is checked; the end of our own child is noticed immediately. */
const WATCH_MS = 200;
const POLL_MS = 20;
const RESTART_PAUSE_MS = 100;
/** After a kill, the old process's children hold its memory for a moment, and starts fail until they have ended. */
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

interface State {
  readonly options: EmbeddedOptions;
  readonly dataDirectory: string;
  readonly connection: ConnectionOptions;
  readonly installation: Installation;
  readonly stopping: AbortController;
  postmaster: Postmaster;
}

interface Postmaster {
  readonly pid: number;
  /** Aborted when it ends; null for an adopted one, which is not our child. */
  readonly ended: AbortSignal | null;
}

/** Starts or adopts the server; it accepts connections when this resolves. Throws an Error for users. */
export async function startEmbeddedPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  await mkdir(options.directory, { recursive: true, mode: 0o711 });
  const unlock = await lockDirectory(options.directory, {
    clock: options.clock,
    name: "flotilla",
    otherHolder: "another Flotilla",
    runningWaitMs: RUNNING_WAIT_MS,
    stoppingWaitMs: STOPPING_WAIT_MS,
    stopping: options.signal,
  });
  try {
    return await start(options, unlock);
  } catch (error) {
    unlock();
    throw error;
  }
}

async function start(options: EmbeddedOptions, unlock: () => void): Promise<EmbeddedPostgres> {
  const dataDirectory = join(options.directory, "data");
  const password = await ensurePassword(options);
  const running = await runningPid(dataDirectory);
  const installation = await findInstallation(options.directory);
  await removeUnfinished(options.directory);
  if (!(await exists(join(dataDirectory, "PG_VERSION")))) await initialize(options, installation, password);
  // Stays open for the life of the process: the socket's path goes through it.
  const directoryFd = openSync(dataDirectory, "r");
  const host = `/proc/self/fd/${directoryFd}`;
  const state: State = {
    options,
    dataDirectory,
    installation,
    connection: { host, user: USER, password, database: DATABASE },
    stopping: stopWith(options.signal),
    postmaster: { pid: running ?? 0, ended: null },
  };
  try {
    await bringUp(state);
    await whileUnavailable(() => ensureDatabase(state), options);
  } catch (error) {
    await shutDown(state);
    closeSync(directoryFd);
    throw error;
  }
  if (running === state.postmaster.pid) options.log.info({ pid: running }, "adopted the running embedded PostgreSQL");
  const watching = watch(state);
  const reserve = new DiskReserve(options);
  await reserve.start();
  return {
    connection: state.connection,
    pid: () => state.postmaster.pid,
    isDiskFull: () => reserve.isFull,
    async stop(hurry) {
      state.stopping.abort();
      await Promise.all([watching, reserve.stop()]);
      await shutDown(state, hurry);
      closeSync(directoryFd);
      unlock();
    },
  };
}

/** Aborted with the signal; then repeated starts and the watch end. */
function stopWith(signal: AbortSignal | undefined): AbortController {
  const stopping = new AbortController();
  if (signal?.aborted) stopping.abort();
  signal?.addEventListener("abort", () => stopping.abort(), { once: true });
  return stopping;
}

async function ensurePassword(options: EmbeddedOptions): Promise<string> {
  const path = join(options.directory, "password");
  try {
    return (await readFile(path, "utf8")).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  if (await exists(join(options.directory, "data", "PG_VERSION")))
    throw new Error(`${path} is missing: restore it from a backup; without it the database cannot be opened`);
  const password = options.randomBytes(32).toString("base64url");
  const temporary = `${path}.${options.randomBytes(4).toString("hex")}`;
  await writeFile(temporary, `${password}\n`, { mode: 0o600, flush: true });
  await rename(temporary, path);
  return password;
}

/** Makes the cluster beside its final place and moves it there, so that `data/` is always complete. */
async function initialize(options: EmbeddedOptions, installation: Installation, password: string): Promise<void> {
  const directory = join(options.directory, `init-${options.randomBytes(4).toString("hex")}`);
  await mkdir(directory, { mode: 0o700 });
  const passwordFile = join(directory, "password");
  await writeFile(passwordFile, password, { mode: 0o600 });
  if (installation.user !== null) {
    for (const path of [directory, passwordFile]) await chown(path, installation.user.uid, installation.user.gid);
  }
  await linkLibraries(installation);
  const log = await open(join(options.directory, "log"), "a", 0o600);
  try {
    const child = launch(installation, {
      program: "initdb",
      directory,
      args: (inside) => [
        `--pgdata=${inside}/data`,
        `--pwfile=${inside}/password`,
        `--username=${USER}`,
        "--auth=scram-sha-256",
        "--locale=C",
        "--encoding=UTF8",
      ],
      logFd: log.fd,
      // A terminal's Ctrl-C is for this server, which then stops PostgreSQL.
      isDetached: true,
    });
    options.signal?.addEventListener("abort", () => child.kill("SIGTERM"), { once: true });
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", resolve);
    });
    if (code !== 0) throw new Error(`making the database failed (${await lastLine(options.directory)})`);
  } finally {
    await log.close();
  }
  await rename(join(directory, "data"), join(options.directory, "data"));
  await rm(directory, { recursive: true, force: true });
}

/** The end of PostgreSQL's log, for users. */
async function lastLine(directory: string): Promise<string> {
  const path = join(directory, "log");
  const lines = (await readFile(path, "utf8")).trimEnd().split("\n");
  return `${lines.at(-1) ?? ""}; see ${path}`;
}

async function removeUnfinished(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (name.startsWith("init-")) await rm(join(directory, name), { recursive: true, force: true });
  }
}

/** The postmaster that has our data directory as its working directory, if one runs. */
async function runningPid(dataDirectory: string): Promise<number | undefined> {
  let pid: number;
  try {
    pid = Number((await readFile(join(dataDirectory, "postmaster.pid"), "utf8")).split("\n")[0]);
  } catch {
    return undefined;
  }
  return (await isAlive(pid, dataDirectory)) ? pid : undefined;
}

/** False for a process id that another program has now, and for a process that has ended but was not reaped. */
async function isAlive(pid: number, dataDirectory: string): Promise<boolean> {
  try {
    const [theirs, ours] = await Promise.all([stat(`/proc/${pid}/cwd`), stat(dataDirectory)]);
    return theirs.dev === ours.dev && theirs.ino === ours.ino;
  } catch {
    return false;
  }
}

/** Starts it, or waits for the running one, until it accepts connections. */
async function bringUp(state: State): Promise<void> {
  const { clock, directory } = state.options;
  const deadline = clock.monotonic() + START_TIMEOUT_MS;
  let lastError: unknown;
  let starts = 0;
  while (clock.monotonic() < deadline && starts < STARTS_MAX && !state.stopping.signal.aborted) {
    if (!(await isRunning(state))) {
      starts++;
      const pid = await runningPid(state.dataDirectory);
      if (lastError !== undefined) await clock.sleep(RESTART_PAUSE_MS, state.stopping.signal);
      state.postmaster = pid === undefined ? await spawnPostmaster(state) : { pid, ended: null };
    }
    lastError = await tryToConnect(state);
    if (lastError === undefined) return;
    await clock.sleep(POLL_MS, state.postmaster.ended ?? undefined);
  }
  const reason = ownMessageOf(lastError);
  throw new Error(`the embedded PostgreSQL did not start (${reason}; ${await lastLine(directory)})`);
}

/** For our own child only its end counts: before it becomes PostgreSQL, its working directory is another one. */
async function isRunning({ postmaster, dataDirectory }: State): Promise<boolean> {
  if (postmaster.ended !== null) return !postmaster.ended.aborted;
  return postmaster.pid !== 0 && (await isAlive(postmaster.pid, dataDirectory));
}

async function spawnPostmaster({ options, dataDirectory, installation }: State): Promise<Postmaster> {
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
 * PostgreSQL decides by whether the process id in its lock file is alive. After a crash it may belong to another
 * program, or to a dead process that was not reaped, and PostgreSQL would refuse to start. The file also keeps it
 * from starting beside children of the old one that still write, so it is removed only when no process at all is in
 * the data directory.
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

/** The error, or undefined when a connection was made; SCRAM proves that both sides know the password. */
async function tryToConnect(state: State): Promise<unknown> {
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

async function ensureDatabase(state: State): Promise<void> {
  const client = new pg.Client({ ...state.connection, database: "postgres" });
  client.on("error", () => undefined);
  try {
    await client.connect();
    const { rowCount } = await client.query("SELECT FROM pg_database WHERE datname = $1", [DATABASE]);
    if (rowCount === 0) await client.query(`CREATE DATABASE ${DATABASE}`);
  } catch (error) {
    throw isConnectionLoss(error) ? new DatabaseUnavailable(error) : error;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** Restarts it whenever it has ended, until we stop. */
async function watch(state: State): Promise<void> {
  const { clock, log } = state.options;
  const stopping = state.stopping.signal;
  while (!stopping.aborted) {
    const { ended } = state.postmaster;
    await clock.sleep(WATCH_MS, ended === null ? stopping : AbortSignal.any([stopping, ended]));
    if (stopping.aborted || (await isRunning(state))) continue;
    log.error({ pid: state.postmaster.pid }, "the embedded PostgreSQL ended; restarting it");
    try {
      await bringUp(state);
      log.info({ pid: state.postmaster.pid }, "the embedded PostgreSQL runs again");
    } catch (error) {
      log.error({ error }, "the embedded PostgreSQL could not be restarted; trying again");
    }
  }
}

/**
 * Requests a fast shutdown, which ends open transactions and writes all data to disk; when that takes too long, an
 * immediate one, which loses nothing that was acknowledged. SIGKILL would leave its children running.
 */
async function shutDown(state: State, hurry?: AbortSignal): Promise<void> {
  const { log } = state.options;
  const { pid } = state.postmaster;
  if (await endWith(state, "SIGINT", FAST_STOP_MS, hurry)) return;
  if (hurry?.aborted !== true)
    log.warn({ pid }, "the embedded PostgreSQL did not stop in time; stopping it without a checkpoint");
  if (await endWith(state, "SIGQUIT", IMMEDIATE_STOP_MS)) return;
  log.warn({ pid }, "the embedded PostgreSQL did not stop and is killed; nothing acknowledged is lost");
  signalProcess(pid, "SIGKILL");
}

/** Whether it ended within the time, and before `hurry` was aborted. */
async function endWith(state: State, signal: NodeJS.Signals, waitMs: number, hurry?: AbortSignal): Promise<boolean> {
  const { clock } = state.options;
  if (!(await isRunning(state))) return true;
  signalProcess(state.postmaster.pid, signal);
  const deadline = clock.monotonic() + waitMs;
  while (await isRunning(state)) {
    if (clock.monotonic() > deadline || hurry?.aborted === true) return false;
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

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch {
    return false;
  }
}
