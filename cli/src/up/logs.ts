/**
 * The programs' logs when `flotilla up` runs on a terminal: one file each, in the data directory. Otherwise
 * they go to standard error, where a service manager collects them.
 *
 * Always: a log file larger than 16 MiB is kept as the previous one, and a new one begins, also while the
 * program runs.
 */
import { mkdirSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { keepBounded } from "@flotilla/base/bounded-log";
import type { Clock } from "@flotilla/base/clock";

const LINES_SHOWN = 5;

/** The descriptor of the program's log file, for appending, for as long as this process runs. */
export function openLog(directory: string, program: string, clock: Clock): number {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, `${program}.log`);
  keepBounded(clock, path);
  return openSync(path, "a", 0o600);
}

/** The last lines, shortened for people: a JSON line's message and error, any other line unchanged. */
export function lastLines(directory: string, program: string): string[] {
  const text = readFileSync(join(directory, `${program}.log`), "utf8").slice(-20_000);
  const lines = text.trimEnd().split("\n").map(readable);
  // Repeated lines are shown once.
  return lines.filter((line, index) => line !== lines[index - 1]).slice(-LINES_SHOWN);
}

function readable(line: string): string {
  try {
    const { msg, message, err, error, reason } = JSON.parse(line) as Record<string, unknown>;
    const cause = err ?? error ?? reason;
    const why = typeof cause === "object" && cause !== null && "message" in cause ? cause.message : cause;
    return [msg ?? message, why].filter((part) => typeof part === "string").join(": ") || line;
  } catch {
    return line;
  }
}
