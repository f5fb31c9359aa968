/**
 * Every way in which a test file can fail is detected: each as a file.
 */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, it } from "node:test";
import { runFile, runTogether } from "./run-file.ts";

const IMPORT = 'import { describe, it } from "node:test";\n';
const HANG = "await new Promise((resolve) => setTimeout(resolve, 60_000))";

let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "flotilla-run-file-"));
});
after(() => rm(folder, { recursive: true }));

async function resultOf(body: string, timeoutMs = 20_000) {
  await writeFile(path.join(folder, "a.test.mjs"), IMPORT + body);
  return runFile(folder, "a.test.mjs", { timeoutMs });
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

it("a failed test is a record with its error, and not also a problem of the file", async () => {
  const { records, problem } = await resultOf('it("one", () => { throw new Error("broken"); });');
  assert.equal(problem, null);
  assert.match(records[0]?.error ?? "", /broken/);
});

it("a file without a test has failed", async () => {
  assert.equal((await resultOf("")).problem, "it ran no test");
  const skipped = 'describe("all", { skip: "no disk" }, () => { it("one", () => {}); });';
  assert.equal((await resultOf(skipped)).problem, "it ran no test: no disk");
});

it("a file that ends with an exit code after its tests passed has failed", async () => {
  const { problem } = await resultOf('it("one", () => {}); process.on("exit", () => { process.exitCode = 3; });');
  assert.equal(problem, "the process ended with 3");
});

it("a file that is killed has failed", async () => {
  const { problem } = await resultOf('it("one", () => process.kill(process.pid, "SIGKILL"));');
  assert.equal(problem, "the process ended with SIGKILL");
});

/** A mark in a command line, with which this test finds the processes of a test file. */
let marks = 0;
const sleeper = (): { readonly mark: string; readonly argv: string } => {
  const mark = `left-behind-${process.pid}-${++marks}`;
  return { mark, argv: JSON.stringify(["-c", "sleep 60; :", mark]) };
};

it("a file that hangs is ended with all its processes, and its output is kept", async () => {
  const { mark, argv } = sleeper();
  const { problem, output } = await resultOf(
    `import { spawn } from "node:child_process";
     spawn("sh", ${argv}).once("spawn", () => process.stdout.write("started"));
     it("one", async () => { ${HANG}; });`,
    5000,
  );
  assert.equal(problem, "its 5 s are up");
  assert.equal(output, "started");
  await untilGone(mark);
});

const skip = process.getuid?.() === 0 ? false : "without root a test file has no namespaces";

it("a file that hangs leaves no process in another session, as VMMs are", { skip }, async () => {
  const { mark, argv } = sleeper();
  const { output } = await resultOf(
    `import { spawn } from "node:child_process";
     const child = spawn("setsid", ["sh", ...${argv}], { detached: true, stdio: "ignore" });
     child.once("spawn", () => process.stdout.write("started"));
     child.unref();
     it("one", async () => { ${HANG}; });`,
    5000,
  );
  assert.equal(output, "started");
  await untilGone(mark);
});

it("a file that passes leaves no process either", { skip }, async () => {
  const { mark, argv } = sleeper();
  const { problem } = await resultOf(
    `import { spawn } from "node:child_process";
     import { once } from "node:events";
     it("one", async () => {
       const child = spawn("setsid", ["sh", ...${argv}], { detached: true, stdio: "ignore" });
       await once(child, "spawn");
       child.unref();
     });`,
  );
  assert.equal(problem, null);
  await untilGone(mark);
});

it("the processor time of a file is also that of processes in other sessions, which it left or waited for", {
  skip,
}, async () => {
  const busy = JSON.stringify(["-e", "while (process.cpuUsage().user < 600_000);"]);
  const { duration } = await resultOf(
    `import { spawn, spawnSync } from "node:child_process";
     import { once } from "node:events";
     it("one", async () => {
       spawnSync(process.execPath, ${busy});
       const argv = ["-e", "while (process.cpuUsage().user < 600_000); console.log('spun'); setTimeout(() => {}, 60_000)"];
       const child = spawn("setsid", [process.execPath, ...argv], { detached: true, stdio: ["ignore", "pipe", "ignore"] });
       await once(child.stdout, "data");
       child.unref();
       child.stdout.destroy();
     });`,
  );
  assert.ok(duration.cpuMs >= 1200, String(duration.cpuMs));
});

async function resultsOf(bodies: Readonly<Record<string, string>>, timeoutMs = 20_000) {
  for (const [file, body] of Object.entries(bodies)) await writeFile(path.join(folder, file), IMPORT + body);
  const results = await runTogether(folder, Object.keys(bodies), timeoutMs);
  return results.map(({ file, records, problem }) => ({
    file,
    problem: problem?.split("\n", 1)[0] ?? null,
    tests: records.filter(({ isSuite }) => !isSuite).map(({ name, error }) => [name, error === null]),
  }));
}

const GOOD =
  'import { before } from "node:test"; let seen = 0; before(() => { seen = 1; }); it("good", () => { if (seen !== 1) throw 1; });';

it("of several files in one process, each has its tests, its hooks and its failures", async () => {
  const bodies = {
    "a.test.mjs": GOOD,
    "b.test.mjs": 'describe("in", () => { it("bad", () => { throw new Error("broken"); }); });',
    "c.test.mjs": "",
    "d.test.mjs": 'import "./missing.mjs";',
    "e.test.mjs": GOOD,
  };
  const results = await resultsOf(bodies);
  assert.match(results[3]?.problem ?? "", /Cannot find module/);
  assert.deepEqual(results.toSpliced(3, 1), [
    { file: "a.test.mjs", problem: null, tests: [["good", true]] },
    { file: "b.test.mjs", problem: null, tests: [["bad", false]] },
    { file: "c.test.mjs", problem: "it ran no test", tests: [] },
    { file: "e.test.mjs", problem: null, tests: [["good", true]] },
  ]);
});

it("of several files in one process, the one that kills it, hangs or ends it with an error is named", async () => {
  const problemsOf = async (bad: string, timeoutMs = 10_000): Promise<readonly unknown[]> =>
    (await resultsOf({ "a.test.mjs": GOOD, "bad.test.mjs": bad, "e.test.mjs": GOOD }, timeoutMs)).map(
      ({ problem }) => problem,
    );
  const killed = await problemsOf('it("one", () => process.kill(process.pid, "SIGKILL"));');
  assert.deepEqual(killed, [null, "the process ended with SIGKILL", null]);
  const coded = await problemsOf('it("one", () => {}); process.on("exit", () => { process.exitCode = 3; });');
  assert.deepEqual(coded, [null, "the process ended with 3", null]);
  const [, hung] = await problemsOf(`it("one", async () => { ${HANG}; });`, 2000);
  assert.equal(hung, "its 2 s are up");
});

/** Waits until no process has the mark in its command line; a killed one has none. */
async function untilGone(mark: string): Promise<void> {
  const hasMark = async (pid: string): Promise<boolean> =>
    (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).split("\0").includes(mark);
  const isThere = async (): Promise<boolean> =>
    (await Promise.all((await readdir("/proc")).filter((name) => /^\d+$/.test(name)).map(hasMark))).includes(true);
  const deadline = process.uptime() + 10;
  while (await isThere()) assert.ok(process.uptime() < deadline, "a process of the test lives on");
}
