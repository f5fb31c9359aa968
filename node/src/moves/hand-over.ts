/**
 * What a running machine sends to another node: its memory in rounds while it runs, and in a pause what has
 * changed since, with its disk's last blocks and its devices (docs/decisions/0054-live-moves.md).
 *
 * Always:
 * - Before the pause the journal has the generation of the move and says that the machine is paused. From
 *   then on it runs here only after a request that says so.
 * - The state of the devices is that of the memory: it is saved again when a page has changed meanwhile.
 *
 * Nothing else of it is on the disk. After a crash of the agent the next one saves the paused machine's
 * memory to a file (actions/suspend.ts), and the move continues with that.
 */
import { open, stat } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import type { MemoryWatch } from "../driver/driver.ts";
import { namesIn } from "../host/names-in.ts";
import type { Extent } from "../images/blocks.ts";
import type { MoveRecord } from "../memory/move-stream.ts";
import { PAGE_BYTES } from "../memory/memory-file.ts";
import { bytesOf, isLastRound, ROUNDS_MAX } from "../memory/rounds.ts";
import { UnknownPoint } from "../machines/disk-changes.ts";
import type { WatchedMemory } from "../machines/leaving.ts";
import { diskPathOf, logsPathOf } from "../machines/paths.ts";
import type { RunningMachine } from "../machines/node-machine.ts";

/** The state of the devices is saved so often. */
const STATE_TRIES_MAX = 5;
const PIECE_BYTES = 2 ** 20;
const LOG_NAME = /^[0-9]{1,9}$/;

export interface HandOver {
  /** The rounds of memory that the other node has. */
  readonly point: string;
  /** The point of the disk that it has. */
  readonly diskPoint: string;
  /** Generation of the machine's row since it is held for the move. */
  readonly generation: number;
}

/** What the other node must know to start a VM for the machine. */
export interface ArrivalFacts {
  readonly cpus: number;
  readonly memoryMb: number;
  readonly diskBytes: number;
  readonly guestBootId: string;
  readonly workload: readonly string[] | null;
}

/**
 * The memory of a running machine in rounds, until little is left; then the other node knows `point`. Throws
 * UnknownPoint.
 */
export async function* sendRounds({ machine, vm, boot }: RunningMachine, point: string): AsyncGenerator<MoveRecord> {
  const watch = await vm.live?.watch(boot, machine.directory).catch((error: unknown) => {
    const reason = messageOf(error);
    machine.log.warn({ reason }, "a machine's memory cannot be watched, so it is suspended for its move");
    throw new UnknownPoint(`the machine's memory cannot be watched: ${reason}`);
  });
  if (watch === undefined) throw new UnknownPoint("the machine's memory cannot be watched");
  const watched: WatchedMemory = { vm, watch, point: null, logs: new Map() };
  machine.leaving.watch(watched);
  const { cpus, memoryMb, diskBytes } = boot;
  const { guestBootId = null, bootId, workload = null } = machine.journal.boot ?? { bootId: boot.bootId };
  const facts: ArrivalFacts = { cpus, memoryMb, diskBytes, guestBootId: guestBootId ?? bootId, workload };
  yield { kind: "facts", bytes: Buffer.from(JSON.stringify(facts)) };
  let before = Number.POSITIVE_INFINITY;
  for (let round = 1; round <= ROUNDS_MAX; round += 1) {
    const parts = await watch.take();
    yield* pagesOf(watch, parts);
    const bytes = bytesOf(parts);
    if (isLastRound(bytes, before)) break;
    before = bytes;
  }
  yield* logsOf(watched, machine.directory);
  watched.point = point;
}

/**
 * Pauses the machine and sends the rest. It stays paused, whatever happens to the stream. Throws UnknownPoint
 * before the pause.
 */
export async function* handOver(
  { machine, vm, boot }: RunningMachine,
  { point, diskPoint, generation }: HandOver,
): AsyncGenerator<MoveRecord> {
  const { leaving, held, journal } = machine;
  const { live } = vm;
  const { changes, watched } = leaving;
  const diskPath = diskPathOf(machine.directory);
  if (
    live === null ||
    watched === null ||
    watched.vm !== vm ||
    watched.point !== point ||
    !changes.knows(vm, diskPoint)
  )
    throw new UnknownPoint("the machine's memory was not sent to the other node");
  // Two streams would each lack the pages that the other one has.
  watched.point = null;
  if (generation <= journal.generation || journal.boot === null) throw new UnknownPoint("the machine has changed");
  const { watch } = watched;
  const latestPoint = `${point.slice(0, 16)}${diskPoint.slice(0, 16)}`;
  yield* blocksOf(diskPath, (await changes.next(vm, boot, { point: latestPoint, since: diskPoint })) ?? []);
  leaving.isUnderWay = true;
  await machine.update({
    ...{ generation, desired: "stopped", keepsMemory: true, keepsCommands: true, restarts: null, suspendRefusal: null },
    boot: { ...journal.boot, isPaused: true },
  });
  const ensureLeaving = (): void => {
    if (held.vm !== vm || !leaving.isUnderWay) throw new UnknownPoint("the machine is not handed over any more");
  };
  ensureLeaving();
  // The guest sends again what is not in the log.
  await machine.workload.release();
  yield* logsOf(watched, machine.directory);
  yield* pagesOf(watch, await watch.take());
  ensureLeaving();
  const pausedAt = await live.pause();
  // A request that came meanwhile is for a machine that runs.
  if (held.vm === vm && !leaving.isUnderWay) await live.unpause();
  ensureLeaving();
  held.notePaused(pausedAt);
  let rest = await watch.take();
  let state: Buffer | null = null;
  yield* pagesOf(watch, rest);
  for (let tries = 1; state === null || rest.length > 0; tries += 1) {
    if (tries > STATE_TRIES_MAX) throw new Error("the paused guest's memory changes");
    state = await live.devices(boot);
    rest = await watch.take();
    yield* pagesOf(watch, rest);
  }
  await changes.finish(vm, diskPath);
  yield* blocksOf(diskPath, await changes.since(latestPoint, diskPath));
  yield { kind: "disk", size: (await stat(diskPath)).size };
  yield { kind: "facts", bytes: Buffer.from(JSON.stringify({ pausedAt: Math.floor(pausedAt) })) };
  yield { kind: "state", bytes: state };
}

function* pagesOf(watch: MemoryWatch, parts: readonly Extent[]): Generator<MoveRecord> {
  for (const record of watch.read(parts)) {
    const { offset } = record;
    if (record.kind === "data") yield { kind: "page", offset, bytes: record.bytes };
    else yield { kind: "zero", offset, length: record.pages * PAGE_BYTES };
  }
}

async function* blocksOf(path: string, extents: readonly Extent[]): AsyncGenerator<MoveRecord> {
  if (extents.length === 0) return;
  await using file = await open(path, "r");
  const buffer = Buffer.alloc(PIECE_BYTES);
  for (const { start, end } of extents) {
    for (let at = start; at < end; ) {
      const { bytesRead } = await file.read(buffer, 0, Math.min(PIECE_BYTES, end - at), at);
      // The end of the file.
      if (bytesRead === 0) break;
      yield { kind: "block", offset: at, bytes: buffer.subarray(0, bytesRead) };
      at += bytesRead;
    }
  }
}

/** What was added to the log since it was sent last. */
async function* logsOf({ logs }: WatchedMemory, directory: string): AsyncGenerator<MoveRecord> {
  const place = logsPathOf(directory);
  const names = (await namesIn(place)).filter((name) => LOG_NAME.test(name));
  for (const name of names) {
    await using file = await open(join(place, name), "r");
    const buffer = Buffer.alloc(PIECE_BYTES);
    for (let at = logs.get(name) ?? 0; ; ) {
      const { bytesRead } = await file.read(buffer, 0, PIECE_BYTES, at);
      if (bytesRead === 0) break;
      yield { kind: "log", file: Number(name), offset: at, bytes: buffer.subarray(0, bytesRead) };
      at += bytesRead;
      logs.set(name, at);
    }
  }
}
