/**
 * The embedded PostgreSQL: a real server in `<data dir>/postgres`, started or adopted here, and stopped.
 *
 * Owns `<data dir>/postgres`: `data/` (the cluster) and `password` (0600), made by cluster.ts, `log`, `lib/`
 * (links to libraries), `reserve`. The process is postmaster.ts's.
 *
 * Always:
 * - It listens on a Unix socket inside `data/`, which only its own user can enter, with a generated password.
 *   The socket is opened through a descriptor of the directory (`/proc/self/fd/N`), so the path is never too
 *   long.
 * - When this process is killed PostgreSQL continues to run, and the next process adopts it.
 * - While it is being restarted, queries fail with DatabaseUnavailable.
 * - Its log does not grow without bound: `log.1` has what was before.
 * - It is durable: fsync and synchronous commit stay on.
 */
import { closeSync, openSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { boundLog, keepBounded } from "@flotilla/base/bounded-log";
import type { Clock } from "@flotilla/base/clock";
import { lockDirectory } from "@flotilla/base/directory-lock";
import type { Log } from "@flotilla/base/log";
import pg from "pg";
import { DatabaseUnavailable } from "../db/database.ts";
import { type ConnectionOptions, isConnectionLoss, type MakeRoom } from "../db/postgres.ts";
import { whileUnavailable } from "../db/retry.ts";
import { ensurePassword, exists, initialize, readPassword, removeUnfinished, USER } from "./cluster.ts";
import { DiskReserve } from "./disk-reserve.ts";
import { bringUp, type PostmasterState, runningPid, shutDown, watch } from "./postmaster.ts";
import { findInstallation } from "./process.ts";

export interface EmbeddedPostgres {
  readonly connection: ConnectionOptions;
  /** The postmaster's current process id, which changes with a restart. */
  pid(): number;
  /** Whether its disk has no space left except the reserve. */
  isDiskFull(): boolean;
  /** Makes room on its disk from the reserve. */
  readonly makeRoom: MakeRoom;
  /**
   * Shuts it down cleanly and releases the directory. Once `hurry` is aborted, or another Flotilla has waited
   * for a few seconds, it stops without a checkpoint, and the next start recovers from its log.
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

/** How long to wait for a server whose parent was killed and that has not noticed it yet. */
const RUNNING_WAIT_MS = 2_000;
/** The duration of an orderly stop. */
const STOPPING_WAIT_MS = 45_000;
const DATABASE = "flotilla";

/** Starts or adopts the server; it accepts connections when this resolves. Throws an Error for users. */
export async function startEmbeddedPostgres(given: EmbeddedOptions): Promise<EmbeddedPostgres> {
  // Its programs have other working directories.
  const options = { ...given, directory: resolve(given.directory) };
  await mkdir(options.directory, { recursive: true, mode: 0o711 });
  const waiting = new AbortController();
  const unlock = await lockDirectory(options.directory, {
    clock: options.clock,
    name: "flotilla",
    otherHolder: "another Flotilla",
    runningWaitMs: RUNNING_WAIT_MS,
    stoppingWaitMs: STOPPING_WAIT_MS,
    stopping: options.signal,
    onWaiting: () => waiting.abort(),
  });
  try {
    return await start(options, { unlock, waiting: waiting.signal });
  } catch (error) {
    unlock();
    throw error;
  }
}

/**
 * The database of a running server; undefined when none runs on the directory. `close` releases the way to
 * it.
 */
export async function connectToRunning(
  directory: string,
): Promise<{ readonly connection: ConnectionOptions; readonly close: () => void } | undefined> {
  const dataDirectory = join(directory, "data");
  if ((await runningPid(dataDirectory)) === undefined) return undefined;
  const password = await readPassword(directory);
  if (password === undefined) return undefined;
  const fd = openSync(dataDirectory, "r");
  const connection = { host: `/proc/self/fd/${fd}`, user: USER, password, database: DATABASE };
  return { connection, close: () => closeSync(fd) };
}

interface Held {
  readonly unlock: () => void;
  /** Aborted when another Flotilla waits for the end of this one. */
  readonly waiting: AbortSignal;
}

async function start(options: EmbeddedOptions, { unlock, waiting }: Held): Promise<EmbeddedPostgres> {
  const dataDirectory = join(options.directory, "data");
  const password = await ensurePassword(options);
  const running = await runningPid(dataDirectory);
  const installation = await findInstallation(options.directory);
  await removeUnfinished(options.directory);
  if (!(await exists(join(dataDirectory, "PG_VERSION")))) await initialize(options, installation, password);
  // Stays open for the life of the process: the socket's path goes through it.
  const directoryFd = openSync(dataDirectory, "r");
  const host = `/proc/self/fd/${directoryFd}`;
  const reserve = new DiskReserve(options);
  const state: PostmasterState = {
    options,
    makeRoom: (failures) => reserve.giveForStart(failures),
    dataDirectory,
    installation,
    connection: { host, user: USER, password, database: DATABASE },
    stopping: stopWith(options.signal),
    postmaster: { pid: running ?? 0, ended: null },
  };
  const logPath = join(options.directory, "log");
  await boundLog(logPath);
  try {
    await reserve.start();
    await bringUp(state);
    await whileUnavailable(() => ensureDatabase(state), options);
  } catch (error) {
    await reserve.stop();
    await shutDown(state, { waiting });
    closeSync(directoryFd);
    throw error;
  }
  if (running === state.postmaster.pid) options.log.info({ pid: running }, "adopted the running embedded PostgreSQL");
  const watching = watch(state);
  const unbound = keepBounded(options.clock, logPath);
  return {
    connection: state.connection,
    pid: () => state.postmaster.pid,
    isDiskFull: () => reserve.isFull,
    makeRoom: reserve.give,
    async stop(hurry) {
      state.stopping.abort();
      unbound();
      await Promise.all([watching, reserve.stop()]);
      await shutDown(state, { waiting, hurry });
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

async function ensureDatabase(state: PostmasterState): Promise<void> {
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
