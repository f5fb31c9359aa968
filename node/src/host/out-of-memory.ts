/**
 * The order in which the kernel kills processes when the host runs out of memory: VMMs first (jail.c), then
 * programs that process the content of machines and images, then everything else on the host, and last what
 * manages machines.
 *
 * Always: a child inherits its parent's score, so each program that processes such content is started with
 * its own score, by `runTool` or by the script in confine.ts. A score can always be raised; lowering it needs
 * CAP_SYS_RESOURCE.
 */
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { promisify } from "node:util";

const OWN_PATH = "/proc/self/oom_score_adj";
const AGENT_SCORE = -500;
/** Below a VMM's score, which is 500. */
export const TOOL_SCORE = 250;

/** Lowers this process's score, unless it is lower already or the host does not permit it. Never rejects. */
export async function lowerOomScore(): Promise<void> {
  const found = Number(await readFile(OWN_PATH, "utf8").catch(() => ""));
  if (found > AGENT_SCORE) await writeFile(OWN_PATH, String(AGENT_SCORE)).catch(() => {});
}

/** Runs a program of the host to its end and returns its output. Rejects as `execFile` does. */
export function runTool(
  program: string,
  argv: readonly string[],
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  return promisify(execFile)("choom", ["-n", String(TOOL_SCORE), "--", program, ...argv]);
}
