/**
 * Files of machines that come from other nodes: requests that fall silent or fail at the start, and machines
 * that are removed as they arrive.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { test } from "node:test";
import { endOfTurn, systemClock } from "@flotilla/base/clock";
import type { MovedPart } from "@flotilla/contract/link/moved-parts";
import type { IncomingMachine } from "@flotilla/contract/link/moves";
import type { WaitingVm } from "../src/driver/driver.ts";
import { readBlocks } from "../src/images/blocks.ts";
import { makeLog } from "../src/log.ts";
import { Incoming } from "../src/moves/incoming.ts";
import { outgoingBlocks } from "../src/moves/outgoing.ts";
import { until } from "../../test/support/until.ts";
import { immovable, needsRoot } from "./support/immovable.ts";
import { machineIdOf, machineOf, startTestNode, temporaryDirectory, type TestNode } from "./support/in-process.ts";

const A = machineIdOf("a");
const MOVE = `op-${"a".repeat(32)}`;
const DISK = { kind: "file", name: "disk", from: 0, since: null } as const;
const IMAGE = {
  digest: `sha256:${"a".repeat(64)}`,
  source: "local/a",
  architecture: "amd64",
  os: "linux",
  layerCount: 1,
};
const REQUEST: IncomingMachine = {
  generation: 1,
  image: { ...IMAGE, env: [], workdir: "/", user: "", entrypoint: [], command: [] },
  root: { bytes: 0, size: 0, sha256: "a".repeat(64) },
  files: [{ name: "disk", bytes: 8192 }],
  memory: null,
  memoryBase: null,
};

const scene = async (directory: string): Promise<Incoming> => incomingOf(await startTestNode(directory), directory);

async function incomingOf({ fleet, deps }: TestNode, directory: string): Promise<Incoming> {
  const log = makeLog({ level: "silent", clock: systemClock });
  const incoming = new Incoming({ directory: join(directory, "incoming"), fleet, deps, log });
  await incoming.open();
  return incoming;
}

const silence = (): Readable => new Readable({ read: () => undefined });

test("a newer request for a file ends an older one on which nothing arrives, and so does the end of the move", async () => {
  await using directory = await temporaryDirectory();
  const incoming = await scene(directory.path);
  await incoming.begin(A, MOVE, REQUEST);
  const path = join(directory.path, "sent");
  await writeFile(path, randomBytes(8192));
  const receive = (stream: AsyncIterable<Buffer>) => incoming.receive(A, MOVE, DISK, stream, () => undefined);
  const [first, second] = [receive(silence()), receive(readBlocks(path, 0))];
  await assert.rejects(first, /a newer request sends the file/);
  assert.equal((await second).bytes, 8192);
  const third = receive(silence());
  const discarded = incoming.discard(MOVE);
  await assert.rejects(third, /the move was abandoned/);
  await discarded;
});

test("a move that could not be begun leaves nothing behind once it was discarded", async () => {
  await using directory = await temporaryDirectory();
  const incoming = await scene(directory.path);
  // In the way of its directory, as a full disk is.
  await writeFile(join(directory.path, "incoming", MOVE), "");
  await assert.rejects(incoming.begin(A, MOVE, REQUEST));
  assert.deepEqual(incoming.moves, [MOVE]);
  await incoming.discard(MOVE);
  assert.deepEqual(incoming.moves, []);
});

test("what is not the id of a move names no directory, and nothing is removed for it", async () => {
  await using directory = await temporaryDirectory();
  const incoming = await scene(directory.path);
  const other = join(directory.path, "other");
  await writeFile(other, "kept");
  for (const name of ["../other", "", ".", `${MOVE}/../../other`]) {
    await assert.rejects(incoming.discard(name), /is not the id of a move/, name);
    await assert.rejects(incoming.begin(A, name, REQUEST), /is not the id of a move/, name);
  }
  assert.equal(existsSync(other), true);
});

test("files of a move that cannot be removed do not end the agent's start", { skip: needsRoot }, async () => {
  await using directory = await temporaryDirectory();
  await mkdir(join(directory.path, "incoming", MOVE), { recursive: true });
  await using _left = await immovable(join(directory.path, "incoming", MOVE, "disk.early"));
  const incoming = await scene(directory.path);
  assert.deepEqual(incoming.moves, []);
});

/** Removes a machine at the first moment at which its directory has its name. */
async function removeOnArrival({ fleet, deps }: TestNode, machineId: string): Promise<void> {
  const directory = join(deps.machinesDirectory, machineId);
  while (!existsSync(directory)) await endOfTurn();
  const wait = { waitMs: 10_000, signal: new AbortController().signal };
  await fleet.apply(machineId, { generation: 10, state: "absent", spec: null }, wait);
}

test("a machine that is removed at the moment of its arrival leaves neither its directory nor its user", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const incoming = await incomingOf(node, directory.path);
  await incoming.begin(A, MOVE, REQUEST);
  const path = join(directory.path, "sent");
  await writeFile(path, randomBytes(8192));
  await incoming.receive(A, MOVE, DISK, readBlocks(path, 0), () => undefined);
  const removed = removeOnArrival(node, A);
  await incoming.commit(A, MOVE, { hasMemory: false }).catch(() => undefined);
  await removed;
  await until(async () => (await readdir(node.deps.machinesDirectory)).length === 0, {
    what: "no directory",
    deadlineMs: 2_000,
  });
  assert.equal(node.fleet.find(A), undefined);
});

const [POINT, DISK_POINT] = ["1".repeat(32), "2".repeat(32)];
const ROUNDS = { kind: "memoryRounds", point: POINT } as const;

/** A machine that runs on one node, and whose disk another one has. */
async function sentEarly(directory: string) {
  const source = await startTestNode(join(directory, "source"));
  const target = await startTestNode(join(directory, "target"));
  const incoming = await incomingOf(target, join(directory, "target"));
  await source.want(A, 1, "running");
  const machine = machineOf(source, A);
  const send = (part: MovedPart): Promise<AsyncIterable<Buffer>> =>
    outgoingBlocks(machine, part, new AbortController().signal);
  const receive = async (part: MovedPart, stream: AsyncIterable<Buffer>) =>
    await incoming.receive(A, MOVE, part, stream, () => undefined);
  await incoming.begin(A, MOVE, REQUEST);
  const round = { kind: "diskRound", point: DISK_POINT, since: null } as const;
  await receive(round, await send(round));
  return { target, send, receive };
}

test("memory for a VM that ended while it arrived is not taken for received", async () => {
  await using directory = await temporaryDirectory();
  const { target, send, receive } = await sentEarly(directory.path);
  const { live } = target.driver;
  assert.ok(live !== null);
  const begin = live.receive.bind(live);
  const begun = Promise.withResolvers<WaitingVm>();
  Object.assign(live, {
    receive: async (...request: Parameters<typeof begin>) => {
      const vm = await begin(...request);
      begun.resolve(vm);
      return vm;
    },
  });
  const rounds = Buffer.concat(await Readable.from(await send(ROUNDS)).toArray());
  async function* withItsEnd(): AsyncGenerator<Buffer> {
    yield rounds.subarray(0, -1);
    const vm = await begun.promise;
    await endOfTurn();
    await vm.kill();
    await endOfTurn();
    yield rounds.subarray(-1);
  }
  await assert.rejects(receive(ROUNDS, withItsEnd()), /the VM that waited has ended/);
});

test("a machine that is removed at the moment at which it arrives paused leaves no VM", async () => {
  await using directory = await temporaryDirectory();
  const { target, send, receive } = await sentEarly(directory.path);
  await receive(ROUNDS, await send(ROUNDS));
  const part = { kind: "rest", point: POINT, diskPoint: DISK_POINT, generation: 2 } as const;
  const rest = await send(part);
  const removed = removeOnArrival(target, A);
  await receive(part, rest).catch(() => undefined);
  await removed;
  await until(async () => (await readdir(target.deps.machinesDirectory)).length === 0, {
    what: "no directory",
    deadlineMs: 2_000,
  });
  assert.deepEqual(await target.driver.find(), []);
  assert.equal(target.fleet.find(A), undefined);
});
