/**
 * The order in which the kernel ends processes when the host has no memory left: VMMs (jail.c), then programs that handle
 * what machines and images are made of, then everything else on the host, and what manages machines last.
 *
 * Always: a child starts with its parent's score. So each program that handles such content is started with a score of its
 * own, by `runTool` or in the script of confine.ts. A score can always be raised; lowering it needs CAP_SYS_RESOURCE.
 */
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { promisify } from "node:util";

const OWN_PATH = "/proc/self/oom_score_adj";
const AGENT_SCORE = -500;
/** Below a VMM's 500. */
export const TOOL_SCORE = 250;

/** Lowers this process's score. A score that is lower already stays; a host that allows no change leaves it. Never rejects. */
export async function endLast(): Promise<void> {
  const found = Number(await readFile(OWN_PATH, "utf8").catch(() => ""));
  if (found > AGENT_SCORE) await writeFile(OWN_PATH, String(AGENT_SCORE)).catch(() => {});
}

/** Runs a program of the host to its end and answers what it wrote. Rejects as `execFile` does. */
export function runTool(
  program: string,
  argv: readonly string[],
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  return promisify(execFile)("choom", ["-n", String(TOOL_SCORE), "--", program, ...argv]);
}
