/**
 * VMMs that print: a few lines, or without end. Each is a process that does nothing else.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { FenceLease } from "../../host/fence-lease.ts";
import { startTimeOf } from "./processes.ts";
import { Vmm } from "./vmm.ts";
import { PRINTED_BYTES_MAX, VmmOutput } from "./vmm-output.ts";

const log: Log = { error() {}, warn() {}, info() {}, debug() {}, child: () => log };
const timeout = 20_000;

async function makeDirectory(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-vmm-output-"));
  t.after(() => rm(directory, { recursive: true }));
  return directory;
}

/** A VMM that runs this shell command. */
async function started(t: TestContext, directory: string, command: string): Promise<Vmm> {
  const { output, writer } = await VmmOutput.make(directory, systemClock);
  const child = spawn("sh", ["-c", command], { stdio: ["ignore", writer.fd, writer.fd] });
  await writer.close();
  t.after(() => child.kill("SIGKILL"));
  const pid = child.pid ?? 0;
  const record = { bootId: "boot-1", pid, startTime: startTimeOf(pid) ?? 0 };
  const lease = new FenceLease(systemClock);
  return new Vmm({ record, child, group: null, directory, output, lease, clock: systemClock, log });
}

test("a VMM that prints without end is ended, and nothing that it printed is on the disk", { timeout }, async (t) => {
  const directory = await makeDirectory(t);
  const vmm = await started(t, directory, "exec yes 'virtio: zero sized buffers are not allowed'");
  const { kind, detail, excess } = await vmm.exited;
  assert.deepEqual([kind, excess?.cause], ["killed", "output"]);
  assert.ok((excess?.bytes ?? 0) > PRINTED_BYTES_MAX && (excess?.bytes ?? 0) < 2 * PRINTED_BYTES_MAX);
  assert.match(detail, /printed without end/);
  assert.deepEqual(await readdir(directory), ["output"]);
  assert.equal((await stat(join(directory, "output"))).blocks, 0);
});

test("the last that a VMM printed says why it ended, however much was printed before", { timeout }, async (t) => {
  const line = "echo 'qemu-system-x86_64: it cannot open its disk' >&2";
  const vmm = await started(t, await makeDirectory(t), `yes | head -c 500000; ${line}; exit 1`);
  assert.deepEqual(await vmm.exited, { kind: "crashed", detail: "it cannot open its disk" });
});

test("a VMM prints on while no agent reads, and the next agent ends one that prints without end", {
  timeout,
}, async (t) => {
  const directory = await makeDirectory(t);
  const go = join(directory, "go");
  const vmm = await started(t, directory, `until [ -e ${go} ]; do sleep 0.01; done; echo 'more'; exec yes`);
  vmm.release();
  await writeFile(go, "");
  const output = await VmmOutput.find(directory, systemClock);
  const { record } = vmm;
  const lease = new FenceLease(systemClock);
  const next = new Vmm({ record, child: null, group: null, directory, output, lease, clock: systemClock, log });
  assert.equal((await next.exited).excess?.cause, "output");
});

test("what is not a FIFO is not read", async (t) => {
  const directory = await makeDirectory(t);
  await writeFile(join(directory, "file"), "text");
  for (const make of [
    (path: string) => writeFile(path, "text"),
    (path: string) => mkdir(path),
    (path: string) => symlink(join(directory, "file"), path),
  ]) {
    await make(join(directory, "output"));
    assert.equal(await VmmOutput.find(directory, systemClock), null);
    await rm(join(directory, "output"), { recursive: true });
  }
  assert.equal(await VmmOutput.find(directory, systemClock), null);
});
