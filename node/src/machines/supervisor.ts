/**
 * One machine on this node: accepts its desired state, has the actions run that lead to it, and returns what
 * is observed.
 *
 * The machine's files and VM are in machine.ts, the actions in actions/, their order in machine-queue.ts and
 * all decisions in plan.ts. Rooms above see of it what node-machine.ts says; the rest is for the fleet.
 *
 * Always:
 * - One action runs at a time, and the plan is computed again after each.
 * - A new desired state interrupts an action that serves a different one (INTERRUPTED_BY).
 * - A generation is reported when it is on the disk: the next agent would continue with the one before, and a
 *   server applies no report of an older generation.
 *
 * An idle machine costs a map entry, its VM's channel and a question to its guest every half a minute. If the
 * process dies in the middle of any action, adopt.ts reads the journal and the plan continues from it.
 */
import type { DesiredMachine, ObservedMachine, ObservedState } from "@flotilla/contract/link/link";
import { SETTLED_STATES } from "@flotilla/contract/link/link";
import type { PausedVm } from "../driver/driver.ts";
import { Access } from "./access.ts";
import { diskRoot, requestOf } from "./actions/boot.ts";
import { cancelPause } from "./actions/moving.ts";
import type { Sender } from "./egress-meter.ts";
import { applyFence, isFenced, withFence } from "./fence.ts";
import { type Journal, vmmIdOf } from "./journal.ts";
import { Machine } from "./machine.ts";
import { MachineQueue } from "./machine-queue.ts";
import type { KnownMachine, MachineAccess, RunningMachine, SupervisedMachine } from "./node-machine.ts";
import { observedState, plan } from "./plan.ts";
import { STATE_DURING } from "./state.ts";
import type { SupervisorDeps } from "./machine-deps.ts";

export class Supervisor implements SupervisedMachine {
  readonly access: MachineAccess;
  readonly #machine: Machine;
  readonly #queue: MachineQueue;
  /** What was observed of a machine that ran before its host began to go down. */
  #beforeHostStop: ObservedMachine | null = null;
  /**
   * What was observed before the desired states that are not on the disk yet; null: there are none, or the
   * machine is new.
   */
  #beforeSave: ObservedMachine | null = null;

  /**
   * Makes the machine's directory if it is missing. Nothing else happens before `accept` or `resume`.
   * `paused`: the VM with which the machine came from another node, and which waits for what is desired.
   */
  constructor(deps: SupervisorDeps, directory: string, journal: Journal, paused: PausedVm | null) {
    this.#machine = new Machine(deps, directory, journal, () => this.#queue.wake());
    this.#queue = new MachineQueue(this.#machine);
    this.access = new Access(this.#machine);
    if (paused !== null) this.#machine.held.holdPaused(paused);
  }

  get machineId(): string {
    return this.#machine.journal.machineId;
  }

  get known(): KnownMachine {
    return this.#machine;
  }

  /** Names its VMM, if there may be one. */
  get vmmIds(): readonly string[] {
    const { boot } = this.#machine.journal;
    return boot === null ? [] : [vmmIdOf(boot)];
  }

  /** What its run has sent; null: none is under way. */
  get sender(): Sender | null {
    const { held, journal } = this.#machine;
    if (journal.boot === null || journal.boot.runningSince === null) return null;
    return { bootId: journal.boot.bootId, sentBytes: held.countSent() };
  }

  /** The image that the machine's files depend on. */
  get imageDigest(): string | null {
    return this.#machine.disk.heldDigest ?? this.#machine.journal.imageDigest;
  }

  async running(): Promise<RunningMachine | null> {
    const machine = this.#machine;
    await machine.branching;
    if (this.access.guest === null || machine.replacing !== null) return null;
    const root = await diskRoot(machine);
    const { vm } = machine.held;
    const { boot } = machine.journal;
    if (this.access.guest === null || machine.replacing !== null || vm === null || boot === null) return null;
    return { machine, vm, boot: requestOf(machine, vmmIdOf(boot), root) };
  }

  atRest(): Machine | null {
    const { held, journal } = this.#machine;
    const isQuiet = journal.boot === null && held.state === null && this.#queue.action === null;
    return journal.desired === "stopped" && isQuiet ? this.#machine : null;
  }

  /**
   * Accepts a desired state, unless a newer one is known. Resolves when it is on the disk; the actions have
   * begun then and continue.
   */
  async accept(desired: DesiredMachine): Promise<"accepted" | "stale"> {
    const { generation, state, spec, keepsMemory = false, keepsCommands = false } = desired;
    const machine = this.#machine;
    const known = machine.journal;
    if (generation === known.generation && state === known.desired) {
      // The only fact of a specification that its owner changes.
      if (spec !== null && known.spec !== null && known.spec.disruption !== spec.disruption)
        void machine.update({ spec: { ...known.spec, disruption: spec.disruption } });
      const next = withFence(known, desired, machine.deps.driver);
      if (next.fence !== known.fence) void machine.update(next);
      this.#endLeaving(state);
      await machine.saved();
      void applyFence(machine);
      return "accepted";
    }
    // Absent is final: a removal cannot be reversed.
    if (generation <= known.generation || known.desired === "absent") return "stale";
    if (known.generation > 0) this.#beforeSave ??= this.#observeNow();
    if (state === "running" && known.desired === "running") this.#endSilent();
    if (state === "running" && machine.held.state !== "configured") machine.timings.begin();
    const saved = machine.update({
      ...{ generation, desired: state, spec: spec ?? known.spec, restarts: null },
      ...withFence(known, desired, machine.deps.driver),
      keepsMemory: state === "stopped" && keepsMemory,
      // What is removed when the machine has left ends no command: they continue on the other node.
      keepsCommands:
        state === "absent" ? known.keepsCommands === true : state === "stopped" && keepsMemory && keepsCommands,
    });
    cancelPause(machine);
    this.#queue.interrupt(state);
    this.#queue.wake();
    try {
      await saved;
    } finally {
      // A later request waits for its own write.
      if (machine.journal.generation === generation) this.#endSave();
    }
    void applyFence(machine);
    return "accepted";
  }

  /**
   * A start of a machine that is to run, and whose agent does not answer, restarts it. One that was to stop
   * runs on when it could not be suspended or moved.
   */
  #endSilent(): void {
    const { guestWatch, held } = this.#machine;
    if (guestWatch.silentSince === null || held.state !== "configured" || this.#queue.action !== null) return;
    this.#machine.event({ type: "machine.forced", data: { reason: "its agent does not answer" } });
    held.state = "unreachable";
  }

  /** Whether its guest answers. Called regularly. */
  lookAtGuest(): void {
    this.#machine.guestWatch.look();
    this.#machine.watchHealth();
  }

  #endSave(): void {
    if (this.#beforeSave === null) return;
    this.#beforeSave = null;
    this.#machine.changed();
  }

  /** A server has acknowledged a heartbeat: a VM that is to have a fence and has none gets one. */
  leaseRenewed(): void {
    void applyFence(this.#machine);
  }

  /** The server does not hand the machine over any more: its memory is saved instead. */
  #endLeaving(state: DesiredMachine["state"]): void {
    if (!this.#machine.leaving.isUnderWay) return;
    cancelPause(this.#machine);
    this.#queue.interrupt(state);
    this.#queue.wake();
  }

  /**
   * Continues from the journal after a restart of the agent. A machine whose journal was rebuilt from its
   * disk waits for the server, which has the specification.
   */
  resume(): void {
    const { spec, desired } = this.#machine.journal;
    if (spec === null && desired !== "absent") return;
    this.#machine.timings.resume();
    void this.#queue.run();
  }

  /** What is reported of it from now on. */
  noteBeforeHostStop(): void {
    this.#beforeHostStop = this.access.guest === null ? null : this.#observeNow();
  }

  /**
   * The host is about to go down: what runs is suspended or shut down, and nothing starts. Resolves when no
   * VM of a machine that is to run is left, or after `waitMs`.
   */
  async endForHost(waitMs: number, signal: AbortSignal): Promise<"suspended" | "stopped" | "running" | null> {
    const machine = this.#machine;
    if (machine.journal.desired !== "running") return null;
    const hasMemory = (): boolean => (machine.journal.memory ?? null) !== null;
    const hasVm = (): boolean => machine.journal.boot !== null || machine.held.state !== null;
    if (!hasVm() && !hasMemory()) return null;
    // It may be possible this time.
    if (machine.journal.suspendRefusal) void machine.update({ suspendRefusal: null });
    this.#queue.wake();
    await machine.watchers.until(() => !hasVm() || machine.journal.desired !== "running", waitMs, signal);
    if (hasVm()) return "running";
    await machine.saved();
    return hasMemory() ? "suspended" : "stopped";
  }

  /**
   * What is reported. While the host is about to go down, a machine that ran is reported as it was before,
   * and its run as ended: it is neither stopped nor started, and no start of it can take too long while its
   * host is away.
   */
  observe(): ObservedMachine {
    const before = this.#beforeHostStop;
    const { hostStop } = this.#machine.deps;
    const { generation, desired } = this.#machine.journal;
    const isKept = hostStop.isStopping && desired === "running" && before?.generation === generation;
    return before !== null && isKept ? before : (this.#beforeSave ?? this.#observeNow());
  }

  #observeNow(): ObservedMachine {
    const { journal, held, guestWatch, timings, isQueued, progress } = this.#machine;
    const { machineId, generation, boot, ending, lastRun = null, memory = null, suspendRefusal = null } = journal;
    const state = this.#observedState();
    const isRunning = state === "running";
    const ended = ending?.generation === generation && ending.kind !== "crashed" ? ending : null;
    return {
      machineId,
      generation,
      state,
      bootId: boot?.bootId ?? null,
      runningSince: isRunning ? (boot?.runningSince ?? null) : null,
      readySince: isRunning ? (boot?.readySince ?? null) : null,
      reason: ended?.reason ?? null,
      reasonCode: ended?.reasonCode ?? null,
      hasPoweredOff: ended?.kind === "poweredOff",
      lastRun,
      progress: state === "preparing" ? (isQueued ? "waiting for others to boot" : progress) : null,
      hostPorts: isRunning ? (held.vm?.network?.hostPorts ?? []) : [],
      timings: isRunning ? timings.noted : null,
      pauseReason: isRunning ? held.diskPause.reason : null,
      unresponsiveSince: isRunning ? guestWatch.silentSince : null,
      suspendedAt: memory?.suspendedAt ?? null,
      isResumed: isRunning && (boot?.guestBootId ?? null) !== null,
      suspendRefusal: suspendRefusal?.generation === generation ? suspendRefusal : null,
      isFenced: isFenced(this.#machine),
      health: isRunning ? this.#machine.health : null,
    };
  }

  async settled(generation: number, waitMs: number, signal: AbortSignal): Promise<ObservedMachine> {
    const isSettled = (): boolean =>
      this.#beforeSave === null &&
      this.#machine.journal.generation >= generation &&
      (SETTLED_STATES as readonly ObservedState[]).includes(this.#observedState());
    await this.#machine.watchers.until(isSettled, waitMs, signal);
    return this.observe();
  }

  /**
   * Resolves when the VM of an earlier agent has been found or is known to be gone, or after `waitMs`. Does
   * not wait for a VM that was still booting.
   */
  async adopted(waitMs: number): Promise<ObservedMachine> {
    const { held, watchers } = this.#machine;
    const isDone = (): boolean =>
      held.state !== "lost" ||
      this.#machine.journal.spec === null ||
      typeof this.#machine.journal.boot?.runningSince !== "number";
    await watchers.until(isDone, waitMs);
    return this.observe();
  }

  /**
   * Detaches from the VM, which continues to run, and starts no more actions. Resolves when the journal is on
   * the disk.
   */
  async release(): Promise<void> {
    this.#queue.release();
    await this.#machine.release();
  }

  #observedState(): ObservedState {
    const machine = this.#machine;
    if (machine.isRemoved) return "absent";
    const { action } = this.#queue;
    if (action === null) return observedState(plan(machine.situation()));
    return machine.isQueued ? "preparing" : STATE_DURING[action];
  }
}
