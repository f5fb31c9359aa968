/**
 * The dependencies that every part of the server gets: database, clock, log, ids and randomness.
 *
 * Always: time and randomness come from here, never from `Date.now()` or `Math.random()`, so that a test or a
 * seeded simulation can control the whole server.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { IdKind } from "@flotilla/contract/ids";
import type { Database } from "./db/database.ts";

export interface Ids {
  /** A new id, such as `mach-` and 32 hex digits. */
  make(kind: IdKind): string;
}

export interface Context {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly ids: Ids;
  /** Cryptographically secure bytes. */
  readonly randomBytes: (size: number) => Buffer;
}
