/**
 * Runs one test file in its own process, or several in one, and returns how each ended.
 *
 * Always:
 * - The file fails when a test fails, when no test ran, when the process ends with an error, or at its
 *   timeout.
 * - However it ends, no process that it started survives. As root it runs in its own PID and mount
 *   namespaces, and the kernel ends every process of a namespace with its first one, including those in other
 *   sessions, such as VMMs, node agents' children and PostgreSQL. Without root, where no VM runs, only its
 *   process group is ended.
 *
 * - Each of several files counts as if it had run alone: when their process does not end as its tests say,
 *   they are run again one by one, so the failure has the name of its file.
 *
 * Node's own runner (`node --test`, `run()`) is not used across files, because it ignores the exit code of a
 * file whose tests passed and does not end a file that hangs.
 */
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import path from "node:path";
import { systemClock } from "../../base/src/clock.ts";
import { parseSettings } from "../../contract/src/settings.ts";
import type { Duration } from "./durations.ts";
import type { Environment } from "./night.ts";
import type { TestRecord } from "./reporter.ts";

export interface FileResult {
  readonly file: string;
  readonly records: readonly TestRecord[];
  /** Why the file failed as a whole, besides its tests; null when it did not. */
  readonly problem: string | null;
  /** Both output streams of the process, in order of arrival. */
  readonly output: string;
  /** Duration of the file. Processor time of one of several files is its share of theirs, by wall clock. */
  readonly duration: Duration;
}

/**
 * The first process of a file is a shell. In a namespace it reaps orphans, as a host's init does, and signals
 * have their usual effect on the test below it. At the end it writes what the kernel knows of each process
 * that is left, and of those that they have waited for, into the file named by its argument zero.
 */
const isInNamespace = process.getuid?.() === 0;
const FIRST: readonly [string, ...string[]] = isInNamespace
  ? ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh"]
  : ["sh"];
const LEFT = isInNamespace ? "/proc/[0-9]*/stat" : "/proc/$$/stat";
const SCRIPT = `"$@"; code=$?; cat ${LEFT} >"$0" 2>/dev/null; exit $code`;
/**
 * The kernel counts processor time in hundredths of a second; the four times of a process follow its name by
 * so many fields.
 */
const TICK_MS = 10;
const TIMES = [11, 15] as const;
/**
 * Where Node keeps compiled modules between files and runs: loading the server takes less than half of the
 * time with them.
 */
const COMPILED =
  process.env["NODE_COMPILE_CACHE"] ??
  path.join(parseSettings(["cacheDirectory"], process.env).cacheDirectory, "compiled");
/** A shell's exit code for a program ended by a signal is this plus the signal's number. */
const SIGNALLED = 128;

const running = new Set<number>();
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    for (const pid of running) killGroup(pid);
    process.kill(process.pid, signal);
  });
}

interface RunOptions {
  readonly timeoutMs: number;
  readonly environment?: Environment | undefined;
}

/** Runs `file`, relative to the checkout at `root`. */
export async function runFile(root: string, file: string, options: RunOptions): Promise<FileResult> {
  const { timeoutMs } = options;
  const { records, exit, isTimeUp, output, duration } = await runProcess(root, [file], options);
  const problem = isTimeUp ? `its ${Math.round(timeoutMs / 1000)} s are up` : problemOf(records, exit);
  return { file, records, problem, output, duration };
}

/** Runs the files in one process; `timeoutMs` is the time of each. */
export async function runTogether(
  root: string,
  files: readonly string[],
  timeoutMs: number,
): Promise<readonly FileResult[]> {
  const argv = [path.join(import.meta.dirname, "./together.ts"), String(timeoutMs), ...files];
  const { records, exit, isTimeUp, output, duration } = await runProcess(root, argv, {
    timeoutMs: timeoutMs * files.length,
  });
  const suites = suitesOf(records);
  const problem = isTimeUp ? "their time is up" : problemOf(records, exit);
  if (problem !== null || suites.size < files.length) {
    const alone: FileResult[] = [];
    for (const file of files) alone.push(await runFile(root, file, { timeoutMs }));
    if (alone.some((result) => result.problem !== null || result.records.some(({ error }) => error !== null)))
      return alone;
    const file = `${files[0]} and ${files.length - 1} others, together`;
    return [...alone, { file, records: [], problem: problem ?? "not all of them ended", output, duration }];
  }
  const sumMs = [...suites.values()].reduce((sum, { suite }) => sum + suite.ms, 0);
  return [...suites].map(([file, { suite, within }]) => {
    const cpuMs = (duration.cpuMs * suite.ms) / sumMs;
    const failure = suite.error !== null && !isOnlyOfSubtests(suite.error) ? suite.error : null;
    return {
      file,
      records: within,
      problem: failure ?? problemOf(within, null),
      output,
      duration: { ms: suite.ms, cpuMs },
    };
  });
}

interface Suite {
  readonly suite: TestRecord;
  readonly within: readonly TestRecord[];
}

/** Each outermost suite by its name, with the records that ended within it. */
function suitesOf(records: readonly TestRecord[]): ReadonlyMap<string, Suite> {
  const suites = new Map<string, Suite>();
  let within: TestRecord[] = [];
  for (const record of records) {
    if (record.nesting > 0) within.push({ ...record, nesting: record.nesting - 1 });
    else {
      suites.set(record.name, { suite: record, within });
      within = [];
    }
  }
  return suites;
}

/** Whether an error only says that a subtest failed. */
export function isOnlyOfSubtests(error: string): boolean {
  return /^'\d+ subtests? failed'$/.test(error);
}

interface ProcessResult {
  readonly records: readonly TestRecord[];
  readonly exit: string | null;
  readonly isTimeUp: boolean;
  readonly output: string;
  readonly duration: Duration;
}

/** Runs Node's test runner on a program, relative to `root`, and its arguments. */
async function runProcess(root: string, argv: readonly string[], options: RunOptions): Promise<ProcessResult> {
  const folder = await mkdtemp(path.join(tmpdir(), "flotilla-test-"));
  try {
    const report = path.join(folder, "report");
    await writeFile(report, "");
    const left = path.join(folder, "left");
    const startedMs = systemClock.monotonic();
    const ended = await start(root, argv, { report, left, ...options });
    const lines = (await readFile(report, "utf8")).split("\n").filter((line) => line.endsWith("}"));
    const records = lines.map((line) => JSON.parse(line) as TestRecord);
    return { ...ended, records, duration: { ms: systemClock.monotonic() - startedMs, cpuMs: await cpuMsOf(left) } };
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** The sum of the times in what the first process has written; 0 when it was ended. */
async function cpuMsOf(left: string): Promise<number> {
  const text = await readFile(left, "utf8").catch(() => "");
  const fields = text.split("\n").map((line) => line.slice(line.lastIndexOf(")") + 2).split(" "));
  return fields.flatMap((each) => each.slice(...TIMES)).reduce((sum, ticks) => sum + Number(ticks) * TICK_MS, 0);
}

interface StartOptions extends RunOptions {
  readonly report: string;
  readonly left: string;
}

async function start(root: string, test: readonly string[], { report, left, timeoutMs, environment }: StartOptions) {
  const reporter = path.join(import.meta.dirname, "reporter.ts");
  const flags = ["--test-reporter", reporter, "--test-reporter-destination", report];
  const [program, ...argv] = [...FIRST, "-c", SCRIPT, left, process.execPath, ...flags, ...test];
  const child = spawn(program, argv, {
    cwd: root,
    env: { ...process.env, NODE_COMPILE_CACHE: COMPILED, ...environment },
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const pieces: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (piece: string) => pieces.push(piece));
  const { pid } = child;
  if (pid !== undefined) running.add(pid);
  const timeout = AbortSignal.timeout(timeoutMs);
  timeout.addEventListener("abort", () => pid !== undefined && running.has(pid) && killGroup(pid));
  const exit = await new Promise<string | null>((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("exit", (code, signal) => resolve(code === 0 ? null : `the process ended with ${endOf(code, signal)}`));
  });
  if (pid !== undefined) {
    running.delete(pid);
    killGroup(pid);
  }
  return { exit, isTimeUp: timeout.aborted && exit !== null, output: pieces.join("") };
}

/** The exit code, or the name of the signal. */
function endOf(code: number | null, signal: NodeJS.Signals | null): string {
  if (code === null) return String(signal);
  const name = Object.entries(constants.signals).find(([, number]) => code === SIGNALLED + number)?.[0];
  return name ?? String(code);
}

function problemOf(records: readonly TestRecord[], exit: string | null): string | null {
  if (!records.some((record) => !record.isSuite)) {
    const skip = records.find((record) => record.skip !== null)?.skip ?? null;
    return exit ?? (skip === null ? "it ran no test" : `it ran no test: ${skip}`);
  }
  // A failed test ends the process with 1, and is already counted.
  return records.some((record) => record.error !== null) && exit?.endsWith(" 1") ? null : exit;
}

/** Kills what a file left running in its group; there may be nothing. */
function killGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // No process is left.
  }
}
