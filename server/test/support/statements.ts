/**
 * Counts the statements that a piece of work sends to the database, without those of loops and heartbeats.
 *
 * Wraps the methods of the Database during the work; the rest of the server is unchanged.
 */
import type { Database, Statement } from "../../src/db/database.ts";

/** Statements that no request waits for: batches, loops, and nodes' reports. */
const IN_BACKGROUND = [
  /machine_exec_months/,
  /reconcile_at <=/,
  /last_used_at/,
  /UPDATE nodes/,
  /credential_hash =/,
  /m\.id = ANY/,
  /node_sequence/,
  /append_audit/,
  /UPDATE webhooks SET turn/,
  /WITH run AS/,
  /deleted_at </,
  /idempotency_keys/,
  /operations/,
  /decode\(hash, 'hex'\)/,
];

/** `only`: counts those that match it, and no others. */
export async function countStatements(db: Database, work: () => Promise<unknown>, only?: RegExp): Promise<number> {
  const originals = { query: db.query, queryOne: db.queryOne, execute: db.execute };
  const texts: string[] = [];
  for (const [name, original] of Object.entries(originals)) {
    const noted = (statement: Statement) => {
      texts.push(statement.text);
      return (original as (statement: Statement) => unknown)(statement);
    };
    Object.assign(db, { [name]: noted });
  }
  try {
    await work();
  } finally {
    Object.assign(db, originals);
  }
  const isCounted = (text: string) =>
    only === undefined ? !IN_BACKGROUND.some((pattern) => pattern.test(text)) : only.test(text);
  return texts.filter(isCounted).length;
}
