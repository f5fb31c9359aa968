/**
 * What a backup says about itself: its first entry (the manifest), its last (the summary), and the order of
 * its tables. Pure.
 *
 * A backup has these entries in this order: `backup.json`, `files/<name>` for each file,
 * `tables/<table>/<number>` with rows in the form of PostgreSQL's COPY, `summary.json`.
 */
import { DamagedBackup } from "./archive.ts";

export const FORMAT = 1;
export const MANIFEST_NAME = "backup.json";
export const SUMMARY_NAME = "summary.json";
/** Files of the data directory without which the database cannot be used, or its operator has no key. */
export const KEPT_FILES = ["secrets.key", "admin.key"] as const;
export type KeptFile = (typeof KEPT_FILES)[number];

export interface TableShape {
  readonly name: string;
  readonly columns: readonly string[];
}

export interface Manifest {
  readonly format: number;
  /** The version of Flotilla that made it. */
  readonly flotilla: string;
  /** Time of the snapshot; RFC 3339. */
  readonly createdAt: string;
  readonly clusterId: string;
  readonly postgres: string;
  /** The names of the migrations that the database had, in order. */
  readonly migrations: readonly string[];
  /** In an order in which they can be loaded: a table after those it refers to. */
  readonly tables: readonly TableShape[];
}

export interface Summary {
  /** By table. */
  readonly rows: Readonly<Record<string, number>>;
  /** The last value of each sequence that was used. */
  readonly sequences: Readonly<Record<string, number>>;
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
const isNames = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((item) => typeof item === "string");

/** Throws DamagedBackup, also for a form that this version does not know. */
export function parseManifest(content: Buffer): Manifest {
  const value = parse(content);
  if (!isRecord(value) || typeof value["format"] !== "number")
    throw new DamagedBackup("it does not begin with a manifest");
  if (value["format"] > FORMAT)
    throw new DamagedBackup(
      `a later version of Flotilla (${String(value["flotilla"])}) made it: restore it with that version`,
    );
  const { tables } = value;
  const isSound =
    [value["flotilla"], value["createdAt"], value["clusterId"], value["postgres"]].every(
      (item) => typeof item === "string",
    ) &&
    isNames(value["migrations"]) &&
    Array.isArray(tables) &&
    tables.every((table) => isRecord(table) && typeof table["name"] === "string" && isNames(table["columns"]));
  if (!isSound) throw new DamagedBackup("its manifest lacks fields");
  // Checked above.
  return value as unknown as Manifest;
}

/** Throws DamagedBackup. */
export function parseSummary(content: Buffer): Summary {
  const value = parse(content);
  const isNumbers = (item: unknown): boolean =>
    isRecord(item) && Object.values(item).every((each) => typeof each === "number");
  if (!isRecord(value) || !isNumbers(value["rows"]) || !isNumbers(value["sequences"]))
    throw new DamagedBackup("it does not end with a summary");
  // Checked above.
  return value as unknown as Summary;
}

function parse(content: Buffer): unknown {
  try {
    return JSON.parse(content.toString());
  } catch {
    return undefined;
  }
}

/** Throws an Error for operators when this program does not know the schema of a backup. */
export function refuseUnknownSchema(made: readonly string[], known: readonly string[]): void {
  const other = made.findIndex((name, index) => known[index] !== name);
  if (other < 0) return;
  if (other >= known.length)
    throw new Error(
      `the backup has the schema of a later Flotilla: it has ${made[other]}, this one knows ${known.length} migrations; restore it with that version`,
    );
  throw new Error(
    `the backup is of another line of this program: it has ${made[other]} where this one has ${known[other]}`,
  );
}

/** A reference from one table to another. */
export interface Reference {
  readonly from: string;
  readonly to: string;
}

/**
 * The tables in an order in which each comes after those it refers to. Throws when they refer to each other
 * in a circle.
 */
export function inLoadOrder<T extends { readonly name: string }>(
  tables: readonly T[],
  references: readonly Reference[],
): readonly T[] {
  const ordered: T[] = [];
  let left = tables.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  while (left.length > 0) {
    const waiting = new Set(left.map(({ name }) => name));
    const isFree = ({ name }: T): boolean =>
      references.every(({ from, to }) => from !== name || to === name || !waiting.has(to));
    const next = left.filter(isFree);
    if (next.length === 0) throw new Error(`tables refer to each other in a circle: ${[...waiting].join(", ")}`);
    ordered.push(...next);
    left = left.filter((table) => !next.includes(table));
  }
  return ordered;
}
