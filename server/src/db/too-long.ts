/**
 * Recognises statements that took longer than they may. Pure.
 */
import { DatabaseUnavailable } from "./database.ts";

const QUERY_CANCELED = "57014";

/**
 * Whether the database has canceled a statement, which has not taken effect: with less to do it may end in
 * time.
 */
export const isTooLong = (error: unknown): boolean =>
  error instanceof DatabaseUnavailable &&
  error.cause instanceof Error &&
  "code" in error.cause &&
  error.cause.code === QUERY_CANCELED;
