/**
 * The gateway's log: one JSON object per line on standard error, in the form of the other programs.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";

const LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof LEVELS)[number];

export function createLog(clock: Clock, lowest: LogLevel, fields: object = {}): Log {
  const at =
    (level: Exclude<LogLevel, "silent">) =>
    (more: object, message: string): void => {
      if (LEVELS.indexOf(level) < LEVELS.indexOf(lowest)) return;
      const time = new Date(clock.now()).toISOString();
      process.stderr.write(`${JSON.stringify({ level, time, ...fields, ...more, message })}\n`);
    };
  const log = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  return { ...log, child: (more: object) => createLog(clock, lowest, { ...fields, ...more }) };
}
