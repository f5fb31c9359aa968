/**
 * Points that are copied to another node, with the scripted driver: clones start there, interrupted copies
 * continue, and what is not complete is not a point.
 */
import assert from "node:assert/strict";
import { appendFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { OutgoingPoint } from "@flotilla/contract/link/points";
import { makeLog } from "../src/log.ts";
import { Incoming } from "../src/moves/incoming.ts";
import { OutgoingPoints } from "../src/moves/outgoing-points.ts";
import { listFiles, machineIdOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const B = machineIdOf("b");
const P = `point-${"1".repeat(32)}`;
const Q = `point-${"2".repeat(32)}`;
const COPY = `point-${"3".repeat(32)}`;
const MOVE = `op-${"4".repeat(32)}`;

const incomingOf = async ({ fleet, deps, clock }: TestNode, path: string): Promise<Incoming> => {
  const log = makeLog({ level: "silent", clock });
  const incoming = new Incoming({ directory: join(path, "incoming"), fleet, deps, log });
  await incoming.open();
  return incoming;
};

/** As the server begins a copy. */
const begin = (incoming: Incoming, { image, root, files, memory }: OutgoingPoint) =>
  incoming.begin(COPY, MOVE, { generation: 1, image, root, files, memory, memoryBase: null });

/** Sends what the other node needs. */
async function send(outgoing: OutgoingPoints, incoming: Incoming, found: OutgoingPoint, pointId: string) {
  const { awaited } = await begin(incoming, found);
  for (const { name, from } of awaited) {
    const part = { kind: "file", name, from, since: null } as const;
    await incoming.receive(COPY, MOVE, part, await outgoing.blocks(pointId, name, from), () => undefined);
  }
  return awaited.map(({ name }) => name);
}

const signal = new AbortController().signal;

test("a copy of a point is one of another node, with the content of its layers, and clones start from it", async () => {
  await using here = await temporaryDirectory();
  await using there = await temporaryDirectory();
  const [source, target] = [await startTestNode(here.path), await startTestNode(there.path)];
  await source.want(A, 1, "running");
  await appendFile(join(here.path, "machines", A, "disk"), "first\n");
  await source.branches.make({ pointId: P, machineId: A, hasMemory: true });
  await appendFile(join(here.path, "machines", A, "disk"), "second\n");
  const made = await source.branches.make({ pointId: Q, machineId: A, hasMemory: true });
  assert.deepEqual(made.layers, [P]);
  const [outgoing, incoming] = [new OutgoingPoints(source.deps), await incomingOf(target, there.path)];
  const [found, same] = await Promise.all([outgoing.describe(Q, signal), outgoing.describe(Q, signal)]);
  assert.deepEqual(same, found);
  await assert.rejects(incoming.commitPoint(COPY, MOVE, found.facts), /was not begun on this node/);
  await begin(incoming, found);
  await assert.rejects(incoming.commitPoint(COPY, MOVE, found.facts), /has not arrived/);
  assert.deepEqual(incoming.moves, [MOVE]);
  assert.equal(target.deps.points.find(COPY), undefined);
  const sent = await send(outgoing, incoming, found, Q);
  assert.deepEqual(sent.slice(-2), ["disk", "memory"]);
  assert.deepEqual(await send(outgoing, incoming, found, Q), [], "all has arrived");
  await incoming.commitPoint(COPY, MOVE, found.facts);
  await incoming.commitPoint(COPY, MOVE, found.facts);
  assert.equal((await begin(incoming, found)).isMachine, true);
  assert.deepEqual([incoming.moves, await listFiles(join(there.path, "incoming"))], [[], []]);
  const { machineId, memory, layers, madeAt } = target.deps.points.find(COPY) ?? {};
  const original = source.deps.points.find(Q);
  assert.deepEqual([machineId, memory, layers, madeAt], [A, original?.memory, [], original?.madeAt]);
  assert.match(await readFile(target.deps.points.layerPathOf(COPY), "utf8"), /\nfirst\nsecond\n$/);
  const spec = { hostname: "clone", point: { pointId: COPY, hasMemory: true } };
  assert.equal((await target.want(B, 1, "running", { spec })).state, "running");
  const next = await startTestNode(there.path);
  assert.deepEqual(next.deps.points.find(COPY)?.layers, [], "another agent knows it");
  await next.fleet.release();
  // Its source is released, and the copy is none of its layers.
  await source.branches.release(Q);
  assert.equal((await target.want(machineIdOf("c"), 1, "running", { spec })).state, "running");
  await assert.rejects(outgoing.describe(Q, signal), /is not on this node/);
  await assert.rejects(outgoing.blocks(Q, "disk", 0), /is not on this node/);
});

test("a point without memory is copied as a disk", async () => {
  await using here = await temporaryDirectory();
  await using there = await temporaryDirectory();
  const [source, target] = [await startTestNode(here.path), await startTestNode(there.path)];
  await source.want(A, 1, "running");
  await source.branches.make({ pointId: P, machineId: A, hasMemory: false });
  const [outgoing, incoming] = [new OutgoingPoints(source.deps), await incomingOf(target, there.path)];
  const found = await outgoing.describe(P, signal);
  assert.deepEqual([found.memory, found.facts.size], [null, null]);
  assert.ok(!(await send(outgoing, incoming, found, P)).includes("memory"));
  await incoming.commitPoint(COPY, MOVE, found.facts);
  const start = (machineId: string, hasMemory: boolean) =>
    target.want(machineId, 1, "running", { spec: { point: { pointId: COPY, hasMemory } } });
  assert.equal((await start(B, false)).state, "running");
  assert.equal((await start(machineIdOf("c"), true)).state, "failed");
});

test("a copy that is abandoned, or whose operation has ended, leaves nothing", async () => {
  await using here = await temporaryDirectory();
  await using there = await temporaryDirectory();
  const [source, target] = [await startTestNode(here.path), await startTestNode(there.path)];
  await source.want(A, 1, "running");
  await source.branches.make({ pointId: P, machineId: A, hasMemory: true });
  const [outgoing, incoming] = [new OutgoingPoints(source.deps), await incomingOf(target, there.path)];
  const found = await outgoing.describe(P, signal);
  await send(outgoing, incoming, found, P);
  const next = await incomingOf(target, there.path);
  assert.deepEqual(await send(outgoing, next, found, P), [], "another agent continues with what has arrived");
  await next.discard(MOVE);
  assert.deepEqual([next.moves, await listFiles(join(there.path, "incoming"))], [[], []]);
  await assert.rejects(next.commitPoint(COPY, MOVE, found.facts), /was not begun on this node/);
  assert.equal(target.deps.points.find(COPY), undefined);
});
