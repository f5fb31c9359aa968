/**
 * All machines of this node: finds or makes the supervisor for a request, and answers with what is observed.
 *
 * Owns the machines directory and the ids of their users.
 *
 * Always:
 * - There is one supervisor per machine.
 * - A request older than the removal of a machine does not make it again, as long as this process lives: a
 *   late request cannot outlive its connection. For fenced machines this holds after a restart too: servers
 *   name removed ones before any of them begins.
 */
import { rename } from "node:fs/promises";
import { join } from "node:path";
import {
  type AbsentMachine,
  type DesiredMachine,
  FENCE_MS,
  type ObservedMachine,
  type SuspendedMachines,
} from "@flotilla/contract/link/link";
import { every } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import { absentMachine } from "@flotilla/contract/link/absent";
import { syncToDisk } from "../host/sync-to-disk.ts";
import type { PausedVm } from "../driver/driver.ts";
import type { Sender } from "./egress-meter.ts";
import type { Journal } from "./journal.ts";
import type { NodeMachine, SupervisedMachine } from "./node-machine.ts";
import { LOOK_MS } from "./responsiveness.ts";
import { Supervisor } from "./supervisor.ts";
import type { SupervisorDeps, RemovedMachine, MachineDeps } from "./machine-deps.ts";
import { UnreadableMachine, type UnreadableMachineOptions } from "./unreadable-machine.ts";

/** Removed machines whose last generation is remembered. */
const REMOVED_MAX = 10_000;

export interface Acceptance {
  readonly outcome: "accepted" | "stale";
  readonly observed: ObservedMachine;
}

export interface AdmitOptions {
  /** The VM with which the machine came. */
  readonly paused?: PausedVm | null;
  /** Called when the machine is here, before any request for it. */
  readonly onAdded?: () => void;
}

export class Fleet {
  readonly #deps: SupervisorDeps;
  readonly #supervisors = new Map<string, Supervisor | UnreadableMachine>();
  /** Machines whose directory gets its name at this moment. */
  readonly #arriving = new Map<string, Promise<void>>();
  #isRestored = false;
  readonly #endLooks: () => void;
  readonly #removed = new Map<string, number>();

  constructor(deps: MachineDeps) {
    this.#deps = {
      ...deps,
      onRemoved: (removed) => this.#forget(removed),
      onLayersFreed: () => void this.collectPoints(),
    };
    deps.driver.lease.watch(() => {
      for (const machine of this.#supervised) machine.leaseRenewed();
    });
    this.#endLooks = every(deps.clock, LOOK_MS, () => {
      for (const machine of this.#supervised) machine.lookAtGuest();
    });
  }

  find(machineId: string): NodeMachine | undefined {
    return this.#supervisors.get(machineId);
  }

  get size(): number {
    return this.#supervisors.size;
  }

  list(): readonly NodeMachine[] {
    return this.#all();
  }

  /** The machines that run. */
  senders(): readonly Sender[] {
    return this.#supervised.flatMap(({ sender }) => sender ?? []);
  }

  #all(): readonly (Supervisor | UnreadableMachine)[] {
    return [...this.#supervisors.values()];
  }

  get #supervised(): readonly Supervisor[] {
    return this.#all().filter((machine) => machine instanceof Supervisor);
  }

  /** The observed state of a machine, also of one that this node does not have. */
  observe(machineId: string): ObservedMachine {
    return this.find(machineId)?.observe() ?? absentMachine(machineId, this.#removed.get(machineId) ?? 0);
  }

  /** Adds a machine that has a journal. */
  restore(journal: Journal): void {
    this.#restore(journal, null);
  }

  /** Has the machines that were restored continue from their journals. */
  resume(): void {
    for (const machine of this.#supervised) machine.resume();
  }

  /**
   * What is observed when the VMs of an earlier agent have been found or are known to be gone, or after
   * `waitMs`. Does not wait for a VM that was still booting.
   */
  async adopted(waitMs: number): Promise<readonly ObservedMachine[]> {
    await Promise.all(this.#supervised.map((machine) => machine.adopted(waitMs)));
    return this.list().map((machine) => machine.observe());
  }

  /**
   * Adds a machine that came from another node: its directory, which is `staging`, gets its name. Requests
   * for the machine wait until that is done. Throws when a newer request removed the machine already, or it
   * is there.
   */
  async admit(
    journal: Journal,
    staging: string,
    { paused = null, onAdded }: AdmitOptions = {},
  ): Promise<SupervisedMachine> {
    const { machineId, generation } = journal;
    if (this.find(machineId) !== undefined || (this.#removed.get(machineId) ?? 0) >= generation)
      throw new Error(`machine ${machineId} is on this node already, or was removed from it`);
    const added = Promise.withResolvers<void>();
    this.#arriving.set(machineId, added.promise);
    const { machinesDirectory } = this.#deps;
    try {
      await rename(staging, join(machinesDirectory, machineId));
      // The machine is here, also if that is not durable yet.
      const synced = syncToDisk(machinesDirectory);
      await synced.catch(() => undefined);
      const machine = this.#restore(journal, paused);
      onAdded?.();
      this.#deps.onChange(machineId);
      await synced;
      return machine;
    } finally {
      this.#arriving.delete(machineId);
      added.resolve();
    }
  }

  /** The last generation of a machine that was removed by this process; 0: it was not. */
  removedAt(machineId: string): number {
    return this.#removed.get(machineId) ?? 0;
  }

  /** Adds a machine whose files are kept as they are, because they are not enough to run it. */
  keepUnreadable(unreadable: Omit<UnreadableMachineOptions, "deps" | "directory">): void {
    const { machineId } = unreadable;
    const directory = join(this.#deps.machinesDirectory, machineId);
    this.#supervisors.set(machineId, new UnreadableMachine({ ...unreadable, directory, deps: this.#deps }));
  }

  /**
   * Accepts a desired state, and waits until it is reached or has failed, at most `waitMs`. Throws when the
   * node cannot take another machine or its disk is full.
   */
  async apply(
    machineId: string,
    desired: DesiredMachine,
    wait: { readonly waitMs: number; readonly signal: AbortSignal },
  ): Promise<Acceptance> {
    const arriving = this.#arriving.get(machineId);
    if (arriving !== undefined) await arriving;
    const supervisor = this.#supervisors.get(machineId) ?? this.#supervisorFor(machineId, desired);
    if (supervisor === "stale") return { outcome: "stale", observed: this.observe(machineId) };
    if (supervisor === "lost") return { outcome: "accepted", observed: this.observe(machineId) };
    if (supervisor === "absent") {
      return { outcome: "accepted", observed: absentMachine(machineId, desired.generation) };
    }
    const outcome = await supervisor.accept(desired);
    if (outcome === "stale") return { outcome, observed: supervisor.observe() };
    return { outcome, observed: await supervisor.settled(desired.generation, wait.waitMs, wait.signal) };
  }

  /**
   * A server has acknowledged a heartbeat that was sent at this instant of `Clock.boottime`. The machines
   * that it named are being removed, and their requests are on the disk, before fenced VMs may run on. Never
   * rejects.
   */
  async acknowledged(sentAt: number, absent: readonly AbsentMachine[]): Promise<void> {
    const removals = absent.map(async ({ machineId, generation }) => {
      const wait = { waitMs: 0, signal: new AbortController().signal };
      await this.apply(machineId, { generation, state: "absent", spec: null }, wait);
    });
    for (const { reason } of (await Promise.allSettled(removals)).filter(
      ({ status }) => status === "rejected",
    ) as PromiseRejectedResult[])
      this.#deps.log.error(
        { error: reason as unknown },
        "a machine that is to be absent could not be removed; the server requests it again",
      );
    this.#deps.driver.lease.renew(sentAt + FENCE_MS);
  }

  /**
   * The layers that machines' disks are on top of. Throws before all journals have been read. A machine whose
   * journal is lost names them nowhere: nothing is collected while there is one.
   */
  layersInUse(): readonly string[] {
    if (!this.#isRestored) throw new Error("the machines' journals have not been read yet");
    if (this.#all().some((machine) => machine instanceof UnreadableMachine))
      throw new Error("the disks of a machine are not known");
    return this.#supervised.flatMap(({ known }) => known.journal.layers ?? []);
  }

  /** Removes what no point and no machine needs any more. Logs why not. */
  async collectPoints(): Promise<void> {
    try {
      await this.#deps.points.collect(() => this.layersInUse());
    } catch (error) {
      this.#deps.log.warn({ reason: messageOf(error) }, "files of points are kept that may not be needed");
    }
  }

  /** All journals have been read. */
  finishRestoring(): void {
    this.#isRestored = true;
  }

  /**
   * Digests of the images that machines depend on; all images, while the image of a machine is unknown.
   * Throws before all journals have been read.
   */
  async imagesInUse(): Promise<ReadonlySet<string>> {
    if (!this.#isRestored) throw new Error("the machines' journals have not been read yet");
    const { images, prepared, imagesArriving } = this.#deps;
    const machines = this.#all();
    const isUnknown = machines.some((machine) => machine instanceof UnreadableMachine && machine.imageDigest === null);
    const all = isUnknown ? (await images.list()).map(({ digest }) => digest) : [];
    const digests = machines.map(({ imageDigest }) => imageDigest).filter((digest) => digest !== null);
    const ofPoints = this.#deps.points.list().map(({ imageDigest }) => imageDigest);
    return new Set([...digests, ...ofPoints, ...all, ...prepared.imageDigests, ...[...imagesArriving.values()].flat()]);
  }

  /**
   * Detaches from the machines' VMs, which continue to run until the next agent adopts them, and ends all
   * other VMs.
   */
  async release(): Promise<void> {
    this.#endLooks();
    await this.#deps.prepared.release();
    await Promise.all(this.#supervised.map((supervisor) => supervisor.release()));
    await this.endUnknownVms();
  }

  /**
   * The host is about to go down: suspends every machine that runs and whose owner permits it, shuts the
   * others down, and starts none until `resumeAll` or the next agent. Resolves when that is done, at the
   * latest after `deadlineMs`.
   */
  async suspendAll(deadlineMs: number, signal: AbortSignal): Promise<SuspendedMachines> {
    const { hostStop } = this.#deps;
    const machines = this.#supervised;
    if (!hostStop.isStopping) for (const machine of machines) machine.noteBeforeHostStop();
    hostStop.begin(deadlineMs);
    const ended: Record<"suspended" | "stopped" | "running", string[]> = { suspended: [], stopped: [], running: [] };
    await Promise.all(
      machines.map(async (machine) => {
        const how = await machine.endForHost(deadlineMs, signal);
        if (how !== null) ended[how].push(machine.machineId);
      }),
    );
    return ended;
  }

  /** The host did not go down: what is to run runs again. */
  resumeAll(): void {
    this.#deps.hostStop.end();
    this.resume();
  }

  /** Ends every VM that belongs to no machine. Returns how many there were. */
  async endUnknownVms(): Promise<number> {
    if (!this.#isRestored) return 0;
    const known = this.#all().flatMap((supervisor) => supervisor.vmmIds);
    return await this.#deps.driver.sweep(new Set(known));
  }

  /**
   * A supervisor for a machine that is new here. A machine that is to be absent needs none, and one that had
   * a disk here gets none.
   */
  #supervisorFor(
    machineId: string,
    { generation, state, hasDisk = false }: DesiredMachine,
  ): Supervisor | "absent" | "stale" | "lost" {
    const removedAt = this.#removed.get(machineId) ?? 0;
    if (state === "absent") {
      this.#remember(machineId, Math.max(generation, removedAt));
      this.#deps.onChange(machineId);
      return "absent";
    }
    if (generation <= removedAt) return "stale";
    if (hasDisk) {
      this.#deps.log.error({ machine: machineId }, "the files of a machine are gone; no new disk is made for it");
      return "lost";
    }
    const { users } = this.#deps;
    const uid = users.take();
    const nothing = { spec: null, imageDigest: null, hasDisk: false, boot: null, ending: null };
    try {
      return this.#supervise({ machineId, uid, generation: 0, desired: "stopped", ...nothing }, null);
    } catch (error) {
      users.free(uid);
      throw error;
    }
  }

  #restore(journal: Journal, paused: PausedVm | null): Supervisor {
    this.#deps.users.reserve(journal.uid);
    return this.#supervise(journal, paused);
  }

  #supervise(journal: Journal, paused: PausedVm | null): Supervisor {
    const directory = join(this.#deps.machinesDirectory, journal.machineId);
    const supervisor = new Supervisor(this.#deps, directory, journal, paused);
    this.#supervisors.set(journal.machineId, supervisor);
    return supervisor;
  }

  #forget({ machineId, generation, uid }: RemovedMachine): void {
    this.#supervisors.delete(machineId);
    if (uid !== null) this.#deps.users.free(uid);
    this.#remember(machineId, generation);
    void this.collectPoints();
  }

  #remember(machineId: string, generation: number): void {
    this.#removed.delete(machineId);
    this.#removed.set(machineId, generation);
    const [oldest] = this.#removed.keys();
    if (this.#removed.size > REMOVED_MAX && oldest !== undefined) this.#removed.delete(oldest);
  }
}
