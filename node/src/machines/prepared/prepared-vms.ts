/**
 * The pool of prepared VMs. In the background it keeps as many of each kind (kinds.ts) as demand and
 * memory call for (plan.ts).
 *
 * Owns `<node directory>/prepared/`, with a directory for each VM until a machine takes it. Their boots are
 * live, so this agent's driver does not sweep them. No journal names them, so the next agent's driver does.
 * Templates and everything about QEMU are the driver's.
 *
 * Always:
 * - One VM is prepared at a time, and none while as many machines are starting as the host has processors:
 *   starts come first.
 * - A VM can be taken from the moment it is prepared, once. A VM that ends before is dropped.
 * - A kind that failed is tried again after a pause that grows with each failure; other kinds come first.
 *   Machines then boot without a prepared VM: slower, otherwise the same. The first of consecutive failures
 *   is logged as a warning.
 * - When `release` resolves, every VM that was prepared here and that no machine took has ended.
 *
 * If the process dies, the next agent ends the VMs (`sweep`) and `begin` removes the directories.
 */
import { mkdir, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { messageOf } from "@flotilla/base/errors";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { NodeResources } from "@flotilla/contract/link/link";
import type { PreparedVm } from "../../driver/driver.ts";
import type { UnpackedImage } from "../../images/images.ts";
import { type PrepareVmOptions, prepareVm } from "./prepare-vm.ts";
import { type Kind, PreparedKinds, RETRY_MS_MIN, type Size, type Taker, type WaitingVm } from "./kinds.ts";

export interface PreparedVmsOptions extends PrepareVmOptions {
  readonly observeResources: () => Promise<NodeResources>;
}

/** The likely image of a first machine, and the scratch image on which VMs without a disk are rehearsed. */
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

  /** Starts to prepare VMs. Call it after unknown VMs have been swept. */
  async begin(): Promise<void> {
    const { directory, driver, images, clock, log } = this.#options;
    await rm(directory, { recursive: true, force: true }).catch((error: unknown) =>
      log.warn({ reason: messageOf(error) }, "what an earlier agent left of prepared VMs cannot be removed"),
    );
    if (driver.prepare === null) return;
    await mkdir(directory, { recursive: true, mode: 0o711 });
    const image = (await images.find(FIRST_IMAGE, null)) ?? null;
    this.#firstImage = image;
    const now = clock.monotonic();
    if (image !== null) this.#kinds.keep(DEFAULT_SIZE, image, FIRST_IMAGE_MINIMUM, now);
    this.#kinds.keep(DEFAULT_SIZE, null, WITHOUT_DISK_MINIMUM, now);
    this.#running = this.#run();
  }

  /** Digests of the images that the disks of prepared VMs depend on. */
  get imageDigests(): readonly string[] {
    return this.#kinds.imageDigests;
  }

  /** A VM for a machine that has a disk, if one is prepared; counts as demand. */
  take(machine: Taker): WaitingVm | undefined {
    return this.#take(machine, null);
  }

  /** A VM with a new disk of the image, if one is prepared; counts as demand. */
  takeWithDisk(machine: Taker, image: UnpackedImage): WaitingVm | undefined {
    return this.#take(machine, image);
  }

  /** A machine is being started, until `started` is called. */
  starting(): void {
    this.#startsUnderWay += 1;
    this.#wake.abort();
  }

  started(machineId: string): void {
    this.#startsUnderWay -= 1;
    this.#kinds.started(machineId, this.#options.clock.monotonic());
    this.#wake.abort();
  }

  /** Ends all VMs that were prepared here and that no machine took. */
  async release(): Promise<void> {
    const { liveBoots, driver } = this.#options;
    this.#stop.abort(new Error("the node agent shuts down"));
    this.#wake.abort();
    await this.#running;
    await this.discardWaiting();
    if (this.#boots.size === 0) return;
    // Being discarded at this moment, or overlooked: they must not outlive this agent.
    for (const bootId of this.#boots) liveBoots.delete(bootId);
    await driver.sweep(liveBoots);
  }

  /** Ends the VMs that are prepared now. */
  async discardWaiting(): Promise<void> {
    for (const { vm } of this.#kinds.takeAll()) await this.discard(vm);
  }

  /**
   * Ends a VM that is not needed, also one that was taken and not used. Never rejects: what cannot be ended
   * now is when the agent ends.
   */
  async discard(vm: PreparedVm | undefined): Promise<void> {
    if (vm === undefined) return;
    // One that was taken belongs to the pool again until it has ended.
    this.#boots.add(vm.bootId);
    try {
      await vm.discard();
    } catch (error) {
      const facts = { boot: vm.bootId, reason: messageOf(error) };
      return this.#options.log.warn(facts, "a prepared VM, or its directory, cannot be removed");
    }
    this.#boots.delete(vm.bootId);
    this.#options.liveBoots.delete(vm.bootId);
    this.#options.users.free(vm.uid);
  }

  #take({ machineId, cpus, memoryMb, diskGb }: Taker, image: UnpackedImage | null): WaitingVm | undefined {
    if (this.#options.driver.prepare === null) return undefined;
    const taker = { machineId, cpus, memoryMb, diskGb };
    const { taken, displaced } = this.#kinds.take(taker, image, this.#options.clock.monotonic());
    for (const { vm } of displaced) void this.discard(vm);
    if (taken !== undefined) this.#boots.delete(taken.vm.bootId);
    return taken;
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#stop.signal.aborted) {
      // Set before the check, so that a change during it causes another one.
      this.#wake = new AbortController();
      let delayMs = CHECK_MS;
      // Preparing runs at idle priority; only its launcher has the same priority as starts.
      if (this.#startsUnderWay < availableParallelism()) {
        try {
          delayMs = (await this.#step()) ? 0 : CHECK_MS;
        } catch (error) {
          if (this.#stop.signal.aborted) return;
          log.warn({ reason: messageOf(error) }, "the resources of the host could not be read, so no VM is prepared");
          delayMs = RETRY_MS_MIN;
        }
      }
      if (delayMs === 0) continue;
      await clock.sleep(delayMs, AbortSignal.any([this.#wake.signal, this.#stop.signal]));
    }
  }

  /** Prepares or discards one VM. Returns whether there was something to do. */
  async #step(): Promise<boolean> {
    const { clock, observeResources } = this.#options;
    const { pressure, ...memory } = await observeResources();
    const facts = { ...memory, processorPressure: pressure?.cpu.some ?? null };
    const next = this.#kinds.next(facts, clock.monotonic());
    if (next.kind === "discard") await this.discard(next.vm);
    if (next.kind === "prepare") await this.#try(next.of);
    return next.kind !== "nothing";
  }

  /** Prepares a VM. Rejects only when the agent shuts down. */
  async #try(kind: Kind): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#stop;
    const startedAt = clock.monotonic();
    try {
      const waiting = await prepareVm(kind, this.#firstImage, { ...this.#options, signal });
      if (waiting !== undefined) await this.#keep(kind, waiting);
      this.#kinds.succeeded(kind, clock.monotonic() - startedAt);
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
    // In the meantime another kind may have displaced this one, or the agent may have begun to shut down.
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
