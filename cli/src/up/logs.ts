/**
 * Where the programs' logs go when somebody watches `flotilla up` on a terminal: one file each, below the data
 * directory. Elsewhere they go to standard error, where a service manager picks them up.
 *
 * Always: a file is begun anew, and the former kept beside it, once it is larger than 16 MiB at a start.
 */
import { mkdirSync, openSync, readFileSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";

const LOG_BYTES_MAX = 16 * 1024 * 1024;
const LINES_SHOWN = 5;

/** The descriptor of the program's log file, for appending. */
export function openLog(directory: string, program: string): number {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, `${program}.log`);
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size > LOG_BYTES_MAX) renameSync(path, `${path}.1`);
  return openSync(path, "a", 0o600);
}

/** The last lines, shortened to what a person reads: a JSON line's message and error, any other line as it is. */
export function lastWords(directory: string, program: string): string[] {
  const text = readFileSync(join(directory, `${program}.log`), "utf8").slice(-20_000);
  const lines = text.trimEnd().split("\n").map(readable);
  // What a program says again and again is said once.
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
