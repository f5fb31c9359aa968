/**
 * `flotilla backup`: writes a backup of the control plane to a file or a stream, while the server runs or
 * not.
 *
 * Always:
 * - The file appears under its name when it is whole and on the disk, and never replaces another one. Only
 *   its owner can read it.
 * - The database is read in one snapshot, and the files after it began.
 *
 * A crash leaves a file `<name>.<digits>.part`, which nothing uses.
 */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { link, readFile, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Writable } from "node:stream";
import { ownMessageOf } from "@flotilla/base/errors";
import type pg from "pg";
import { KEY_NAME_BYTES, Secrets } from "../secrets.ts";
import { ArchiveWriter } from "./archive.ts";
import { type DatabasePlace, withDatabase } from "./database.ts";
import { type Dumped, dumpDatabase, tablesOf } from "./dump.ts";
import { KEPT_FILES, type KeptFile } from "./manifest.ts";
import { refusePending } from "./pending.ts";
import { syncDirectory } from "./sync-directory.ts";

export interface BackupOptions extends Omit<DatabasePlace, "isServed"> {
  /** The file, or an open stream. */
  readonly to: string | Writable;
  /** The only cluster that may be saved; absent: whichever is there. */
  readonly cluster?: string | undefined;
  /** Version of this program. */
  readonly version: string;
  /** Epoch milliseconds. */
  readonly now: number;
}

export type MadeBackup = Dumped & {
  readonly sha256: string;
  /** Before compression. */
  readonly bytes: number;
  /** How many secrets were encrypted with another key than the one in the backup. */
  readonly sealedOtherwise: number;
};

/** Throws an Error for operators. */
export async function makeBackup(options: BackupOptions): Promise<MadeBackup> {
  const { to, dataDirectory } = options;
  await refusePending(dataDirectory);
  if (options.databaseUrl === null && (await stat(join(dataDirectory, "postgres", "data")).catch(() => null)) === null)
    throw new Error(
      `${dataDirectory} has no database: name the directory of the server with --data-dir, or its database with DATABASE_URL`,
    );
  if (typeof to !== "string") return await writeTo(options, to);
  if ((await stat(to).catch(() => null)) !== null) throw new Error(fileExists(to));
  const part = join(dirname(to), `${basename(to)}.${randomBytes(4).toString("hex")}.part`);
  const stream = createWriteStream(part, { flags: "wx", mode: 0o600, flush: true });
  try {
    await once(stream, "open").catch((error: unknown) => {
      throw new Error(`${to} cannot be written: ${ownMessageOf(error)}; name another file with --to`, { cause: error });
    });
    const made = await writeTo(options, stream);
    // Fails when a file of this name appeared meanwhile.
    await link(part, to).catch((error: NodeJS.ErrnoException) => {
      throw error.code === "EEXIST" ? new Error(fileExists(to)) : error;
    });
    return made;
  } finally {
    stream.destroy();
    await rm(part, { force: true });
    await syncDirectory(dirname(to)).catch(() => undefined);
  }
}

const fileExists = (path: string): string => `${path} exists, and is not overwritten: name another file with --to`;

async function writeTo({ version, now, cluster, ...place }: BackupOptions, sink: Writable): Promise<MadeBackup> {
  const archive = new ArchiveWriter(sink, now);
  let sealedOtherwise = 0;
  const dumped = await withDatabase({ ...place, isServed: true }, async (client) => {
    if (cluster !== undefined) await refuseOtherCluster(client, cluster, place);
    const keys = async () => {
      sealedOtherwise = await refuseOtherKey(client, place.dataDirectory);
      return await readFiles(place.dataDirectory);
    };
    return await dumpDatabase({ client, archive, version, readFiles: keys });
  });
  return { ...dumped, sha256: await archive.end(), bytes: archive.bytes, sealedOtherwise };
}

async function refuseOtherCluster(
  client: pg.Client,
  cluster: string,
  place: Pick<DatabasePlace, "dataDirectory" | "databaseUrl">,
): Promise<void> {
  const { rows } = await client.query<{ id: string }>("SELECT id FROM cluster");
  const found = rows[0]?.id;
  if (found === cluster) return;
  const [where, remedy] =
    place.databaseUrl === null
      ? [place.dataDirectory, "name the data directory of the one to save with --data-dir"]
      : ["DATABASE_URL", "set DATABASE_URL to the database of the one to save, or FLOTILLA_URL to its server"];
  throw new Error(
    `${where} has cluster ${found}, and the server that commands of this terminal call has ${cluster}: ${remedy}`,
  );
}

/** Columns that are encrypted with the key of the installation. */
const SEALED: readonly [table: string, column: string][] = [
  ["machines", "secret_env"],
  ["checkpoints", "secret_env"],
  ["webhooks", "secret"],
  ["fleet_authorities", "private_key"],
];

/**
 * With the database of other hosts, the data directory may be another one than the servers'. A restore would
 * lose every secret. Returns how many secrets the key there cannot decrypt: with a lost key some never can
 * be, and the others still need backups.
 */
async function refuseOtherKey(client: pg.Client, dataDirectory: string): Promise<number> {
  const tables = await tablesOf(client);
  const names = SEALED.filter(([table, column]) =>
    tables.some((each) => each.name === table && each.columns.includes(column)),
  ).map(
    ([table, column]) =>
      `SELECT substring(${column} FOR ${KEY_NAME_BYTES}) AS name FROM ${table} WHERE ${column} IS NOT NULL`,
  );
  if (names.length === 0) return 0;
  const counted = `SELECT name, count(*)::int AS count FROM (${names.join(" UNION ALL ")}) AS sealed GROUP BY name`;
  const { rows } = await client.query<{ name: Buffer; count: number }>(counted);
  const path = join(dataDirectory, "secrets.key");
  const own = rows.length === 0 ? null : new Secrets(path, randomBytes).keyName;
  const others = rows.filter(({ name }) => own?.equals(name) !== true);
  if (rows.length === 0 || others.length < rows.length) return others.reduce((sum, { count }) => sum + count, 0);
  throw new Error(
    `${dataDirectory} has not the file secrets.key with which the secrets in the database were encrypted: name the data directory of one of its servers with --data-dir`,
  );
}

async function readFiles(directory: string): Promise<ReadonlyMap<KeptFile, Buffer>> {
  const files = new Map<KeptFile, Buffer>();
  for (const name of KEPT_FILES) {
    const content = await readFile(join(directory, name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return null;
      throw error;
    });
    if (content !== null) files.set(name, content);
  }
  return files;
}
