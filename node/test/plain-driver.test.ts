/**
 * Machines on a driver that keeps no memory, watches and fences nothing, and replaces no VMM: they start and
 * stop, and what needs more is refused or done without.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import type { IncomingMachine } from "@flotilla/contract/link/moves";
import { until } from "../../test/support/until.ts";
import { Incoming } from "../src/moves/incoming.ts";
import { describeOutgoing, outgoingBlocks } from "../src/moves/outgoing.ts";
import { machineIdOf, machineOf, startTestNode, type TestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const MOVE = `op-${"1".repeat(32)}`;
const POINT = "1".repeat(32);
const signal = AbortSignal.timeout(60_000);

const plainNode = (directory: string, more: { readonly program?: string } = {}): Promise<TestNode> =>
  startTestNode(directory, { ...more, isPlain: true });

test("a machine whose memory cannot be kept runs on when it is to be suspended, and stops without it", async () => {
  await using directory = await temporaryDirectory();
  const node = await plainNode(directory.path);
  await node.want(A, 1, "running");
  const kept = await node.want(A, 2, "stopped", { keepsMemory: true });
  assert.deepEqual([kept.state, kept.suspendRefusal?.code], ["running", "conflict"]);
  assert.match(kept.suspendRefusal?.reason ?? "", /^this node cannot keep the memory of machines$/);
  const stopped = await node.want(A, 3, "stopped");
  assert.deepEqual([stopped.state, stopped.suspendedAt], ["stopped", null]);
});

test("a machine that is to be fenced runs without a fence, and says so", async () => {
  await using directory = await temporaryDirectory();
  const node = await plainNode(directory.path);
  node.driver.lease.renew(node.clock.boottime() + 60_000);
  assert.equal(node.driver.canFence, false);
  const observed = await node.want(A, 1, "running", { isFenced: true });
  assert.deepEqual([observed.state, observed.isFenced], ["running", false]);
});

test("a machine that runs is described as one that is sent only when it has stopped", async () => {
  await using directory = await temporaryDirectory();
  const node = await plainNode(directory.path);
  await node.want(A, 1, "running");
  const found = await describeOutgoing(machineOf(node, A), node.deps, { hasContent: true, signal });
  assert.deepEqual([found.canSendEarly, found.canMoveLive, found.memoryBase], [false, false, null]);
  for (const part of [
    { kind: "diskRound", point: POINT, since: null },
    { kind: "memoryRounds", point: POINT },
  ] as const)
    await assert.rejects(outgoingBlocks(machineOf(node, A), part, signal), /does not run/);
});

const REQUEST: IncomingMachine = {
  generation: 1,
  image: {
    ...{ digest: `sha256:${"1".repeat(64)}`, source: "local", architecture: "amd64", os: "linux", layerCount: 1 },
    ...{ env: [], workdir: "/", user: "", entrypoint: [], command: [] },
  },
  root: { bytes: 0, size: 0, sha256: "1".repeat(64) },
  files: [],
  memory: null,
  memoryBase: null,
};

test("a machine arrives only when it was stopped, and without memory", async () => {
  await using directory = await temporaryDirectory();
  const { fleet, deps } = await plainNode(directory.path);
  const incoming = new Incoming({ directory: join(directory.path, "incoming"), fleet, deps, log: deps.log });
  await incoming.open();
  assert.equal((await incoming.begin(A, MOVE, REQUEST)).takesLive, false);
  const stream = (async function* (): AsyncGenerator<Buffer> {})();
  await assert.rejects(
    incoming.receive(A, MOVE, { kind: "memoryRounds", point: POINT }, stream, () => undefined),
    /this node takes no machine that runs/,
  );
  const memory = { memoryId: "1".repeat(32), format: "fake", suspendedAt: 1, guestBootId: `boot-${"1".repeat(32)}` };
  const more = { workload: null, keepsCommands: false, bytes: 0, base: null };
  await assert.rejects(
    incoming.begin(A, MOVE, { ...REQUEST, memory: { ...memory, ...more } }),
    /this node cannot keep the memory of machines/,
  );
});

test("memory that another driver kept is lost with an event, and the machine boots", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const before = await first.want(A, 1, "running");
  assert.notEqual((await first.want(A, 2, "stopped", { keepsMemory: true })).suspendedAt, null);
  await first.fleet.release();
  const node = await plainNode(directory.path);
  const after = await node.want(A, 3, "running");
  assert.deepEqual([after.state, after.bootId === before.bootId, after.isResumed], ["running", false, false]);
  assert.ok(node.events.some(({ message }) => /cannot load the memory of machines/.test(message)));
});

test("a VM that another driver paused for a move is ended, and the machine boots when it is to run here", async () => {
  await using directory = await temporaryDirectory();
  const first = await startTestNode(directory.path);
  const { bootId } = await first.want(A, 1, "running");
  await markPaused(first);
  await first.fleet.release();
  const node = await plainNode(directory.path);
  await until(() => node.fleet.observe(A).bootId !== bootId, { what: "the end of the paused VM" });
  const after = await node.want(A, 3, "running");
  assert.equal(after.state, "running");
  assert.equal((await node.driver.find()).length, 1);
  assert.ok(node.events.some(({ message }) => /ended while it was paused for a move/.test(message)));
});

/** As a move leaves it, of which the rest was sent. */
async function markPaused(node: TestNode): Promise<void> {
  const machine = machineOf(node, A);
  const send = async (part: Parameters<typeof outgoingBlocks>[1]): Promise<void> => {
    for await (const _bytes of await outgoingBlocks(machine, part, signal));
  };
  const diskPoint = "2".repeat(32);
  await send({ kind: "diskRound", point: diskPoint, since: null });
  await send({ kind: "memoryRounds", point: POINT });
  await send({ kind: "rest", point: POINT, diskPoint, generation: 2 });
}

test("a machine gets no other VMM while it runs, and gets one by a restart", async () => {
  await using directory = await temporaryDirectory();
  const first = await plainNode(directory.path, { program: "1" });
  const { bootId } = await first.want(A, 1, "running");
  await first.fleet.release();
  const node = await plainNode(directory.path, { program: "2" });
  await until(() => node.fleet.observe(A).state === "running", { what: "running" });
  assert.deepEqual(await node.replacements.replace(machineOf(node, A), "live", signal), {
    outcome: "refused",
    reason: "this node does not replace VMMs",
  });
  assert.equal(node.fleet.observe(A).bootId, bootId);
  assert.equal((await node.replacements.replace(machineOf(node, A), "restart", signal)).outcome, "replaced");
  assert.notEqual(node.fleet.observe(A).bootId, bootId);
});
