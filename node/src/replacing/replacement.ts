/**
 * Replaces the VMM of a running machine by one of the installed program, while its guest runs on
 * (docs/decisions/0065-new-vmms.md).
 *
 * Always:
 * - The journal names the VMM that may run the guest: the old one until the new one has all of it, then the
 *   new one, marked as paused until it runs. The run of the machine continues, under the same boot id.
 * - A fault before the journal names the new VMM leaves the guest in the old one, running.
 * - Commands that arrive from shortly before the pause until its end wait, and are given to the new VMM.
 *
 * A crash leaves both VMMs: the next agent ends the one that the journal does not name, and continues the
 * other.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import { type BootRequest, type NextVm, NextVmLost, type Vm, type VmSuccessor } from "../driver/driver.ts";
import { diskRoot, requestOf } from "../machines/actions/boot.ts";
import { configureGuest, markRunning } from "../machines/actions/configure.ts";
import { makeBootId } from "../machines/boot-vm.ts";
import { applyFence, requestedFence } from "../machines/fence.ts";
import { type JournaledBoot, vmmIdOf } from "../machines/journal.ts";
import type { Machine } from "../machines/machine.ts";
import { bootDirectoryName, bootsPathOf } from "../machines/paths.ts";
import type { ReplacedVmm } from "../machines/replacing.ts";

/** How long the guest may write its files to the disk, before anything waits for it. */
const SYNC_MS = 60_000;
/** How long it may write once more, while commands wait. */
const LAST_SYNC_MS = 5_000;
/** How long the new VMM may take to start and to get the guest's memory. */
const COPY_MS = 4 * 60_000;
/** How long connecting to the guest may take. */
const CONNECT_MS = 30_000;

export async function replaceVmm(machine: Machine, signal: AbortSignal): Promise<void> {
  const { held, replacing } = machine;
  const { vm } = held;
  const { boot } = machine.journal;
  const successor = vm?.successor ?? null;
  if (replacing === null || vm === null || boot === null || successor === null)
    return machine.finishReplacing({ outcome: "ended" });
  let outcome: ReplacedVmm | null = null;
  try {
    const pauseMs = await new Replacement(machine, { vm, successor, boot }).replace(signal);
    outcome = { outcome: "replaced", pauseMs };
    machine.event({ type: "machine.vmmReplaced", data: { pauseMs } });
  } catch (error) {
    if (machine.isReleased) return;
    const reason = signal.aborted ? "the machine is to be stopped" : messageOf(error);
    machine.log.warn({ reason }, "the VMM of a machine could not be replaced");
    held.endReplacing();
    // Otherwise its end, or that of the new VMM, is the machine's: the plan sees that.
    outcome = held.vm === vm ? { outcome: "refused", reason } : { outcome: "ended", reason };
  } finally {
    replacing.open();
    held.endReplacing();
    if (outcome !== null) machine.finishReplacing(outcome);
  }
}

interface ReplacedParts {
  readonly vm: Vm;
  readonly successor: VmSuccessor;
  readonly boot: JournaledBoot;
}

class Replacement {
  readonly #machine: Machine;
  readonly #vm: Vm;
  readonly #successor: VmSuccessor;
  readonly #boot: JournaledBoot;
  readonly #vmmId = makeBootId();
  /** The fence of the new VMM. */
  #fence: BootRequest["fence"];

  constructor(machine: Machine, { vm, successor, boot }: ReplacedParts) {
    this.#machine = machine;
    this.#vm = vm;
    this.#successor = successor;
    this.#boot = boot;
  }

  /**
   * Resolves with how long the guest was paused. After a rejection it runs in the old VMM, or the plan sees
   * what became of it.
   */
  async replace(signal: AbortSignal): Promise<number> {
    const machine = this.#machine;
    const { suspendSlots, clock, liveBoots, ensureMemoryRoom } = machine.deps;
    const release = await suspendSlots.take(machine.requiredSpec().tenantId, signal);
    const deadline = deadlineSignal(clock, COPY_MS, signal);
    liveBoots.add(this.#vmmId);
    let next: NextVm | null = null;
    try {
      await ensureMemoryRoom();
      await this.#sync(SYNC_MS, deadline.signal).catch(() => undefined);
      next = await this.#start(deadline.signal);
      await next.copy(deadline.signal);
      deadline.signal.throwIfAborted();
      return await this.#switch(next, deadline.signal);
    } catch (error) {
      await this.#forget(next);
      throw error;
    } finally {
      release();
      deadline.dispose();
    }
  }

  async #start(signal: AbortSignal): Promise<NextVm> {
    const machine = this.#machine;
    const root = await diskRoot(machine);
    const next = requestOf(machine, this.#vmmId, root);
    this.#fence = next.fence;
    await mkdir(next.bootDirectory, { recursive: true, mode: 0o700 });
    const request = { boot: requestOf(machine, vmmIdOf(this.#boot), root), next, directory: machine.directory };
    return await this.#successor.begin(request, signal);
  }

  /** The pause, and what must be done around it. */
  async #switch(next: NextVm, signal: AbortSignal): Promise<number> {
    const machine = this.#machine;
    const { held, workload, replacing, leaving } = machine;
    replacing?.close();
    // Also: what was sent to the guest before has arrived there.
    await this.#sync(LAST_SYNC_MS, signal);
    if (held.vm !== this.#vm) throw new Error("the machine's VM has ended");
    if (requestedFence(machine.journal, this.#vmmId) !== this.#fence) throw new Error("its fence has changed");
    if (machine.isReleased || leaving.isUnderWay || leaving.watched !== null) throw new Error("the machine moves");
    // The guest sends again what is not in the log.
    await workload.release();
    await leaving.changes.forget();
    held.beginReplacing();
    const pausedAt = await next.take().catch((error: unknown) => {
      this.#runsOn();
      throw error;
    });
    const isFenced = this.#fence === "on";
    const vmm = { vmmId: this.#vmmId, record: next.record, isFenced };
    const boot: JournaledBoot = { ...this.#boot, ...this.#lastBoot, ...vmm, isPaused: true };
    await machine.update({ boot });
    let runsAt = pausedAt;
    try {
      const limit = deadlineSignal(machine.deps.clock, CONNECT_MS);
      const onRunning = (at: number): void => {
        runsAt = at;
        void machine.update({ boot: { ...boot, isPaused: false } });
      };
      const vm = await next.run(onRunning, limit.signal).finally(() => limit.dispose());
      if (machine.isReleased) {
        vm.release();
        return Math.round(runsAt - pausedAt);
      }
      held.hold(vm);
      void applyFence(machine);
      this.#removeFormer();
      const workloadCommand = await configureGuest(machine, vm, new AbortController().signal);
      markRunning(machine, vm, { ...boot, isPaused: false, workload: workloadCommand });
      return Math.round(runsAt - pausedAt);
    } catch (error) {
      if (!(error instanceof NextVmLost)) {
        // The plan looks for the new VMM.
        held.lose();
        this.#removeFormer();
        throw error;
      }
      await machine.update({ boot: { ...this.#boot, ...this.#lastBoot } });
      this.#runsOn();
      throw error;
    }
  }

  /** What has become known of the boot meanwhile. */
  get #lastBoot(): Partial<JournaledBoot> {
    const { readySince = null } = this.#machine.journal.boot ?? {};
    return { readySince };
  }

  /** The guest continues in the old VMM. */
  #runsOn(): void {
    const machine = this.#machine;
    machine.held.endReplacing();
    if (machine.held.vm === this.#vm) markRunning(machine, this.#vm, { ...this.#boot, ...this.#lastBoot });
  }

  async #sync(ms: number, signal: AbortSignal): Promise<void> {
    const deadline = deadlineSignal(this.#machine.deps.clock, ms, signal);
    try {
      await orAborted(this.#vm.guest.sync(), deadline.signal);
    } finally {
      deadline.dispose();
    }
  }

  /** The new VMM is not the machine's. */
  async #forget(next: NextVm | null): Promise<void> {
    const machine = this.#machine;
    if (machine.journal.boot !== null && vmmIdOf(machine.journal.boot) === this.#vmmId) return;
    await next?.discard();
    await this.#remove(this.#vmmId);
  }

  /** The old VMM has ended. */
  #removeFormer(): void {
    this.#remove(vmmIdOf(this.#boot)).catch((error: unknown) =>
      this.#machine.log.warn({ error }, "the directory of a replaced VMM could not be removed"),
    );
  }

  async #remove(vmmId: string): Promise<void> {
    const { deps, directory } = this.#machine;
    await rm(join(bootsPathOf(directory), bootDirectoryName(vmmId)), { recursive: true, force: true });
    deps.liveBoots.delete(vmmId);
  }
}
