/**
 * Starts `flotilla up` for a test: a real server, database and node, with machines of the fake driver.
 *
 * Always: its data directory is removed after everything that was started on it has ended.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, type Stats, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { createLog } from "../../server/src/log.ts";
import { putCluster } from "../../server/test/support/cluster.ts";
import { until } from "../../test/support/until.ts";
import { type Ran, runCli, startCli } from "./run-cli.ts";

export const ROOT = fileURLToPath(new URL("../../", import.meta.url));
export const START_MS = 60_000;

export interface RunningUp {
  readonly pid: number;
  readonly dataDirectory: string;
  readonly url: string;
  /** What it printed, up to the end of the greeting. */
  readonly greeting: string;
  /** Everything on standard error, logs included. */
  said(): string;
  signal(name: NodeJS.Signals): void;
  /** Closes the pipes that its output goes to. */
  stopReading(): void;
  readonly ran: Promise<Ran>;
  /** What the command line needs to call this server. */
  readonly environment: Readonly<Record<string, string>>;
  cli(...argv: string[]): Promise<Ran>;
}

export interface DataDirectory {
  readonly path: string;
  readonly stops: (() => Promise<unknown>)[];
  /** The first start makes its database; else that is there, which takes a third of the time. */
  readonly isEmpty?: boolean;
}

/** A data directory that is removed once everything that was started on it has ended. */
export function makeDirectory(t: TestContext): DataDirectory {
  const path = mkdtempSync(join(tmpdir(), "flotilla-up-"));
  const stops: DataDirectory["stops"] = [];
  t.after(async () => {
    for (const stop of stops) await stop();
    rmSync(path, { recursive: true, force: true });
  });
  return { path, stops };
}

/** `onSaid` is called with all of standard error whenever it grows. `settings` replace those of the test. */
export async function startUp(
  t: TestContext,
  directory: DataDirectory,
  onSaid: (errors: string) => void = () => {},
  settings: Readonly<Record<string, string>> = {},
): Promise<RunningUp> {
  const dataDirectory = directory.path;
  if (directory.isEmpty !== true && !existsSync(join(dataDirectory, "postgres")))
    await putCluster(dataDirectory, createLog("error"));
  const environment = {
    FLOTILLA_DRIVER: "fake",
    FLOTILLA_DATA_DIR: dataDirectory,
    FLOTILLA_LISTEN: "127.0.0.1:0",
    HOME: dataDirectory,
    ...settings,
  };
  const { child, ran } = startCli(t, ["up"], { environment, directory: ROOT });
  directory.stops.push(() => {
    child.kill("SIGTERM");
    return ran;
  });
  let output = "";
  let errors = "";
  child.stdout?.on("data", (chunk: Buffer) => (output += chunk));
  child.stderr?.on("data", (chunk: Buffer) => {
    errors += chunk;
    onSaid(errors);
  });
  await until(() => output.includes("Ctrl-C stops") || child.exitCode !== null, {
    what: "the greeting",
    deadlineMs: START_MS,
  });
  assert.match(output, /Ctrl-C stops/, errors);
  const url = /runs at (\S+)/.exec(output)?.[1] ?? "";
  const key = readFileSync(join(dataDirectory, "admin.key"), "utf8").trim();
  const pid = child.pid ?? 0;
  const forCli = { FLOTILLA_URL: url, FLOTILLA_API_KEY: key };
  return {
    pid,
    dataDirectory,
    url,
    greeting: output,
    said: () => errors,
    signal: (name) => void child.kill(name),
    stopReading: () => {
      for (const stream of [child.stdout, child.stderr]) stream?.destroy();
    },
    ran,
    environment: forCli,
    cli: (...argv) => runCli(t, argv, { environment: forCli }),
  };
}

/** The running child process whose command line contains the text. */
export function childOf(pid: number, text: string): number | null {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").map(Number);
  return children.find((child) => commandLine(child).includes(text)) ?? null;
}

export function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

/**
 * The processes of a data directory: Flotilla's programs, found by their environment, and PostgreSQL, found
 * by its working directory.
 */
export function processesOf(dataDirectory: string): string[] {
  const database = statSync(join(dataDirectory, "postgres", "data"), { throwIfNoEntry: false });
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => isNamedIn(pid, dataDirectory) || (database !== undefined && worksIn(pid, database)))
    .map((pid) => `${pid} ${commandLine(Number(pid)).replaceAll("\0", " ").slice(0, 100)}`);
}

function isNamedIn(pid: string, dataDirectory: string): boolean {
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
    return environment.includes(`FLOTILLA_DATA_DIR=${dataDirectory}`);
  } catch {
    return false;
  }
}

function worksIn(pid: string, { dev, ino }: Stats): boolean {
  try {
    const directory = statSync(`/proc/${pid}/cwd`);
    return directory.dev === dev && directory.ino === ino;
  } catch {
    return false;
  }
}

export const isGone = (pid: number): boolean => commandLine(pid) === "";
