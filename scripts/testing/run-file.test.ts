/**
 * Shows that a test file cannot fail without being seen: each way in which a file can go wrong, as a file.
 */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, it } from "node:test";
import { runFile } from "./run-file.ts";

const IMPORT = 'import { it } from "node:test";\n';
const HANG = "await new Promise(() => process.stdin.on('data', () => {}).ref() && setTimeout(() => {}, 60_000))";

let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "flotilla-run-file-"));
});
after(() => rm(folder, { recursive: true }));

async function resultOf(body: string, timeoutMs = 20_000) {
  await writeFile(path.join(folder, "a.test.mjs"), IMPORT + body);
  return runFile(folder, "a.test.mjs", timeoutMs);
}

it("a file whose tests pass has no problem, and its records say what passed, was skipped and why", async () => {
  const { records, problem } = await resultOf('it("one", () => {}); it("two", { skip: "no disk" }, () => {});');
  assert.equal(problem, null);
  assert.deepEqual(
    records.map(({ name, skip, error }) => ({ name, skip, error })),
    [
      { name: "one", skip: null, error: null },
      { name: "two", skip: "no disk", error: null },
    ],
  );
});

it("a test that fails is a record with its error, and no problem of the file besides", async () => {
  const { records, problem } = await resultOf('it("one", () => { throw new Error("broken"); });');
  assert.equal(problem, null);
  assert.match(records[0]?.error ?? "", /broken/);
});

it("a file without a test has failed", async () => {
  assert.equal((await resultOf("")).problem, "it ran no test");
});

it("a file that ends with an exit code after its tests passed has failed", async () => {
  const { problem } = await resultOf('it("one", () => {}); process.on("exit", () => { process.exitCode = 3; });');
  assert.equal(problem, "the process ended with 3");
});

it("a file that is killed has failed", async () => {
  const { problem } = await resultOf('it("one", () => process.kill(process.pid, "SIGKILL"));');
  assert.equal(problem, "the process ended with SIGKILL");
});

it("a file that hangs is ended with what it started, and what it wrote is kept", async () => {
  const { problem, output } = await resultOf(
    `import { spawn } from "node:child_process";
     const child = spawn("sleep", ["60"]);
     process.stdout.write(String(child.pid));
     it("one", async () => { ${HANG}; });`,
    1500,
  );
  assert.equal(problem, "its 1.5 s are up");
  assert.ok(Number(output) > 0);
  const deadline = process.uptime() + 10;
  while (await isAlive(Number(output))) assert.ok(process.uptime() < deadline, "the child of the test lives on");
});

/** A killed process may stay as a zombie until its new parent looks. */
async function isAlive(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "0 (gone) Z");
  return !/\) [ZX]/.test(stat);
}
