/**
 * Machines that end unexpectedly: restarts, their limit, and the report of the boot that ended.
 */
import assert from "node:assert/strict";
import { appendFile, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { RESTARTS_MAX } from "@flotilla/contract/limits";
import type { ObservedMachine } from "@flotilla/contract/link/link";
import { onThisHost, until } from "../../test/support/until.ts";
import { FakeGuest } from "../src/driver/fake/guest.ts";
import { bootDirectoryName } from "../src/machines/paths.ts";
import { hurriedClock, machineIdOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");

/** Ends the VM from within, like a crash or a kill. */
function crash(node: TestNode, how = "crash"): void {
  const request = { argv: [how], cwd: null, env: {}, user: null, hasStdin: false, terminal: null };
  const exec = node.fleet.find(A)?.access.guest?.exec({ ...request, isBackground: false });
  exec?.exit.catch(() => undefined);
}

/** Resolves when a boot other than the given one runs. */
function runsAgain(node: TestNode, before: ObservedMachine): Promise<ObservedMachine> {
  const seen = (): ObservedMachine | false => {
    const now = node.fleet.observe(A);
    return now.state === "running" && now.bootId !== before.bootId && now;
  };
  return until(seen, { what: "the machine to run again" });
}

test("a machine that crashes runs again on its disk, and reports when its last boot ended", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const before = await node.want(A, 1, "running");
  const diskPath = join(directory.path, "machines", A, "disk");
  await appendFile(diskPath, "data\n");
  const crashedAt = node.clock.now();
  crash(node);
  const after = await runsAgain(node, before);
  assert.deepEqual([after.generation, after.reason], [1, null]);
  assert.deepEqual([after.lastRun?.bootId, after.lastRun?.startedAt], [before.bootId, before.runningSince]);
  const { endedAt = 0 } = after.lastRun ?? {};
  assert.ok(endedAt >= crashedAt && endedAt <= (after.runningSince ?? 0));
  assert.ok((await readFile(diskPath, "utf8")).endsWith("data\n"));
  assert.match(node.events[0]?.message ?? "", /ended by itself \(crashed\).*; the machine is restarted$/);
});

test("a machine whose VMM printed without end says so, and runs again", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const before = await node.want(A, 1, "running");
  crash(node, "flood");
  await runsAgain(node, before);
  assert.match(node.events[0]?.message ?? "", /^its VMM was ended: it printed 1048577 bytes within a minute/);
  assert.match(node.events[1]?.message ?? "", /ended by itself .*; the machine is restarted$/);
});

test("a machine that keeps crashing is not restarted after some time, until a start is requested", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(30) });
  let seen = await node.want(A, 1, "running", { waitMs: 600_000 });
  for (let count = 0; count < RESTARTS_MAX; count += 1) {
    crash(node);
    seen = await runsAgain(node, seen);
  }
  crash(node);
  const failed = await until(() => node.fleet.observe(A).state === "failed" && node.fleet.observe(A), {
    what: "failed",
  });
  assert.match(
    failed.reason ?? "",
    /crashed.*restarted 5 times within 10 minutes of work and will not be restarted again: fix the cause/,
  );
  assert.equal(node.events.length, RESTARTS_MAX);
  seen = await node.want(A, 2, "running", { waitMs: 600_000 });
  assert.equal(seen.state, "running");
  crash(node);
  await runsAgain(node, seen);
});

test("a machine that waits for its restart is stopped or removed at once", async () => {
  for (const state of ["stopped", "absent"] as const) {
    await using directory = await temporaryDirectory();
    const node = await startTestNode(directory.path);
    const first = await node.want(A, 1, "running");
    crash(node);
    await runsAgain(node, first);
    crash(node);
    await until(() => node.fleet.observe(A).progress?.includes("restarted in"), { what: "the pause" });
    const startedAt = node.clock.monotonic();
    assert.equal((await node.want(A, 2, state)).state, state);
    assert.ok(node.clock.monotonic() - startedAt < onThisHost(250));
  }
});

test("a restart that fails is retried", async () => {
  await using directory = await temporaryDirectory();
  let availableMemoryMb = 16_000;
  const node = await startTestNode(directory.path, { availableMemoryMb: () => availableMemoryMb });
  const before = await node.want(A, 1, "running");
  availableMemoryMb = 100;
  crash(node);
  await until(() => node.events.some(({ message }) => /100 MB of memory left.*is restarted in 1 s/.test(message)), {
    what: "the restart to be refused",
  });
  availableMemoryMb = 16_000;
  await runsAgain(node, before);
});

test("a restart whose guest cannot be configured is retried with another boot", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const before = await node.want(A, 1, "running");
  const refused = t.mock.method(FakeGuest.prototype, "configure", () =>
    Promise.reject(new Error("it cannot be configured")),
  );
  crash(node);
  const isRetried = (): boolean =>
    node.events.some(({ message }) => /it cannot be configured; the machine is restarted in 1 s/.test(message));
  await until(() => isRetried() && node.fleet.observe(A).progress?.includes("restarted in"), { what: "the pause" });
  assert.equal(refused.mock.callCount(), 1);
  refused.mock.restore();
  await runsAgain(node, before);
});

test("a machine whose host went down runs again, and its run ended when its node was last alive", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const before = await first.want(A, 1, "running");
  await first.fleet.release();
  await rm(join(directory.path, "machines", A, "boots", bootDirectoryName(before.bootId ?? ""), "vm.json"));
  const lastAliveAt = (before.runningSince ?? 0) + 1;
  await until(() => first.clock.now() > lastAliveAt, { what: "time to pass" });
  const second = await startTestNode(directory.path, { lastAliveAt });
  const after = await runsAgain(second, before);
  const { bootId, runningSince: startedAt } = before;
  assert.deepEqual(after.lastRun, { bootId, startedAt, endedAt: lastAliveAt, cause: "unseen", egressBytes: 0 });
  assert.match(second.events[0]?.message ?? "", /ended while its node was down; the machine is restarted/);
});

test("the end of a boot is reported after a stop too, and is never before its start", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const before = await node.want(A, 1, "running");
  const { lastRun, state } = await node.want(A, 2, "stopped");
  assert.deepEqual([state, lastRun?.bootId], ["stopped", before.bootId]);
  await node.fleet.release();
  const next = await startTestNode(directory.path, { lastAliveAt: 1 });
  assert.deepEqual(next.fleet.observe(A).lastRun, lastRun);
});
