/**
 * Machines that are handed over to another node while they run, when that ends early or what is desired
 * changes in the middle.
 */
import assert from "node:assert/strict";
import { readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { MovedPart } from "@flotilla/contract/link/moved-parts";
import { until } from "../../test/support/until.ts";
import type { BootRequest, Vm } from "../src/driver/driver.ts";
import { FakeLive } from "../src/driver/fake/live.ts";
import { FakePausedVm } from "../src/driver/fake/paused.ts";
import { UnknownPoint } from "../src/machines/disk-changes.ts";
import { handOver } from "../src/moves/hand-over.ts";
import type { Journal } from "../src/machines/journal.ts";
import type { MoveRecord } from "../src/memory/move-stream.ts";
import { outgoingBlocks } from "../src/moves/outgoing.ts";
import { bootDirectoryName } from "../src/machines/paths.ts";
import type { SupervisedMachine } from "../src/machines/node-machine.ts";
import {
  hurriedClock,
  machineIdOf,
  machineOf,
  startTestNode,
  type TestNode,
  temporaryDirectory,
} from "./support/in-process.ts";

const A = machineIdOf("a");
const [POINT, DISK_POINT] = ["1".repeat(32), "2".repeat(32)];
const REST = { point: POINT, diskPoint: DISK_POINT, generation: 2 };
const SERVING = { spec: { command: ["sh", "-c", "echo one; sleep 1000"] } };
const PIECE = `${"x".repeat(1023)}\n`.repeat(1024);

/** A machine of which the other node has the disk and the memory. */
async function sentMachine(node: TestNode): Promise<SupervisedMachine> {
  await node.want(A, 1, "running", SERVING);
  const machine = machineOf(node, A);
  const send = async (part: MovedPart): Promise<void> => {
    for await (const _bytes of await outgoingBlocks(machine, part, AbortSignal.timeout(10_000)));
  };
  await send({ kind: "diskRound", point: DISK_POINT, since: null });
  await send({ kind: "memoryRounds", point: POINT });
  return machine;
}

async function handedOver(machine: SupervisedMachine): Promise<AsyncIterable<MoveRecord>> {
  const running = await machine.running();
  if (running === null) throw new UnknownPoint("it does not run");
  return handOver(running, REST);
}

/** The paths of the files that this process has open. */
async function openFiles(): Promise<readonly string[]> {
  const names = await readdir("/proc/self/fd");
  return await Promise.all(names.map((name) => readlink(`/proc/self/fd/${name}`).catch(() => "")));
}

const journalOf = async (directory: string): Promise<Journal> =>
  JSON.parse(await readFile(join(directory, "machines", A, "journal.json"), "utf8")) as Journal;

/** Counts how often the output of the machine's workload begins to be read. */
function countAttached({ access: { guest } }: SupervisedMachine): () => number {
  assert.ok(guest !== null);
  const original = guest.workload.bind(guest);
  let count = 0;
  guest.workload = (request) => {
    count += 1;
    return original(request);
  };
  return () => count;
}

for (const next of ["running", "stopped"] as const)
  test(`a machine whose stream ends before its pause and is to be ${next} has its log read again`, async () => {
    await using directory = await temporaryDirectory();
    const node = await startTestNode(directory.path);
    const machine = await sentMachine(node);
    const countOf = countAttached(machine);
    await machine.access.log.append(PIECE);
    for await (const { kind } of await handedOver(machine)) if (kind === "log") break;
    assert.equal(machine.access.isLeaving, true);
    const seen = await node.want(A, 3, next, SERVING);
    assert.deepEqual([seen.state, countOf()], [next, 1]);
    await until(async () => (await journalOf(directory.path)).boot?.isPaused !== true, { what: "the journal" });
    await node.want(A, 4, "stopped", SERVING);
    // Nothing is watched any more of one that runs on.
    assert.equal(
      (await machine.known.leaving.changes.points(join(machine.known.directory, "disk"))).length > 0,
      next === "stopped",
    );
  });

/** Has something done right after the machine's VM was paused, as a request that arrives during that. */
function afterPause({ driver }: TestNode, work: () => Promise<unknown>): void {
  const boot = driver.boot.bind(driver);
  driver.boot = async (...request): Promise<Vm> => {
    const vm = await boot(...request);
    const { live } = vm;
    assert.ok(live !== null);
    const pause = live.pause.bind(live);
    Object.assign(live, {
      pause: async () => {
        const pausedAt = await pause();
        await work();
        return pausedAt;
      },
    });
    return vm;
  };
}

test("a machine that is to run here again while it is being paused runs on", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  afterPause(node, () => node.want(A, 3, "running", { ...SERVING, waitMs: 0 }));
  const machine = await sentMachine(node);
  const countOf = countAttached(machine);
  const sent = (async () => {
    for await (const _record of await handedOver(machine));
  })();
  await assert.rejects(sent, UnknownPoint);
  await until(() => node.fleet.observe(A).state === "running", { what: "running", deadlineMs: 2_000 });
  const { boot } = await journalOf(directory.path);
  assert.ok(boot !== null && boot.isPaused !== true);
  const bootDirectory = join(machine.known.directory, "boots", bootDirectoryName(boot.bootId));
  const vm = JSON.parse(await readFile(join(bootDirectory, "vm.json"), "utf8")) as { readonly isPaused?: boolean };
  assert.deepEqual([vm.isPaused, countOf()], [false, 1]);
});

for (const next of ["running", "stopped"] as const)
  test(`a paused machine whose VM does not answer the next agent, and that is to be ${next}, is so in the end`, async (t) => {
    await using directory = await temporaryDirectory();
    const clock = hurriedClock(20);
    const first = await startTestNode(directory.path, { clock });
    const machine = await sentMachine(first);
    for await (const _record of await handedOver(machine));
    const { bootId } = first.fleet.observe(A);
    await first.fleet.release();
    t.mock.method(FakeLive.prototype, "adopt", () => Promise.reject(new Error("it is silent")));
    const node = await startTestNode(directory.path, { clock });
    await until(() => node.logLines.filter((line) => line.includes("action failed")).length > 3, { what: "attempts" });
    // Its memory may be needed until the server says how the move has ended.
    assert.deepEqual([node.fleet.observe(A).bootId, (await node.driver.find()).length], [bootId, 1]);
    const seen = await node.want(A, 3, next, { ...SERVING, waitMs: 600_000 });
    assert.deepEqual([seen.state, seen.bootId === bootId], [next, false]);
    assert.ok(node.events.some(({ message }) => /memory of the machine was lost.*does not answer/.test(message)));
  });

test("a paused machine whose guest does not answer when it continues is restarted", async (t) => {
  await using directory = await temporaryDirectory();
  const clock = hurriedClock(20);
  const first = await startTestNode(directory.path, { clock });
  const machine = await sentMachine(first);
  for await (const _record of await handedOver(machine));
  const { bootId } = first.fleet.observe(A);
  await first.fleet.release();
  // Otherwise its memory is saved before the request.
  const requested = Promise.withResolvers<void>();
  const adopt = FakeLive.prototype.adopt;
  t.mock.method(FakeLive.prototype, "adopt", async function (this: FakeLive, request: BootRequest) {
    await requested.promise;
    return await adopt.call(this, request);
  });
  const node = await startTestNode(directory.path, { clock });
  t.mock.method(FakePausedVm.prototype, "resume", (_request: unknown, onRunning: (at: number) => void) => {
    onRunning(clock.now());
    return Promise.reject(new Error("its guest does not answer"));
  });
  await node.want(A, 3, "running", { ...SERVING, waitMs: 0 });
  requested.resolve();
  const seen = await node.want(A, 3, "running", { ...SERVING, waitMs: 600_000 });
  assert.deepEqual([seen.state, seen.lastRun?.bootId, seen.lastRun?.cause], ["running", bootId, "unresponsive"]);
  assert.match(node.events.at(-1)?.message ?? "", /^its guest does not answer; the machine is restarted$/);
});

test("of two requests for the rest of a machine at the same time one is refused", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const machine = await sentMachine(node);
  const take = async (): Promise<number> => {
    let states = 0;
    for await (const { kind } of await handedOver(machine)) if (kind === "state") states += 1;
    return states;
  };
  const [first, second] = await Promise.allSettled([take(), take()]);
  assert.deepEqual(first, { status: "fulfilled", value: 1 });
  assert.ok(second.status === "rejected" && second.reason instanceof UnknownPoint);
});

test("the files of a stream that is not read to its end are closed", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  const machine = await sentMachine(node);
  for (let count = 0; count < 3; count += 1) await machine.access.log.append(PIECE);
  const part = { kind: "rest", ...REST } as const;
  const stream = (await outgoingBlocks(machine, part, AbortSignal.timeout(10_000)))[Symbol.asyncIterator]();
  await stream.next();
  const ofLog = async (): Promise<readonly string[]> =>
    (await openFiles()).filter((path) => path.startsWith(join(directory.path, "machines", A, "logs")));
  assert.equal((await ofLog()).length, 1);
  await stream.return?.();
  assert.deepEqual(await ofLog(), []);
});
