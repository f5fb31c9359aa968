/**
 * Terminals that are closed: the program gets SIGHUP and a grace period, and nothing of it remains
 * afterwards.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { GuestExec } from "@flotilla/node/guest/guest";
import { processesWith, request, until } from "./agent.ts";
import { makeDirectory, startSharedAgent } from "./shared-agent.ts";

/** Longer than the test's limit: a command that ends earlier did not wait for it. */
const LONG_MS = 60_000;
const SHORT_MS = 200;
const terminal = { cols: 80, rows: 24 };

const directory = makeDirectory(join(tmpdir(), "flotilla-hang-up-test-"));
const { agent, guest } = await startSharedAgent();

/** A shell command on a terminal; resolves when it has printed `ready`. */
async function onTerminal(line: string): Promise<GuestExec> {
  const exec = guest.exec(request(["sh", "-c", line], { terminal }));
  let said = "";
  exec.stdout.on("data", (chunk: Buffer) => {
    said += chunk.toString();
  });
  await until(() => said.includes("ready"));
  return exec;
}

test("a program whose terminal is closed may clean up first", async () => {
  const note = join(directory, "note");
  const exec = await onTerminal(`trap 'echo saved >${note}; exit 3' HUP; echo ready; while :; do sleep 0.05; done`);
  exec.kill(LONG_MS);
  assert.deepEqual(await exec.exit, { exitCode: 3 });
  assert.equal(readFileSync(note, "utf8"), "saved\n");
});

test("a program that ignores SIGHUP is killed when the grace is over", async () => {
  const exec = await onTerminal("trap '' HUP; echo ready; while :; do sleep 0.05; done");
  exec.kill(SHORT_MS);
  assert.deepEqual(await exec.exit, { exitCode: 137 });
});

test("a second kill ends the grace", async () => {
  const exec = await onTerminal("trap '' HUP; echo ready; while :; do sleep 0.05; done");
  exec.kill(LONG_MS);
  exec.kill();
  assert.deepEqual(await exec.exit, { exitCode: 137 });
});

test("a stopped program gets it too", async () => {
  const exec = await onTerminal("echo ready; kill -STOP $$; sleep 1000");
  const pid = await exec.pid;
  await until(() => /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, "utf8")));
  exec.kill(LONG_MS);
  assert.deepEqual(await exec.exit, { exitCode: 129 });
});

test("what outlives its shell gets the rest of the grace, and the exit is sent when it is gone", async (context) => {
  if (!agent.hasCgroup) return context.skip("no cgroup 2 that this test may write to");
  const marker = `flotilla-test-${randomBytes(6).toString("hex")}`;
  const line = (seconds: string) =>
    `setsid sh -c "trap '' HUP; : ${marker}; echo ready; sleep ${seconds}; :" & sleep 1000`;
  const stubborn = await onTerminal(line("1000"));
  assert(processesWith(marker) > 0);
  stubborn.kill(SHORT_MS);
  assert.deepEqual(await stubborn.exit, { exitCode: 129 });
  await until(() => processesWith(marker) === 0);
  const brief = await onTerminal(line("0.2"));
  brief.kill(LONG_MS);
  assert.deepEqual(await brief.exit, { exitCode: 129 });
  assert.equal(processesWith(marker), 0);
});

test("the channel serves other commands during the grace and afterwards", async () => {
  const closing = await onTerminal("trap '' HUP; echo ready; while :; do sleep 0.05; done");
  closing.kill(SHORT_MS);
  const other = guest.exec(request(["true"]));
  assert.deepEqual(await other.exit, { exitCode: 0 });
  assert.deepEqual(await closing.exit, { exitCode: 137 });
  const again = await onTerminal("echo ready; exit 4");
  assert.deepEqual(await again.exit, { exitCode: 4 });
});
