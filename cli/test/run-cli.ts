/**
 * Runs the command line as its users do: as a separate process, with an environment that has nothing of this
 * machine's.
 *
 * Always: the process is ended when its test ends; its home directory is removed then.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));

export interface Ran {
  readonly code: number | null;
  readonly output: Buffer;
  readonly errors: string;
}

export interface RunOptions {
  readonly environment?: Readonly<Record<string, string>>;
  /** Piped input; without it there is no input. */
  readonly input?: string | Uint8Array;
  /** The working directory. */
  readonly directory?: string;
}

/** A temporary home directory for the test. */
export function temporaryHome(t: TestContext): string {
  const home = mkdtempSync(join(tmpdir(), "flotilla-cli-"));
  t.after(() => rmSync(home, { recursive: true, force: true }));
  return home;
}

export function startCli(
  t: TestContext,
  argv: readonly string[],
  { environment = {}, input, directory }: RunOptions = {},
): { readonly child: ChildProcess; readonly ran: Promise<Ran> } {
  const child = spawn(process.execPath, [MAIN, ...argv], {
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: "/nonexistent",
      NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
      ...environment,
    },
    ...(directory === undefined ? {} : { cwd: directory }),
    stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
  });
  t.after(() => child.kill("SIGKILL"));
  child.stdin?.end(input);
  const output: Buffer[] = [];
  const errors: Buffer[] = [];
  child.stdout?.on("data", (chunk: Buffer) => output.push(chunk));
  child.stderr?.on("data", (chunk: Buffer) => errors.push(chunk));
  const ran = new Promise<Ran>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) =>
      resolve({ code, output: Buffer.concat(output), errors: Buffer.concat(errors).toString() }),
    );
  });
  return { child, ran };
}

export const runCli = (t: TestContext, argv: readonly string[], options: RunOptions = {}): Promise<Ran> =>
  startCli(t, argv, options).ran;
