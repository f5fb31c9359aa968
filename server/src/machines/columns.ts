/**
 * The columns of a machine's row, each once: its field, its type, and whether a fenced write changes it. The
 * lists of columns in the statements of store.ts are made from this table.
 *
 * Pure. Always: a field of MachineRecord has a column, unless it comes from the row of the machine's host
 * name or node. What changes is part of MutableMachine. In the database each has the same name, in its
 * spelling.
 */
import { type Statement, sqlText } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { MutableMachine } from "./change.ts";
import type { MachineRecord } from "./record.ts";

type Type = "bigint" | "boolean" | "bytea" | "integer" | "jsonb" | "text" | "text[]" | "timestamptz";

interface Column<Changes extends boolean = boolean> {
  readonly type: Type;
  /**
   * Whether `writeChanges` writes it. The others are written once, or by a statement that is about nothing
   * else.
   */
  readonly changes: Changes;
}

const fixed = (type: Type): Column<false> => ({ type, changes: false });
const changing = (type: Type): Column<true> => ({ type, changes: true });

type Field = Exclude<keyof MachineRecord, "hostName" | "nodeStatus" | "nodeAddress">;
type Columns = { readonly [Name in Field]: Column<Name extends keyof MutableMachine ? boolean : false> };

const COLUMNS: Columns = {
  id: fixed("text"),
  tenantId: fixed("text"),
  name: fixed("text"),
  source: fixed("jsonb"),
  network: fixed("jsonb"),
  env: fixed("jsonb"),
  command: fixed("jsonb"),
  ports: fixed("jsonb"),
  labels: fixed("jsonb"),
  workdir: fixed("text"),
  secretEnv: fixed("bytea"),
  secretNames: fixed("text[]"),
  cpus: fixed("integer"),
  memoryMb: fixed("integer"),
  diskGb: fixed("integer"),
  isEphemeral: fixed("boolean"),
  isPublic: fixed("boolean"),
  isBranchable: fixed("boolean"),
  autoStopSeconds: fixed("bigint"),
  ttlSeconds: fixed("bigint"),
  atEnd: fixed("text"),
  restart: fixed("text"),
  disruption: fixed("text"),
  nodeLabels: fixed("jsonb"),
  health: fixed("jsonb"),
  hooks: fixed("jsonb"),
  origin: fixed("jsonb"),
  createdBy: fixed("text"),
  createdAt: fixed("timestamptz"),
  updatedAt: fixed("timestamptz"),
  desiredState: changing("text"),
  generation: changing("integer"),
  desiredAt: changing("timestamptz"),
  keepsMemory: changing("boolean"),
  nodeId: changing("text"),
  error: changing("text"),
  isAutoStarted: changing("boolean"),
  hasRun: changing("boolean"),
  observedState: changing("text"),
  observedGeneration: changing("integer"),
  observedBootId: changing("text"),
  observedReason: changing("text"),
  observedReasonCode: changing("text"),
  observedDetails: changing("jsonb"),
  readyAt: changing("timestamptz"),
  fence: fixed("text"),
  moveId: fixed("text"),
  moveNodeId: fixed("text"),
  moveStops: changing("boolean"),
  movedBy: fixed("text"),
  revision: fixed("integer"),
  reconcileAt: changing("timestamptz"),
  lastActivityAt: fixed("timestamptz"),
  deletedAt: fixed("timestamptz"),
};

const FIELDS = Object.keys(COLUMNS) as readonly Field[];
const CHANGING = FIELDS.filter((field) => COLUMNS[field].changes) as readonly (Field & keyof MutableMachine)[];

const nameOf = (field: Field): string => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const listed = (fields: readonly Field[], textOf: (name: string, field: Field) => string): Statement =>
  sqlText(fields.map((field) => textOf(nameOf(field), field)).join(", "));

/** All fields of `m`, a row of machines. */
export const SELECTED = listed(
  FIELDS,
  (name, field) => `${COLUMNS[field].type === "timestamptz" ? `ms(m.${name})` : `m.${name}`} AS "${field}"`,
);

/** The names of all columns. */
export const NAMES = listed(FIELDS, (name) => name);

/** All of them with their types, as the columns of a record in a JSON document. */
export const TYPED = listed(FIELDS, (name, field) => `${name} ${COLUMNS[field].type}`);

/** As TYPED, those that change. */
export const CHANGING_TYPED = listed(CHANGING, (name, field) => `${name} ${COLUMNS[field].type}`);

/** The assignments of an UPDATE from `c`, a record of CHANGING_TYPED. */
export const ASSIGNED = listed(CHANGING, (name) => `${name} = c.${name}`);

/** All columns of a machine, as a record of a JSON document. */
export const wholeRow = (machine: MachineRecord): object => rowOf(FIELDS, machine);

/** As `wholeRow`, those that change. */
export const changingRow = (machine: MutableMachine): object => rowOf(CHANGING, machine);

const rowOf = <Name extends Field>(fields: readonly Name[], machine: Readonly<Record<Name, unknown>>): object =>
  Object.fromEntries(fields.map((field) => [nameOf(field), jsonOf(COLUMNS[field].type, machine[field])]));

function jsonOf(type: Type, value: unknown): unknown {
  if (value === null) return null;
  if (type === "timestamptz") return instantOf(value as number);
  return type === "bytea" ? `\\x${(value as Buffer).toString("hex")}` : value;
}
