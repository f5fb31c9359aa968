/**
 * A fake VMM that takes over the guest of another one.
 *
 * Always: `vm.json` of each says whether it is paused, so that tests see which one runs the machine.
 */
import { type NextVm, NextVmLost, type Vm, type VmRecord } from "../driver.ts";

export interface FakeNextOptions {
  readonly record: VmRecord;
  /**
   * FAKE_REPLACE_FAIL: where it fails: `start`, `copy`, `take`, or `lost`, before it runs. At `hangPaused`
   * the guest stays paused, at `hang` this VM has the guest and does not run it.
   */
  readonly failsAt: string | undefined;
  /** Pauses the other VM, and writes the file of this one, paused. */
  take(): Promise<number>;
  /** Removes the file of this one, and the other VM runs on. */
  giveBack(): Promise<void>;
  /** Ends the other VM, and runs this one. */
  run(): Promise<Vm>;
  now(): number;
}

export class FakeNextVm implements NextVm {
  readonly record: VmRecord;
  readonly #options: FakeNextOptions;

  constructor(options: FakeNextOptions) {
    this.#options = options;
    this.record = options.record;
  }

  async copy(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    this.#failAt("copy");
  }

  async take(): Promise<number> {
    try {
      const pausedAt = await this.#options.take();
      this.#failAt("take");
      if (this.#options.failsAt === "hangPaused") await new Promise<never>(() => undefined);
      return pausedAt;
    } catch (error) {
      await this.#options.giveBack();
      throw error;
    }
  }

  async run(onRunning: (at: number) => void, signal: AbortSignal): Promise<Vm> {
    if (this.#options.failsAt === "lost") {
      await this.#options.giveBack();
      throw new NextVmLost("FAKE_REPLACE_FAIL is set");
    }
    if (this.#options.failsAt === "hang") return await new Promise<never>(() => undefined);
    signal.throwIfAborted();
    const vm = await this.#options.run();
    onRunning(this.#options.now());
    return vm;
  }

  async discard(): Promise<void> {
    await this.#options.giveBack();
  }

  #failAt(place: string): void {
    if (this.#options.failsAt === place) throw new Error("FAKE_REPLACE_FAIL is set");
  }
}
