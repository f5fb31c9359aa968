/**
 * The interface of a structured log, which each program implements (server: pino; node: its own lines).
 *
 * Always: a field `error` may hold an Error. Nothing here filters secrets: callers leave them out.
 */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  /** The same log with more fields on every line. */
  child(fields: object): Log;
}
