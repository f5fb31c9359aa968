/**
 * The only access to PostgreSQL: SQL as text, in a tagged template that turns values into parameters.
 *
 *     const rows = await db.query<MachineRow>(sql`SELECT id, name FROM machines WHERE id = ${id}`)
 *
 * Always: a value never becomes part of the text, and `sqlText` is only for what the program itself says;
 * statements are prepared by name on each connection.
 */
import { ownMessageOf } from "@flotilla/base/errors";

/** A statement: its text with $1, $2, … and the values. Made only by `sql`. */
export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** Makes a Statement. A Statement as a value is spliced in with its own parameters renumbered. */
export function sql(strings: TemplateStringsArray, ...values: readonly unknown[]): Statement {
  let text = strings[0] ?? "";
  const parameters: unknown[] = [];
  for (const [index, value] of values.entries()) {
    if (isStatement(value)) {
      const offset = parameters.length;
      text += value.text.replace(/\$(\d+)/g, (_, number) => `$${Number(number) + offset}`);
      parameters.push(...value.values);
    } else {
      parameters.push(value);
      text += `$${parameters.length}`;
    }
    text += strings[index + 1] ?? "";
  }
  const statement = { text, values: parameters };
  MADE_HERE.add(statement);
  return statement;
}

/** Text without values that the program has put together, such as a list of columns. */
export const sqlText = (text: string): Statement => {
  const statement = { text, values: [] };
  MADE_HERE.add(statement);
  return statement;
};

const MADE_HERE = new WeakSet<object>();

function isStatement(value: unknown): value is Statement {
  return typeof value === "object" && value !== null && MADE_HERE.has(value);
}

/**
 * The database did not answer, or the connection was lost. The statement may or may not have taken effect.
 */
export class DatabaseUnavailable extends Error {
  constructor(cause: unknown) {
    super(`the database does not answer: ${ownMessageOf(cause)}`, { cause });
    this.name = "DatabaseUnavailable";
  }
}

/** The database's disk is full. The statement has not taken effect. */
export class DatabaseFull extends DatabaseUnavailable {
  constructor(cause: unknown) {
    super(cause);
    this.name = "DatabaseFull";
    this.message = `the disk of the database is full: ${ownMessageOf(cause)}`;
  }
}

export interface Queryable {
  /** All rows. */
  query<Row extends object>(statement: Statement): Promise<readonly Row[]>;
  /** The first row, or undefined. */
  queryOne<Row extends object>(statement: Statement): Promise<Row | undefined>;
  /** The number of rows that were written. */
  execute(statement: Statement): Promise<number>;
}

export interface Database extends Queryable {
  /**
   * Runs `work` in one transaction; rolls back when it throws. Retries serialization failures and deadlocks.
   */
  transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T>;
  /**
   * Tells every server replica: this one before it returns, the others by a NOTIFY that is sent at once, or a
   * few milliseconds later with others of the same time. Resolves when it was sent, or could not be: a hint
   * only, on which correctness never rests.
   */
  notify(channel: Channel, payload: string): Promise<void>;
  /**
   * Calls back for each payload; `onGap` whenever notifications may have been missed, at first connect too.
   */
  listen(channel: Channel, callbacks: { onPayload(payload: string): void; onGap(): void }): () => void;
  /** Whether notifications arrive now. A cache that depends on them is empty while they do not. */
  isListening(): boolean;
  close(): Promise<void>;
}

/**
 * The channels of notifications between servers. `keys`: key id revoked or changed. `tenants`: tenant id.
 * `machines`: machine id. `shares`: id of a machine whose share link changed. `operations`: an operation to
 * claim. `pools`: id of one that changed. `rates`: what a server has admitted (fairness/shared-rates.ts).
 * `webhooks`: id of one with something to deliver. `fleet`: an authority or a node listener has changed.
 * `clocks`: id of a tenant whose test clock was moved. `apps`: id of one that has something to do. `routes`:
 * id of an app whose table of targets, domain or access changed.
 */
export const CHANNELS = [
  "keys",
  "tenants",
  "machines",
  "nodes",
  "shares",
  "operations",
  "pools",
  "rates",
  "webhooks",
  "fleet",
  "clocks",
  "disks",
  "apps",
  "routes",
] as const;
export type Channel = (typeof CHANNELS)[number];
