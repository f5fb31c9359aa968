/**
 * VMs that wait for machines which run on another node: they take the memory while it is sent in rounds, and
 * in the machine's pause what has changed since, its disk's last blocks and its devices. Then the machine is
 * here, paused until the server says that it is to run.
 *
 * Always:
 * - A VM waits for at most WAIT_MS without a request, and ends with the move, whatever ends that.
 * - Memory that was not received to its end is never run: every fault ends the VM, and what it may have done
 *   to the disk is removed.
 * - The machine comes into being as a whole: its journal is in the directory that gets the machine's name by
 *   one rename.
 *
 * A crash before that leaves a VM that is in no journal, which the next agent ends. After it, the journal
 * says that the machine is paused.
 */
import { chmod, mkdir, open, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { DriverLive, WaitingVm } from "../driver/driver.ts";
import { syncToDisk } from "../host/sync-to-disk.ts";
import { type MoveRecord, readMove } from "../memory/move-stream.ts";
import { PAGE_BYTES, RECORD_PAGES_MAX } from "../memory/memory-file.ts";
import { makeBootId } from "../machines/boot-vm.ts";
import { UnknownPoint } from "../machines/disk-changes.ts";
import type { Fleet } from "../machines/fleet.ts";
import { type Journal, JournalFile } from "../machines/journal.ts";
import type { ArrivalFacts } from "./hand-over.ts";
import type { MachineDeps } from "../machines/machine-deps.ts";
import { bootDirectoryName, bootsPathOf, diskPathOf, logsPathOf, memoryBasePathOf } from "../machines/paths.ts";

/** The server asks for the rest at once, unless it died. */
const WAIT_MS = 2 * 60_000;
const START_MS = 60_000;
const CPUS_MAX = 1024;
const MEMORY_MB_MAX = 2 ** 24;
const WORKLOAD_MAX = 10_000;

/** A move, and where what comes with it is. */
export interface Arrival {
  readonly move: string;
  readonly machineId: string;
  /** The directory that becomes the machine's. */
  readonly staging: string;
  readonly earlyDiskPath: string;
  readonly rootPath: string;
  /** Whether the guest's memory differs from a file, which is in `staging`. */
  readonly hasBase: boolean;
  /** The machine's journal but for its boot. */
  readonly journal: Omit<Journal, "uid" | "boot">;
}

interface Waiting {
  readonly vm: WaitingVm;
  readonly bootId: string;
  readonly journal: Journal;
  /** The id of the rounds, when all of them have arrived. */
  point: string | null;
  timer: Timer | null;
}

export interface LiveArrivalsOptions {
  readonly fleet: Fleet;
  readonly deps: MachineDeps;
  readonly live: DriverLive;
  readonly log: Log;
}

export class LiveArrivals {
  readonly #options: LiveArrivalsOptions;
  readonly #waiting = new Map<string, Waiting>();

  constructor(options: LiveArrivalsOptions) {
    this.#options = options;
  }

  /** Ends the VM that waits for a machine. */
  async discard(move: string): Promise<void> {
    const waiting = this.#waiting.get(move);
    if (waiting === undefined) return;
    this.#waiting.delete(move);
    waiting.timer?.cancel();
    await waiting.vm.kill();
    this.#forget(waiting);
  }

  #forget({ bootId, journal }: Pick<Waiting, "bootId" | "journal">): void {
    const { liveBoots, users } = this.#options.deps;
    liveBoots.delete(bootId);
    users.free(journal.uid);
  }

  /** Starts a VM and writes the rounds of memory into it. The VM then waits for `finish`. */
  async receiveRounds(
    arrival: Arrival,
    point: string,
    stream: AsyncIterable<Buffer>,
    onBytes: (bytes: number) => void,
  ): Promise<void> {
    const { move, staging } = arrival;
    await this.discard(move);
    await rm(bootsPathOf(staging), { recursive: true, force: true });
    await rm(logsPathOf(staging), { recursive: true, force: true });
    await mkdir(logsPathOf(staging), { recursive: true, mode: 0o700 });
    try {
      let waiting: Waiting | null = null;
      for await (const record of readMove(stream)) {
        if (record.kind === "facts" && waiting === null) waiting = await this.#start(arrival, factsIn(record.bytes));
        else if (waiting === null) throw new Error("a machine's memory begins without what it is");
        else await writeRecord(record, { vm: waiting.vm, staging, onBytes });
      }
      if (waiting === null) throw new Error("a machine's memory is empty");
      // Its timer would end the next one.
      if (this.#waiting.get(move) !== waiting) throw new Error("the VM that waited has ended");
      waiting.point = point;
      waiting.timer = this.#options.deps.clock.timer(WAIT_MS, () => void this.discard(move).catch(() => undefined));
    } catch (error) {
      await this.discard(move);
      throw error;
    }
  }

  async #start(arrival: Arrival, facts: ArrivalFacts): Promise<Waiting> {
    const { users, liveBoots, ensureMemoryRoom } = this.#options.deps;
    const { move, machineId, staging, earlyDiskPath: diskPath, rootPath, hasBase } = arrival;
    await ensureMemoryRoom();
    const { cpus, memoryMb, diskBytes, guestBootId, workload } = facts;
    const bootId = makeBootId();
    const bootDirectory = join(bootsPathOf(staging), bootDirectoryName(bootId));
    await mkdir(bootDirectory, { recursive: true, mode: 0o700 });
    const basePath = hasBase ? memoryBasePathOf(staging) : null;
    // VMMs of other users map it.
    if (basePath !== null) await chmod(basePath, 0o444);
    const uid = users.take();
    liveBoots.add(bootId);
    const request = { machineId, bootId, bootDirectory, cpus, memoryMb, diskPath, diskBytes, uid };
    const signal = AbortSignal.timeout(START_MS);
    try {
      const vm = await this.#options.live.receive({ ...request, backingPaths: [rootPath] }, basePath, signal);
      const boot = {
        bootId,
        record: vm.record,
        runningSince: null,
        timings: null,
        guestBootId,
        workload,
        isPaused: true,
      };
      const journal: Journal = { ...arrival.journal, uid, boot };
      const waiting: Waiting = { vm, bootId, journal, point: null, timer: null };
      this.#waiting.set(move, waiting);
      void vm.exited.then(async () => {
        if (this.#waiting.get(move) === waiting) await this.discard(move);
      });
      return waiting;
    } catch (error) {
      if (!this.#waiting.has(move)) this.#forget({ bootId, journal: { ...arrival.journal, uid, boot: null } });
      throw error;
    }
  }

  /**
   * Takes the rest, and makes it a machine of this node, which is paused. Resolves with when the source
   * paused it. Throws UnknownPoint when these rounds have not arrived. When it rejects otherwise, the early
   * disk is to be removed.
   */
  async finish(
    arrival: Arrival,
    point: string,
    stream: AsyncIterable<Buffer>,
    onBytes: (bytes: number) => void,
  ): Promise<number> {
    const { move, machineId, staging, earlyDiskPath, rootPath } = arrival;
    const waiting = this.#waiting.get(move);
    if (waiting === undefined || waiting.point !== point)
      throw new UnknownPoint("no VM waits for the rest of this machine");
    waiting.timer?.cancel();
    waiting.point = null;
    const { vm, bootId } = waiting;
    const journal = { ...waiting.journal, generation: arrival.journal.generation };
    const { fleet, deps } = this.#options;
    const directory = join(deps.machinesDirectory, machineId);
    try {
      const { state, pausedAt } = await this.#receiveRest(stream, { vm, staging, diskPath: earlyDiskPath, onBytes });
      await deps.disks.rebase({ diskPath: earlyDiskPath, directory, rootPath });
      await rename(earlyDiskPath, diskPathOf(staging));
      const saved = new JournalFile(staging).save(journal).then(() => syncToDisk(staging));
      const [paused] = await Promise.all([vm.load(state), syncToDisk(diskPathOf(staging)), saved]);
      // It may have ended or been discarded meanwhile.
      if (this.#waiting.get(move) !== waiting) throw new Error("the VM that waited has ended");
      const onAdded = (): void => {
        this.#waiting.delete(move);
        vm.moved(join(bootsPathOf(directory), bootDirectoryName(bootId)));
      };
      await fleet.admit(journal, staging, { paused, onAdded });
      return pausedAt;
    } catch (error) {
      await this.discard(move);
      for (const path of [earlyDiskPath, diskPathOf(staging)]) await rm(path, { force: true });
      this.#options.log.warn({ machine: machineId, reason: messageOf(error) }, "a machine that ran did not arrive");
      throw error;
    }
  }

  /**
   * Resolves with the state of the devices and the moment of the pause, when all of it has arrived and its
   * checksum fits.
   */
  async #receiveRest(
    stream: AsyncIterable<Buffer>,
    { diskPath, ...place }: RecordPlace & { readonly diskPath: string },
  ): Promise<{ readonly state: Buffer; readonly pausedAt: number }> {
    let pausedAt = Number.NaN;
    let state: Buffer | null = null;
    let size: number | null = null;
    await using disk = await open(diskPath, "r+");
    for await (const record of readMove(stream)) {
      if (record.kind === "state") state = Buffer.from(record.bytes);
      else if (record.kind === "facts") pausedAt = pauseIn(record.bytes);
      else if (record.kind === "disk") size = record.size;
      else if (record.kind === "block") {
        await disk.write(record.bytes, 0, record.bytes.byteLength, record.offset);
        place.onBytes(record.bytes.byteLength);
      } else await writeRecord(record, place);
    }
    if (state === null || size === null || Number.isNaN(pausedAt))
      throw new Error("the rest of a machine is incomplete");
    await disk.truncate(size);
    return { state, pausedAt };
  }
}

interface RecordPlace {
  readonly vm: WaitingVm;
  readonly staging: string;
  readonly onBytes: (bytes: number) => void;
}

async function writeRecord(record: MoveRecord, { vm, staging, onBytes }: RecordPlace): Promise<void> {
  switch (record.kind) {
    case "page":
      vm.write({ kind: "data", offset: record.offset, bytes: record.bytes });
      return onBytes(record.bytes.byteLength);
    case "zero":
      for (let done = 0; done < record.length; done += RECORD_PAGES_MAX * PAGE_BYTES) {
        const pages = Math.min(RECORD_PAGES_MAX, (record.length - done) / PAGE_BYTES);
        vm.write({ kind: "zero", offset: record.offset + done, pages });
      }
      return;
    case "log": {
      const path = join(logsPathOf(staging), String(record.file));
      if (record.offset === 0) await writeFile(path, record.bytes, { mode: 0o600 });
      else {
        await using file = await open(path, "r+");
        await file.write(record.bytes, 0, record.bytes.byteLength, record.offset);
      }
      return onBytes(record.bytes.byteLength);
    }
    default:
      throw new Error(`a record of kind ${record.kind} is in the wrong place`);
  }
}

/** Throws for what is none. */
function pauseIn(bytes: Buffer): number {
  const { pausedAt } = JSON.parse(bytes.toString()) as { readonly pausedAt?: unknown };
  if (!Number.isSafeInteger(pausedAt)) throw new Error("when a machine was paused cannot be read");
  return Number(pausedAt);
}

/** Throws for what is none. */
function factsIn(bytes: Buffer): ArrivalFacts {
  const { cpus, memoryMb, diskBytes, guestBootId, workload } = JSON.parse(bytes.toString()) as Partial<ArrivalFacts>;
  const isWhole = (value: unknown, max: number): value is number =>
    Number.isSafeInteger(value) && Number(value) > 0 && Number(value) <= max;
  const isCommand = (value: unknown): value is readonly string[] =>
    Array.isArray(value) && value.length <= WORKLOAD_MAX && value.every((each) => typeof each === "string");
  if (
    !isWhole(cpus, CPUS_MAX) ||
    !isWhole(memoryMb, MEMORY_MB_MAX) ||
    !isWhole(diskBytes, Number.MAX_SAFE_INTEGER) ||
    typeof guestBootId !== "string" ||
    !/^boot-[0-9a-f]{32}$/.test(guestBootId)
  )
    throw new Error("what a machine is cannot be read");
  return { cpus, memoryMb, diskBytes, guestBootId, workload: isCommand(workload) ? workload : null };
}
