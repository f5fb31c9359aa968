/**
 * The PostgreSQL cluster of test files, with two migrated databases, that of a server and
 * `flotilla_template`: made once for each set of migrations and packages, kept in the programs' cache
 * directory, and copied for each file, because initdb and the migrations take seconds.
 *
 * Always: a kept cluster is complete, and was shut down cleanly: it is made beside its place and renamed. Of
 * two files that make it at the same time, one wins. Clusters that nothing has used for a day are removed.
 */
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { parseSettings } from "@flotilla/contract/settings";
import pg from "pg";
import { migrate, readMigrations } from "../../src/db/migrate.ts";
import type { ConnectionOptions } from "../../src/db/postgres.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/embedded-postgres/embedded.ts";

export const TEMPLATE = "flotilla_template";
const UNUSED_MS = 24 * 60 * 60_000;
/** A quick host reaches the rate of the plan as it ships. Tests of rates make their own plans. */
const ANY_RATE = "UPDATE plans SET rate_requests_per_second = 1000000, rate_burst = 1000000 WHERE is_default";
/** Nothing of it outlives the test; the tests of durability start their own. */
const SETTINGS = ["fsync=off", "synchronous_commit=off", "full_page_writes=off"];

/**
 * Starts PostgreSQL in a new directory, which the caller removes after it has stopped it. `settings`: more of
 * them, as `name=value`.
 */
export async function startTestCluster(
  log: Log,
  settings: readonly string[] = [],
): Promise<{ directory: string; postgres: EmbeddedPostgres }> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-test-"));
  await putCluster(directory, log);
  return { directory, postgres: await start(join(directory, "postgres"), log, settings) };
}

/** Puts a copy into a data directory, so that the first start of a server there need not make it. */
export async function putCluster(dataDirectory: string, log: Log): Promise<void> {
  const kept = await keptCluster(log);
  await promisify(execFile)("cp", ["-a", "--reflink=auto", kept, join(dataDirectory, "postgres")]);
}

/** The kept cluster: `data`, `password`. Not to be written. */
export async function keptCluster(log: Log): Promise<string> {
  const place = join(parseSettings(["cacheDirectory"], process.env).cacheDirectory, "test-clusters");
  // PostgreSQL may run as another user, which reaches its data through these directories.
  await mkdir(place, { recursive: true });
  const path = join(place, await fingerprint());
  const now = new Date();
  const isThere = await utimes(path, now, now).then(
    () => true,
    () => false,
  );
  if (isThere) return path;
  await removeUnused(place);
  const making = await mkdtemp(join(place, "making-"));
  try {
    const directory = join(making, "postgres");
    const postgres = await start(directory, log);
    await migrate({ connection: postgres.connection, log });
    await administer(postgres.connection, `CREATE DATABASE ${TEMPLATE} TEMPLATE flotilla`);
    await administer(postgres.connection, ANY_RATE, TEMPLATE);
    await postgres.stop();
    // The reserve of its disk is made again by each start.
    await rm(join(directory, "reserve"), { force: true });
    // Fails when another file was first.
    await rename(directory, path).catch(() => {});
  } finally {
    await rm(making, { recursive: true, force: true });
  }
  return path;
}

const start = (directory: string, log: Log, settings: readonly string[] = []): Promise<EmbeddedPostgres> =>
  startEmbeddedPostgres({ directory, clock: systemClock, log, randomBytes, settings: [...SETTINGS, ...settings] });

/** What a cluster depends on: who runs it, PostgreSQL, the migrations and what is changed after them. */
async function fingerprint(): Promise<string> {
  const packages = await readFile(new URL("../../../package-lock.json", import.meta.url), "utf8");
  const hash = createHash("sha256").update(`migrated\0${process.getuid?.()}\0${packages}\0${ANY_RATE}`);
  for (const { name, text } of await readMigrations()) hash.update(`${name}\0${text}\0`);
  return hash.digest("hex").slice(0, 16);
}

/** Removes what is in a directory of the cache and was not used for a day. */
export async function removeUnused(place: string): Promise<void> {
  for (const name of await readdir(place)) {
    const path = join(place, name);
    const usedAt = await stat(path).then(
      ({ mtimeMs }) => mtimeMs,
      () => Number.POSITIVE_INFINITY,
    );
    if (usedAt < Date.now() - UNUSED_MS) await rm(path, { recursive: true, force: true });
  }
}

/** Runs a statement. */
export async function administer(connection: ConnectionOptions, statement: string, database = "postgres") {
  const client = new pg.Client({ ...connection, database });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
