/**
 * The fence of a fake VM: a timer of this process, with its end in the VM's file, so that a VM whose agent
 * was killed has ended as well when the next one looks for it.
 */
import type { Clock, Timer } from "@flotilla/base/clock";
import type { FenceLease } from "../../host/fence-lease.ts";
import type { VmExit, VmFence } from "../driver.ts";

export interface FakeFenceOptions {
  readonly lease: FenceLease;
  readonly clock: Clock;
  /** Milliseconds of `Clock.boottime`; null: it has none. */
  readonly until: number | null;
  readonly save: (until: number | null) => Promise<void>;
  readonly end: (exit: VmExit) => void;
}

export class FakeFence {
  readonly #options: FakeFenceOptions;
  #until: number | null;
  #timer: Timer | null = null;
  #endWatch: (() => void) | null = null;

  constructor(options: FakeFenceOptions) {
    this.#options = options;
    this.#until = options.until;
    if (this.#until !== null) this.#begin();
  }

  get isArmed(): boolean {
    return this.#until !== null;
  }

  /** When it ended the VM, in epoch milliseconds; null: it has not. */
  get endedAt(): number | null {
    const { clock } = this.#options;
    return this.#until === null || !isOver(this.#until, clock) ? null : clock.now() - (clock.boottime() - this.#until);
  }

  async set(isArmed: boolean): Promise<void> {
    this.#endWatch?.();
    this.#endWatch = null;
    if (!isArmed) await this.#options.save(null);
    this.#timer?.cancel();
    this.#until = isArmed ? this.#options.lease.until : null;
    if (!isArmed) return;
    this.#begin();
    await this.#options.save(this.#until);
  }

  close(): void {
    this.#timer?.cancel();
    this.#endWatch?.();
    this.#endWatch = null;
  }

  #begin(): void {
    const { lease, clock } = this.#options;
    this.#endWatch = lease.watch(() => {
      // An agent that was stopped renews too late.
      if (isOver(this.#until, clock)) return this.#end();
      void this.#renew(Math.max(lease.until, this.#until ?? 0));
    });
    if (!isOver(this.#until, clock)) this.#schedule();
    else this.#timer = clock.timer(0, () => this.#end());
  }

  /** As with a kernel's timer, the end is later only when it was set. */
  async #renew(until: number): Promise<void> {
    const watch = this.#endWatch;
    // Best effort: the directory may have been removed, and then the file is not needed.
    await this.#options.save(until).catch(() => undefined);
    if (this.#endWatch !== watch || isOver(this.#until, this.#options.clock)) return;
    this.#until = Math.max(until, this.#until ?? 0);
    this.#timer?.cancel();
    this.#schedule();
  }

  #schedule(): void {
    const { clock } = this.#options;
    const leftMs = Math.max(1, Math.ceil((this.#until ?? 0) - clock.boottime()));
    this.#timer = clock.timer(leftMs, () => (isOver(this.#until, clock) ? this.#end() : this.#schedule()));
  }

  #end(): void {
    this.close();
    const at = this.endedAt ?? this.#options.clock.now();
    this.#options.end({ kind: "fenced", detail: "its fence ended the fake VM", at });
  }
}

/**
 * The exit of a fake VM that was killed: its fence had ended it already if the agent was stopped, or waited
 * long for its files.
 */
export function killed(fence: FakeFence | undefined): VmExit {
  const at = fence?.endedAt ?? null;
  return { kind: "killed", detail: "the fake VM was killed", ...(at === null ? {} : { at }) };
}

/** Whether a fence that is in a VM's file has ended it. */
export const isOver = (until: number | null | undefined, clock: Clock): boolean =>
  typeof until === "number" && clock.boottime() >= until;

/** The fence as its VM has it. */
export function vmFenceOf(fence: FakeFence, environment: Readonly<Record<string, string>>): VmFence {
  return {
    get isArmed() {
      return fence.isArmed;
    },
    set: async (isArmed) => {
      if (environment["FAKE_NO_FENCE"] !== undefined) throw new Error("FAKE_NO_FENCE is set");
      await fence.set(isArmed);
    },
  };
}
