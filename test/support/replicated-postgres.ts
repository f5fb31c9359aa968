/**
 * Two PostgreSQL servers for tests: a primary and a standby that streams from it. The primary acknowledges a commit when the
 * standby has it on disk.
 *
 * Both are copies of the kept cluster of the tests, so they have one history, and the standby needs no base backup. They listen on
 * loopback. Killing or freezing one means its postmaster and all of its processes, like a host.
 *
 * Always: what it started has ended, and its directory is gone, after the test in which it was called.
 */
import { type ChildProcess, execFile } from "node:child_process";
import { chown, mkdtemp, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
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
const SETTINGS = [
  "listen_addresses=127.0.0.1",
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

export interface ReplicatedPostgres {
  /** Names both hosts. */
  readonly url: string;
  readonly primary: PostgresHost;
  readonly standby: PostgresHost;
}

/** One of the two hosts. */
class PostgresHost {
  readonly url: string;
  readonly port: number;
  readonly #directory: string;
  #process: ChildProcess | null = null;

  constructor(directory: string, port: number, password: string) {
    this.#directory = directory;
    this.port = port;
    this.url = `postgres://${USER}:${password}@127.0.0.1:${port}/${TEMPLATE}`;
  }

  async start(settings: readonly string[]): Promise<void> {
    const installation = await findInstallation(this.#directory);
    await linkLibraries(installation);
    const log = await open(join(this.#directory, "log"), "a");
    this.#process = launch(installation, {
      program: "postgres",
      directory: join(this.#directory, "data"),
      args: (inside) => [
        "-D",
        inside,
        ...[...SETTINGS, `port=${this.port}`, ...settings].flatMap((item) => ["-c", item]),
      ],
      logFd: log.fd,
      isDetached: true,
    });
    await log.close();
    await until(async () => await this.query("SELECT 1 AS one"), { what: "PostgreSQL to answer", deadlineMs: 60_000 });
  }

  /** On a new connection. */
  async query(text: string): Promise<readonly Record<string, unknown>[]> {
    const client = new pg.Client({ connectionString: this.url, application_name: "test" });
    client.on("error", () => undefined);
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

/** Both run, and the standby streams, when this resolves. */
export async function startReplicatedPostgres(context: TestContext): Promise<ReplicatedPostgres> {
  const kept = await keptCluster(createLog("error"));
  const directory = await mkdtemp(join(tmpdir(), "flotilla-replicated-"));
  const password = (await readFile(join(kept, "password"), "utf8")).trim();
  const [primary, standby] = await Promise.all(
    ["a", "b"].map(async (name) => {
      await promisify(execFile)("cp", ["-a", "--reflink=auto", kept, join(directory, name)]);
      return new PostgresHost(join(directory, name), await portToReturnTo(), password);
    }),
  );
  if (primary === undefined || standby === undefined) throw new Error("there are two hosts");
  context.after(async () => {
    await Promise.all([primary.stop(), standby.stop()]);
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  });
  await primary.start(["synchronous_standby_names=*"]);
  await becomeStandby(join(directory, "b", "data"));
  const from = `host=127.0.0.1 port=${primary.port} user=${USER} password=${password}`;
  await standby.start([`primary_conninfo=${from}`]);
  const isStreaming = async (): Promise<boolean> =>
    (await primary.query("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")).length === 1;
  await until(isStreaming, { what: "the standby to stream", deadlineMs: 60_000 });
  const url = `postgres://${USER}:${password}@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/${TEMPLATE}?target_session_attrs=read-write`;
  return { url, primary, standby };
}

/** PostgreSQL reads this file when it starts, as the user who owns its data. */
async function becomeStandby(dataDirectory: string): Promise<void> {
  const path = join(dataDirectory, "standby.signal");
  await writeFile(path, "", { mode: 0o600 });
  const { uid, gid } = await stat(dataDirectory);
  await chown(path, uid, gid);
}
