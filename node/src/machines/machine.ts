/**
 * The state of one machine on this node: its journal, disk, VM and log. The actions work on it.
 *
 * Owns the machine's directory (paths.ts). The supervisor decides what is done, one action at a time. Only
 * the end of a VM arrives at any time.
 *
 * Always: the journal is on the disk when the promise of its `update` resolves. A crash leaves the journal as
 * it was last written; the heads of the actions say what else.
 */
import { randomInt } from "node:crypto";
import { mkdirSync } from "node:fs";
import type { Log } from "@flotilla/base/log";
import type { ImageFault } from "@flotilla/contract/errors";
import { RESTART_WINDOW_MS } from "@flotilla/contract/limits";
import type { MachineHealth, MachineSpec } from "@flotilla/contract/link/link";
import type { NewEvent } from "@flotilla/contract/event-types";
import type { VmExit } from "../driver/driver.ts";
import { HealthWatch } from "../health/health-watch.ts";
import { DiskChanges } from "./disk-changes.ts";
import { FlatDisk } from "./flat-disk.ts";
import { excuseOf, GuestWatch } from "./guest-watch.ts";
import { type EndedVm, HeldVm } from "./held-vm.ts";
import { Leaving } from "./leaving.ts";
import { type Journal, JournalFile, vmmIdOf } from "./journal.ts";
import { MachineDisk } from "./machine-disk.ts";
import { MachineLog } from "./workload/machine-log.ts";
import { logsPathOf } from "./paths.ts";
import type { ReplacedVmm, Replacing } from "./replacing.ts";
import { countedAt, nextRestart } from "./restart-policy.ts";
import { TemplateRetry } from "./template-retry.ts";
import { AttemptTimings } from "./start-timings.ts";
import type { Situation } from "./state.ts";
import type { SupervisorDeps } from "./machine-deps.ts";
import { Watchers } from "./watchers.ts";
import { Workload } from "./workload/workload.ts";

/** An attempt to take away the layers of a machine's disk. */
export interface Collapsing {
  /** Rejects with why the layers are needed still. */
  readonly done: Promise<void>;
  /** Resolves when nothing of it is under way any more. */
  end(): Promise<void>;
}

/** How many different pauses there are between checks of its health. */
const RANDOM_STEPS = 1_000;

export class Machine {
  readonly deps: SupervisorDeps;
  /** Has the plan computed again. */
  readonly wake: () => void;
  readonly directory: string;
  readonly log: Log;
  readonly disk: MachineDisk;
  readonly held: HeldVm;
  readonly guestWatch: GuestWatch;
  readonly #healthWatch: HealthWatch;
  readonly workload: Workload;
  /** Also of a machine that is stopped. */
  readonly machineLog: MachineLog;
  readonly timings: AttemptTimings;
  readonly leaving: Leaving;
  /** Its VMM is to be replaced; null: that was not requested. */
  replacing: Replacing | null = null;
  /** Resolves when the point that is being made of it is made, or is not; null: none is. */
  branching: Promise<void> | null = null;
  /** Its disk's layers are being taken away; null: they are not. */
  collapsing: Collapsing | null = null;
  readonly templateRetry = new TemplateRetry();
  readonly watchers: Watchers;
  readonly #file: JournalFile;
  #journal: Journal;
  /** The agent shuts down: no action starts any more, and the VM continues to run. */
  isReleased = false;
  isRemoved = false;
  /** An action of the plan runs. */
  isActing = false;
  /** Waiting for a boot slot. */
  isQueued = false;
  /** The progress of the present action, as a text for users. */
  progress: string | null = null;
  /** Releases the boot slot of the present start; does nothing when there is none. */
  releaseSlot: () => void = () => undefined;
  adoptAttempts = 0;

  /** Makes the machine's directory if it is missing. */
  constructor(deps: SupervisorDeps, directory: string, journal: Journal, wake: () => void) {
    const { clock } = deps;
    this.deps = deps;
    this.wake = wake;
    this.directory = directory;
    this.#journal = journal;
    this.log = deps.log.child({ machine: journal.machineId });
    this.timings = new AttemptTimings(clock, journal.boot?.timings ?? null);
    this.#file = new JournalFile(directory);
    this.disk = new MachineDisk(deps, directory);
    this.leaving = new Leaving(new DiskChanges(this.log), new FlatDisk());
    this.machineLog = new MachineLog(logsPathOf(directory));
    const onEvent = (event: NewEvent): void => this.event(event);
    this.workload = new Workload({ machineLog: this.machineLog, clock, log: this.log, onEvent });
    this.watchers = new Watchers(clock);
    const onExit = (exit: VmExit, ended: EndedVm): void => {
      if (!ended.isExpected) this.#noteEnd(exit, ended);
      wake();
    };
    const { lastAliveAt: lastSeenAt } = deps;
    const hasBoot = journal.boot !== null;
    this.held = new HeldVm({
      ...{ clock, log: this.log, hasBoot, lastSeenAt, onExit, onLost: wake, onEvent },
      onChange: () => this.changed(),
    });
    this.guestWatch = new GuestWatch(this);
    this.#healthWatch = new HealthWatch({
      clock,
      random: () => randomInt(RANDOM_STEPS) / RANDOM_STEPS,
      onChange: () => this.changed(),
    });
    if (journal.boot !== null) deps.liveBoots.add(vmmIdOf(journal.boot));
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  /** The journal as last changed; the file may be older. */
  get journal(): Journal {
    return this.#journal;
  }

  /** Changes the journal; resolves when that is on the disk. A failure is logged: no need to handle it. */
  update(change: Partial<Journal>): Promise<void> {
    this.#journal = { ...this.#journal, ...change };
    const saved = this.saved();
    saved.catch((error: unknown) => this.log.error({ error }, "the machine's journal could not be written"));
    return saved;
  }

  /** Resolves when the present journal is on the disk. */
  saved(): Promise<void> {
    return this.#file.save(this.#journal);
  }

  /** Stops writing of the journal. Resolves when no write is under way any more; never rejects. */
  closeJournal(): Promise<void> {
    return this.#file.close();
  }

  /** Throws for a machine that never had a specification. */
  requiredSpec(): MachineSpec {
    const { spec, machineId } = this.#journal;
    if (spec === null) throw new Error(`machine ${machineId} has no specification`);
    return spec;
  }

  situation(): Situation {
    const { desired, generation, hasDisk, ending, keepsMemory = false, memory = null, suspendRefusal } = this.#journal;
    const permitted = this.#journal.spec?.disruption === "migrate" ? "suspend" : "shutDown";
    return {
      hostStop: this.deps.hostStop.isStopping ? permitted : null,
      ...{ desired, generation, hasDisk, ending, keepsMemory },
      hasImage: this.disk.heldDigest !== null,
      vm: this.held.state,
      hasMemory: memory !== null,
      isLeaving: this.leaving.isUnderWay,
      replacing: this.replacing?.how ?? null,
      isSuspendRefused: suspendRefusal?.generation === generation,
      isCutOff: this.isCutOff,
    };
  }

  /**
   * Records that the attempt to run the machine has failed. The first reason of a generation is kept: it is
   * the nearest to the cause. The restart policy decides whether a failed restart is followed by another one,
   * and whether a guest is booted that had run, here or before a move or a suspend.
   */
  fail(generation: number, reason: string, reasonCode: ImageFault | null = null): void {
    this.log.warn({ generation, reason }, "the machine could not be run");
    this.templateRetry.end();
    // Its fence has ended it, or may have: it is tried again when a server answers.
    if (this.isCutOff) return;
    const { boot, ending, restarts, generation: latest } = this.#journal;
    if (ending?.generation === generation) return;
    const hasRun = boot !== null && (boot.runningSince !== null || (boot.guestBootId ?? null) !== null);
    if ((hasRun || restarts?.isUnderWay === true) && generation === latest) this.#restart(reason);
    else void this.update({ ending: { generation, kind: "failed", reason, reasonCode } });
  }

  /** The attempt has failed, and another one needs a request. */
  failFinally(reason: string): void {
    const { generation } = this.#journal;
    this.log.warn({ generation, reason }, "the machine could not be run");
    void this.update({ ending: { generation, kind: "failed", reason } });
  }

  /** The machine had run, and ended without a request. `silentMs`: how long its agent had not answered. */
  crashed(reason: string, silentMs = 0): void {
    const { generation, ending, desired } = this.#journal;
    this.log.warn({ generation, reason }, "the machine ended unexpectedly");
    if (desired === "running" && ending?.generation !== generation) this.#restart(reason, silentMs);
  }

  /** It may be replaced, and no server answers: it must not be started. */
  get isCutOff(): boolean {
    return this.#journal.fence === "on" && !this.deps.driver.lease.hasRoom;
  }

  /**
   * Records that the fence has ended the VM, or may have while no agent ran. The machine starts again when a
   * server answers, unless its owner wants no restarts.
   */
  fenced(detail: string): void {
    const { generation, desired, spec, ending } = this.#journal;
    this.log.warn({ generation, detail }, "a fenced VM has ended");
    if (desired !== "running" || ending?.generation === generation) return;
    const reason = `the machine was ended: ${detail}`;
    this.event({ type: "machine.fenced", data: { reason } });
    if (spec?.restart === "never") void this.update({ ending: { generation, kind: "failed", reason } });
  }

  finishReplacing(outcome: ReplacedVmm): void {
    this.replacing?.end(outcome);
    this.replacing = null;
  }

  /** Whether the running machine does its work; null: it is not checked. */
  get health(): MachineHealth | null {
    const { spec, boot } = this.#journal;
    return (spec?.health ?? null) === null || boot === null ? null : this.#healthWatch.healthOf(boot.bootId);
  }

  /** Checks its health from now on, or not, as it is now. */
  watchHealth(): void {
    const { spec, boot } = this.#journal;
    const { vm } = this.held;
    const check = spec?.health ?? null;
    const isExpected = !this.isReleased && excuseOf(this) === null && this.guestWatch.silentSince === null;
    if (check === null || boot === null || vm === null || !isExpected) return this.#healthWatch.watch(null);
    this.#healthWatch.watch({ bootId: boot.bootId, check, guest: vm.guest, network: vm.network });
  }

  /** Something that is reported has changed. */
  changed(): void {
    this.watchHealth();
    this.watchers.changed();
    if (!this.isReleased) this.deps.onChange(this.#journal.machineId);
  }

  /**
   * Reports a fact that the observed state does not have. The server itself adds events for changes of state.
   */
  event(event: NewEvent): void {
    this.deps.onEvent(this.#journal.machineId, event);
  }

  /** Detaches from the VM, which continues to run. Resolves when the journal is on the disk. */
  async release(): Promise<void> {
    this.isReleased = true;
    this.watchHealth();
    this.held.release();
    await Promise.all([this.workload.release(), this.#file.idle()]);
  }

  #restart(reason: string, silentMs = 0): void {
    const { generation, spec, restarts } = this.#journal;
    const failed = (text: string): void => void this.update({ ending: { generation, kind: "failed", reason: text } });
    if (spec?.restart === "never") return failed(reason);
    const now = this.deps.clock.now();
    const before = countedAt(restarts?.at ?? [], now, silentMs);
    const restartAt = nextRestart(before, now);
    if (restartAt === null) {
      const minutes = RESTART_WINDOW_MS / 60_000;
      const often = `it was restarted ${before.length} times within ${minutes} minutes of work`;
      return failed(`${reason}; ${often} and will not be restarted again: fix the cause, then start it`);
    }
    const pauseMs = restartAt - now;
    this.event({ type: "machine.crashed", data: { reason, restartSeconds: Math.ceil(pauseMs / 1000) } });
    const at = [...before, restartAt];
    void this.update({
      ending: { generation, kind: "crashed", reason, restartAt },
      restarts: { at, isUnderWay: false },
    });
  }

  /** The VM ended, and not because the agent ended it. */
  #noteEnd(exit: VmExit, { vm, wasConfigured }: EndedVm): void {
    const { generation, desired } = this.#journal;
    if (desired !== "running") return;
    if (exit.kind === "fenced") return this.fenced(exit.detail);
    if (exit.kind === "crashed" && !wasConfigured && this.templateRetry.grant(vm)) {
      this.log.warn({ exit }, "a restored guest died before it was set up; the machine boots without a template");
      return;
    }
    if (exit.kind === "poweroff" && wasConfigured) {
      void this.update({ ending: { generation, kind: "poweredOff", reason: "the guest powered off" } });
    } else {
      const reason = `the machine ended by itself (${exit.kind}): ${exit.detail}`;
      if (wasConfigured) this.crashed(reason);
      else this.fail(generation, reason);
    }
  }
}
