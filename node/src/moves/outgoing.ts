/**
 * A machine's files as they leave for another node: their list and their blocks, with the memory of a
 * suspended machine and the base of that memory.
 *
 * Only reads. Always: files that change are read while nothing of the machine runs here and it is to stay
 * stopped; the server starts it again only after the move has ended, here or on the other node. They stay
 * here until the server says that the machine is elsewhere. Only a stream with a point (disk-changes.ts) is
 * read from a disk that is in use.
 */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { MovedPart } from "@flotilla/contract/link/moved-parts";
import type { MovedImage, MovedMemory, MovedRoot, OutgoingMachine } from "@flotilla/contract/link/moves";
import { namesIn } from "../host/names-in.ts";
import type { Images, RootFile, UnpackedImage } from "../images/images.ts";
import { syncToDisk } from "../host/sync-to-disk.ts";
import { type Extent, readBlocks, readExtents } from "../images/blocks.ts";
import { type MoveRecord, writeMove } from "../memory/move-stream.ts";
import type { Driver } from "../driver/driver.ts";
import type { BootSlots } from "../machines/boot-slots.ts";
import { collapse } from "../machines/collapsing.ts";
import { type NextPoint, UnknownPoint } from "../machines/disk-changes.ts";
import { handOver, sendRounds } from "./hand-over.ts";
import type { Machine } from "../machines/machine.ts";
import { LOG_NAME } from "../machines/workload/machine-log.ts";
import type { MemoryBases } from "../machines/memory-bases.ts";
import { diskPathOf, logsPathOf, memoryBasePathOf, memoryPathOf } from "../machines/paths.ts";
import type { KnownMachine, RunningMachine, SupervisedMachine } from "../machines/node-machine.ts";

export interface OutgoingDeps {
  readonly images: Images;
  readonly driver: Driver;
  readonly memoryBases: MemoryBases;
  /** Slots of disks that are read while their machines run. */
  readonly earlySlots: BootSlots;
  readonly log: Log;
}

export interface DescribeOptions {
  readonly hasContent: boolean;
  readonly signal: AbortSignal;
}

/** Time for a guest to write its files to the disk. */
const SYNC_DEADLINE_MS = 60_000;

/** Description of a machine whose first start has failed or was stopped before it had a disk. */
const NOTHING = {
  ...{ image: null, root: null, files: [], memory: null, memoryFormat: null, memoryBase: null, points: [] },
  ...{ canSendEarly: false, canMoveLive: false },
} as const;

/**
 * What the node has of the machine. `hasContent`: with the hashes of the files that its disk and its memory
 * are based on.
 */
export async function describeOutgoing(
  machine: SupervisedMachine,
  deps: OutgoingDeps,
  options: DescribeOptions,
): Promise<OutgoingMachine> {
  const { images } = deps;
  const { hasContent, signal } = options;
  const atRest = machine.atRest();
  const isStopped = atRest !== null;
  const { journal, directory } = machine.known;
  if (!journal.hasDisk) return { ...NOTHING, isStopped };
  const base = await diskBase(machine.known);
  const root = hasContent
    ? await images.describeRoot(base.root, signal)
    : { bytes: await allocated(base.root.rootPath), size: base.root.rootBytes, sha256: null };
  const logs = await namesIn(logsPathOf(directory));
  const names = ["disk", ...logs.filter((name) => LOG_NAME.test(name)).map((name) => `log-${name}`)];
  const running = await watched(machine);
  const canSendEarly = running !== null && (!hasContent || (await hasNoLayers(running, signal)));
  const flatBytes = await bytesOfFlat(machine.known, hasContent ? atRest : null);
  const bytesOf = (name: string) => (name === "disk" && flatBytes) || allocated(movedPath(directory, name));
  const files = await Promise.all(names.map(async (name) => ({ name, bytes: await bytesOf(name) })));
  const memory = isStopped ? await describeMemory(machine.known, deps, options) : null;
  const memoryFormat = memory?.format ?? journal.boot?.record?.format ?? null;
  const canMoveLive = canSendEarly && running.vm.live !== null;
  const memoryBase = hasContent && canSendEarly ? await describeBase(running, deps, options) : null;
  const points =
    atRest === null || flatBytes !== null ? [] : await atRest.leaving.changes.points(diskPathOf(atRest.directory));
  const image = movedImage(base.image);
  const known = { isStopped, image, root, files };
  return { ...known, memory, memoryFormat, canSendEarly, canMoveLive, memoryBase, points };
}

/** A disk that is sent while its machine runs has no layers. Resolves with whether that is so. */
async function hasNoLayers(running: RunningMachine, signal: AbortSignal): Promise<boolean> {
  try {
    await orAborted(collapse(running), signal);
    return true;
  } catch {
    // Its log says why. It is sent when the machine has stopped.
    signal.throwIfAborted();
    return false;
  }
}

/**
 * What a disk takes without its layers, which move with it; null: it has none. It is made of a machine at
 * rest that is given.
 */
async function bytesOfFlat(known: KnownMachine, atRest: Machine | null): Promise<number | null> {
  const { journal, directory } = known;
  if ((journal.layers ?? []).length === 0) return null;
  if (atRest !== null) return await allocated(await atRest.leaving.flat.of(atRest));
  return (await allocated(diskPathOf(directory))) + (await known.disk.layerBytes(journal));
}

/** Describes the base of a machine that runs. */
async function describeBase(
  running: RunningMachine,
  { memoryBases }: OutgoingDeps,
  options: DescribeOptions,
): Promise<MovedRoot | null> {
  const path = await memoryBaseOf(running);
  return path === null ? null : await memoryBases.describe(path, options);
}

/** The machine's memory; null: none is kept, or it does not fit the machine's files any more. */
async function describeMemory(
  { journal: { memory = null, machineId }, directory }: KnownMachine,
  { driver, memoryBases, log }: OutgoingDeps,
  options: DescribeOptions,
): Promise<MovedMemory | null> {
  // That of a clone that has not started is its source's.
  if (memory === null || memory.pointId !== undefined || driver.memory === null) return null;
  const { memoryId, suspendedAt, guestBootId, workload, keepsCommands = false, moved = null } = memory;
  try {
    const place = { directory, diskPath: diskPathOf(directory) };
    const { format, hasBase } = await driver.memory.describe(place, { memoryId, moved });
    const bytes = await allocated(memoryPathOf(directory));
    const base = hasBase ? await memoryBases.describe(memoryBasePathOf(directory), options) : null;
    return { memoryId, format, suspendedAt, guestBootId, workload, keepsCommands, bytes, base };
  } catch (error) {
    options.signal.throwIfAborted();
    log.warn({ machine: machineId, reason: messageOf(error) }, "the memory of a suspended machine cannot be moved");
    return null;
  }
}

/** The blocks of a part. Throws UnknownPoint, and ENOENT. */
export async function outgoingBlocks(
  machine: SupervisedMachine,
  part: MovedPart,
  signal: AbortSignal,
): Promise<AsyncIterable<Buffer>> {
  switch (part.kind) {
    case "rest":
      return writeMove(await begun(handOver(await watchable(machine), part)));
    case "memoryRounds":
      return writeMove(await begun(sendRounds(await watchable(machine), part.point)));
    case "diskRound": {
      const path = diskPathOf(machine.known.directory);
      const changed = await nextPoint(await watchable(machine), part, signal);
      return changed === null ? readBlocks(path, 0) : readExtents(path, changed);
    }
    case "file": {
      const { name, from, since } = part;
      const path = await outgoingPath(machine, name);
      await stat(path);
      return since === null
        ? readBlocks(path, from)
        : readExtents(path, await machine.known.leaving.changes.since(since, path));
    }
  }
}

/**
 * The machine while it runs and what it writes to its disk can be watched, so that its files may be sent
 * before it is stopped.
 */
async function watched(machine: SupervisedMachine): Promise<RunningMachine | null> {
  const running = await machine.running();
  return running === null || running.vm.watchDisk === null ? null : running;
}

async function watchable(machine: SupervisedMachine): Promise<RunningMachine> {
  const running = await watched(machine);
  if (running === null) throw new UnknownPoint(`machine ${machine.machineId} does not run`);
  if ((running.machine.journal.layers ?? []).length > 0)
    throw new UnknownPoint("the machine's disk is on top of those of branch points");
  return running;
}

/**
 * Begins a point of a disk, as `DiskChanges.next`. What its guest has written until now is in the file.
 * Throws UnknownPoint.
 */
async function nextPoint(
  { machine, vm, boot }: RunningMachine,
  next: NextPoint,
  signal: AbortSignal,
): Promise<readonly Extent[] | null> {
  // Otherwise its guest and this host would write it in the pause.
  const deadline = deadlineSignal(machine.deps.clock, SYNC_DEADLINE_MS, signal);
  await orAborted(vm.guest.sync(), deadline.signal)
    .catch(() => undefined)
    .finally(() => deadline.dispose());
  await syncToDisk(diskPathOf(machine.directory));
  signal.throwIfAborted();
  return await machine.leaving.changes.next(vm, boot, next);
}

/** The base that the memory of a running machine will have; null: none, or it cannot be suspended. */
const memoryBaseOf = async ({ machine, vm, boot }: RunningMachine): Promise<string | null> =>
  (await vm.memory?.base(boot, machine.directory).catch(() => null)) ?? null;

/**
 * The same records; rejects when the first one does. Also when nothing of it is read, their files are closed
 * when it ends.
 */
async function begun(records: AsyncIterable<MoveRecord>): Promise<AsyncIterable<MoveRecord>> {
  const iterator = records[Symbol.asyncIterator]();
  let first: IteratorResult<MoveRecord> | null = await iterator.next();
  const next = async (): Promise<IteratorResult<MoveRecord>> => {
    const record = first ?? (await iterator.next());
    first = null;
    return record;
  };
  const end = async (): Promise<IteratorResult<MoveRecord>> => {
    await iterator.return?.();
    return { done: true, value: undefined };
  };
  return { [Symbol.asyncIterator]: () => ({ next, return: end }) };
}

/**
 * The file to send. Throws UnknownPoint if the machine may change it; files that machines share never change.
 */
async function outgoingPath(machine: SupervisedMachine, name: string): Promise<string> {
  if (name === "root") return (await diskBase(machine.known)).root.rootPath;
  const running = name === "memory-base" ? await watched(machine) : null;
  if (running !== null) return (await memoryBaseOf(running)) ?? "";
  const { directory, journal, leaving } = machine.known;
  if (machine.atRest() !== null) {
    if (name !== "disk" || (journal.layers ?? []).length === 0) return movedPath(directory, name);
    const flat = await leaving.flat.find(diskPathOf(directory));
    if (flat !== null) return flat;
  }
  throw new UnknownPoint(`machine ${machine.machineId} is not stopped`);
}

/**
 * The image that the disk is made from, and the file that it is based on. Rejects when there is no disk.
 */
async function diskBase({
  disk,
  journal,
}: KnownMachine): Promise<{ readonly image: UnpackedImage; readonly root: RootFile }> {
  if (!journal.hasDisk) throw new Error(`machine ${journal.machineId} has no disk yet`);
  return { image: await disk.image(journal.imageDigest), root: await disk.root(journal.spec, journal) };
}

/** The path of a moved file in a machine's directory. */
export function movedPath(directory: string, name: string): string {
  if (name === "disk") return diskPathOf(directory);
  if (name === "memory") return memoryPathOf(directory);
  if (name === "memory-base") return memoryBasePathOf(directory);
  return join(logsPathOf(directory), name.slice("log-".length));
}

/** 0 for a file that is not there. */
export const allocated = (path: string): Promise<number> =>
  stat(path).then(
    ({ blocks }) => blocks * 512,
    () => 0,
  );

export function movedImage({ configuration, ...image }: UnpackedImage): MovedImage {
  const { env, workdir, user, entrypoint, command } = configuration;
  const { digest, arrivedAs, source, architecture, os, layerCount } = image;
  return { digest: arrivedAs ?? digest, source, architecture, os, layerCount, env, workdir, user, entrypoint, command };
}
