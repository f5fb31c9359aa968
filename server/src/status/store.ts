/**
 * The two queries of the status endpoints.
 */
import { type Queryable, sql } from "../db/database.ts";

/** The cluster's id, generated when its database was first set up. */
export async function getClusterId(db: Queryable): Promise<string> {
  const row = await db.queryOne<{ id: string }>(sql`SELECT id FROM cluster`);
  if (row === undefined) throw new Error("the database has no cluster id");
  return row.id;
}

/** Resolves when the database answers. */
export async function ping(db: Queryable): Promise<void> {
  await db.query(sql`SELECT 1`);
}
