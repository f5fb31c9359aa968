/**
 * A log that cannot be written costs its lines, and neither memory nor the end of the process.
 *
 * The log is that of a small program, whose standard error cannot be written or is not read.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";

const LOG = join(import.meta.dirname, "../src/log.ts");
/** Longer than it takes on a busy host, shorter than a process that does not end. */
const END_MS = 60_000;

/** Runs the program, which has `log`; returns its exit code and its standard error. */
async function run(t: TestContext, source: string, errors: number | "pipe") {
  const program = `import { createLog } from ${JSON.stringify(LOG)}; const log = createLog("info"); ${source}`;
  const child = spawn(process.execPath, ["--max-old-space-size=64", "--input-type=module", "-e", program], {
    stdio: ["ignore", "ignore", errors],
    timeout: END_MS,
    killSignal: "SIGKILL",
  });
  t.after(() => child.kill("SIGKILL"));
  let text = "";
  child.stderr?.on("data", (chunk: Buffer) => (text += chunk));
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  return { end: signal ?? code, text };
}

test("lines are written in order, also those that wait when the process ends", async (t) => {
  const { end, text } = await run(
    t,
    'for (let n = 0; n < 1000; n++) log.info({ n }, "x".repeat(200)); process.exit(3);',
    "pipe",
  );
  const numbers = text
    .trimEnd()
    .split("\n")
    .map((line) => (JSON.parse(line) as { n: number }).n);
  assert.deepEqual(numbers, [...Array(1000).keys()]);
  assert.equal(end, 3);
});

test("a process whose log is on a full disk ends when it is to", async (t) => {
  const { end } = await run(
    t,
    'log.info({}, "one"); setImmediate(() => { log.info({}, "two"); process.exit(3); });',
    openSync("/dev/full", "w"),
  );
  assert.equal(end, 3);
});

test("lines that cannot be written are not kept in memory", async (t) => {
  const { end } = await run(
    t,
    `const line = "x".repeat(100_000);
     for (let n = 0; n < 2_000; n++) { log.info({ n }, line); await new Promise((resolve) => setImmediate(resolve)); }
     process.exit(3);`,
    openSync("/dev/full", "w"),
  );
  assert.equal(end, 3);
});
