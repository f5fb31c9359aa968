/**
 * Reads a whole database into a backup: every table of its schema, in one snapshot.
 *
 * Always: it only reads, and blocks no writer; the snapshot is that of its first statement. Memory is bounded
 * by one entry of the archive.
 *
 * Rows are in the text form of COPY, which any version of PostgreSQL reads.
 */
import pg from "pg";
import { to as copyTo } from "pg-copy-streams";
import type { ArchiveWriter } from "./archive.ts";
import {
  FORMAT,
  inLoadOrder,
  type KeptFile,
  type Manifest,
  MANIFEST_NAME,
  type Reference,
  SUMMARY_NAME,
  type Summary,
  type TableShape,
} from "./manifest.ts";

/** How many bytes of rows are one entry; the last piece that PostgreSQL sent may exceed it. */
const ENTRY_BYTES = 2 ** 20;

/** Settings that determine the text of values, and of statements that last. */
export const SESSION_SETTINGS =
  "SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET timezone = 'UTC'; SET extra_float_digits = 1; " +
  "SET bytea_output = 'hex'; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0";

export interface DumpOptions {
  readonly client: pg.Client;
  readonly archive: ArchiveWriter;
  /** The version of this program. */
  readonly version: string;
  /**
   * Called when the snapshot exists: a key that is made later seals nothing in it, and one that sealed
   * something in it is there.
   */
  readonly readFiles: () => Promise<ReadonlyMap<KeptFile, Buffer>>;
}

export type Dumped = Manifest & Summary & { readonly files: readonly KeptFile[] };

/** Throws an Error for operators when the database is not one of Flotilla. */
export async function dumpDatabase({ client, archive, version, readFiles }: DumpOptions): Promise<Dumped> {
  await client.query(SESSION_SETTINGS);
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
  const manifest = await manifestOf(client, version);
  await archive.add(MANIFEST_NAME, json(manifest));
  const files = await readFiles();
  for (const [name, content] of files) await archive.add(`files/${name}`, content);
  const rows: Record<string, number> = {};
  for (const table of manifest.tables) rows[table.name] = await dumpTable(client, archive, table);
  // Sequences are outside the snapshot: read last, they are beyond everything that it has.
  const summary = { rows, sequences: await sequencesOf(client) };
  await client.query("COMMIT");
  await archive.add(SUMMARY_NAME, json(summary));
  return { ...manifest, ...summary, files: [...files.keys()] };
}

const json = (value: unknown): Buffer => Buffer.from(`${JSON.stringify(value)}\n`);

/** The names of the tables in the current schema. */
export async function tablesOf(client: pg.Client): Promise<readonly TableShape[]> {
  const { rows } = await client.query<TableShape>(`
    SELECT c.relname AS name,
      array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attgenerated = '') AS columns
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
    GROUP BY c.oid, c.relname`);
  return rows;
}

async function manifestOf(client: pg.Client, version: string): Promise<Manifest> {
  const tables = await tablesOf(client);
  const names = tables.map(({ name }) => name);
  if (!names.includes("schema_migrations") || !names.includes("cluster"))
    throw new Error("the database has no Flotilla: check DATABASE_URL and --data-dir");
  const { rows: references } = await client.query<Reference>(`
    SELECT f.relname AS "from", t.relname AS "to" FROM pg_constraint k
    JOIN pg_class f ON f.oid = k.conrelid JOIN pg_class t ON t.oid = k.confrelid WHERE k.contype = 'f'`);
  const { rows: migrations } = await client.query<{ name: string }>(
    "SELECT name FROM schema_migrations ORDER BY version",
  );
  const { rows } = await client.query<Pick<Manifest, "clusterId" | "createdAt" | "postgres">>(`
    SELECT id AS "clusterId", to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "createdAt",
      current_setting('server_version') AS postgres FROM cluster`);
  const [facts] = rows;
  if (facts === undefined) throw new Error("the database has no cluster id: start its server once");
  return {
    format: FORMAT,
    flotilla: version,
    ...facts,
    migrations: migrations.map(({ name }) => name),
    tables: inLoadOrder(tables, references),
  };
}

/** The statement that copies a table's rows, without columns that are computed. */
export function copyText({ name, columns }: TableShape, direction: "TO STDOUT" | "FROM STDIN"): string {
  return `COPY ${pg.escapeIdentifier(name)} (${columns.map((each) => pg.escapeIdentifier(each)).join(", ")}) ${direction}`;
}

async function dumpTable(client: pg.Client, archive: ArchiveWriter, table: TableShape): Promise<number> {
  const stream = client.query(copyTo(copyText(table, "TO STDOUT")));
  let pieces: Buffer[] = [];
  let size = 0;
  let number = 0;
  const flush = async (): Promise<void> => {
    number += 1;
    const content = Buffer.concat(pieces);
    pieces = [];
    size = 0;
    await archive.add(`tables/${table.name}/${String(number).padStart(8, "0")}`, content);
  };
  for await (const piece of stream as AsyncIterable<Buffer>) {
    pieces.push(piece);
    size += piece.byteLength;
    if (size >= ENTRY_BYTES) await flush();
  }
  if (size > 0) await flush();
  return stream.rowCount;
}

async function sequencesOf(client: pg.Client): Promise<Readonly<Record<string, number>>> {
  const { rows } = await client.query<{ name: string; last: string }>(`
    SELECT sequencename AS name, last_value::text AS last FROM pg_sequences
    WHERE schemaname = current_schema() AND last_value IS NOT NULL`);
  return Object.fromEntries(rows.map(({ name, last }) => [name, Number(last)]));
}
