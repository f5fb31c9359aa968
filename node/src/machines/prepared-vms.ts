/**
 * The VMs that wait, prepared, for machines: keeps as many as prepared-plan.ts says, in the background.
 *
 * There are two sorts. Those of an image wait with a machine's new disk already mounted, for machines that have no disk
 * yet; the others wait without a disk, for machines that have one.
 *
 * Owns `<node directory>/prepared/`, a directory for each until a machine takes it. Their boots are among the live
 * ones, so the driver does not sweep them; no journal names them, so the next agent does. Leaves templates and
 * everything about QEMU to the driver.
 *
 * Always: one is prepared at a time, and none is begun while as many machines are being started as the host has
 * processors: whoever waits for a machine comes first. A VM may be taken from the moment it is prepared, at most once. One
 * that ends while it waits is forgotten. When preparing fails, that kind is tried again after a while, longer with each
 * failure, and the others have their turn meanwhile; machines boot without: slower, and otherwise the same. The log says so
 * once for each row of failures. Every VM that was prepared here and is no machine's has ended when `release` resolves.
 *
 * If the process dies, the next agent ends what is left (`sweep`) and `begin` removes the directories.
 */
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { randomBytes } from "node:crypto";
import { mkdir, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { MachineSpec, NodeResources } from "@flotilla/contract/link";
import type { Disks } from "../disks/disks.ts";
import { diskBytes, GIB } from "../disks/disks.ts";
import type { Driver, PreparedDisk, PreparedVm, PrepareRequest } from "../driver/driver.ts";
import type { Images, UnpackedImage } from "../images/images.ts";
import { patience } from "../host/patience.ts";
import { bootDirectoryName, DISK_NAME } from "./paths.ts";
import { DEMAND_MS, type Demand, READY_MAX, wantedPrepared } from "./prepared-plan.ts";

export interface PreparedVmsOptions {
  readonly directory: string;
  readonly driver: Driver;
  readonly images: Images;
  readonly disks: Disks;
  readonly clock: Clock;
  readonly log: Log;
  readonly liveBoots: Set<string>;
  readonly users: { take(): number; free(uid: number): void };
  readonly observeResources: () => Promise<NodeResources>;
}

/** What a first machine is most likely made of, and what VMs without a disk practise on. */
const FIRST_IMAGE = "local/busybox";
const LEAST_OF_FIRST_IMAGE = 3;
const LEAST_WITHOUT_DISK = 2;
const LOOK_MS = 2_000;
/** From a failure until the same kind is tried again: doubled with each further failure. */
const RETRY_MS_MIN = 10_000;
const RETRY_MS_MAX = 15 * 60_000;
/** A template may have to be made first. */
const PREPARE_DEADLINE_MS = 150_000;
/** Kinds whose demand is remembered, besides the first two. */
const KINDS_MAX = 8;

/** The parts of a machine that a VM for it depends on. */
type Size = Pick<MachineSpec, "cpus" | "memoryMb" | "diskGb">;

interface Kind extends Demand, Size {
  /** null: without a disk; `diskGb` says nothing then. */
  readonly image: UnpackedImage | null;
  readonly takenAt: number[];
  usedAt: number;
  readonly waiting: WaitingVm[];
  /** In a row. */
  failures: number;
  /** Monotonic milliseconds before which it is not tried again. */
  retryAt: number;
}

/** A VM that waits, and the disk it waits with. */
export interface WaitingVm {
  readonly vm: PreparedVm;
  readonly diskPath: string | null;
}

const DEFAULT_SIZE: Size = { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, diskGb: DISK_GB_DEFAULT };

export class PreparedVms {
  readonly #options: PreparedVmsOptions;
  /** In the order in which they are served. */
  readonly #kinds: Kind[] = [];
  #firstImage: UnpackedImage | null = null;
  readonly #stop = new AbortController();
  #wake = new AbortController();
  #running: Promise<void> = Promise.resolve();
  /** Boots of VMs that were prepared here, until a machine takes them or they have ended. */
  readonly #boots = new Set<string>();
  #startsUnderWay = 0;

  constructor(options: PreparedVmsOptions) {
    this.#options = options;
  }

  /** Starts keeping VMs ready. After unknown VMs have been swept away. */
  async begin(): Promise<void> {
    const { directory, driver, images } = this.#options;
    await rm(directory, { recursive: true, force: true });
    if (driver.prepare === null) return;
    await mkdir(directory, { mode: 0o711 });
    const image = (await images.find(FIRST_IMAGE, null)) ?? null;
    this.#firstImage = image;
    if (image !== null) this.#kinds.push(this.#makeKind(DEFAULT_SIZE, image, LEAST_OF_FIRST_IMAGE));
    this.#kinds.push(this.#makeKind(DEFAULT_SIZE, null, LEAST_WITHOUT_DISK));
    this.#running = this.#run();
  }

  /** Digests of the images on which disks of waiting VMs stand. */
  get imageDigests(): readonly string[] {
    return this.#kinds.flatMap(({ image, waiting }) => (image !== null && waiting.length > 0 ? [image.digest] : []));
  }

  /** A VM for a machine that has a disk, if one waits; notes that one was wanted. */
  take(size: Size): WaitingVm | undefined {
    return this.#take(size, null);
  }

  /** A VM with a new disk of the image, if one waits; notes that one was wanted. */
  takeWithDisk(size: Size, image: UnpackedImage): WaitingVm | undefined {
    return this.#take(size, image);
  }

  /** A machine is being started, until `started` is called. */
  starting(): void {
    this.#startsUnderWay += 1;
    this.#wake.abort();
  }

  started(): void {
    this.#startsUnderWay -= 1;
    this.#wake.abort();
  }

  /** Ends all that were prepared here and are no machine's. */
  async release(): Promise<void> {
    const { liveBoots, driver } = this.#options;
    this.#stop.abort(new Error("the node agent shuts down"));
    this.#wake.abort();
    await this.#running;
    await this.giveUp();
    if (this.#boots.size === 0) return;
    // Being discarded at this moment, or overlooked: no next agent is to find them.
    for (const bootId of this.#boots) liveBoots.delete(bootId);
    await driver.sweep(liveBoots);
  }

  /** Ends those that wait now. */
  async giveUp(): Promise<void> {
    for (const { vm } of this.#kinds.flatMap(({ waiting }) => waiting.splice(0))) await this.discard(vm);
  }

  /** Ends one that waits for nobody any more, also one that was taken and that no machine is to have. */
  async discard(vm: PreparedVm | undefined): Promise<void> {
    if (vm === undefined) return;
    // Also one that was taken: it is this object's again until it has ended.
    this.#boots.add(vm.bootId);
    await vm.discard();
    this.#boots.delete(vm.bootId);
    this.#options.liveBoots.delete(vm.bootId);
    this.#options.users.free(vm.uid);
  }

  #take(size: Size, image: UnpackedImage | null): WaitingVm | undefined {
    if (this.#options.driver.prepare === null) return undefined;
    const kind = this.#kind(size, image);
    kind.usedAt = this.#options.clock.monotonic();
    kind.takenAt.push(kind.usedAt);
    if (kind.takenAt.length > READY_MAX) kind.takenAt.shift();
    const waiting = kind.waiting.shift();
    if (waiting !== undefined) this.#boots.delete(waiting.vm.bootId);
    return waiting;
  }

  /** A kind that is wanted for the first time takes the place of the one that was made longest ago. */
  #kind(size: Size, image: UnpackedImage | null): Kind {
    const isSame = (kind: Kind): boolean =>
      kind.image?.digest === image?.digest &&
      kind.cpus === size.cpus &&
      kind.memoryMb === size.memoryMb &&
      (image === null || kind.diskGb === size.diskGb);
    const found = this.#kinds.find(isSame);
    if (found !== undefined) return found;
    const made = this.#makeKind(size, image, 0);
    const oldest = this.#kinds.findIndex(({ least }) => least === 0);
    if (this.#kinds.length >= KINDS_MAX && oldest >= 0) {
      for (const { waiting } of this.#kinds.splice(oldest, 1)) {
        for (const { vm } of waiting) void this.discard(vm);
      }
    }
    this.#kinds.push(made);
    return made;
  }

  #makeKind({ cpus, memoryMb, diskGb }: Size, image: UnpackedImage | null, least: number): Kind {
    const usedAt = this.#options.clock.monotonic();
    return { cpus, memoryMb, diskGb, image, least, usedAt, takenAt: [], waiting: [], failures: 0, retryAt: 0 };
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#stop.signal.aborted) {
      // Before the look: what changes meanwhile is looked at again.
      this.#wake = new AbortController();
      let delayMs = LOOK_MS;
      // What is prepared takes what starts leave of the processors; only its launcher takes a share like theirs.
      if (this.#startsUnderWay < availableParallelism()) {
        try {
          delayMs = (await this.#step()) ? 0 : LOOK_MS;
        } catch (error) {
          if (this.#stop.signal.aborted) return;
          log.warn({ reason: messageOf(error) }, "it could not be found out what to prepare");
          delayMs = RETRY_MS_MIN;
        }
      }
      if (delayMs === 0) continue;
      await clock.sleep(delayMs, AbortSignal.any([this.#wake.signal, this.#stop.signal]));
    }
  }

  /** Prepares or discards one. Returns whether there was something to do. */
  async #step(): Promise<boolean> {
    const { clock, observeResources } = this.#options;
    const now = clock.monotonic();
    for (const { takenAt } of this.#kinds) while (now - (takenAt[0] ?? now) > DEMAND_MS) takenAt.shift();
    const { totalMemoryMb, availableMemoryMb } = await observeResources();
    const demands = this.#kinds;
    const waiting = demands.reduce((sum, kind) => sum + kind.waiting.length, 0);
    const wanted = wantedPrepared({ now, demands, totalMemoryMb, availableMemoryMb, waiting });
    const missing = (kind: Kind, index: number): number => (wanted[index] ?? 0) - kind.waiting.length;
    const tooMany = this.#kinds.find((kind, index) => missing(kind, index) < 0);
    if (tooMany !== undefined) {
      await this.discard(tooMany.waiting.pop()?.vm);
      return true;
    }
    const tooFew = this.#kinds.find((kind, index) => missing(kind, index) > 0 && now >= kind.retryAt);
    if (tooFew !== undefined) await this.#try(tooFew);
    return tooFew !== undefined;
  }

  /** Rejects only when the agent shuts down. */
  async #try(kind: Kind): Promise<void> {
    const { clock, log } = this.#options;
    try {
      await this.#prepare(kind);
      kind.failures = 0;
    } catch (error) {
      this.#stop.signal.throwIfAborted();
      const delayMs = Math.min(RETRY_MS_MIN * 2 ** kind.failures, RETRY_MS_MAX);
      kind.failures += 1;
      kind.retryAt = clock.monotonic() + delayMs;
      const { cpus, memoryMb, image } = kind;
      const facts = { cpus, memoryMb, image: image?.reference, reason: messageOf(error), delayMs };
      log[kind.failures === 1 ? "warn" : "debug"](facts, "a VM could not be prepared; machines boot without");
    }
  }

  async #prepare(kind: Kind): Promise<void> {
    const { directory, driver, clock, log, liveBoots, users } = this.#options;
    const bootId = makeBootId();
    const bootDirectory = join(directory, bootDirectoryName(bootId));
    const uid = users.take();
    liveBoots.add(bootId);
    this.#boots.add(bootId);
    const deadline = new AbortController();
    const timer = clock.timer(PREPARE_DEADLINE_MS * patience(), () =>
      deadline.abort(new Error("preparing took too long")),
    );
    try {
      await mkdir(bootDirectory, { mode: 0o700 });
      const startedAt = clock.monotonic();
      const { cpus, memoryMb } = kind;
      const disk = await this.#ownDisk(kind, bootDirectory, uid);
      const image = this.#firstImage;
      const makeScratchDisk = image && (() => this.#makeDisk(image, DISK_GB_DEFAULT, { bootDirectory, uid }));
      const request = { bootId, bootDirectory, cpus, memoryMb, uid, disk, makeScratchDisk };
      const vm = await driver.prepare?.(request, AbortSignal.any([deadline.signal, this.#stop.signal]));
      if (vm === undefined) return;
      log.debug({ boot: bootId, ms: Math.round(clock.monotonic() - startedAt) }, "a VM was prepared");
      await this.#keep(kind, { vm, diskPath: disk?.path ?? null });
    } catch (error) {
      this.#boots.delete(bootId);
      liveBoots.delete(bootId);
      users.free(uid);
      await rm(bootDirectory, { recursive: true, force: true });
      throw error;
    } finally {
      timer.cancel();
    }
  }

  async #keep(kind: Kind, waiting: WaitingVm): Promise<void> {
    // While it was made, another kind may have taken the place of its own, or the agent may have begun to shut down.
    if (!this.#kinds.includes(kind) || this.#stop.signal.aborted) return await this.discard(waiting.vm);
    kind.waiting.push(waiting);
    void waiting.vm.exited.then(() => {
      const at = kind.waiting.indexOf(waiting);
      if (at < 0) return;
      kind.waiting.splice(at, 1);
      void this.discard(waiting.vm);
    });
  }

  /** The disk that VMs of the kind wait with, made in the VM's own directory; null: they have none. */
  async #ownDisk(kind: Kind, bootDirectory: string, uid: number): Promise<PreparedDisk | null> {
    return kind.image === null ? null : await this.#makeDisk(kind.image, kind.diskGb, { bootDirectory, uid });
  }

  async #makeDisk(
    image: UnpackedImage,
    diskGb: number,
    { bootDirectory, uid }: Pick<PrepareRequest, "bootDirectory" | "uid">,
  ): Promise<PreparedDisk> {
    const { images, disks } = this.#options;
    const root = await images.rootFor(image, diskGb * GIB);
    const path = join(bootDirectory, DISK_NAME);
    await disks.make({ diskPath: path, root, diskGb, uid });
    const { user } = image.configuration;
    return { path, backingPaths: [root.rootPath], bytes: diskBytes(diskGb, root.rootBytes), user };
  }
}

/** A new boot's id. */
export function makeBootId(): string {
  return `boot-${randomBytes(16).toString("hex")}`;
}
