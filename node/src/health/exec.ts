/**
 * The check that a command in the guest exits with 0.
 */
import { runCommand } from "../guest/run-command.ts";
import type { CheckRun } from "./check-run.ts";
import { FIRST_BYTES, firstLine } from "./first-line.ts";

export async function checkExec({ check, guest, signal, awaits }: CheckRun): Promise<void> {
  const { command } = check;
  if (command === null) throw new Error("its check names no command");
  awaits("the command did not end");
  // The first bytes of each.
  const kept = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  const onOutput = (output: keyof typeof kept, chunk: Buffer): void => {
    const missing = FIRST_BYTES - kept[output].byteLength;
    if (missing > 0) kept[output] = Buffer.concat([kept[output], chunk.subarray(0, missing)]);
  };
  const exitCode = await runCommand(guest, { argv: command, signal, onOutput });
  if (exitCode === 0) return;
  const said = firstLine(kept.stderr) || firstLine(kept.stdout);
  throw new Error(`the command ended with exit code ${exitCode}${said === "" ? "" : `: ${said}`}`);
}
