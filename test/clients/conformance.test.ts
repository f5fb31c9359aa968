/**
 * The public conformance suite of the Model Context Protocol against the server code of `flotilla mcp`, with
 * the suite's own tools registered beside ours.
 */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { makeDirectory, startUp } from "../../cli/test/run-up.ts";

const TIMEOUT_MS = 180_000;
const here = import.meta.dirname;
const own = path.join(here, "node_modules/.bin/conformance");
const suite = existsSync(own) ? own : path.join(here, "../../node_modules/.bin/conformance");

/**
 * What no server of ours can pass, with the reason. The suite's other thirty-one scenarios pass.
 * `server-sse-polling` closes a stream in the middle of a call and resumes it: optional in the older era,
 * without a check for servers that do not, and gone in the newer one.
 */
const NOT_CHECKED = ["server-sse-polling"];

test("every scenario of the public suite passes, the pending ones as well", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  const server = spawn(process.execPath, [path.join(here, "./conformance-server.ts")], {
    env: { PATH: process.env["PATH"], ...up.environment },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => server.kill("SIGKILL"));
  const [address] = (await once(server.stdout, "data")) as [Buffer];
  // It writes its findings where it is started.
  const cwd = mkdtempSync(path.join(tmpdir(), "flotilla-conformance-"));
  t.after(() => rmSync(cwd, { recursive: true }));
  const argv = [suite, "server", "--suite", "all", "--url", String(address).trim()];
  const run = promisify(execFile)(process.execPath, argv, { cwd, timeout: TIMEOUT_MS });
  const { stdout } = await run.catch((error: { stdout: string }) => error);
  const lines = [...stdout.matchAll(/^([✓✗]) ([\w-]+): (\d+) passed, (\d+) failed/gm)];
  const scenarios = lines.map(([, mark, name, passed]) => ({ name, isGood: mark === "✓", isEmpty: passed === "0" }));
  const failed = scenarios.filter(({ isGood }) => !isGood).map(({ name }) => name);
  assert.deepEqual(failed, [], stdout.slice(-4_000));
  assert.deepEqual(
    scenarios.filter(({ isEmpty }) => isEmpty).map(({ name }) => name),
    NOT_CHECKED,
  );
  assert.equal(scenarios.length, 31 + NOT_CHECKED.length, stdout);
});
