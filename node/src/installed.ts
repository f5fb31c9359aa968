/**
 * The program that is installed on this host where the agent was started from: another release, once its
 * files were replaced.
 *
 * Always: it has been run once, to say its release, before the agent ends for it. So an installation that is
 * broken or incomplete ends no agent.
 */
import { execFile } from "node:child_process";
import { access, constants } from "node:fs/promises";
import { promisify } from "node:util";

/** Makes the program print its release and exit, after it has loaded all of its modules. */
export const RELEASE_FLAG = "--release";
/** With RELEASE_FLAG: the program also verifies that it was set up for its settings. */
export const SET_UP_FLAG = "--set-up";

const CHECK_DEADLINE_MS = 30_000;
const OUTPUT_BYTES_MAX = 64 * 1024;
const RELEASE_PATTERN = /^[0-9A-Za-z.+-]{1,64}$/;
const REASON_CHARACTERS_MAX = 300;

/** The installed program cannot run; the message says why. */
class NotRunnable extends Error {}

/** The release of the installed program. Throws NotRunnable. */
export async function installedRelease(
  main = process.argv[1] ?? "",
  flags: readonly string[] = process.argv.slice(2),
): Promise<string> {
  const options = { timeout: CHECK_DEADLINE_MS, maxBuffer: OUTPUT_BYTES_MAX, killSignal: "SIGKILL" } as const;
  let release: string;
  try {
    await access(process.execPath, constants.X_OK);
    const arguments_ = [...process.execArgv, main, ...flags, RELEASE_FLAG, SET_UP_FLAG];
    release = (await promisify(execFile)(process.execPath, arguments_, options)).stdout.trim();
  } catch (error) {
    throw new NotRunnable(reasonIn(error), { cause: error });
  }
  if (!RELEASE_PATTERN.test(release)) throw new NotRunnable("it does not say its release");
  return release;
}

/** The line of a failed program's output that says why, and not its stack. */
function reasonIn(error: unknown): string {
  const { stderr = "", message = "" } = error as { readonly stderr?: string; readonly message?: string };
  const lines = stderr.split("\n").map((line) => line.trim());
  const said = lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.find((line) => line !== "") ?? message;
  return said.slice(0, REASON_CHARACTERS_MAX);
}

/**
 * Ends this process, or replaces it by the installed program. Under a program that starts it again (`flotilla
 * up`) it exits; otherwise it keeps its process id, arguments and environment, so a service manager notices
 * nothing.
 */
export function becomeInstalled(): never {
  if (process.send === undefined && process.execve !== undefined)
    process.execve(process.execPath, [process.execPath, ...process.execArgv, ...process.argv.slice(1)]);
  process.exit(0);
}
