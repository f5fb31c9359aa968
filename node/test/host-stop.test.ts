/**
 * A host that is about to go down: what runs is suspended or shut down, nothing starts, and the next agent
 * runs it again.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SuspendedMachines } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import { hurriedClock, machineIdOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const [A, B, C, D] = ["a", "b", "c", "d"].map(machineIdOf) as [string, string, string, string];
const restart = { spec: { disruption: "restart" } } as const;
const HOUR_MS = 3_600_000;

const suspendAll = (node: TestNode, deadlineMs = HOUR_MS): Promise<SuspendedMachines> =>
  node.fleet.suspendAll(deadlineMs, new AbortController().signal);
const runs = (node: TestNode, id: string) =>
  until(() => node.fleet.observe(id).state === "running" && node.fleet.observe(id), { what: id });

test("machines are suspended where their owner permits it, else shut down, and the next agent runs all of them again", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const before = await node.want(A, 1, "running");
  await node.want(B, 1, "running", restart);
  await node.want(C, 1, "running", { spec: { disruption: "stop", restart: "never" } });
  await node.want(D, 1, "stopped");
  const from = node.clock.now();
  const done = await suspendAll(node);
  assert.deepEqual([done.suspended, done.stopped.toSorted(), done.running], [[A], [B, C], []]);
  // Reported as it was: neither stopped nor started. Its run has ended.
  assert.deepEqual(node.fleet.observe(A), before);
  const { runs: ended } = node.deps.runs.all(100);
  assert.equal(ended.length, 3);
  for (const { endedAt, cause } of ended) {
    assert.ok(endedAt !== null && endedAt >= from && endedAt <= node.clock.now());
    assert.equal(cause, "stop");
  }
  // A start that comes now waits for the host; a stop is a stop.
  assert.equal((await node.want(D, 2, "running", { waitMs: 0 })).state, "preparing");
  assert.equal((await node.want(B, 2, "stopped")).state, "stopped");
  await node.fleet.release();

  const next = await startTestNode(directory.path);
  const after = await runs(next, A);
  assert.notEqual(after.bootId, before.bootId);
  assert.deepEqual([after.generation, after.isResumed], [1, true]);
  assert.equal((await runs(next, D)).generation, 2);
  await until(() => next.fleet.observe(C).state === "failed", { what: "the machine that is not restarted" });
  assert.match(next.fleet.observe(C).reason ?? "", /its host was about to go down/);
  assert.equal(next.fleet.observe(B).state, "stopped");
});

test("if the host does not go down, everything runs again, and a change of the owner's choice counts the next time", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  await node.want(B, 1, "running", restart);
  await suspendAll(node);
  node.fleet.resumeAll();
  assert.equal((await runs(node, A)).isResumed, true);
  await runs(node, B);
  // The same request again, with what the owner has chosen since.
  await node.want(A, 1, "running", restart);
  await node.want(B, 1, "running");
  const done = await suspendAll(node);
  assert.deepEqual([done.suspended, done.stopped], [[B], [A]]);
});

test("a machine that cannot be suspended is shut down, and tried again the next time", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_SUSPEND_FAIL: "no_space" } });
  for (let round = 0; round < 2; round += 1) {
    assert.deepEqual((await suspendAll(node)).stopped, [A]);
    node.fleet.resumeAll();
    const seen = await runs(node, A);
    assert.deepEqual([seen.isResumed, seen.generation], [false, 1]);
  }
});

test("what waits to be suspended shortly before the deadline is shut down, and what does not end in time is named", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { clock: hurriedClock(100) });
  const ends = await Promise.all([1, 2].map(() => node.deps.suspendSlots.take("other", new AbortController().signal)));
  await node.want(A, 1, "running");
  await node.want(B, 1, "running", { ...restart, env: { FAKE_IGNORE_SHUTDOWN: "1" } });
  const done = await suspendAll(node, 20_000);
  assert.deepEqual([done.suspended, done.stopped.toSorted()], [[], [A, B]]);
  node.fleet.resumeAll();
  await runs(node, A);
  await runs(node, B);
  // The guest of B is ended after ten seconds.
  assert.deepEqual((await suspendAll(node, 1_000)).running.includes(B), true);
  for (const end of ends) end();
});
