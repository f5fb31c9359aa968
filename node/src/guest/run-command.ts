/**
 * Runs a command in a guest to its end, as the node itself does it: as a command of exec without input, with
 * the user, environment and directory of the machine.
 *
 * Always: it is killed when the signal is aborted, with its descendants.
 */
import type { Guest } from "./guest.ts";

const REQUEST = { cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false } as const;

export interface CommandRun {
  readonly argv: readonly string[];
  readonly signal: AbortSignal;
  /** A part of its output, as it arrives; the bytes are valid only during the call. */
  readonly onOutput: (output: "stdout" | "stderr", chunk: Buffer) => void;
}

/**
 * The command's exit code, once all of its output was delivered. Rejects when the guest does not run it or is
 * lost.
 */
export async function runCommand(guest: Pick<Guest, "exec">, { argv, signal, onOutput }: CommandRun): Promise<number> {
  const exec = guest.exec({ ...REQUEST, argv, needsPid: false });
  exec.pid.catch(() => undefined);
  const kill = (): void => exec.kill();
  if (signal.aborted) kill();
  signal.addEventListener("abort", kill, { once: true });
  for (const output of ["stdout", "stderr"] as const) {
    exec[output].on("error", () => undefined);
    exec[output].on("data", (chunk: Buffer) => onOutput(output, chunk));
  }
  try {
    return (await exec.exit).exitCode;
  } finally {
    signal.removeEventListener("abort", kill);
  }
}
