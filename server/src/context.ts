/**
 * The only thing that is handed around in the server: database, clock, log, ids and randomness.
 *
 * Always: time and randomness come from here, never from `Date.now()` or `Math.random()`, so that a test or a seeded
 * simulation can drive the whole control plane.
 */
import type { IdKind } from "@flotilla/contract/ids";
import type { Database } from "./db/database.ts";

export interface Clock {
  /** Epoch milliseconds. */
  now(): number;
  /** Milliseconds since some fixed point; never goes back when the host's clock is set. */
  monotonic(): number;
  /** Resolves after the time, or at once when the signal is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls back once after the time, unless it is canceled first. For what is nearly always canceled. */
  timer(ms: number, callback: () => void): Timer;
}

export interface Timer {
  cancel(): void;
}

export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  child(fields: object): Log;
}

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
