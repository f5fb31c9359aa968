/**
 * The VMs that wait, prepared, for machines: keeps as many of each kind (prepared-kinds.ts) as demand and memory allow
 * (prepared-plan.ts), in the background.
 *
 * Owns `<node directory>/prepared/`, a directory for each until a machine takes it. Their boots are among the live
 * ones, so the driver does not sweep them; no journal names them, so the next agent does. Leaves templates and
 * everything about QEMU to the driver.
 *
 * Always: one is prepared at a time, and none is begun while as many machines are being started as the host has
 * processors: starts come first. A VM may be taken from the moment it is prepared, at most once. One
 * that ends while it waits is forgotten. When preparing fails, that kind is tried again after a while, longer with each
 * failure, and the others have their turn meanwhile; machines boot without: slower, and otherwise the same. The log says so
 * once for each row of failures. Every VM that was prepared here and is no machine's has ended when `release` resolves.
 *
 * If the process dies, the next agent ends what is left (`sweep`) and `begin` removes the directories.
 */
import { mkdir, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { messageOf } from "@flotilla/base/errors";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { NodeResources } from "@flotilla/contract/link";
import type { PreparedVm } from "../driver/driver.ts";
import type { UnpackedImage } from "../images/images.ts";
import { type PrepareVmOptions, prepareVm } from "./prepare-vm.ts";
import { type Kind, PreparedKinds, RETRY_MS_MIN, type Size, type WaitingVm } from "./prepared-kinds.ts";

export interface PreparedVmsOptions extends PrepareVmOptions {
  readonly observeResources: () => Promise<NodeResources>;
}

/** What a first machine is most likely made of, and what VMs without a disk may practise on. */
const FIRST_IMAGE = "local/busybox";
const FIRST_IMAGE_MINIMUM = 3;
const WITHOUT_DISK_MINIMUM = 2;
const CHECK_MS = 2_000;
const DEFAULT_SIZE: Size = { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, diskGb: DISK_GB_DEFAULT };

export class PreparedVms {
  readonly #options: PreparedVmsOptions;
  readonly #kinds = new PreparedKinds();
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
    const { directory, driver, images, clock } = this.#options;
    await rm(directory, { recursive: true, force: true });
    if (driver.prepare === null) return;
    await mkdir(directory, { mode: 0o711 });
    const image = (await images.find(FIRST_IMAGE, null)) ?? null;
    this.#firstImage = image;
    const now = clock.monotonic();
    if (image !== null) this.#kinds.keep(DEFAULT_SIZE, image, FIRST_IMAGE_MINIMUM, now);
    this.#kinds.keep(DEFAULT_SIZE, null, WITHOUT_DISK_MINIMUM, now);
    this.#running = this.#run();
  }

  /** Digests of the images on which disks of waiting VMs stand. */
  get imageDigests(): readonly string[] {
    return this.#kinds.imageDigests;
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
    await this.discardWaiting();
    if (this.#boots.size === 0) return;
    // Being discarded at this moment, or overlooked: no next agent is to find them.
    for (const bootId of this.#boots) liveBoots.delete(bootId);
    await driver.sweep(liveBoots);
  }

  /** Ends those that wait now. */
  async discardWaiting(): Promise<void> {
    for (const { vm } of this.#kinds.takeAll()) await this.discard(vm);
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
    const { taken, displaced } = this.#kinds.take(size, image, this.#options.clock.monotonic());
    for (const { vm } of displaced) void this.discard(vm);
    if (taken !== undefined) this.#boots.delete(taken.vm.bootId);
    return taken;
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#stop.signal.aborted) {
      // Before the look: what changes meanwhile is looked at again.
      this.#wake = new AbortController();
      let delayMs = CHECK_MS;
      // What is prepared takes what starts leave of the processors; only its launcher takes a share like theirs.
      if (this.#startsUnderWay < availableParallelism()) {
        try {
          delayMs = (await this.#step()) ? 0 : CHECK_MS;
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
    const resources = await observeResources();
    const next = this.#kinds.next(resources, clock.monotonic());
    if (next.kind === "discard") await this.discard(next.vm);
    if (next.kind === "prepare") await this.#try(next.of);
    return next.kind !== "nothing";
  }

  /** Rejects only when the agent shuts down. */
  async #try(kind: Kind): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#stop;
    try {
      const waiting = await prepareVm(kind, this.#firstImage, { ...this.#options, signal });
      if (waiting !== undefined) await this.#keep(kind, waiting);
      this.#kinds.succeeded(kind);
    } catch (error) {
      signal.throwIfAborted();
      const delayMs = this.#kinds.failed(kind, clock.monotonic());
      const { cpus, memoryMb, image } = kind;
      const facts = { cpus, memoryMb, image: image?.reference, reason: messageOf(error), delayMs };
      log[kind.failures === 1 ? "warn" : "debug"](facts, "a VM could not be prepared; machines boot without");
    }
  }

  async #keep(kind: Kind, waiting: WaitingVm): Promise<void> {
    this.#boots.add(waiting.vm.bootId);
    // While it was made, another kind may have taken the place of its own, or the agent may have begun to shut down.
    if (!this.#kinds.has(kind) || this.#stop.signal.aborted) return await this.discard(waiting.vm);
    kind.waiting.push(waiting);
    void waiting.vm.exited.then(() => {
      const at = kind.waiting.indexOf(waiting);
      if (at < 0) return;
      kind.waiting.splice(at, 1);
      void this.discard(waiting.vm);
    });
  }
}
