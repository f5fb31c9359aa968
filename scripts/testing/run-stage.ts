/**
 * Runs the test files of the layers of one stage, and prints a line for each as it ends; for a failed file
 * also its failures and all its output; at the end how long each layer's files took.
 */
import { availableParallelism } from "node:os";
import { loadAdjustedMs } from "../../node/src/host/load-adjusted-timeout.ts";
import { type Duration, recordedDurations } from "./durations.ts";
import type { Layer } from "./layers.ts";
import { NIGHT, NIGHT_FILE_MINUTES } from "./night.ts";
import { LentPostgres } from "./postgres.ts";
import { type FileResult, isOnlyOfSubtests, runFile, runTogether } from "./run-file.ts";
import { type Job, jobsOf, longestFirst, nextJob } from "./schedule.ts";

/** The result of a part of the tests; parts are added up for the last line. */
export interface Outcome {
  readonly passed: number;
  readonly failed: number;
  /** The failed tests, each with its file and the first line of its error. */
  readonly failures: readonly string[];
  /** Skipped tests, each with the reason it gave. */
  readonly skipped: readonly string[];
  readonly durations: readonly { readonly name: string; readonly ms: number }[];
  /** How long each file took that passed. */
  readonly files: ReadonlyMap<string, Duration>;
  /** The file that failed, with its layer; absent: it has passed. */
  readonly failedFile?: { readonly file: string; readonly layer: Layer };
}

/** Time limit of each file in long runs on demand, instead of its layer's. */
const FILE_MINUTES = Number(process.env["FLOTILLA_TEST_FILE_MINUTES"] ?? 0);

/** How many files the summary of a layer names. */
const LONGEST_SHOWN = 5;

/**
 * Runs the files of a stage's layers; `root` is the checkout, files are relative to it. `isNight`: in full
 * length.
 */
export async function runStage(
  root: string,
  files: ReadonlyMap<Layer, readonly string[]>,
  { isNight }: { readonly isNight: boolean },
): Promise<readonly Outcome[]> {
  const durations = recordedDurations();
  const waiting = new Set(longestFirst([...files].flatMap(([layer, some]) => jobsOf(layer, some, durations))));
  const running = new Map<Job, Promise<void>>();
  const outcomes: Outcome[] = [];
  const took = new Map<Layer, Map<string, Duration>>();
  /** Clusters of places in which no file runs. */
  const free: LentPostgres[] = [];
  const run = async (job: Job): Promise<void> => {
    const postgres = free.pop() ?? new LentPostgres();
    const results = await runJob(root, job, { isNight, postgres });
    free.push(postgres);
    for (const result of results) {
      const outcome = outcomeOf(result, job.layer);
      took.set(job.layer, (took.get(job.layer) ?? new Map<string, Duration>()).set(result.file, result.duration));
      printFile(result, outcome, job.layer);
      outcomes.push(outcome);
    }
    running.delete(job);
  };
  for (;;) {
    const job = nextJob(waiting, running.keys(), availableParallelism());
    if (job !== undefined) {
      waiting.delete(job);
      running.set(job, run(job));
    } else if (running.size === 0) break;
    else await Promise.race(running.values());
  }
  await Promise.all(free.map((postgres) => postgres.stop()));
  for (const [layer, some] of took) printSummary(layer.name, some);
  return outcomes;
}

interface JobOptions {
  readonly isNight: boolean;
  readonly postgres: LentPostgres;
}

async function runJob(
  root: string,
  { layer, files }: Job,
  { isNight, postgres }: JobOptions,
): Promise<readonly FileResult[]> {
  const minutes = FILE_MINUTES || (isNight ? NIGHT_FILE_MINUTES : 0);
  const timeoutMs = minutes * 60_000 || loadAdjustedMs(layer.fileTimeoutMs);
  const [file] = files;
  if (file === undefined || files.length > 1) return await runTogether(root, files, timeoutMs);
  const environment = { FLOTILLA_TEST_POSTGRES: postgres.address, ...(isNight ? NIGHT[file] : {}) };
  const result = await runFile(root, file, { timeoutMs, environment });
  const { ms, cpuMs } = result.duration;
  return [{ ...result, duration: { ms, cpuMs: cpuMs + (await postgres.clear()) } }];
}

function printSummary(layer: string, took: ReadonlyMap<string, Duration>): void {
  const sum = (of: (duration: Duration) => number): string =>
    seconds([...took.values()].reduce((total, duration) => total + of(duration), 0));
  const longest = [...took].toSorted(([, one], [, other]) => other.ms - one.ms).slice(0, LONGEST_SHOWN);
  print(
    `  ${layer}: ${took.size} files took ${sum(({ ms }) => ms)}, ${sum(({ cpuMs }) => cpuMs)} of processor time; longest:`,
  );
  for (const [file, duration] of longest) print(`    ${textOf(duration)}  ${file}`);
}

const textOf = ({ ms, cpuMs }: Duration): string => `${seconds(ms).padStart(8)} (cpu ${seconds(cpuMs).padStart(7)})`;

function outcomeOf({ file, records, problem, duration }: FileResult, layer: Layer): Outcome {
  const tests = records.filter((record) => !record.isSuite);
  const failed = tests.filter((test) => test.error !== null && !test.isTodo);
  const skipped = tests.filter((test) => test.skip !== null);
  const hasPassed = failed.length === 0 && problem === null;
  return {
    passed: tests.filter((test) => test.error === null && test.skip === null && !test.isTodo).length,
    failed: failed.length + (problem === null ? 0 : 1),
    failures: [
      ...failed.map((test) => `${file}: ${test.name}: ${test.error?.split("\n", 1)[0]?.slice(0, 200)}`),
      ...(problem === null ? [] : [`${file}: ${problem}`]),
    ],
    skipped: skipped.map((test) => `${file}: ${test.name} (${test.skip})`),
    durations: tests.map((test) => ({ name: `${test.name} (${file})`, ms: test.ms })),
    files: new Map(hasPassed ? [[file, duration]] : []),
    ...(hasPassed ? {} : { failedFile: { file, layer } }),
  };
}

function printFile(result: FileResult, outcome: Outcome, { isShown = false }: Layer): void {
  const { file, records, problem, output, duration } = result;
  const word = outcome.failed === 0 ? "ok" : "FAILED";
  const count = records.filter((record) => !record.isSuite).length;
  print(`  ${word.padEnd(6)} ${String(count).padStart(4)} tests ${textOf(duration)}  ${file}`);
  if (outcome.failed === 0 && isShown) print(indent(output.trimEnd()));
  if (outcome.failed === 0) return;
  for (const { name, error } of records) {
    // An error that only says that a subtest failed adds nothing.
    if (error !== null && !isOnlyOfSubtests(error)) print(indent(`✖ ${name}\n${withoutRunner(error)}`));
  }
  if (problem !== null) print(indent(`✖ ${file} failed as a whole: ${problem}`));
  if (output !== "") print(indent(`— what it wrote:\n${output.trimEnd()}`));
}

/** Removes the test runner's own frames from a stack. */
function withoutRunner(error: string): string {
  return error.replace(/^ +at .*node:internal\/.*\n/gm, "");
}

/** Milliseconds as seconds with one digit. */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

/** Milliseconds since this program started. */
export function uptimeMs(): number {
  return process.uptime() * 1000;
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

function indent(text: string): string {
  return text.replace(/^/gm, "         ");
}
