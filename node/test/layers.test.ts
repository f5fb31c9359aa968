/**
 * Machines whose disks are on top of layers become movable, and their chains stay short, with the scripted
 * driver: when the layers are taken away, what ends that, and what is sent of a machine at rest.
 */
import assert from "node:assert/strict";
import { appendFile, open, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { LAYERS_MAX } from "../src/branches/refusal.ts";
import { writeBlocks } from "../src/images/blocks.ts";
import { LAYERS_ENOUGH } from "../src/machines/collapsing.ts";
import { describeOutgoing, outgoingBlocks } from "../src/moves/outgoing.ts";
import { machineIdOf, machineOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const B = machineIdOf("b");
const signal = new AbortController().signal;
const DISK = { kind: "file", name: "disk", from: 0, since: null } as const;

const pointOf = (number: number): string => `point-${number.toString(16).padStart(32, "0")}`;
const layersOf = (node: TestNode, machineId = A): readonly string[] =>
  machineOf(node, machineId).known.journal.layers ?? [];
const describe = (node: TestNode, hasContent = true) =>
  describeOutgoing(machineOf(node, A), node.deps, { hasContent, signal });

async function makePoints(node: TestNode, count: number, { hasMemory = true, from = 1 } = {}): Promise<void> {
  for (let number = from; number < from + count; number += 1)
    await node.branches.make({ pointId: pointOf(number), machineId: A, hasMemory });
}

test("a chain of layers becomes none in the background, and their files are removed with their points", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  await makePoints(node, LAYERS_ENOUGH - 1);
  assert.equal(layersOf(node).length, LAYERS_ENOUGH - 1);
  for (let number = 1; number < LAYERS_ENOUGH; number += 1) await node.branches.release(pointOf(number));
  assert.equal((await readdir(join(directory.path, "points"))).length, LAYERS_ENOUGH - 1);
  await makePoints(node, 1, { from: LAYERS_ENOUGH });
  await until(() => layersOf(node).length === 0, { what: "the disk to have no layers" });
  await node.branches.release(pointOf(LAYERS_ENOUGH));
  assert.deepEqual(await readdir(join(directory.path, "points")), []);
  assert.equal(node.fleet.observe(A).state, "running");
});

test("points are made while a chain is collapsed, and wait for it when there are as many layers as may be", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_COLLAPSE_MS: "200" } });
  await makePoints(node, LAYERS_MAX);
  assert.equal(layersOf(node).length, LAYERS_MAX);
  await makePoints(node, 1, { from: LAYERS_MAX + 1 });
  assert.deepEqual(layersOf(node), [pointOf(LAYERS_MAX + 1)]);
});

test("a machine whose chain cannot be collapsed has no more points than may be", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_COLLAPSE_FAIL: "1" } });
  await makePoints(node, LAYERS_MAX);
  await assert.rejects(makePoints(node, 1, { from: LAYERS_MAX + 1 }), /become one while the machine runs/);
  assert.equal(layersOf(node).length, LAYERS_MAX);
  assert.equal(node.fleet.observe(A).state, "running");
});

test("a stop does not wait for a chain that is being collapsed, and the layers are kept", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_COLLAPSE_MS: "3600000" } });
  await makePoints(node, LAYERS_ENOUGH);
  await until(() => (machineOf(node, A).known as { collapsing?: unknown }).collapsing !== null, { what: "a collapse" });
  assert.equal((await node.want(A, 2, "stopped", { keepsMemory: true })).state, "stopped");
  assert.equal(layersOf(node).length, LAYERS_ENOUGH);
  assert.equal((await node.want(A, 3, "running")).state, "running");
});

test("a running machine with layers has none before it is sent", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  await makePoints(node, 2);
  const round = { kind: "diskRound", point: "1".repeat(32), since: null } as const;
  await assert.rejects(outgoingBlocks(machineOf(node, A), round, signal), /on top of those of branch points/);
  // A preview changes nothing.
  assert.equal((await describe(node, false)).canSendEarly, true);
  assert.equal(layersOf(node).length, 2);
  const { canSendEarly, canMoveLive } = await describe(node);
  assert.deepEqual([canSendEarly, canMoveLive, layersOf(node)], [true, true, []]);
  for await (const _bytes of await outgoingBlocks(machineOf(node, A), round, signal));
});

test("a running machine that keeps its layers is sent when it has stopped", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running", { env: { FAKE_COLLAPSE_FAIL: "1" } });
  await makePoints(node, 1);
  const { canSendEarly, canMoveLive, isStopped } = await describe(node);
  assert.deepEqual([canSendEarly, canMoveLive, isStopped], [false, false, false]);
  assert.equal(layersOf(node).length, 1);
});

test("of a machine at rest one disk is sent with what its layers have, and its own stays as it is", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const disk = join(directory.path, "machines", A, "disk");
  await node.want(A, 1, "running");
  for (const number of [1, 2]) {
    await appendFile(disk, `before point ${number}\n`);
    await makePoints(node, 1, { from: number });
  }
  await appendFile(disk, "the last\n");
  await node.want(A, 2, "stopped", { keepsMemory: true });
  // What is sent is made when it is asked for.
  await assert.rejects(outgoingBlocks(machineOf(node, A), DISK, signal), /is not stopped/);
  const before = await readFile(disk, "utf8");
  const [found, again] = await Promise.all([describe(node), describe(node)]);
  assert.deepEqual(again, found);
  assert.deepEqual([found.isStopped, found.points], [true, []]);
  assert.notEqual(found.memory, null);
  const received = join(directory.path, "received");
  await using file = await open(received, "w+");
  await writeBlocks(file, await outgoingBlocks(machineOf(node, A), DISK, signal), () => undefined);
  assert.match(await readFile(received, "utf8"), /^a fake disk on .*\nbefore point 1\nbefore point 2\nthe last\n$/);
  assert.equal(await readFile(disk, "utf8"), before);
  await machineOf(node, A).known.leaving.forget();
  assert.ok(!(await readdir(join(directory.path, "machines", A))).includes("flat"));
  // It is another disk when the machine has run again.
  await describe(node);
  await node.want(A, 3, "running");
  await appendFile(disk, "later\n");
  await node.want(A, 4, "stopped");
  await assert.rejects(outgoingBlocks(machineOf(node, A), DISK, signal), /is not stopped/);
});

test("a clone that has not started leaves without the memory of its source", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "running");
  await makePoints(node, 1);
  const spec = { point: { pointId: pointOf(1), hasMemory: true } };
  await node.want(B, 1, "stopped", { spec });
  const found = await describeOutgoing(machineOf(node, B), node.deps, { hasContent: true, signal });
  assert.equal(found.memory, null);
});
