/**
 * Updates the schema: applies the numbered files of migrations/ that the database does not have yet.
 *
 * Always:
 * - Each file is one transaction, guarded twice: an advisory lock serializes servers that start together, and
 *   the row in schema_migrations is inserted first, so a file is never applied twice even without the lock.
 * - No other server waits longer than TABLE_WAIT_MS for a table because a migration waits for it.
 * - From the first release on, files are only added. A server refuses a database that has a newer file than
 *   this program.
 *
 * A crash leaves complete files applied and nothing of the next one.
 */
import { readdir, readFile } from "node:fs/promises";
import { systemClock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import pg from "pg";
import { DatabaseUnavailable } from "./database.ts";
import { type ConnectionOptions, hostsOf } from "./hosts.ts";
import { isConnectionLoss, LOST_SERVER_BOUNDS } from "./postgres.ts";
import { findPrimary } from "./primary.ts";

export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly text: string;
}

const MIGRATIONS_DIRECTORY = new URL("./migrations/", import.meta.url);
const LOCK_ID = 4_603_211;
/**
 * While a migration waits for a table that a long transaction reads, such as a backup, all other statements
 * on the table wait behind it. So it waits only so long, and as long for its next try.
 */
const TABLE_WAIT_MS = 2_000;
const SERVER_VERSION_MIN = 150_000;

/** All migrations of this program in order. Throws if a number is missing or occurs twice. */
export async function readMigrations(directory: URL = MIGRATIONS_DIRECTORY): Promise<readonly Migration[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith(".sql")).sort();
  return Promise.all(
    names.map(async (name, index) => {
      const version = Number(/^(\d{4})_[a-z0-9_]+\.sql$/.exec(name)?.[1]);
      if (version !== index + 1) throw new Error(`migrations are not numbered without gaps: ${name}`);
      return { version, name: name.replace(/\.sql$/, ""), text: await readFile(new URL(name, directory), "utf8") };
    }),
  );
}

/** Applies what is missing; returns the versions that this call applied. Throws an Error for people. */
export async function migrate(options: {
  readonly connection: ConnectionOptions;
  readonly log: Log;
  readonly migrations?: readonly Migration[];
  /** Ends the wait for other transactions: the last error is thrown. */
  readonly signal?: AbortSignal | undefined;
}): Promise<readonly number[]> {
  const migrations = options.migrations ?? (await readMigrations());
  const { config } = await findPrimary({ hosts: hostsOf(options.connection), clock: systemClock, log: options.log });
  const client = new pg.Client({ ...config, ...LOST_SERVER_BOUNDS, application_name: "flotilla migration" });
  client.on("error", () => undefined);
  try {
    await client.connect();
    await refuseOldServer(client);
    const known = await inTransaction(client, () => knownVersions(client));
    refuseNewerSchema(known, migrations);
    const applied: number[] = [];
    for (const migration of migrations) {
      if (known.has(migration.version)) continue;
      if (await applyWhenFree(client, migration, options)) {
        applied.push(migration.version);
        options.log.debug({ migration: migration.name }, "migration applied");
      }
    }
    const [first, last] = [applied[0], applied.at(-1)];
    if (first !== undefined) options.log.info({ first, last, count: applied.length }, "schema migrated");
    return applied;
  } catch (error) {
    const isLost = isConnectionLoss(error) || (error instanceof Error && isConnectionLoss(error.cause));
    throw isLost ? new DatabaseUnavailable(error) : error;
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function inTransaction<T>(client: pg.Client, work: () => Promise<T>): Promise<T> {
  await client.query("BEGIN");
  try {
    await client.query("SELECT pg_advisory_xact_lock($1)", [LOCK_ID]);
    const result = await work();
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK").catch(() => undefined);
    throw error;
  }
}

/** As `apply`, in its own transaction, as often as others keep it waiting. */
async function applyWhenFree(
  client: pg.Client,
  migration: Migration,
  { log, signal }: { readonly log: Log; readonly signal?: AbortSignal | undefined },
): Promise<boolean> {
  for (let hasWarned = false; ; hasWarned = true) {
    try {
      return await inTransaction(client, async () => {
        await client.query(`SET LOCAL lock_timeout = ${TABLE_WAIT_MS}`);
        return await apply(client, migration);
      });
    } catch (error) {
      if (!isKeptWaiting(error) || signal?.aborted === true) throw error;
      if (!hasWarned)
        log.warn({ reason: ownMessageOf(error) }, "a migration waits for another transaction; trying again");
      await systemClock.sleep(TABLE_WAIT_MS, signal);
    }
  }
}

/** `lock_not_available` or `deadlock_detected`. */
function isKeptWaiting(error: unknown): boolean {
  const { code } = ((error as Error).cause ?? error) as { readonly code?: unknown };
  return code === "55P03" || code === "40P01";
}

/**
 * Applies migrations in the caller's transaction, to a database that has those before them. Throws an Error
 * for people.
 */
export async function applyMigrations(client: pg.Client, migrations: readonly Migration[]): Promise<void> {
  await knownVersions(client);
  for (const migration of migrations) await apply(client, migration);
}

async function knownVersions(client: pg.Client): Promise<ReadonlyMap<number, string>> {
  await client.query(`
    -- Which files of migrations/ this database has: the number that a name starts with, and the name without its ending.
    CREATE TABLE IF NOT EXISTS schema_migrations (
      version integer PRIMARY KEY,
      name text NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT now()
    );`);
  const { rows } = await client.query<{ version: number; name: string }>("SELECT version, name FROM schema_migrations");
  return new Map(rows.map((row) => [row.version, row.name]));
}

/** Whether this call applied the file; false when another server did in between. */
async function apply(client: pg.Client, migration: Migration): Promise<boolean> {
  const inserted = await client.query(
    "INSERT INTO schema_migrations (version, name) VALUES ($1, $2) ON CONFLICT (version) DO NOTHING",
    [migration.version, migration.name],
  );
  if (inserted.rowCount === 0) return false;
  try {
    await client.query(migration.text);
  } catch (error) {
    const reason = ownMessageOf(error);
    throw new Error(`migration ${migration.name} failed: ${reason}`, { cause: error });
  }
  return true;
}

function refuseNewerSchema(known: ReadonlyMap<number, string>, migrations: readonly Migration[]): void {
  for (const [version, name] of known) {
    const own = migrations[version - 1];
    if (own === undefined) {
      throw new Error(
        `the database's schema is newer than this program: it has ${name}, this program knows ${migrations.length} migrations; ` +
          "start the newer program again, or restore a backup from before the upgrade",
      );
    }
    if (own.name !== name) {
      throw new Error(
        `the database was migrated by another line of this program: it has ${name} where this one has ${own.name}`,
      );
    }
  }
}

/** Throws an Error for people. */
export async function refuseOldServer(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ server_version_num: string; server_version: string }>(
    "SELECT current_setting('server_version_num') AS server_version_num, current_setting('server_version') AS server_version",
  );
  if (Number(rows[0]?.server_version_num) < SERVER_VERSION_MIN)
    throw new Error(`the database is PostgreSQL ${rows[0]?.server_version}; Flotilla needs 15 or newer`);
}
