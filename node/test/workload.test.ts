/**
 * Workloads on a node, with the fake driver: the content of a machine's log, and the report of a workload's
 * end.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { access, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import type { ImageConfiguration } from "../src/images/images.ts";
import { workloadCommand } from "../src/machines/workload/workload.ts";
import { machineIdOf, specOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");

async function logOf(node: TestNode, machineId = A): Promise<readonly string[]> {
  const log = node.fleet.find(machineId)?.access.log;
  const texts: string[] = [];
  let at = await log?.tail(10_000);
  while (log !== undefined && at !== undefined) {
    const { lines, next } = await log.read(at);
    texts.push(...lines.map(({ source, text }) => (source === "node" ? `(${text})` : text)));
    at = lines.length === 0 ? undefined : next;
  }
  return texts;
}

const hasLines = (node: TestNode, count: number): Promise<unknown> =>
  until(async () => (await logOf(node)).length >= count, { what: `${count} lines` });

const sh = (line: string): { readonly spec: { readonly command: readonly string[] } } => ({
  spec: { command: ["sh", "-c", line] },
});

test("the workload runs with the machine's environment, and its end is in the log and on the timeline", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { ...sh("echo $GREETING; echo two; exit 3"), env: { GREETING: "hello" } });
  await hasLines(node, 3);
  assert.deepEqual(await logOf(node), ["hello", "two", "(the workload ended with exit code 3)"]);
  assert.equal(node.fleet.observe(A).state, "running");
  assert.deepEqual(node.events, [{ machineId: A, level: "warn", message: "the workload ended with exit code 3" }]);
});

test("the log is kept when the machine stops, continues with the next start, and is removed with the machine", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const serving = sh("echo started; echo -n half; sleep 1000");
  await node.want(A, 1, "running", serving);
  await hasLines(node, 1);
  await node.want(A, 2, "stopped", serving);
  assert.deepEqual(await logOf(node), ["started", "half"]);
  await node.want(A, 3, "running", serving);
  await hasLines(node, 3);
  assert.deepEqual(await logOf(node), ["started", "half", "started"]);
  // The machine was to end, not only the workload.
  assert.deepEqual(node.events, []);
  await node.want(A, 4, "absent");
  await assert.rejects(access(join(directory.path, "machines", A)), { code: "ENOENT" });
});

test("a restarted agent starts no workload again and duplicates no output", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  await first.want(A, 1, "running", sh("echo once; exit 1"));
  await hasLines(first, 2);
  await first.fleet.release();
  const second = await startTestNode(directory.path);
  assert.equal((await second.want(A, 1, "running", sh("echo once; exit 1"))).state, "running");
  await second.want(A, 2, "stopped");
  assert.deepEqual(await logOf(second), ["once", "(the workload ended with exit code 1)"]);
});

test("a flood is written completely up to the log's limit, and a long line is split into several", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const command = ["sh", "-c", "echo begin; head -c 100000 /dev/zero; echo; echo end"];
  await node.want(A, 1, "running", { spec: { command } });
  await hasLines(node, 10);
  const lines = await logOf(node);
  assert.deepEqual([lines[0], lines.at(-2), lines.length], ["begin", "end", 10]);
  assert.equal(lines.slice(1, -2).join("").length, 100_000);
});

test("a machine's command wins; an image that is only a prompt has no workload", () => {
  const image = (entrypoint: readonly string[], command: readonly string[]): ImageConfiguration => ({
    env: [],
    workdir: "/",
    user: "",
    entrypoint,
    command,
  });
  const spec = (command: readonly string[] | null) => specOf(A, { spec: { command } });
  assert.deepEqual(workloadCommand(spec(["top"]), image(["/entry"], ["serve"])), ["top"]);
  assert.deepEqual(workloadCommand(spec(null), image(["/entry"], ["serve"])), ["/entry", "serve"]);
  assert.deepEqual(workloadCommand(spec([]), image([], ["nginx", "-g", "daemon off;"])), [
    "nginx",
    "-g",
    "daemon off;",
  ]);
  assert.equal(workloadCommand(spec(null), image([], [])), null);
  assert.equal(workloadCommand(spec(null), image([], ["/bin/sh"])), null);
  assert.equal(workloadCommand(spec(null), image([], ["bash"])), null);
  assert.equal(workloadCommand(spec(null), image(["python3"], [])), null);
  assert.deepEqual(workloadCommand(spec(null), image([], ["sh", "-c", "serve"])), ["sh", "-c", "serve"]);
  assert.deepEqual(workloadCommand(spec(["sh"]), image([], [])), ["sh"]);
});

test("a full disk blocks the workload and loses nothing", {
  skip: process.getuid?.() !== 0 && "needs root",
}, async () => {
  await using directory = await temporaryDirectory();
  const logs = join(directory.path, "machines", A, "logs");
  const node = await startTestNode(directory.path);
  // Only its log is on a file system that is full.
  await mkdir(logs, { recursive: true });
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "test", logs]);
  try {
    await writeFile(join(logs, "ballast"), Buffer.alloc(64 * 1024));
    await node.want(A, 1, "running", sh("echo one; echo two; exit 1"));
    await until(() => node.logLines.some((line) => line.includes("log could not be written")), { what: "the refusal" });
    assert.deepEqual(await logOf(node), []);
    await rm(join(logs, "ballast"));
    await hasLines(node, 3);
    assert.deepEqual(await logOf(node), ["one", "two", "(the workload ended with exit code 1)"]);
    await node.want(A, 2, "stopped", sh("true"));
  } finally {
    execFileSync("umount", [logs]);
  }
});
