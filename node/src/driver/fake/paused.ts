/**
 * A fake VM that is paused at either end of a move, and one that waits for a guest. Memory is part of the
 * devices' state.
 *
 * Always: `vm.json` says `isPaused`, so that tests see which node runs a machine.
 */
import type { BootRequest, PausedVm, Vm, VmExit, VmRecord, WaitingVm } from "../driver.ts";
import { type FakeFence, killed } from "./fence.ts";

export interface FakePausedOptions {
  readonly record: VmRecord;
  /** Removes its file. */
  end(): Promise<void>;
  suspend: PausedVm["suspend"];
  resume(request: BootRequest): Promise<Vm>;
  now(): number;
  /** What its machine has sent. */
  readonly sentBytes?: number;
  /** Calls back when its fence ends it; absent: it has none. */
  readonly fence?: (end: (exit: VmExit) => void) => FakeFence;
}

export class FakePausedVm implements PausedVm {
  readonly record: VmRecord;
  readonly exited: Promise<VmExit>;
  readonly suspend: PausedVm["suspend"];
  readonly #options: FakePausedOptions;
  readonly #ended = Promise.withResolvers<VmExit>();
  readonly #fence: FakeFence | undefined;
  #hasEnded = false;

  constructor(options: FakePausedOptions) {
    this.#options = options;
    this.record = options.record;
    this.exited = this.#ended.promise;
    this.suspend = options.suspend;
    this.#fence = options.fence?.((exit) => void this.#end(exit));
  }

  async resume(request: BootRequest, onRunning: (at: number) => void, signal: AbortSignal): Promise<Vm> {
    signal.throwIfAborted();
    if (this.#hasEnded) throw new Error("the VM has ended");
    this.#fence?.close();
    const vm = await this.#options.resume(request);
    onRunning(this.#options.now());
    return vm;
  }

  async kill(): Promise<void> {
    await this.#end(null);
  }

  /** null: it is killed, unless its fence ends it before that is done. */
  async #end(exit: VmExit | null): Promise<void> {
    this.#hasEnded = true;
    this.#fence?.close();
    await this.#options.end();
    this.#ended.resolve(exit ?? killed(this.#fence));
  }

  release(): void {
    this.#fence?.close();
  }

  sentBytes(): number {
    return this.#options.sentBytes ?? 0;
  }
}

export interface FakeWaitingOptions {
  readonly record: VmRecord;
  load(state: Buffer, bootDirectory: string): Promise<PausedVm>;
}

export class FakeWaitingVm implements WaitingVm {
  readonly record: VmRecord;
  readonly exited: Promise<VmExit>;
  readonly #options: FakeWaitingOptions;
  readonly #ended = Promise.withResolvers<VmExit>();
  #bootDirectory: string;
  #paused: PausedVm | null = null;

  constructor(options: FakeWaitingOptions, bootDirectory: string) {
    this.#options = options;
    this.#bootDirectory = bootDirectory;
    this.record = options.record;
    this.exited = this.#ended.promise;
  }

  write(): void {
    throw new Error("a fake machine has no pages");
  }

  async load(state: Buffer): Promise<PausedVm> {
    this.#paused = await this.#options.load(state, this.#bootDirectory);
    return this.#paused;
  }

  moved(bootDirectory: string): void {
    this.#bootDirectory = bootDirectory;
  }

  async kill(): Promise<void> {
    await this.#paused?.kill();
    this.#ended.resolve({ kind: "killed", detail: "the fake VM was killed" });
  }
}
