/**
 * The node agent's log: one JSON object per line on standard error, or sentences for people on a terminal.
 *
 * Always: a line of JSON contains `time` (RFC 3339), `level`, `message` and the logger's fields; an Error in
 * a field becomes its message and stack. Secrets are not filtered here: callers must not log them.
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
  /** Whether lines are for people; absent: they are JSON. */
  readonly isForPeople?: boolean;
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
      if (level === "error") options.onError?.(sentence({ ...fields, ...more }, message));
      if (LEVELS.indexOf(level) < threshold) return;
      const time = new Date(options.clock.now()).toISOString();
      const all = { ...fields, ...more };
      write(
        options.isForPeople === true
          ? `${time.slice(11, 19)} ${level === "info" ? "" : `${level}: `}${sentence(all, message)}\n`
          : `${JSON.stringify({ time, level, message, ...all }, plainError)}\n`,
      );
    };
  return {
    debug: line("debug"),
    info: line("info"),
    warn: line("warn"),
    error: line("error"),
    child: (more) => makeLog(options, { ...fields, ...more }),
  };
}

/**
 * A message with its machine, its reason and what to do, which callers have under these names. Without
 * control characters: a reason may come from a guest or a registry.
 */
function sentence(fields: object, message: string): string {
  const { machine, reason, remedy, error } = fields as Readonly<Record<string, unknown>>;
  const subject = typeof machine === "string" ? `${machine}: ` : "";
  const why = typeof reason === "string" ? reason : error === undefined ? null : messageOf(error);
  const because = why === null || message.includes(why) ? "" : `: ${why}`;
  return clean(`${subject}${message}${because}${typeof remedy === "string" ? `; ${remedy}` : ""}`);
}

// oxlint-disable-next-line no-control-regex -- they are what is removed
const clean = (text: string): string => text.replaceAll(/[\u0000-\u001f\u007f-\u009f]+/g, " ");

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
