/**
 * The query for what a host name leads to. Names are written by triggers, in the statement that makes or
 * deletes what has them, and in the transaction in which a branch adopts (branches/adopt-store.ts).
 */
import { type Queryable, sql } from "../db/database.ts";
import type { HostSubject } from "./kinds.ts";

/** undefined: nothing has the name. */
export const findHost = (db: Queryable, name: string): Promise<HostSubject | undefined> =>
  db.queryOne(sql`SELECT kind, subject_id AS id FROM hosts WHERE name = ${name} AND freed_at IS NULL`);
