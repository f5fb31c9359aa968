/**
 * Loads a backup into an empty database, in one transaction: the schema that the backup had, its rows, then
 * the migrations that are newer, then settle.ts.
 *
 * Always: a failure or a crash leaves the database empty. Constraints and references are checked; triggers do
 * not run, because what they wrote is in the backup.
 */
import { once } from "node:events";
import pg from "pg";
import { from as copyFrom } from "pg-copy-streams";
import { applyMigrations, readMigrations } from "../db/migrate.ts";
import { DamagedBackup, type Entry } from "./archive.ts";
import { copyText, SESSION_SETTINGS, tablesOf } from "./dump.ts";
import type { Manifest, Summary, TableShape } from "./manifest.ts";
import { settle, type SettleOptions } from "./settle.ts";

/**
 * How far sequences are advanced. Clients may know numbers that were given out after the backup, such as the
 * positions of events: without this, those numbers would name other things, and a reader that continues after
 * them would miss some.
 */
const SEQUENCE_STEP = 1_000_000_000;

export interface LoadOptions extends Omit<SettleOptions, "client"> {
  readonly client: pg.Client;
  readonly manifest: Manifest;
  readonly summary: Summary;
  /** Reads the backup again, and throws when it is not the same any more. */
  readonly entries: () => AsyncIterable<Entry>;
}

/** How many tables the database has. */
export const countTables = async (client: pg.Client): Promise<number> => (await tablesOf(client)).length;

/** Throws an Error for operators; the database is as before then. */
export async function loadDatabase(options: LoadOptions): Promise<void> {
  const { client, manifest, summary } = options;
  const migrations = await readMigrations();
  const made = migrations.slice(0, manifest.migrations.length);
  await client.query(SESSION_SETTINGS);
  await client.query("BEGIN");
  await applyMigrations(client, made);
  await refuseOtherTables(client, manifest.tables);
  const names = manifest.tables.map(({ name }) => pg.escapeIdentifier(name));
  for (const name of names) await client.query(`ALTER TABLE ${name} DISABLE TRIGGER USER`);
  // What the migrations wrote is in the backup as well.
  await client.query(`TRUNCATE ${names.join(", ")}`);
  await loadTables(client, options);
  for (const name of names) await client.query(`ALTER TABLE ${name} ENABLE TRIGGER USER`);
  for (const [name, last] of Object.entries(summary.sequences))
    await client.query("SELECT setval($1::regclass, $2)", [pg.escapeIdentifier(name), last + SEQUENCE_STEP]);
  await applyMigrations(client, migrations.slice(made.length));
  await settle(options);
  await client.query("COMMIT");
}

async function refuseOtherTables(client: pg.Client, expected: readonly TableShape[]): Promise<void> {
  const describe = ({ name, columns }: TableShape): string => `${name}(${columns.join(", ")})`;
  const found = (await tablesOf(client)).map(describe).toSorted();
  const other = expected.map(describe).find((text) => !found.includes(text));
  if (other !== undefined || found.length !== expected.length)
    throw new Error(
      `the backup's tables are not those of its migrations: ${other ?? "one is missing"}; restore it with the version that made it`,
    );
}

async function loadTables(client: pg.Client, { manifest, summary, entries }: LoadOptions): Promise<void> {
  let loading: Loading | null = null;
  const end = async (): Promise<void> => {
    if (loading === null) return;
    const { table, count } = await loading.end();
    if (count !== summary.rows[table]) throw new DamagedBackup(`table ${table} has ${count} rows, not as it says`);
  };
  for await (const { name, content } of entries()) {
    const table = /^tables\/([^/]+)\/\d+$/.exec(name)?.[1];
    if (table === undefined) continue;
    if (loading?.table !== table) {
      await end();
      loading = new Loading(client, shapeOf(manifest, table));
    }
    await loading.add(content);
  }
  await end();
}

function shapeOf({ tables }: Manifest, name: string): TableShape {
  const shape = tables.find((table) => table.name === name);
  if (shape === undefined) throw new DamagedBackup(`it has rows of ${name}, which is not in its manifest`);
  return shape;
}

/** The rows of one table on their way into the database. */
class Loading {
  readonly table: string;
  readonly #stream: ReturnType<typeof copyFrom> & NodeJS.WritableStream;
  readonly #ended: Promise<unknown>;

  constructor(client: pg.Client, shape: TableShape) {
    this.table = shape.name;
    this.#stream = client.query(copyFrom(copyText(shape, "FROM STDIN")));
    this.#ended = once(this.#stream, "finish");
    this.#ended.catch(() => undefined);
  }

  async add(content: Buffer): Promise<void> {
    if (!this.#stream.write(content)) await Promise.race([once(this.#stream, "drain"), this.#ended]);
  }

  async end(): Promise<{ readonly table: string; readonly count: number }> {
    this.#stream.end();
    await this.#ended;
    return { table: this.table, count: this.#stream.rowCount };
  }
}
