/**
 * Counts the statements that a piece of work sends to the database, without those of loops and heartbeats.
 *
 * Wraps the methods of the Database during the work; the rest of the server is unchanged.
 */
import type { Database, Statement } from "../../src/db/database.ts";
import { until } from "../../../test/support/until.ts";

/**
 * Statements that no request waits for: batches, nodes' reports, and loops' that share a statement with
 * others.
 */
const IN_BACKGROUND = [
  /machine_exec_minutes/,
  /reconcile_at <=/,
  /last_used_at/,
  /UPDATE nodes/,
  /credential_hash IN/,
  /AND m\.id = ANY|m\.id = ANY.* AND /,
  /ORDER BY \(e\.event#>>'\{node,sequence\}'\)/,
  /append_audit/,
  /UPDATE webhooks SET turn/,
  /WITH run AS/,
  /deleted_at </,
  /idempotency_keys/,
  /operations/,
  /m\.fence = '(on|lifting)' AND/,
  /FROM pools p JOIN tenants/,
  /decode\(hash, 'hex'\)/,
];

/**
 * Does the work again until it sends so many: a report of a node, which may come in between, sends some too.
 * Rejects when it never does.
 */
export async function untilStatements(db: Database, count: number, work: () => Promise<unknown>): Promise<void> {
  const sent = async () => (await countStatements(db, work)) === count;
  await until(sent, { what: `work that sends ${count} statements` });
}

const LOOPS = "/src/reconcilers/driver.ts";
const STACK_FRAMES = 100;

/** `only`: counts those that match it, and no others. */
export async function countStatements(db: Database, work: () => Promise<unknown>, only?: RegExp): Promise<number> {
  const originals = { query: db.query, queryOne: db.queryOne, execute: db.execute };
  const texts: string[] = [];
  for (const [name, original] of Object.entries(originals)) {
    const noted = (statement: Statement) => {
      if (!isOfLoop()) texts.push(statement.text);
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

/** Whether a loop of the server waits for what runs now. */
function isOfLoop(): boolean {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = STACK_FRAMES;
  const { stack = "" } = new Error("the stack");
  Error.stackTraceLimit = limit;
  return stack.includes(LOOPS);
}
