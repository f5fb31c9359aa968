/**
 * Points of machines and machines from points, with the scripted driver: what excludes what, what is left
 * after faults and crashes, and what is removed when.
 */
import assert from "node:assert/strict";
import { appendFile, link, readFile, rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { ObservedMachine } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import { FakeGuest } from "../src/driver/fake/guest.ts";
import {
  hurriedClock,
  listFiles,
  machineIdOf,
  machineOf,
  startTestNode,
  type TestNode,
  temporaryDirectory,
} from "./support/in-process.ts";

const A = machineIdOf("a");
const B = machineIdOf("b");
const P = `point-${"1".repeat(32)}`;
const Q = `point-${"2".repeat(32)}`;

const cloneOf = (node: TestNode, pointId: string, machineId = B, hasMemory = true): Promise<ObservedMachine> =>
  node.want(machineId, 1, "running", { spec: { hostname: "clone", point: { pointId, hasMemory } } });

const diskOf = (directory: string, machineId: string): string => join(directory, "machines", machineId, "disk");

async function journalOf(directory: string, machineId: string) {
  return JSON.parse(await readFile(join(directory, "machines", machineId, "journal.json"), "utf8"));
}

test("a point is made once, however often it is requested, and a clone starts from it with its memory", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  const wanted = { pointId: P, machineId: A, hasMemory: true };
  const [made, same] = await Promise.all([node.branches.make(wanted), node.branches.make(wanted)]);
  assert.deepEqual(same, made);
  assert.deepEqual(await node.branches.make({ ...wanted, hasMemory: false }), made);
  assert.deepEqual([made.machineId, made.layers], [A, []]);
  assert.ok(made.memoryBytes > 0);
  const configured = t.mock.method(FakeGuest.prototype, "configure");
  assert.equal((await cloneOf(node, P)).state, "running");
  // First as a copy, before anything else; then as any machine that starts.
  assert.deepEqual(
    configured.mock.calls.map(({ arguments: [{ hostname, isClone }] }) => [hostname, isClone ?? false]),
    [
      ["clone", true],
      ["clone", false],
    ],
  );
  assert.deepEqual((await journalOf(directory.path, B)).layers, [P]);
  assert.deepEqual((await journalOf(directory.path, A)).layers, [P]);
});

test("what programs have written is on the disk of a point from which machines boot, and a clone needs no such wait", async (t) => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  const synced = t.mock.method(FakeGuest.prototype, "sync");
  await node.branches.make({ pointId: P, machineId: A, hasMemory: true });
  assert.equal(synced.mock.callCount(), 0);
  await node.branches.make({ pointId: Q, machineId: A, hasMemory: true, isKept: true });
  assert.equal(synced.mock.callCount(), 1);
});

test("a layer is removed when no point, and no machine's disk, is on top of it", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  await node.branches.make({ pointId: P, machineId: A, hasMemory: true });
  await node.branches.make({ pointId: Q, machineId: A, hasMemory: true });
  await cloneOf(node, Q);
  const points = async (): Promise<readonly string[]> =>
    (await listFiles(join(directory.path, "points"))).filter((path) => path.includes("/"));
  await node.branches.release(P);
  await node.branches.release(Q);
  assert.deepEqual(await points(), [`${P}/disk.qcow2`, `${Q}/disk.qcow2`]);
  await node.want(A, 2, "absent");
  await node.branches.release(P);
  assert.deepEqual(await points(), [`${P}/disk.qcow2`, `${Q}/disk.qcow2`]);
  await node.want(B, 2, "absent");
  await node.branches.release(P);
  assert.deepEqual(await points(), []);
  await assert.rejects(node.branches.make({ pointId: P, machineId: A, hasMemory: true }), /is not on this node/);
  assert.equal((await cloneOf(node, Q, machineIdOf("c"))).state, "failed");
});

test("a machine that is stopped has points without memory only", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  await appendFile(diskOf(directory.path, A), "of the source\n");
  await node.want(A, 2, "stopped");
  await assert.rejects(node.branches.make({ pointId: P, machineId: A, hasMemory: true }), /does not run/);
  await node.branches.make({ pointId: P, machineId: A, hasMemory: false });
  assert.match(await readFile(join(directory.path, "points", P, "disk.qcow2"), "utf8"), /of the source\n$/);
  assert.equal((await cloneOf(node, P, B, false)).state, "running");
  assert.equal((await cloneOf(node, P, machineIdOf("c"), true)).state, "failed");
  assert.equal((await node.want(A, 3, "running")).state, "running");
});

for (const step of ["begin", "copy", "take"]) {
  test(`a point that fails at ${step} leaves the machine as it was`, async () => {
    await using directory = await temporaryDirectory();
    const node = await startTestNode(directory.path);
    await node.want(A, 1, "running", { env: { FAKE_POINT_FAIL: step } });
    const { ino } = await stat(diskOf(directory.path, A));
    await assert.rejects(node.branches.make({ pointId: P, machineId: A, hasMemory: true }), /FAKE_POINT_FAIL/);
    assert.equal(node.fleet.observe(A).state, "running");
    assert.equal((await stat(diskOf(directory.path, A))).ino, ino);
    assert.deepEqual((await journalOf(directory.path, A)).layers ?? [], []);
    assert.deepEqual(await listFiles(join(directory.path, "points")), []);
  });
}

test("a point that fails after the guest writes to another disk leaves a layer and no point", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_POINT_FAIL: "finish" } });
  await assert.rejects(node.branches.make({ pointId: P, machineId: A, hasMemory: true }), /FAKE_POINT_FAIL/);
  assert.equal(node.fleet.observe(A).state, "running");
  assert.deepEqual((await journalOf(directory.path, A)).layers, [P]);
  assert.equal((await cloneOf(node, P)).state, "failed");
  await node.want(A, 2, "absent");
  await node.branches.release(Q);
  assert.deepEqual(await listFiles(join(directory.path, "points")), []);
});

test("a guest whose programs do not stop has no point, and runs on", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_FREEZE_FAIL: "1" } });
  await assert.rejects(node.branches.make({ pointId: P, machineId: A, hasMemory: true }), /FAKE_FREEZE_FAIL/);
  assert.deepEqual((await journalOf(directory.path, A)).layers, []);
  assert.equal(node.fleet.observe(A).state, "running");
});

for (const [what, fault, reason] of [
  ["does not confirm", "FAKE_CLONE_FAIL", /FAKE_CLONE_FAIL/],
  ["does not answer", "FAKE_RESUME_SILENT", /its guest agent did not answer/],
  ["cannot be loaded", "FAKE_RESUME_FAIL", /FAKE_RESUME_FAIL/],
] as const) {
  test(`a clone that ${what} fails, is not booted instead, and its VM is gone`, async () => {
    await using directory = await temporaryDirectory();
    const node = await startTestNode(directory.path, { clock: hurriedClock(100) });
    await node.want(A, 1, "running");
    await node.branches.make({ pointId: P, machineId: A, hasMemory: true });
    const more = { waitMs: 3_000_000, spec: { point: { pointId: P, hasMemory: true } } };
    const observed = await node.want(B, 1, "running", { ...more, env: { [fault]: "1" } });
    assert.equal(observed.state, "failed");
    assert.match(observed.reason ?? "", /could not be started from its point: /);
    assert.match(observed.reason ?? "", reason);
    assert.equal(machineOf(node, B).access.guest, null);
    assert.deepEqual(
      (await node.driver.find()).map(({ startedFor }) => startedFor),
      [A],
    );
    // Its owner may start it as any other machine.
    assert.equal((await node.want(B, 2, "running", more)).state, "running");
  });
}

test("a clone that an agent left unconfirmed is ended by the next one", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  await first.want(A, 1, "running");
  await first.branches.make({ pointId: P, machineId: A, hasMemory: true });
  await cloneOf(first, P);
  await first.fleet.release();
  const path = join(directory.path, "machines", B, "journal.json");
  const journal = await journalOf(directory.path, B);
  await writeFile(path, JSON.stringify({ ...journal, boot: { ...journal.boot, isUnconfirmed: true } }));
  const second = await startTestNode(directory.path);
  const failed = await until(() => second.fleet.observe(B).state === "failed" && second.fleet.observe(B), {
    what: "the clone to be ended",
  });
  assert.match(failed.reason ?? "", /agent ended while it was started from its point/);
  assert.deepEqual(
    (await second.driver.find()).map(({ startedFor }) => startedFor),
    [A],
  );
});

test("an agent that was killed before the disk was on top leaves the machine as it was", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  await first.want(A, 1, "running");
  await first.branches.make({ pointId: P, machineId: A, hasMemory: true });
  await first.fleet.release();
  // The journal names a second layer, which is the disk still.
  const disk = diskOf(directory.path, A);
  const layer = join(directory.path, "points", Q, "disk.qcow2");
  await first.deps.points.begin(Q);
  await link(disk, layer);
  const journal = await journalOf(directory.path, A);
  await writeFile(join(directory.path, "machines", A, "journal.json"), JSON.stringify({ ...journal, layers: [Q, P] }));
  const second = await startTestNode(directory.path);
  assert.equal(second.fleet.observe(A).state, "running");
  assert.deepEqual(
    await listFiles(join(directory.path, "points")).then((all) => all.filter((path) => path.includes(Q))),
    [],
  );
  await second.branches.make({ pointId: Q, machineId: A, hasMemory: true });
  assert.deepEqual((await journalOf(directory.path, A)).layers, [Q, P]);
});

test("an agent that was killed when the disk was on top leaves a layer, and the point is made again", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  await first.want(A, 1, "running");
  await first.branches.make({ pointId: P, machineId: A, hasMemory: true });
  await first.fleet.release();
  await rename(join(directory.path, "points", P, "point.json"), join(directory.path, "points", P, "point.json.new"));
  const second = await startTestNode(directory.path);
  assert.equal(second.fleet.observe(A).state, "running");
  assert.equal(second.deps.points.find(P), undefined);
  await second.branches.make({ pointId: Q, machineId: A, hasMemory: true });
  assert.equal((await cloneOf(second, Q)).state, "running");
  assert.deepEqual((await journalOf(directory.path, B)).layers, [Q, P]);
});

test("a machine is suspended and stopped when its point is made", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  for (const [generation, keepsMemory] of [
    [2, true],
    [4, false],
  ] as const) {
    await node.want(A, generation - 1, "running", { env: { FAKE_POINT_MS: "50" } });
    const pointId = `point-${`${generation}`.repeat(32)}`;
    const making = node.branches.make({ pointId, machineId: A, hasMemory: true });
    await until(() => node.fleet.find(A)?.known?.journal.layers?.includes(pointId), { what: "the point to be begun" });
    const stopped = await node.want(A, generation, "stopped", { keepsMemory });
    assert.equal(stopped.state, "stopped");
    assert.equal(stopped.suspendedAt !== null, keepsMemory);
    assert.equal((await making).pointId, pointId);
  }
});

test("a machine that is removed while its point is made has none", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_POINT_MS: "100" } });
  const making = node.branches.make({ pointId: P, machineId: A, hasMemory: true });
  making.catch(() => undefined);
  await until(() => node.fleet.find(A)?.known?.journal.layers?.includes(P), { what: "the point to be begun" });
  assert.equal((await node.want(A, 2, "absent")).state, "absent");
  await assert.rejects(making);
  assert.deepEqual(await listFiles(join(directory.path, "points")), []);
});

test("only one point of a machine is made at a time", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_POINT_MS: "50" } });
  const [one, other] = await Promise.allSettled(
    [P, Q].map((pointId) => node.branches.make({ pointId, machineId: A, hasMemory: true })),
  );
  assert.deepEqual([one?.status, other?.status], ["fulfilled", "fulfilled"]);
  assert.deepEqual((await journalOf(directory.path, A)).layers.toSorted(), [P, Q]);
});

test("a machine of a driver that cannot branch has no point", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path, { isPlain: true });
  await node.want(A, 1, "running");
  await assert.rejects(node.branches.make({ pointId: P, machineId: A, hasMemory: false }), /cannot branch machines/);
});

test("a point that was interrupted is not made again under its id while a disk is on top of it", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_POINT_FAIL: "finish" } });
  const wanted = { pointId: P, machineId: A, hasMemory: true };
  await assert.rejects(node.branches.make(wanted), /FAKE_POINT_FAIL/);
  const layer = join(directory.path, "points", P, "disk.qcow2");
  const { ino } = await stat(layer);
  await assert.rejects(node.branches.make(wanted), /use another id/);
  assert.equal((await stat(layer)).ino, ino);
});
