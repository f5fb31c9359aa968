/**
 * The node agent's log: one JSON object per line on standard error.
 *
 * Always: a line contains `time` (RFC 3339), `level`, `message` and the logger's fields; an Error in a field
 * becomes its message and stack. Secrets are not filtered here: callers must not log them.
 */
import { writeSync } from "node:fs";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";

const LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof LEVELS)[number];

export interface LogOptions {
  readonly level: LogLevel;
  readonly clock: Clock;
  /** Receives a whole line with its line end; default: standard error. */
  readonly write?: (line: string) => void;
  /** Receives each error as one text, also while errors are not logged. */
  readonly onError?: (message: string) => void;
}

export function makeLog(options: LogOptions, fields: object = {}): Log {
  const write = options.write ?? writeToStandardError;
  const threshold = LEVELS.indexOf(options.level);
  const line =
    (level: LogLevel) =>
    (more: object, message: string): void => {
      if (level === "error") options.onError?.(errorText({ ...fields, ...more }, message));
      if (LEVELS.indexOf(level) < threshold) return;
      const time = new Date(options.clock.now()).toISOString();
      write(`${JSON.stringify({ time, level, message, ...fields, ...more }, plainError)}\n`);
    };
  return {
    debug: line("debug"),
    info: line("info"),
    warn: line("warn"),
    error: line("error"),
    child: (more) => makeLog(options, { ...fields, ...more }),
  };
}

/** The message of an error with its machine and its reason, which callers have under these names. */
function errorText(fields: object, message: string): string {
  const { machine, reason, error } = fields as { machine?: unknown; reason?: unknown; error?: unknown };
  const subject = typeof machine === "string" ? `${machine}: ` : "";
  const why = typeof reason === "string" ? reason : error === undefined ? null : messageOf(error);
  return `${subject}${message}${why === null || message.includes(why) ? "" : `: ${why}`}`;
}

/** Synchronous, so that the last lines before an exit are not lost. Continues if the reader is gone. */
function writeToStandardError(line: string): void {
  try {
    writeSync(2, line);
  } catch {
    // EPIPE or EAGAIN: running machines matter more than the log.
  }
}

function plainError(_key: string, value: unknown): unknown {
  return value instanceof Error ? { message: value.message, stack: value.stack } : value;
}
