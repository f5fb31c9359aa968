/**
 * The VM of a machine's journaled boot, and this agent's connection to it.
 *
 * Always:
 * - `state` is null exactly when the journal names no boot.
 * - A VM that was released is not watched any more: its end changes nothing here.
 *
 * Nothing of this is on the disk. After a crash the journal says that there may be a VM; it is `lost` until
 * `adopt` has looked for it.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { PausedVm, Vm, VmExit } from "../driver/driver.ts";
import type { RunEndCause } from "@flotilla/contract/runs";
import type { SentCounter } from "../network/vm-network.ts";
import { EXIT_GRACE_MS } from "./configure-vm.ts";
import { DiskPause, type DiskPauseOptions } from "./disk-pause.ts";
import { Readiness } from "./readiness.ts";
import type { VmState } from "./state.ts";

/** A VM that was held until its end. */
export interface EndedVm {
  readonly vm: Vm;
  readonly wasConfigured: boolean;
  /** Whether the agent ended it. */
  readonly isExpected: boolean;
}

const CAUSES = { poweroff: "poweroff", killed: "crash", crashed: "crash", fenced: "fenced" } as const;

export interface HeldVmOptions extends DiskPauseOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly hasBoot: boolean;
  /** Epoch milliseconds at which the VM of an earlier agent was last known to run; null: unknown. */
  readonly lastSeenAt: number | null;
  /** The VM ended; the state is `ended`. */
  readonly onExit: (exit: VmExit, ended: EndedVm) => void;
  /** The channel to the guest broke while the VM's process runs; the state is `lost`. */
  readonly onLost: () => void;
}

export class HeldVm {
  readonly #options: HeldVmOptions;
  readonly readiness: Readiness;
  readonly diskPause: DiskPause;
  #vm: Vm | null = null;
  #paused: PausedVm | null = null;
  #isReleased = false;
  state: VmState | null;
  /** The boot was begun by an earlier agent, which may have reported more of it than it wrote down. */
  isInherited: boolean;
  /** The agent is ending the VM, so its end is expected. */
  isEnding = false;
  /** Why the VM ended or is being ended; the first cause is kept. null: not known yet. */
  endCause: RunEndCause | null = null;
  /** Epoch milliseconds at which the VM ended or was last known to run; null while it is held, or unknown. */
  lastSeenAt: number | null;
  /** What the boot's VM was last seen to have sent, in bytes. */
  sentBytes = 0;
  /** Counts what a VM sends to which this agent has lost its connection; null: there is no such VM. */
  #counter: SentCounter | null = null;
  #isReplacing = false;
  /** What happened to the VM while its VMM is replaced. */
  #meanwhile: (() => void) | null = null;

  constructor(options: HeldVmOptions) {
    this.#options = options;
    this.readiness = new Readiness(options.clock);
    this.diskPause = new DiskPause(options);
    this.state = options.hasBoot ? "lost" : null;
    this.isInherited = options.hasBoot;
    this.lastSeenAt = options.lastSeenAt;
  }

  get vm(): Vm | null {
    return this.#vm;
  }

  /** Returns what the boot's VM has sent so far. */
  countSent(): number {
    const sent = this.#vm?.network?.sentBytes() ?? this.#paused?.sentBytes() ?? this.#counter?.bytes() ?? 0;
    this.sentBytes = Math.max(this.sentBytes, sent);
    return this.sentBytes;
  }

  /** Its boot is over: the next one has sent nothing. */
  endCount(): void {
    this.#closeCounter();
    this.sentBytes = 0;
  }

  #closeCounter(): void {
    this.#counter?.close();
    this.#counter = null;
  }

  /** The VM while it is paused for a move and this agent has no connection to its guest. */
  get paused(): PausedVm | null {
    return this.#paused;
  }

  /** Takes a VM that is paused, and watches for its end. */
  holdPaused(paused: PausedVm): void {
    if (this.#isReleased) return paused.release();
    this.#paused = paused;
    this.state = "paused";
    void paused.exited.then((exit) => {
      if (this.#paused !== paused) return;
      this.endCause ??= CAUSES[exit.kind];
      this.lastSeenAt ??= exit.at ?? null;
      this.forget(true);
      this.#options.log.warn({}, "a VM that was paused for a move ended");
      this.#options.onLost();
    });
  }

  /** The VM that is held was paused for a move; null: it runs again. Epoch milliseconds. */
  notePaused(at: number | null): void {
    this.state = at === null ? "configured" : "paused";
    this.lastSeenAt = at;
    this.endCause = at === null ? null : "stop";
  }

  /** Takes a VM whose guest agent has answered, and watches for its end. */
  hold(vm: Vm): void {
    if (this.#isReleased) return vm.release();
    this.#vm = vm;
    this.#paused = null;
    this.#closeCounter();
    this.state = "up";
    this.lastSeenAt = null;
    this.diskPause.note(false);
    vm.watchDiskPause((isPaused) => {
      if (this.#vm === vm) this.diskPause.note(isPaused);
    });
    vm.guest.onKilled?.((killed) => {
      if (this.#vm === vm) this.#options.onEvent({ type: "machine.outOfMemory", data: { ...killed } });
    });
    void vm.exited.then((exit) => this.#onExit(vm, exit));
    void vm.guest.closed.then((reason) => this.#onChannelLost(vm, reason));
  }

  /** Until `endReplacing`, the end of the VM or of its channel does not end the machine. */
  beginReplacing(): void {
    this.#isReplacing = true;
  }

  /** What happened to the VM meanwhile counts now, if no other has taken its guest over. */
  endReplacing(): void {
    this.#isReplacing = false;
    const meanwhile = this.#meanwhile;
    this.#meanwhile = null;
    meanwhile?.();
  }

  /** Another VMM has the guest, and this agent is not connected to it. */
  lose(): void {
    this.#countOn();
    this.#detach();
    this.lastSeenAt = this.#options.clock.now();
    this.state = "lost";
  }

  /** The VM's process has ended, or there is none. */
  forget(hasBoot: boolean): void {
    this.lastSeenAt ??= this.#options.clock.now();
    this.#detach();
    this.state = hasBoot ? "ended" : null;
  }

  /** Detaches from the VM, which continues to run. */
  release(): void {
    this.#isReleased = true;
    this.#vm?.release();
    this.#paused?.release();
    this.#detach();
    this.#closeCounter();
  }

  /** The VM may send while this agent has no connection to it. */
  #countOn(): void {
    this.#closeCounter();
    this.#counter = this.#vm?.network?.countOn() ?? null;
  }

  #detach(): void {
    this.countSent();
    this.#vm = null;
    this.#paused = null;
    this.readiness.end();
    this.diskPause.end();
  }

  #onExit(vm: Vm, exit: VmExit): void {
    if (this.#vm !== vm) return;
    if (this.#isReplacing) {
      this.#meanwhile = () => this.#onExit(vm, exit);
      return;
    }
    const ended = { vm, wasConfigured: this.state === "configured", isExpected: this.isEnding };
    this.endCause ??= CAUSES[exit.kind];
    this.lastSeenAt ??= exit.at ?? null;
    this.forget(true);
    this.#options.log.info({ exit, isExpected: ended.isExpected }, "the VM ended");
    if (exit.excess !== undefined) this.#options.onEvent({ type: "machine.vmmEnded", data: { ...exit.excess } });
    this.#options.onExit(exit, ended);
  }

  async #onChannelLost(vm: Vm, reason: string): Promise<void> {
    await this.#options.clock.sleep(EXIT_GRACE_MS);
    if (this.#vm !== vm || this.isEnding || this.#isReleased) return;
    if (this.#isReplacing) {
      this.#meanwhile ??= () => void this.#onChannelLost(vm, reason);
      return;
    }
    this.#options.log.warn({ reason }, "the channel to the guest broke; its VM is still running");
    this.#countOn();
    vm.release();
    this.#detach();
    this.lastSeenAt = this.#options.clock.now();
    this.state = "lost";
    this.#options.onLost();
  }
}
