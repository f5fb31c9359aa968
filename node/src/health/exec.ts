/**
 * The check that a command in the guest exits with 0.
 */
import type { Readable } from "node:stream";
import type { CheckRun } from "./check-run.ts";
import { FIRST_BYTES, firstLine } from "./first-line.ts";

const REQUEST = { cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false } as const;

export async function checkExec({ check, guest, signal, awaits }: CheckRun): Promise<void> {
  const { command } = check;
  if (command === null) throw new Error("its check names no command");
  awaits("the command did not end");
  const exec = guest.exec({ ...REQUEST, argv: command, needsPid: false });
  exec.pid.catch(() => undefined);
  const kill = (): void => exec.kill();
  if (signal.aborted) kill();
  signal.addEventListener("abort", kill, { once: true });
  try {
    const [stdout, stderr] = [beginningOf(exec.stdout), beginningOf(exec.stderr)];
    const { exitCode } = await exec.exit;
    if (exitCode === 0) return;
    const said = firstLine(stderr()) || firstLine(stdout());
    throw new Error(`the command ended with exit code ${exitCode}${said === "" ? "" : `: ${said}`}`);
  } finally {
    signal.removeEventListener("abort", kill);
  }
}

/** Reads an output to its end, and keeps its first bytes. */
function beginningOf(output: Readable): () => Buffer {
  let kept = Buffer.alloc(0);
  output.on("error", () => undefined);
  output.on("data", (chunk: Buffer) => {
    if (kept.byteLength < FIRST_BYTES) kept = Buffer.concat([kept, chunk.subarray(0, FIRST_BYTES - kept.byteLength)]);
  });
  return () => kept;
}
