/**
 * The VMs that wait, prepared, for machines: keeps as many as prepared-plan.ts says, in the background.
 *
 * Owns `<node directory>/prepared/`, a directory for each until a machine takes it, and the disk they warm up with.
 * Their boots are among the live ones, so the driver does not sweep them; no journal names them, so the next agent
 * does. Leaves templates and everything about QEMU to the driver.
 *
 * Always: one is prepared at a time, and none while machines are being started: whoever waits for a machine comes
 * first. A VM is taken at most once. One that ends while it waits is forgotten. When preparing fails it is tried again
 * after a while, and machines boot without: slower, and otherwise the same.
 *
 * If the process dies, the next agent ends what is left (`sweep`) and `begin` removes the directories.
 */
import { randomBytes } from "node:crypto";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { CPUS_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { NodeResources } from "@flotilla/contract/link";
import type { Clock } from "../clock.ts";
import type { Driver, PreparedVm, PrepareRequest } from "../driver/driver.ts";
import { type Log, messageOf } from "../log.ts";
import { DEMAND_MS, READY_MAX, type SizeDemand, type VmSize, wantedPrepared } from "./prepared-plan.ts";
import { bootDirectoryName } from "./surroundings.ts";

export interface PreparedVmsOptions {
  readonly directory: string;
  readonly driver: Driver;
  readonly clock: Clock;
  readonly log: Log;
  readonly liveBoots: Set<string>;
  readonly users: { take(): number; free(uid: number): void };
  readonly warmUpDisk: () => Promise<PrepareRequest["warmUpDisk"]>;
  readonly observeResources: () => Promise<NodeResources>;
}

/** After the last start, before the background goes on. */
const QUIET_MS = 150;
const LOOK_MS = 2_000;
const RETRY_MS = 30_000;
const PREPARE_DEADLINE_MS = 60_000;
/** Sizes whose demand is remembered, besides the default. */
const SIZES_MAX = 5;

interface Size extends SizeDemand {
  readonly takenAt: number[];
  readonly waiting: PreparedVm[];
}

export class PreparedVms {
  readonly #options: PreparedVmsOptions;
  readonly #sizes: Size[] = [{ cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, takenAt: [], waiting: [] }];
  readonly #stop = new AbortController();
  #wake = new AbortController();
  #running: Promise<void> = Promise.resolve();
  #startsUnderWay = 0;
  #lastStartAt = Number.NEGATIVE_INFINITY;

  constructor(options: PreparedVmsOptions) {
    this.#options = options;
  }

  /** Starts keeping VMs ready. After unknown VMs have been swept away. */
  async begin(): Promise<void> {
    const { directory, driver } = this.#options;
    await rm(directory, { recursive: true, force: true });
    if (driver.prepare === null) return;
    await mkdir(directory, { mode: 0o711 });
    this.#running = this.#run();
  }

  get waiting(): number {
    return this.#sizes.reduce((sum, size) => sum + size.waiting.length, 0);
  }

  /** A VM of this size, if one waits; notes that one was wanted. Call `started` when the machine's start has ended. */
  take({ cpus, memoryMb }: VmSize): PreparedVm | undefined {
    const size = this.#size(cpus, memoryMb);
    this.#startsUnderWay += 1;
    size.takenAt.push(this.#options.clock.monotonic());
    if (size.takenAt.length > READY_MAX) size.takenAt.shift();
    return size.waiting.shift();
  }

  started(): void {
    this.#startsUnderWay -= 1;
    this.#lastStartAt = this.#options.clock.monotonic();
    this.#wake.abort();
  }

  /** Ends all that wait. */
  async release(): Promise<void> {
    this.#stop.abort();
    this.#wake.abort();
    await this.#running;
    await Promise.all(this.#sizes.flatMap(({ waiting }) => waiting.splice(0).map((vm) => this.#discard(vm))));
  }

  /** The default size stays first; of the others those that were wanted last are remembered. */
  #size(cpus: number, memoryMb: number): Size {
    const found = this.#sizes.find((size) => size.cpus === cpus && size.memoryMb === memoryMb);
    if (found !== undefined) return found;
    const made: Size = { cpus, memoryMb, takenAt: [], waiting: [] };
    this.#sizes.splice(1, 0, made);
    for (const { waiting } of this.#sizes.splice(SIZES_MAX + 1)) for (const vm of waiting) void this.#discard(vm);
    return made;
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#stop.signal.aborted) {
      const quietMs = this.#lastStartAt + QUIET_MS - clock.monotonic();
      let delayMs = this.#startsUnderWay > 0 ? LOOK_MS : Math.max(0, quietMs);
      if (delayMs === 0) {
        try {
          delayMs = (await this.#step()) ? 0 : LOOK_MS;
        } catch (error) {
          if (this.#stop.signal.aborted) return;
          log.warn({ reason: messageOf(error) }, "a VM could not be prepared; machines boot without");
          delayMs = RETRY_MS;
        }
      }
      if (delayMs === 0) continue;
      this.#wake = new AbortController();
      await clock.sleep(delayMs, AbortSignal.any([this.#wake.signal, this.#stop.signal]));
    }
  }

  /** Prepares or discards one. Returns whether there was something to do. */
  async #step(): Promise<boolean> {
    const { clock, observeResources } = this.#options;
    const now = clock.monotonic();
    for (const { takenAt } of this.#sizes) while (now - (takenAt[0] ?? now) > DEMAND_MS) takenAt.shift();
    const { totalMemoryMb, availableMemoryMb } = await observeResources();
    const demands = this.#sizes;
    const wanted = wantedPrepared({ now, demands, totalMemoryMb, availableMemoryMb, waiting: this.waiting });
    for (const [index, size] of this.#sizes.entries()) {
      const surplus = size.waiting.length - (wanted[index] ?? 0);
      if (surplus > 0) {
        const vm = size.waiting.pop();
        if (vm !== undefined) await this.#discard(vm);
        return true;
      }
    }
    const size = this.#sizes.find(({ waiting }, index) => waiting.length < (wanted[index] ?? 0));
    if (size === undefined) return false;
    await this.#prepare(size);
    return true;
  }

  async #prepare(size: Size): Promise<void> {
    const { directory, driver, clock, log, liveBoots, users, warmUpDisk } = this.#options;
    const bootId = makeBootId();
    const bootDirectory = join(directory, bootDirectoryName(bootId));
    const uid = users.take();
    liveBoots.add(bootId);
    const deadline = new AbortController();
    const timer = clock.timer(PREPARE_DEADLINE_MS, () => deadline.abort(new Error("preparing took too long")));
    try {
      await mkdir(bootDirectory, { mode: 0o700 });
      const startedAt = clock.monotonic();
      const { cpus, memoryMb } = size;
      const request = { bootId, bootDirectory, cpus, memoryMb, uid, warmUpDisk: await warmUpDisk() };
      const vm = await driver.prepare?.(request, AbortSignal.any([deadline.signal, this.#stop.signal]));
      if (vm === undefined) return;
      log.debug({ boot: bootId, ms: Math.round(clock.monotonic() - startedAt) }, "a VM was prepared");
      size.waiting.push(vm);
      void vm.exited.then(() => {
        const at = size.waiting.indexOf(vm);
        if (at >= 0) void this.#discard(...size.waiting.splice(at, 1));
      });
    } catch (error) {
      liveBoots.delete(bootId);
      users.free(uid);
      await rm(bootDirectory, { recursive: true, force: true });
      throw error;
    } finally {
      timer.cancel();
    }
  }

  async #discard(...vms: readonly PreparedVm[]): Promise<void> {
    for (const vm of vms) {
      await vm.discard();
      this.#options.liveBoots.delete(vm.bootId);
      this.#options.users.free(vm.uid);
    }
  }
}

/** A new boot's id. */
export function makeBootId(): string {
  return `boot-${randomBytes(16).toString("hex")}`;
}
