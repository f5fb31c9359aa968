/**
 * The checks that start no test: format, lint, types, project rules and stale generated files.
 *
 * They run at the same time, because none of them uses all processors; a check's output is shown only when it
 * failed.
 */
import { spawn } from "node:child_process";
import path from "node:path";
import { text } from "node:stream/consumers";
import { type Outcome, print } from "./run-stage.ts";

interface StaticCheck {
  readonly name: string;
  /** A program of node_modules/.bin, or `node`, and its arguments. */
  readonly command: readonly [string, ...string[]];
  /** What to do when it fails. */
  readonly remedy: string;
}

const CHECKS: readonly StaticCheck[] = [
  { name: "format", command: ["biome", "format", "."], remedy: "npm run format" },
  {
    name: "lint",
    command: ["oxlint", "--type-aware", "--deny-warnings"],
    remedy: "see the message; .oxlintrc.json has the rules",
  },
  { name: "types", command: ["tsc", "-p", "."], remedy: "see the message" },
  { name: "types of the console", command: ["tsc", "-p", "console"], remedy: "see the message" },
  { name: "tidy", command: ["node", "scripts/tidy.ts"], remedy: "docs/architecture.md has the reasons" },
  {
    name: "golden",
    command: ["node", "scripts/golden.ts", "--check"],
    remedy: "npm run golden, and review the change",
  },
];

/** Runs all of them in the checkout at `root`. */
export async function runStaticChecks(root: string): Promise<Outcome> {
  const results = await Promise.all(CHECKS.map((check) => runCheck(check, root)));
  const failures = CHECKS.filter((_, index) => results[index] === false).map(
    ({ name, remedy }) => `${name}: ${remedy}`,
  );
  const failed = failures.length;
  return { passed: results.length - failed, failed, failures, skipped: [], durations: [], files: new Map() };
}

async function runCheck(check: StaticCheck, root: string): Promise<boolean> {
  const [program, ...rest] = check.command;
  const binary = program === "node" ? process.execPath : path.join(root, "node_modules/.bin", program);
  const child = spawn(binary, rest, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise<string | null>((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("close", (code, signal) => resolve(code === 0 ? null : `ended with ${code ?? signal}`));
  });
  const [output, errors, problem] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  if (problem === null) {
    print(`  ok     ${check.name}`);
    return true;
  }
  print(`  FAILED ${check.name}: ${problem}; ${check.remedy}\n${output}${errors}`.trimEnd());
  return false;
}
