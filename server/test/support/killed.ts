/**
 * A database whose client is killed in the middle of its first transaction: nothing of it is kept, as when
 * PostgreSQL loses the connection.
 */
import type { Database, Queryable, Statement } from "../../src/db/database.ts";

export class Killed extends Error {}

/**
 * The client is killed when `count` statements of its transaction have run, or all of them; a single
 * statement is one too.
 */
export function killedAfter(db: Database, count: number): Database {
  const inTransaction = <T>(work: (transaction: Queryable) => Promise<T>): Promise<T> =>
    db.transaction(async (transaction) => {
      let left = count;
      const counted = async <R>(result: Promise<R>): Promise<R> => {
        const value = await result;
        left -= 1;
        if (left <= 0) throw new Killed();
        return value;
      };
      await work({
        query: <Row extends object>(statement: Statement) => counted(transaction.query<Row>(statement)),
        queryOne: <Row extends object>(statement: Statement) => counted(transaction.queryOne<Row>(statement)),
        execute: (statement) => counted(transaction.execute(statement)),
      });
      throw new Killed();
    });
  return {
    ...db,
    transaction: inTransaction,
    query: (statement) => inTransaction((transaction) => transaction.query(statement)),
    queryOne: (statement) => inTransaction((transaction) => transaction.queryOne(statement)),
    execute: (statement) => inTransaction((transaction) => transaction.execute(statement)),
  };
}
