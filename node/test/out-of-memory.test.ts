/**
 * Which processes the kernel kills first when the host runs out of memory. VMMs are in jail.test.ts.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { launcherPath } from "../../test/support/launcher.ts";
import { lowerOomScore, runTool, TOOL_SCORE } from "../src/host/out-of-memory.ts";
import { runConfined } from "../src/images/confine.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const isRoot = process.getuid?.() === 0;
const scoreOf = (pid: number | "self"): number => Number(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8"));
/** Some containers do not permit lowering it. */
const canLower = spawnSync("sh", ["-c", "echo -500 >/proc/self/oom_score_adj"], { stdio: "ignore" }).status === 0;

test("a program that processes machines' content is killed before the agent", async () => {
  const { stdout } = await runTool("cat", ["/proc/self/oom_score_adj"]);
  assert.equal(Number(stdout), TOOL_SCORE);
  assert.ok(TOOL_SCORE > scoreOf("self"));
});

test("a confined program is killed before the agent", { skip: isRoot ? false : "only root can confine" }, async () => {
  await using directory = await temporaryDirectory();
  const score = await runConfined({
    launcher: await launcherPath(),
    directory: directory.path,
    inputs: { proc: "/proc" },
    capabilities: [],
    argv: ["cat", "/input/proc/self/oom_score_adj"],
    timeoutMs: 20_000,
    signal: new AbortController().signal,
    clock: systemClock,
  });
  assert.equal(Number(score), TOOL_SCORE);
});

test("the agent is killed last", { skip: canLower ? false : "this host does not allow lowering a score" }, async () => {
  const child = spawn(process.execPath, [
    "--input-type=module",
    "-e",
    `const { lowerOomScore } = await import(${JSON.stringify(import.meta.resolve("../src/host/out-of-memory.ts"))});
     await lowerOomScore(); console.log("done"); setInterval(() => {}, 1000);`,
  ]);
  const exit = once(child, "exit");
  try {
    await once(child.stdout, "data");
    assert.equal(scoreOf(child.pid ?? 0), -500);
  } finally {
    child.kill("SIGKILL");
    await exit;
  }
});

test("if the score cannot be lowered, the agent keeps its score", {
  skip: canLower ? "this host allows it" : false,
}, async () => {
  const before = scoreOf("self");
  await lowerOomScore();
  assert.equal(scoreOf("self"), before);
});
