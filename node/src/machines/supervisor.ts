/**
 * One machine on this node: takes what is wanted of it, and does what the plan says until that is so.
 *
 * Owns the machine's directory (`journal.json`, `disk`, `boots/<boot id>/`) and its VM. Leaves running VMs to the
 * driver, file systems to images and disks, and every judgement to plan.ts.
 *
 * Always: one action at a time; the plan is asked again after each. A new wish interrupts an action that works for
 * something no longer wanted (INTERRUPTED_BY). A boot is in `liveBoots` and in the journal before its VMM is started.
 *
 * Runs while there is something to do: an idle machine costs a map entry and its VM's channel. If the process dies in
 * the middle of any action, adopt.ts finds the journal and the plan goes on from it.
 */
import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { DesiredMachine, MachineSpec, ObservedMachine, ObservedState } from "@flotilla/contract/link";
import { SETTLED_STATES } from "@flotilla/contract/link";
import type { EventLevel } from "@flotilla/contract/machines";
import { deadlineSignal, orAborted } from "../clock.ts";
import { diskBytes } from "../disks/disks.ts";
import type { BootRequest, Vm, VmExit, VmNetwork } from "../driver/driver.ts";
import type { Guest } from "../guest/guest.ts";
import type { RootFile } from "../images/images.ts";
import { type Log, messageOf } from "../log.ts";
import { bootRequest, bootVm } from "./boot-vm.ts";
import { guestConfiguration } from "./configuration.ts";
import { configureVm, EXIT_GRACE_MS } from "./configure-vm.ts";
import { type Journal, JournalFile, type JournaledBoot } from "./journal.ts";
import { MachineDisk } from "./machine-disk.ts";
import { MachineLog } from "./machine-log.ts";
import { type Next, observedState, plan } from "./plan.ts";
import { makeBootId, type WaitingVm } from "./prepared-vms.ts";
import { AttemptTimings } from "./start-timings.ts";
import { type Action, isAttempt, isInterruptedBy, type Situation, STATE_DURING, type VmState } from "./state.ts";
import { bootDirectoryName, bootsPathOf, logsPathOf } from "./paths.ts";
import { Readiness } from "./readiness.ts";
import { removeMachineFiles } from "./remove-machine-files.ts";
import type { Surroundings } from "./surroundings.ts";
import { Watchers } from "./watchers.ts";
import { Workload, workloadCommand } from "./workload.ts";

const BOOT_DEADLINE_MS = 120_000;
const ADOPT_DEADLINE_MS = 15_000;
const ADOPT_ATTEMPTS_MAX = 3;
/** From asking the guest to shut down until the VMM is ended. */
const SHUT_DOWN_DEADLINE_MS = 10_000;
/** Progress is told at most this often: every telling is a report to the server. */
const PROGRESS_PERIOD_MS = 250;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 30_000;

export class Supervisor {
  readonly directory: string;
  readonly #around: Surroundings;
  readonly #log: Log;
  readonly #file: JournalFile;
  #journal: Journal;
  #vm: Vm | null = null;
  /** null exactly when the journal names no boot. */
  #vmState: VmState | null;
  #giveBackTurn = (): void => undefined;
  readonly #disk: MachineDisk;
  readonly #workload: Workload;
  /** Also of a machine that is stopped. */
  readonly machineLog: MachineLog;
  #current: { readonly action: Action; readonly controller: AbortController } | null = null;
  #isPumping = false;
  #isReleased = false;
  #isRemoved = false;
  #isQueued = false;
  /** This agent ends the VM itself, so its end needs no explanation. */
  #isEnding = false;
  #adoptAttempts = 0;
  #retries = 0;
  #retry: AbortController | null = null;
  readonly #readiness: Readiness;
  #progress: string | null = null;
  readonly #timings: AttemptTimings;
  readonly #watchers: Watchers;

  /** Makes the machine's directory if it is not there. Nothing happens before `accept` or `resume`. */
  constructor(around: Surroundings, directory: string, journal: Journal) {
    this.#around = around;
    this.directory = directory;
    this.#journal = journal;
    this.#vmState = journal.boot === null ? null : "lost";
    this.#timings = new AttemptTimings(around.clock, journal.boot?.timings ?? null);
    this.#log = around.log.child({ machine: journal.machineId });
    this.#file = new JournalFile(directory);
    this.#disk = new MachineDisk(around, directory);
    this.#readiness = new Readiness(around.clock);
    this.machineLog = new MachineLog(logsPathOf(directory));
    this.#workload = new Workload({
      machineLog: this.machineLog,
      clock: around.clock,
      log: this.#log,
      onEvent: (level, message) => this.#event(level, message),
    });
    this.#watchers = new Watchers(around.clock);
    if (journal.boot !== null) around.liveBoots.add(journal.boot.bootId);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  get machineId(): string {
    return this.#journal.machineId;
  }

  /** The guest, while the machine runs. */
  get guest(): Guest | null {
    return this.#vmState === "ready" && this.#journal.desired === "running" ? (this.#vm?.guest ?? null) : null;
  }

  /** The way to the guest's ports, while the machine runs. */
  get network(): VmNetwork | null {
    return this.guest === null ? null : (this.#vm?.network ?? null);
  }

  /** The image that the machine's files depend on. */
  get imageDigest(): string | null {
    return this.#disk.heldDigest ?? this.#journal.imageDigest;
  }

  get spec(): MachineSpec | null {
    return this.#journal.spec;
  }

  /**
   * Takes up what is wanted, unless something newer is known. Resolves when it is on the disk; what follows from it
   * has begun then and goes on.
   */
  async accept(desired: DesiredMachine): Promise<"accepted" | "stale"> {
    const { generation, state, spec } = desired;
    const known = this.#journal;
    if (generation === known.generation && state === known.desired) {
      await this.#file.save(known);
      return "accepted";
    }
    // Absent is final: what is being removed can not be wanted back.
    if (generation <= known.generation || known.desired === "absent") return "stale";
    if (state === "running" && this.#vmState !== "ready") this.#timings.begin();
    const saved = this.#update({ generation, desired: state, spec: spec ?? known.spec });
    if (this.#current !== null && isInterruptedBy(this.#current.action, state)) {
      this.#current.controller.abort(new Error(`the machine is to be ${state}`));
    }
    this.#retry?.abort();
    void this.#pump();
    await saved;
    return "accepted";
  }

  /** Goes on with what the journal says, after a restart of the agent. */
  resume(): void {
    this.#timings.resume();
    void this.#pump();
  }

  observe(): ObservedMachine {
    const { machineId, generation, boot, ending } = this.#journal;
    const state = this.#observedState();
    const isRunning = state === "running";
    const ended = ending?.generation === generation ? ending : null;
    return {
      machineId,
      generation,
      state,
      bootId: boot?.bootId ?? null,
      runningSince: isRunning ? (boot?.runningSince ?? null) : null,
      readySince: isRunning ? (boot?.readySince ?? null) : null,
      reason: ended?.reason ?? null,
      hasPoweredOff: ended?.kind === "poweredOff",
      progress: state === "preparing" ? (this.#isQueued ? "waiting for others to boot" : this.#progress) : null,
      hostPorts: isRunning ? (this.#vm?.network?.hostPorts ?? []) : [],
      timings: isRunning ? this.#timings.noted : null,
    };
  }

  /** What is observed once it has settled in this generation or a later one, or when the time is up. */
  async settled(generation: number, waitMs: number, signal: AbortSignal): Promise<ObservedMachine> {
    const isSettled = (): boolean =>
      this.#journal.generation >= generation &&
      (SETTLED_STATES as readonly ObservedState[]).includes(this.#observedState());
    await this.#watchers.until(isSettled, waitMs, signal);
    return this.observe();
  }

  /**
   * Resolves when the VM of an earlier agent has been found or is known to be gone, or when the time is up. Nobody
   * waits for one that was still booting.
   */
  async adopted(waitMs: number): Promise<ObservedMachine> {
    const isDone = (): boolean => this.#vmState !== "lost" || typeof this.#journal.boot?.runningSince !== "number";
    await this.#watchers.until(isDone, waitMs);
    return this.observe();
  }

  /** Lets go of the VM, which runs on, and begins nothing more. Resolves when the journal is on the disk. */
  async release(): Promise<void> {
    this.#isReleased = true;
    if (this.#current?.action === "ensureImage") this.#current.controller.abort(new Error("the node agent shuts down"));
    this.#retry?.abort();
    this.#vm?.release();
    this.#letGo();
    await Promise.all([this.#workload.release(), this.#file.idle()]);
  }

  #observedState(): ObservedState {
    if (this.#isRemoved) return "absent";
    if (this.#current === null) return observedState(plan(this.#situation()));
    return this.#isQueued ? "preparing" : STATE_DURING[this.#current.action];
  }

  #situation(): Situation {
    const { desired, generation, hasDisk, ending } = this.#journal;
    return { desired, generation, hasDisk, ending, hasImage: this.#disk.heldDigest !== null, vm: this.#vmState };
  }

  /** Changes the journal now; resolves when the change is on the disk. Who does not wait need not handle a failure. */
  #update(change: Partial<Journal>): Promise<void> {
    this.#journal = { ...this.#journal, ...change };
    const saved = this.#file.save(this.#journal);
    saved.catch((error: unknown) => this.#log.error({ error }, "the machine's journal could not be written"));
    return saved;
  }

  #changed(): void {
    this.#watchers.changed();
    if (!this.#isReleased) this.#around.onChange(this.machineId);
  }

  /** Does what the plan says until it has settled. At most one runs; a wish that comes meanwhile is seen by it. */
  async #pump(): Promise<void> {
    if (this.#isPumping) return;
    this.#isPumping = true;
    for (;;) {
      if (this.#isReleased || this.#isRemoved) break;
      const next = plan(this.#situation());
      if (next.kind === "settled") break;
      await this.#step(next);
    }
    this.#isPumping = false;
    this.#changed();
  }

  /** Never rejects: a failure ends the attempt, or is tried again after a while. */
  async #step({ action, when }: Extract<Next, { kind: "act" }>): Promise<void> {
    const { generation } = this.#journal;
    const controller = new AbortController();
    const startedAt = this.#around.clock.monotonic();
    this.#current = { action, controller };
    this.#changed();
    try {
      await this.#apply(action, controller.signal);
      this.#retries = 0;
      this.#log.debug({ action, when, ms: Math.round(this.#around.clock.monotonic() - startedAt) }, "action done");
    } catch (error) {
      if (this.#isReleased) return;
      if (controller.signal.aborted) this.#log.info({ action }, "action interrupted");
      else if (isAttempt(action)) this.#fail(generation, messageOf(error));
      else await this.#waitToRetry(action, error);
    } finally {
      // Between its VM's first step and the end of its configuration a machine keeps its turn.
      if (this.#vmState !== "up") this.#giveBackTurn();
      this.#progress = null;
      this.#isQueued = false;
      this.#current = null;
    }
  }

  async #waitToRetry(action: Action, error: unknown): Promise<void> {
    const delayMs = Math.min(RETRY_MS_MIN * 2 ** this.#retries, RETRY_MS_MAX);
    this.#retries += 1;
    this.#log.warn({ action, error, delayMs }, "action failed and is tried again");
    this.#retry = new AbortController();
    await this.#around.clock.sleep(delayMs, this.#retry.signal);
    this.#retry = null;
  }

  /** The attempt to run the machine has ended. The first reason of a generation stays: it is the nearest to the cause. */
  #fail(generation: number, reason: string): void {
    this.#log.warn({ generation, reason }, "the machine could not be run");
    if (this.#journal.ending?.generation === generation) return;
    void this.#update({ ending: { generation, kind: "failed", reason } });
  }

  #apply(action: Action, signal: AbortSignal): Promise<void> {
    switch (action) {
      case "adopt":
        return this.#adopt(signal);
      case "ensureImage":
        return this.#ensureImage(signal);
      case "makeDisk":
        return this.#makeDisk(signal);
      case "boot":
        return this.#boot(signal);
      case "configure":
        return this.#configure(signal);
      case "shutDown":
        return this.#shutDown(signal);
      case "kill":
        return this.#kill();
      case "cleanBoot":
        return this.#cleanBoot();
      case "removeFiles":
        return this.#removeFiles();
    }
  }

  #requiredSpec(): MachineSpec {
    const { spec, machineId } = this.#journal;
    if (spec === null) throw new Error(`machine ${machineId} has no specification`);
    return spec;
  }

  async #ensureImage(signal: AbortSignal): Promise<void> {
    const { clock } = this.#around;
    const startedAt = clock.monotonic();
    let saidAt = startedAt;
    const tell = {
      event: (message: string): void => this.#event("info", message),
      progress: (message: string): void => {
        this.#progress = message;
        if (clock.monotonic() - saidAt < PROGRESS_PERIOD_MS) return;
        saidAt = clock.monotonic();
        this.#changed();
      },
    };
    const imageDigest = await this.#disk.ensureImage(this.#requiredSpec(), tell, signal);
    void this.#update({ imageDigest });
    this.#timings.note({ imageMs: clock.monotonic() - startedAt });
  }

  async #makeDisk(signal: AbortSignal): Promise<void> {
    const { clock } = this.#around;
    const startedAt = clock.monotonic();
    const waiting = await this.#disk.make(this.#requiredSpec(), this.#journal.uid);
    void this.#update({ hasDisk: true });
    this.#timings.note({ diskMs: clock.monotonic() - startedAt });
    if (waiting !== undefined) await this.#boot(signal, waiting);
  }

  async #boot(signal: AbortSignal, withDisk?: WaitingVm): Promise<void> {
    const { driver, clock, liveBoots, prepared, freeUser } = this.#around;
    prepared.starting();
    try {
      const root = await this.#diskRoot().catch(async (error: unknown) => {
        await prepared.discard(withDisk?.vm);
        throw error;
      });
      const waiting = (withDisk ?? prepared.take(this.#requiredSpec()))?.vm;
      this.#giveBackTurn = await this.#turn(waiting === undefined ? "boot" : "wake", signal).catch(
        async (error: unknown) => {
          await prepared.discard(waiting);
          throw error;
        },
      );
      const startedAt = clock.monotonic();
      const bootId = waiting?.bootId ?? makeBootId();
      const boot: JournaledBoot = { bootId, record: null, runningSince: null, timings: null };
      const formerUid = this.#journal.uid;
      this.#vmState = "ended";
      liveBoots.add(bootId);
      const saved = this.#update({ boot, uid: waiting?.uid ?? formerUid });
      const deadline = deadlineSignal(clock, BOOT_DEADLINE_MS, signal);
      const options = { driver, log: this.#log, prepared: waiting, saved, signal: deadline.signal };
      const vm = await bootVm(this.#bootRequest(bootId, root), options).finally(() => deadline.dispose());
      // The disk has its new user now.
      if (waiting !== undefined) freeUser(formerUid);
      if (this.#isReleased) return vm.release();
      void this.#update({ boot: { ...boot, record: vm.record } });
      this.#timings.note({ ...(vm.origin === null ? {} : { vm: vm.origin }), bootMs: clock.monotonic() - startedAt });
      this.#hold(vm);
    } finally {
      prepared.started();
    }
  }

  #diskRoot(): Promise<RootFile> {
    return this.#disk.root(this.#requiredSpec(), this.#journal.imageDigest);
  }

  /** Waits for a turn to start, and for memory if it is to boot. The function gives the turn back. */
  async #turn(kind: "boot" | "wake", signal: AbortSignal): Promise<() => void> {
    const { bootSlots, wakeSlots, ensureMemoryRoom } = this.#around;
    const slots = kind === "boot" ? bootSlots : wakeSlots;
    let giveBack = slots.tryTake();
    if (giveBack === undefined) {
      this.#isQueued = true;
      this.#changed();
      giveBack = await slots.take(this.#requiredSpec().tenantId, signal);
      this.#isQueued = false;
      this.#changed();
    }
    try {
      if (kind === "boot") await ensureMemoryRoom();
      return giveBack;
    } catch (error) {
      giveBack();
      throw error;
    }
  }

  #bootRequest(bootId: string, root: RootFile | null): BootRequest {
    return bootRequest({ spec: this.#requiredSpec(), directory: this.directory, bootId, root, uid: this.#journal.uid });
  }

  async #configure(signal: AbortSignal): Promise<void> {
    const { driver, clock } = this.#around;
    const vm = this.#vm;
    if (vm === null || this.#journal.boot === null) throw new Error("the VM ended before it was configured");
    const startedAt = clock.monotonic();
    const image = (await this.#disk.image(this.#journal.imageDigest)).configuration;
    const configuration = guestConfiguration({
      spec: this.#requiredSpec(),
      image,
      rootDevice: driver.facts.rootDevice,
      rootBytes: diskBytes(this.#requiredSpec().diskGb, (await this.#diskRoot()).rootBytes),
      network: vm.network,
      now: clock.now(),
      entropy: randomBytes(64),
    });
    await configureVm(vm, configuration, clock, signal);
    this.#timings.note({ configureMs: clock.monotonic() - startedAt, totalMs: this.#timings.totalMs });
    this.#becomeReady(vm, { ...this.#journal.boot, workload: workloadCommand(this.#requiredSpec(), image) });
  }

  async #adopt(signal: AbortSignal): Promise<void> {
    const { boot, desired } = this.#journal;
    if (boot === null) return;
    const hasRun = boot.runningSince !== null;
    if (!hasRun && desired === "stopped") {
      // Nothing in it is worth a clean end, and its agent may take long to answer.
      this.#vmState = "unreachable";
      return;
    }
    const root = await this.#diskRoot().catch(() => null);
    const deadline = deadlineSignal(this.#around.clock, hasRun ? ADOPT_DEADLINE_MS : BOOT_DEADLINE_MS, signal);
    try {
      const request = this.#bootRequest(boot.bootId, root);
      const vm = await this.#around.driver.adopt(request, boot.record, deadline.signal);
      if (vm === "gone") return await this.#foundGone(boot);
      this.#adoptAttempts = 0;
      this.#hold(vm);
      // A prepared guest is configured before it is this machine, and is configured again.
      if (vm.guest.hello.isConfigured && boot.runningSince !== null) this.#becomeReady(vm, boot);
      this.#log.info({ boot: boot.bootId, state: this.#vmState }, "a running VM was adopted");
    } catch (error) {
      signal.throwIfAborted();
      this.#adoptAttempts += 1;
      if (this.#adoptAttempts < ADOPT_ATTEMPTS_MAX) throw error;
      this.#vmState = "unreachable";
      this.#fail(this.#journal.generation, `the machine's agent does not answer: ${messageOf(error)}`);
    } finally {
      deadline.dispose();
    }
  }

  /** A machine that ran has failed; one that was only starting is started again, because nobody was told anything. */
  async #foundGone({ bootId, runningSince }: JournaledBoot): Promise<void> {
    // A VMM that had not yet left a trace when the agent died is not found by its record, but by this.
    this.#around.liveBoots.delete(bootId);
    await this.#around.driver.sweep(this.#around.liveBoots);
    this.#vmState = "ended";
    if (runningSince === null || this.#journal.desired !== "running") return;
    this.#fail(this.#journal.generation, "the machine ended while the node agent was away");
  }

  #becomeReady(vm: Vm, boot: JournaledBoot): void {
    if (this.#vm !== vm || this.#journal.boot?.bootId !== boot.bootId) return;
    this.#vmState = "ready";
    const runningSince = boot.runningSince ?? this.#around.clock.now();
    const ports = this.#requiredSpec().ports.map(({ port }) => port);
    // Without a port that could be looked at, the agent's answer is all there is.
    const readySince = boot.readySince ?? (ports.length === 0 || vm.network === null ? runningSince : null);
    void this.#update({ boot: { ...boot, record: vm.record, runningSince, readySince, timings: this.#timings.noted } });
    if (readySince === null && vm.network !== null)
      this.#readiness.begin(vm.network, ports, () => this.#becomeUseful());
    if (!boot.workload) return;
    const isEnding = (): boolean => this.#journal.desired !== "running";
    this.#workload
      .attach(vm.guest, { argv: boot.workload, boot: bootDirectoryName(boot.bootId), isEnding })
      .catch((error: unknown) =>
        this.#log.error({ error }, "the machine's log could not be read; its workload is not heard"),
      );
  }

  /** A published port has taken a connection. */
  #becomeUseful(): void {
    const { boot } = this.#journal;
    if (boot !== null) void this.#update({ boot: { ...boot, readySince: this.#around.clock.now() } });
    this.#changed();
  }

  /** Takes a VM that has said hello, and watches for its end. */
  #hold(vm: Vm): void {
    if (this.#isReleased) return vm.release();
    this.#vm = vm;
    this.#vmState = "up";
    void vm.exited.then((exit) => this.#onExit(vm, exit));
    void vm.guest.closed.then((reason) => this.#onChannelLost(vm, reason));
  }

  #onExit(vm: Vm, exit: VmExit): void {
    if (this.#vm !== vm) return;
    const wasReady = this.#vmState === "ready";
    this.#letGo();
    this.#vmState = "ended";
    this.#log.info({ exit, isExpected: this.#isEnding }, "the VM ended");
    const { generation, desired } = this.#journal;
    if (!this.#isEnding && desired === "running") {
      if (exit.kind === "poweroff" && wasReady) {
        const reason = "the guest powered off";
        void this.#update({ ending: { generation, kind: "poweredOff", reason } });
      } else {
        this.#fail(generation, `the machine ended by itself (${exit.kind}): ${exit.detail}`);
      }
    }
    this.#retry?.abort();
    void this.#pump();
  }

  async #onChannelLost(vm: Vm, reason: string): Promise<void> {
    await this.#around.clock.sleep(EXIT_GRACE_MS);
    if (this.#vm !== vm || this.#isEnding || this.#isReleased) return;
    this.#log.warn({ reason }, "the channel to the guest broke while its VM runs on");
    vm.release();
    this.#letGo();
    this.#vmState = "lost";
    void this.#pump();
  }

  async #shutDown(signal: AbortSignal): Promise<void> {
    const vm = this.#vm;
    if (vm === null) return;
    this.#isEnding = true;
    const deadline = deadlineSignal(this.#around.clock, SHUT_DOWN_DEADLINE_MS, signal);
    try {
      await orAborted(vm.guest.shutDown(), deadline.signal);
      await orAborted(vm.exited, deadline.signal);
    } catch (error) {
      signal.throwIfAborted();
      this.#event("warn", `the machine did not shut down cleanly and was ended: ${messageOf(error)}`);
      await this.#kill();
    } finally {
      deadline.dispose();
    }
    this.#forgetVm();
  }

  async #kill(): Promise<void> {
    const { boot } = this.#journal;
    this.#isEnding = true;
    if (this.#vm !== null) await this.#vm.kill();
    else if (boot !== null && this.#vmState !== "ended") {
      // Nobody holds it: what is not among the live boots is ended by the driver.
      this.#around.liveBoots.delete(boot.bootId);
      await this.#around.driver.sweep(this.#around.liveBoots);
    }
    this.#forgetVm();
  }

  #letGo(): void {
    this.#vm = null;
    this.#readiness.end();
  }

  #forgetVm(): void {
    this.#letGo();
    this.#vmState = this.#journal.boot === null ? null : "ended";
  }

  async #cleanBoot(): Promise<void> {
    const { boot } = this.#journal;
    await this.#workload.finish();
    if (boot !== null) {
      await rm(join(bootsPathOf(this.directory), bootDirectoryName(boot.bootId)), { recursive: true, force: true });
      this.#around.liveBoots.delete(boot.bootId);
    }
    this.#vmState = null;
    this.#isEnding = false;
    this.#adoptAttempts = 0;
    void this.#update({ boot: null });
  }

  async #removeFiles(): Promise<void> {
    await this.#file.idle();
    await removeMachineFiles(this.directory);
    this.machineLog.close();
    this.#isRemoved = true;
    this.#around.onRemoved(this.#journal);
  }

  /** Only what the observed state does not say: the server writes its changes on the timeline itself. */
  #event(level: EventLevel, message: string): void {
    this.#around.onEvent(this.machineId, level, message);
  }
}
