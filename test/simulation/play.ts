/**
 * Plays seeds in separate processes, each with a database of one PostgreSQL, as many at a time as there are
 * processors.
 */
import { spawn } from "node:child_process";
import { realpath, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { ConnectionOptions } from "../../server/src/db/hosts.ts";
import { createLog } from "../../server/src/log.ts";
import { administer, startTestCluster, TEMPLATE } from "../../server/test/support/cluster.ts";
import { RealDatabase } from "./database.ts";
import { OPERATOR, OTHER } from "./callers.ts";
import { WATCH } from "./watch.ts";
import type { Job, Line } from "./worker.ts";

const BEGINNING = "simulated";
/**
 * Nothing watches this PostgreSQL. What it vacuumed or analyzed by itself would let plans be made again
 * (database.ts).
 */
const SETTINGS = ["autovacuum=off", "track_activities=off", "track_counts=off", "update_process_title=off"];
/**
 * A program of a seed leaves much garbage: with more room for young objects most of it is gone before it is
 * copied.
 */
const NODE_FLAGS = ["--max-semi-space-size=64"];

export class Player implements AsyncDisposable {
  readonly #connection: ConnectionOptions;
  readonly #directory: string;
  readonly #end: () => Promise<void>;
  #databases = 0;
  /** Databases that no process uses. Each seed makes its own beginning. */
  readonly #free: string[] = [];

  private constructor(connection: ConnectionOptions, directory: string, end: () => Promise<void>) {
    this.#connection = connection;
    this.#directory = directory;
    this.#end = end;
  }

  static async open(): Promise<Player> {
    const { directory, postgres } = await startTestCluster(createLog("error"), SETTINGS);
    // The path of its socket is one of this process.
    const host = await realpath((postgres.connection as { readonly host: string }).host);
    const connection = { ...postgres.connection, host, database: BEGINNING };
    await administer(connection, `CREATE DATABASE ${BEGINNING} TEMPLATE ${TEMPLATE}`);
    const database = await RealDatabase.open(connection);
    await database.query(`
      UPDATE plans SET max_machines = 12, max_concurrent_machines = 5, max_cpus = 4, budget_policy = 'stop', monthly_budget_micros = 1000000
      WHERE is_default;
      INSERT INTO tenants (id, name) VALUES ('${OPERATOR.tenantId}', 'simulated'), ('${OTHER.tenantId}', 'another');
      UPDATE tenants SET created_at = '2040-01-02'`);
    await database.query(WATCH);
    await database.keepAsBeginning();
    await database.close();
    return new Player(connection, directory, async () => {
      await postgres.stop();
      await rm(directory, { recursive: true, force: true });
    });
  }

  /**
   * Plays seeds over all processors. `onLine` is called for each, in any order. `beginMsMax`: none begins
   * later; null: all are played.
   */
  async play(
    seeds: readonly number[],
    onLine: (line: Line) => void,
    { isVerbose, beginMsMax }: Pick<Job, "isVerbose" | "beginMsMax"> = { isVerbose: false, beginMsMax: null },
  ): Promise<void> {
    const count = Math.min(seeds.length, availableParallelism());
    const parts = Array.from({ length: count }, (_, at) => seeds.filter((_seed, index) => index % count === at));
    await Promise.all(parts.map((part) => this.#run({ seeds: part, bug: null, isVerbose, beginMsMax }, onLine)));
  }

  /** The first of the seeds that finds a planted bug; null: none. */
  async find(bug: string, seeds: readonly number[]): Promise<Line | null> {
    let found: Line | null = null;
    await this.#run({ seeds, bug, isVerbose: false, beginMsMax: null }, (line) => {
      if (line.violation !== null) found ??= line;
    });
    return found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
  }

  async #run(job: Omit<Job, "connection">, onLine: (line: Line) => void): Promise<void> {
    const database = this.#free.pop() ?? (await this.#makeDatabase());
    const argument = JSON.stringify({ ...job, connection: { ...this.#connection, database } } satisfies Job);
    const child = spawn(process.execPath, [...NODE_FLAGS, new URL("worker.ts", import.meta.url).pathname, argument], {
      stdio: ["ignore", "pipe", "inherit"],
      // The next process need not compile the programs again, which the other tests have in their cache.
      env: { NODE_COMPILE_CACHE: join(this.#directory, "compiled"), ...process.env },
    });
    const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
    for await (const line of createInterface({ input: child.stdout })) onLine(JSON.parse(line) as Line);
    const code = await ended;
    if (code !== 0) throw new Error(`the process that plays seeds ended with ${code}`);
    this.#free.push(database);
  }

  async #makeDatabase(): Promise<string> {
    this.#databases += 1;
    const database = `${BEGINNING}_${this.#databases}`;
    await administer(this.#connection, `CREATE DATABASE ${database} TEMPLATE ${BEGINNING}`);
    return database;
  }
}
