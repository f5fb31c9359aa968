/**
 * How long test files take, wall clock and processor, so that the longest can begin first on any host.
 *
 * Owns durations.json, which `npm test -- record` writes: each file that passed, rounded, so that little of
 * it changes. A file that was not run keeps its line while it exists.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

export interface Duration {
  readonly ms: number;
  readonly cpuMs: number;
}

/** A line of the record. */
interface Recorded {
  readonly seconds: number;
  readonly cpuSeconds: number;
}

const ROOT = path.resolve(import.meta.dirname, "../..");
const RECORD = path.join(import.meta.dirname, "durations.json");
const DIGITS = 2;
const SECONDS_MIN = 0.1;

/** What was recorded, by file. */
export function recordedDurations(record = RECORD): ReadonlyMap<string, Duration> {
  const lines = Object.entries(read(record));
  return new Map(
    lines.map(([file, { seconds, cpuSeconds }]) => [file, { ms: seconds * 1000, cpuMs: cpuSeconds * 1000 }]),
  );
}

/** Writes the durations of these files, relative to `root`, into the record. */
export function recordDurations(
  durations: ReadonlyMap<string, Duration>,
  { record = RECORD, root = ROOT }: { readonly record?: string; readonly root?: string } = {},
): void {
  const lines = new Map(Object.entries(read(record)));
  for (const [file, { ms, cpuMs }] of durations) lines.set(file, { seconds: rounded(ms), cpuSeconds: rounded(cpuMs) });
  const text = [...lines]
    .filter(([file]) => existsSync(path.join(root, file)))
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([file, { seconds, cpuSeconds }]) => `  "${file}": { "seconds": ${seconds}, "cpuSeconds": ${cpuSeconds} }`);
  writeFileSync(record, `{\n${text.join(",\n")}\n}\n`);
}

const rounded = (ms: number): number => Math.max(SECONDS_MIN, Number((ms / 1000).toPrecision(DIGITS)));

function read(record: string): Readonly<Record<string, Recorded>> {
  if (!existsSync(record)) return {};
  return JSON.parse(readFileSync(record, "utf8")) as Record<string, Recorded>;
}
