/**
 * `flotilla restore`: makes the control plane of a backup again, in a data directory or database that has
 * none.
 *
 * Always:
 * - The whole file is verified before anything is written, and again while it is loaded.
 * - Nothing that exists is replaced: a database with tables, and files with another content, are refused with
 *   what to do.
 * - A data directory with `node/` is welcome: machines of this host run on.
 *
 * A crash leaves `restore.pending`, with which no server starts; the same command continues. The database is
 * loaded in one transaction, so it is empty or complete.
 */
import { createReadStream } from "node:fs";
import { mkdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type pg from "pg";
import { readMigrations, refuseOldServer } from "../db/migrate.ts";
import { DamagedBackup, type Entry, readArchive } from "./archive.ts";
import { type DatabasePlace, withDatabase } from "./database.ts";
import { countTables, loadDatabase } from "./load.ts";
import {
  KEPT_FILES,
  type KeptFile,
  type Manifest,
  MANIFEST_NAME,
  parseManifest,
  parseSummary,
  refuseUnknownSchema,
  SUMMARY_NAME,
  type Summary,
} from "./manifest.ts";
import { clearPending, markPending, readPending, writeDurably } from "./pending.ts";
import { countAccess, type RestoredAccess, revokeAccess } from "./settle.ts";

export interface RestoreOptions extends Omit<DatabasePlace, "isServed"> {
  /** The backup's path. */
  readonly from: string;
  readonly revokesKeys: boolean;
}

export interface Restored {
  readonly manifest: Manifest;
  readonly access: RestoredAccess;
}

interface Verified {
  readonly sha256: string;
  readonly manifest: Manifest;
  readonly summary: Summary;
  readonly files: ReadonlyMap<KeptFile, Buffer>;
}

/** Throws an Error for operators. */
export async function restoreBackup(options: RestoreOptions): Promise<Restored> {
  const { from, dataDirectory, signal } = options;
  const place = { ...options, isServed: false };
  const backup = await verify(from).catch((error: unknown) => {
    if (!(error instanceof DamagedBackup)) throw error;
    throw new Error(`${from} cannot be restored: ${error.message}`, { cause: error });
  });
  const migrations = await readMigrations();
  refuseUnknownSchema(
    backup.manifest.migrations,
    migrations.map(({ name }) => name),
  );
  signal.throwIfAborted();
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  await refuseOtherFiles(options, backup);
  if (options.databaseUrl !== null) await withDatabase(place, (client) => refuseOtherDatabase(client, options, backup));
  await markPending(dataDirectory, backup.sha256);
  for (const [name, content] of backup.files) await writeDurably(join(dataDirectory, name), content);
  const access = await withDatabase(place, async (client) => {
    if ((await refuseOtherDatabase(client, options, backup)) === "empty") {
      const entries = (): AsyncIterable<Entry> => readAgain(options, backup.sha256);
      await loadDatabase({ ...backup, client, entries, revokesKeys: options.revokesKeys });
    } else if (options.revokesKeys) {
      // The restore that was interrupted may not have been asked to.
      await revokeAccess(client);
    }
    return await countAccess(client);
  });
  await clearPending(dataDirectory);
  return { manifest: backup.manifest, access };
}

async function verify(path: string): Promise<Verified> {
  const entries = readArchive(createReadStream(path));
  let manifest: Manifest | undefined;
  let summary: Summary | undefined;
  const files = new Map<KeptFile, Buffer>();
  for (;;) {
    const next = await entries.next();
    if (next.done === true) {
      if (manifest === undefined || summary === undefined) throw new DamagedBackup("it has no manifest or no summary");
      return { sha256: next.value, manifest, summary, files };
    }
    const { name, content } = next.value;
    if (manifest === undefined && name !== MANIFEST_NAME) throw new DamagedBackup("it is not a backup of Flotilla");
    if (name === MANIFEST_NAME) manifest = parseManifest(content);
    if (name === SUMMARY_NAME) summary = parseSummary(content);
    const file = KEPT_FILES.find((kept) => name === `files/${kept}`);
    if (file !== undefined) files.set(file, content);
  }
}

/**
 * The entries once more. Throws when the file was replaced since it was verified, or this command is to end.
 */
async function* readAgain({ from, signal }: RestoreOptions, expected: string): AsyncGenerator<Entry, void> {
  const entries = readArchive(createReadStream(from));
  for (;;) {
    signal.throwIfAborted();
    const next = await entries.next();
    if (next.done !== true) yield next.value;
    else if (next.value === expected) return;
    else throw new DamagedBackup(`${from} was replaced while it was restored`);
  }
}

async function refuseOtherFiles({ dataDirectory, databaseUrl }: RestoreOptions, backup: Verified): Promise<void> {
  const pending = await readPending(dataDirectory);
  if (pending !== null && pending !== backup.sha256)
    throw new Error(
      `a restore of another backup into ${dataDirectory} has not ended: finish that one, or remove restore.pending, secrets.key, admin.key and postgres/ there`,
    );
  const hasDatabase = (await stat(join(dataDirectory, "postgres", "data")).catch(() => null)) !== null;
  if (databaseUrl === null && hasDatabase && pending === null) throw new Error(notEmpty(dataDirectory));
  for (const name of KEPT_FILES) {
    const found = await readFile(join(dataDirectory, name)).catch(() => null);
    if (found === null || backup.files.get(name)?.equals(found) === true) continue;
    throw new Error(`${join(dataDirectory, name)} exists and is not that of the backup: move it away first`);
  }
}

const notEmpty = (dataDirectory: string): string =>
  `${dataDirectory} has a control plane already, which a restore does not replace: stop it and move postgres/, secrets.key and admin.key away, or name another --data-dir`;

/**
 * Whether the database has nothing, or this backup, because an earlier restore of it was interrupted. Throws
 * otherwise.
 */
async function refuseOtherDatabase(
  client: pg.Client,
  { dataDirectory, databaseUrl }: RestoreOptions,
  { sha256, manifest }: Verified,
): Promise<"empty" | "loaded"> {
  await refuseOldServer(client);
  if ((await countTables(client)) === 0) return "empty";
  if ((await readPending(dataDirectory)) === sha256) {
    const { rows } = await client.query<{ id: string }>("SELECT id FROM cluster");
    if (rows[0]?.id === manifest.clusterId) return "loaded";
  }
  if (databaseUrl === null) throw new Error(notEmpty(dataDirectory));
  throw new Error(
    "the database of DATABASE_URL has tables, which a restore does not replace: create an empty database and name that one",
  );
}
