/**
 * A VMM that was taken over by its guest, and so answers what no QEMU would: a process that does nothing,
 * whose control channel is scripted.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { type TestContext, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { FenceLease } from "../../host/fence-lease.ts";
import type { VmExit } from "../driver.ts";
import { startTimeOf } from "./processes.ts";
import { Qmp } from "./qmp.ts";
import { Vmm } from "./vmm.ts";

const log: Log = { error() {}, warn() {}, info() {}, debug() {}, child: () => log };
const NO_TEXT = '{"toString": 1, "valueOf": 1}';

/**
 * The end of a VMM that announces its shutdown with this reason, and whose console is this. Both are JSON.
 */
async function endOf(t: TestContext, shutdown: { readonly reason: string; readonly console: string }): Promise<VmExit> {
  const child = spawn("cat", { stdio: ["pipe", "ignore", "ignore"] });
  t.after(() => child.kill());
  await once(child, "spawn");
  const pid = child.pid ?? 0;
  const record = { bootId: "boot-1", pid, startTime: startTimeOf(pid) ?? 0 };
  const lease = new FenceLease(systemClock);
  const vmm = new Vmm({
    record,
    child,
    group: null,
    directory: "/nowhere",
    output: null,
    lease,
    clock: systemClock,
    log,
  });
  const [host, far] = duplexPair();
  far.on("error", () => {});
  far.write('{"QMP": {}}\n');
  far.on("data", (chunk: Buffer) => {
    for (const line of chunk.toString().trim().split("\n")) {
      const { id, execute } = JSON.parse(line) as { readonly id: number; readonly execute: string };
      const answer = execute === "ringbuf-read" ? shutdown.console : '{"status": "running"}';
      far.write(`{"return": ${answer}, "id": ${id}}\n`);
      if (execute === "quit") child.stdin.end();
    }
  });
  await vmm.attach(await Qmp.connect(host, vmm.onEvent, new AbortController().signal));
  far.write(`{"event": "SHUTDOWN", "data": {"reason": ${shutdown.reason}}}\n`);
  return vmm.exited;
}

test("a VMM whose reason or console is not a text ends like any other", { timeout: 10_000 }, async (t) => {
  const exit = await endOf(t, { reason: NO_TEXT, console: NO_TEXT });
  assert.deepEqual(exit, { kind: "killed", detail: "the VMM was shut down by request (unknown)" });
  assert.equal((await endOf(t, { reason: '"guest-shutdown"', console: NO_TEXT })).kind, "poweroff");
});

test("a reason that QEMU does not have is not shown", { timeout: 10_000 }, async (t) => {
  const exit = await endOf(t, { reason: JSON.stringify("\u001b[2J".repeat(100_000)), console: '""' });
  assert.equal(exit.detail, "the VMM was shut down by request (unknown)");
});
