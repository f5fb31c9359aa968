/**
 * How long test files took on this host, wall clock and processor, so that the longest can begin first.
 *
 * Owns `test-durations` in the cache directory: a line for each file that passed, appended as it ends; the
 * last line of a file counts.
 *
 * Always: a run without the file works, and one that is killed leaves complete lines.
 */
import { appendFileSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseSettings } from "../../contract/src/settings.ts";

export interface Duration {
  readonly ms: number;
  readonly cpuMs: number;
}

const RECORD = path.join(parseSettings(["cacheDirectory"], process.env).cacheDirectory, "test-durations");

/** With more lines the file is written again, with one for each test file. */
const LINES_MAX = 20_000;

/** What earlier runs recorded, by file. */
export function recordedDurations(record = RECORD): ReadonlyMap<string, Duration> {
  const durations = new Map<string, Duration>();
  const lines = read(record).split("\n");
  for (const line of lines) {
    const [file, ms, cpuMs] = line.split(" ");
    if (file !== undefined && cpuMs !== undefined) durations.set(file, { ms: Number(ms), cpuMs: Number(cpuMs) });
  }
  if (lines.length > LINES_MAX) {
    writeFileSync(`${record}.new`, [...durations].map(([file, duration]) => lineOf(file, duration)).join(""));
    renameSync(`${record}.new`, record);
  }
  return durations;
}

export function recordDuration(file: string, duration: Duration, record = RECORD): void {
  mkdirSync(path.dirname(record), { recursive: true });
  appendFileSync(record, lineOf(file, duration));
}

const lineOf = (file: string, { ms, cpuMs }: Duration): string => `${file} ${Math.round(ms)} ${Math.round(cpuMs)}\n`;

function read(record: string): string {
  try {
    return readFileSync(record, "utf8");
  } catch {
    return "";
  }
}
