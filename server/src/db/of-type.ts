/**
 * The condition that selects rows by their type. Pure.
 */
import { sql, type Statement } from "./database.ts";

/** The same as `matchesType`, of a column: a type, or `machine.*`; null: any. */
export const isOfType = (column: Statement, pattern: string | null): Statement => sql`
  (${pattern}::text IS NULL OR ${column} = ${pattern}::text
    OR ${pattern}::text LIKE '%.*' AND starts_with(${column}, left(${pattern}::text, -1)))`;
