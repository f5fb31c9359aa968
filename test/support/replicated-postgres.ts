/**
 * Two PostgreSQL servers for tests: a primary and a standby that streams from it. The primary acknowledges a
 * commit when the standby has it on disk.
 *
 * Both are copies of the kept cluster of the tests, so they have one history, and the first standby needs no
 * base backup. They listen on loopback, or each on a host in a network namespace. Killing or freezing one
 * means its postmaster and all of its processes, like a host.
 *
 * Always: what it started has ended, and its directory is gone, after the test in which it was called.
 */
import { type ChildProcess, execFile } from "node:child_process";
import { appendFile, chown, mkdtemp, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { promisify } from "node:util";
import pg from "pg";
import { keptCluster, TEMPLATE } from "../../server/test/support/cluster.ts";
import { findInstallation, launch, linkLibraries } from "../../server/src/embedded-postgres/process.ts";
import { createLog } from "../../server/src/log.ts";
import { portToReturnTo } from "./flotilla.ts";
import { until } from "./until.ts";

const USER = "flotilla";
/** A host whose cable is pulled accepts nothing. */
const CONNECT_MS = 5_000;
const SETTINGS = [
  "unix_socket_directories=",
  "max_connections=100",
  "shared_buffers=32MB",
  "huge_pages=off",
  "io_method=sync",
  "jit=off",
  // It survives kills of processes, not of hosts.
  "fsync=off",
  "synchronous_commit=on",
];

/** Where a host listens. */
export interface PostgresPlace {
  readonly address: string;
  /** What starts programs there, as FarHost's. */
  readonly launcher?: readonly string[];
}

const LOOPBACK: PostgresPlace = { address: "127.0.0.1" };

/** One of the two hosts. */
class PostgresHost {
  readonly url: string;
  readonly port: number;
  readonly place: PostgresPlace;
  readonly #directory: string;
  readonly #password: string;
  #settings: readonly string[] = [];
  #process: ChildProcess | null = null;

  constructor(directory: string, place: PostgresPlace, { port, password }: { port: number; password: string }) {
    this.#directory = directory;
    this.#password = password;
    this.place = place;
    this.port = port;
    this.url = `postgres://${USER}:${password}@${place.address}:${port}/${TEMPLATE}`;
  }

  /** Starts it with these settings, or with those of its last start. */
  async start(settings = this.#settings): Promise<void> {
    this.#settings = settings;
    const installation = await findInstallation(this.#directory);
    await linkLibraries(installation);
    const log = await open(join(this.#directory, "log"), "a");
    const where = [`listen_addresses=${this.place.address}`, `port=${this.port}`];
    this.#process = launch(installation, {
      program: "postgres",
      directory: join(this.#directory, "data"),
      args: (inside) => ["-D", inside, ...[...SETTINGS, ...where, ...settings].flatMap((item) => ["-c", item])],
      logFd: log.fd,
      isDetached: true,
      launcher: this.place.launcher ?? [],
    });
    await log.close();
    await until(async () => await this.query("SELECT 1 AS one"), { what: "PostgreSQL to answer", deadlineMs: 60_000 });
  }

  /** Starts it as a standby of another. */
  async follow(other: PostgresHost): Promise<void> {
    const path = join(this.#directory, "data", "standby.signal");
    await writeFile(path, "", { mode: 0o600 });
    // PostgreSQL reads it when it starts, as the user who owns its data.
    const { uid, gid } = await stat(join(this.#directory, "data"));
    await chown(path, uid, gid);
    const from = `host=${other.place.address} port=${other.port} user=${USER} password=${this.#password}`;
    await this.start([`primary_conninfo=${from}`]);
    const isStreaming = async (): Promise<boolean> =>
      (await other.query("SELECT FROM pg_stat_replication WHERE state = 'streaming'")).length === 1;
    await until(isStreaming, { what: "the standby to stream", deadlineMs: 60_000 });
  }

  /** Replaces its data by a base backup of another that runs. Only while it does not run. */
  async copyFrom(other: PostgresHost): Promise<void> {
    const [own, source] = [join(this.#directory, "data"), join(other.#directory, "data")];
    const client = other.#client();
    await client.connect();
    try {
      await client.query("SELECT pg_backup_start('copy', true)");
      // Files change and disappear meanwhile: the log has what happened.
      const copy =
        'rm -rf "$2"/* && tar -C "$1" --exclude=./postmaster.* --ignore-failed-read -cf - . | tar -C "$2" -xf -';
      await promisify(execFile)("sh", ["-c", copy, "sh", source, own]);
      const [label] = (await client.query<{ labelfile: string }>("SELECT labelfile FROM pg_backup_stop(false)")).rows;
      await writeFile(join(own, "backup_label"), label?.labelfile ?? "", { mode: 0o644 });
      const { uid, gid } = await stat(own);
      await chown(join(own, "backup_label"), uid, gid);
    } finally {
      await client.end();
    }
  }

  #client(): pg.Client {
    const client = new pg.Client({
      connectionString: this.url,
      application_name: "test",
      connectionTimeoutMillis: CONNECT_MS,
    });
    client.on("error", () => undefined);
    return client;
  }

  /** On a new connection. */
  async query(text: string): Promise<readonly Record<string, unknown>[]> {
    const client = this.#client();
    try {
      await client.connect();
      return (await client.query<Record<string, unknown>>(text)).rows;
    } finally {
      client.end().catch(() => undefined);
    }
  }

  /** To the postmaster, so that it starts no process meanwhile, and then to its processes. */
  async signal(name: "SIGKILL" | "SIGSTOP" | "SIGCONT"): Promise<void> {
    const postmaster = this.#process?.pid;
    if (postmaster === undefined) return;
    const children = await childrenOf(postmaster);
    for (const pid of [postmaster, ...children]) send(pid, name);
  }

  /** Makes it a primary. */
  async promote(): Promise<void> {
    await this.query("SELECT pg_promote()");
  }

  async stop(): Promise<void> {
    await this.signal("SIGKILL");
    const child = this.#process;
    if (child === null) return;
    await until(() => child.exitCode !== null || child.signalCode !== null, { what: "PostgreSQL to end" });
  }
}

function send(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}

async function childrenOf(parent: number): Promise<readonly number[]> {
  const pids = (await readdir("/proc")).map(Number).filter(Number.isInteger);
  const stats = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/stat`, "utf8").catch(() => "")));
  return pids.filter((_, index) => Number(stats[index]?.split(") ").at(-1)?.split(" ")[1]) === parent);
}

export class ReplicatedPostgres {
  /** Names both hosts. */
  readonly url: string;
  #primary: PostgresHost;
  #standby: PostgresHost;

  constructor(primary: PostgresHost, standby: PostgresHost) {
    this.#primary = primary;
    this.#standby = standby;
    const [credentials, database] = primary.url.split(/@.*\//);
    const hosts = [primary, standby].map(({ place, port }) => `${place.address}:${port}`);
    this.url = `${credentials}@${hosts.join(",")}/${database}?target_session_attrs=read-write`;
  }

  get primary(): PostgresHost {
    return this.#primary;
  }

  get standby(): PostgresHost {
    return this.#standby;
  }

  /**
   * What a program such as Patroni does when the primary is lost: promotes the standby, and makes the earlier
   * primary, which it ends, its standby.
   */
  async failOver(): Promise<void> {
    const [earlier, next] = [this.#primary, this.#standby];
    await next.promote();
    [this.#primary, this.#standby] = [next, earlier];
    await earlier.stop();
    await earlier.copyFrom(next);
    await earlier.follow(next);
    await next.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
    await next.query("SELECT pg_reload_conf()");
  }
}

/** Both run, and the standby streams, when this resolves. */
export async function startReplicatedPostgres(
  context: Pick<TestContext, "after">,
  places: readonly PostgresPlace[] = [LOOPBACK, LOOPBACK],
): Promise<ReplicatedPostgres> {
  const kept = await keptCluster(createLog("error"));
  const directory = await mkdtemp(join(tmpdir(), "flotilla-replicated-"));
  const password = (await readFile(join(kept, "password"), "utf8")).trim();
  const [primary, standby] = await Promise.all(
    places.map(async (place, index) => {
      const own = join(directory, `host-${index}`);
      await promisify(execFile)("cp", ["-a", "--reflink=auto", kept, own]);
      const network = `${place.address}/24 scram-sha-256\n`;
      await appendFile(join(own, "data", "pg_hba.conf"), `host all all ${network}host replication all ${network}`);
      return new PostgresHost(own, place, { port: await portToReturnTo(), password });
    }),
  );
  if (primary === undefined || standby === undefined) throw new Error("there are two hosts");
  context.after(async () => {
    await Promise.all([primary.stop(), standby.stop()]);
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  });
  await primary.start(["synchronous_standby_names=*"]);
  await standby.follow(primary);
  return new ReplicatedPostgres(primary, standby);
}
