/**
 * Makes points of machines, and releases them.
 *
 * Always:
 * - One point of a machine is made at a time. Until it is, nothing suspends the machine, gives it another
 *   VMM, moves it or shuts it down (`Machine.branching`); a kill does not wait, and ends it.
 * - A fault leaves the machine as it was, or with one more layer below its disk, which has the same content.
 *
 * What a loss of the agent (A), the VMM (V) or the host leaves, and what the next agent finds:
 *
 *     until the journal names the layer   a directory without point.json: removed
 *     … until the disk is on top          the disk is the layer: the journal drops it (machines/adopt.ts)
 *     … until the guest writes there      an empty disk on top of the one that the guest writes to: the same
 *                                         content; A: the VM, paused or not, is adopted and runs on
 *     … until point.json                  one more layer and no point; A: as before
 *     afterwards                          the point; its request is answered when it is repeated
 */
import { randomBytes } from "node:crypto";
import { link, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { MadePoint } from "@flotilla/contract/link/points";
import { type BegunPoint, SuspendRefused } from "../driver/driver.ts";
import { collapse, LAYERS_ENOUGH } from "../machines/collapsing.ts";
import type { Fleet } from "../machines/fleet.ts";
import type { Machine } from "../machines/machine.ts";
import type { MachineDeps } from "../machines/machine-deps.ts";
import { makeOnTop } from "../machines/machine-disk.ts";
import type { KnownMachine, RunningMachine, SupervisedMachine } from "../machines/node-machine.ts";
import { diskPathOf } from "../machines/paths.ts";
import type { Point, PointMemory } from "../points/points.ts";
import { syncToDisk } from "../host/sync-to-disk.ts";
import { LAYERS_MAX, type PointFacts, refusalOf } from "./refusal.ts";

/** Everything together, most of it while the machine runs. */
const POINT_DEADLINE_MS = 60_000;
/** How long programs may take to stop, and the guest to write its files. */
const GUEST_DEADLINE_MS = 20_000;
const OVERLAY_NAME = "overlay";

/** The machine has no point, and is as before. */
export class PointRefused extends Error {
  /** `interrupted`: an attempt to make the point was, and it needs another id. */
  readonly code: "not_found" | "not_running" | "refused" | "no_space" | "interrupted";

  constructor(code: PointRefused["code"], message: string) {
    super(message);
    this.code = code;
  }
}

export interface WantedPoint {
  readonly pointId: string;
  readonly machineId: string;
  readonly hasMemory: boolean;
  /** Machines boot from its disk too. */
  readonly isKept?: boolean;
}

type BranchedFleet = Pick<Fleet, "find" | "layersInUse" | "collectPoints">;

export class Branches {
  readonly #fleet: BranchedFleet;
  readonly #deps: MachineDeps;
  readonly #underWay = new Map<string, Promise<Point>>();

  constructor(fleet: BranchedFleet, deps: MachineDeps) {
    this.#fleet = fleet;
    this.#deps = deps;
  }

  /** The point; it is made unless it exists. Rejects with PointRefused. */
  async make(wanted: WantedPoint): Promise<MadePoint> {
    const { pointId } = wanted;
    const known = this.#deps.points.find(pointId);
    if (known !== undefined) return madePoint(known);
    const making = this.#underWay.get(pointId) ?? this.#make(wanted);
    this.#underWay.set(pointId, making);
    try {
      return madePoint(await making);
    } finally {
      this.#underWay.delete(pointId);
    }
  }

  /** Also of a point that does not exist. */
  async release(pointId: string): Promise<void> {
    await this.#underWay.get(pointId)?.catch(() => undefined);
    await this.#deps.points.release(pointId);
    await this.#fleet.collectPoints();
  }

  async #make(wanted: WantedPoint): Promise<Point> {
    const found = this.#fleet.find(wanted.machineId);
    if (found === undefined || found.known === null)
      throw new PointRefused("not_found", `machine ${wanted.machineId} is not on this node`);
    if (this.#fleet.layersInUse().includes(wanted.pointId))
      throw new PointRefused("interrupted", "an attempt to make the point was interrupted: use another id");
    let running = await readyToBranch(found);
    // Another one may have begun meanwhile.
    while (running !== null && running.machine.branching !== null) running = await readyToBranch(found);
    const machine = running?.machine ?? found.atRest();
    refuse(found.known, { running, isAtRest: found.atRest() !== null, hasMemory: wanted.hasMemory });
    if (machine === null) throw new PointRefused("not_running", "the machine does not run");
    if (machine.branching !== null) throw new PointRefused("refused", "another point of the machine is being made");
    const { promise, resolve } = Promise.withResolvers<void>();
    machine.branching = promise;
    try {
      await machine.collapsing?.end();
      return await new Making(machine, running, wanted).make();
    } catch (error) {
      throw asRefusal(error);
    } finally {
      machine.branching = null;
      resolve();
      if (this.#deps.points.find(wanted.pointId) === undefined) await this.#fleet.collectPoints();
      void collapseIfLong(found);
    }
  }
}

/** Its disk has room for another layer, unless that cannot be. */
async function readyToBranch(found: SupervisedMachine): Promise<RunningMachine | null> {
  const running = await found.running();
  if (running === null || layersOf(found.known) < LAYERS_MAX) return running;
  await collapse(running).catch(() => undefined);
  return await found.running();
}

/** In the background. The next point ends it, so it is begun long before there are too many. */
async function collapseIfLong(found: SupervisedMachine): Promise<void> {
  if (layersOf(found.known) < LAYERS_ENOUGH) return;
  const running = await found.running();
  if (running !== null) await collapse(running).catch(() => undefined);
}

const layersOf = ({ journal }: Pick<KnownMachine, "journal">): number => journal.layers?.length ?? 0;

interface Asked {
  readonly running: RunningMachine | null;
  readonly isAtRest: boolean;
  readonly hasMemory: boolean;
}

function refuse({ journal, leaving }: KnownMachine, { running, isAtRest, hasMemory }: Asked): void {
  const { vm = null, machine = null } = running ?? {};
  const facts = {
    isAtRest,
    isSuspended: (journal.memory ?? null) !== null,
    isRunning: vm !== null,
    isToRun: journal.desired === "running",
    isMoving: leaving.isUnderWay || leaving.watched !== null,
    isReplacing: machine !== null && machine.replacing !== null,
    isHostStopping: machine?.deps.hostStop.isStopping === true,
    hasMemory,
    canBranch: vm !== null && vm.points !== null && (!hasMemory || vm.guest.freeze !== undefined),
    layers: layersOf({ journal }),
  } satisfies PointFacts;
  const refusal = refusalOf(facts);
  if (refusal !== null) throw new PointRefused(refusal.code, refusal.reason);
}

function asRefusal(error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (error instanceof SuspendRefused)
    return new PointRefused(error.code === "no_space" ? "no_space" : "refused", error.message);
  if (code === "ENOSPC" || code === "EDQUOT") return new PointRefused("no_space", "the node's disk is full");
  return error instanceof PointRefused ? error : new PointRefused("refused", messageOf(error));
}

/** One point while it is made. */
class Making {
  readonly #machine: Machine;
  readonly #running: RunningMachine | null;
  readonly #wanted: WantedPoint;
  readonly #diskPath: string;

  constructor(machine: Machine, running: RunningMachine | null, wanted: WantedPoint) {
    this.#machine = machine;
    this.#running = running;
    this.#wanted = wanted;
    this.#diskPath = diskPathOf(machine.directory);
  }

  async make(): Promise<Point> {
    const { points, clock } = this.#machine.deps;
    const { pointId } = this.#wanted;
    const directory = await points.begin(pointId);
    const limit = deadlineSignal(clock, POINT_DEADLINE_MS);
    try {
      // What a move may have sent is known by the disk's blocks.
      await this.#machine.leaving.forget();
      const overlayPath = join(directory, OVERLAY_NAME);
      await this.#makeOverlay(overlayPath);
      await link(this.#diskPath, points.layerPathOf(pointId));
      return this.#running === null
        ? await this.#ofRest(overlayPath)
        : await this.#ofRunning(this.#running, { directory, overlayPath, signal: limit.signal });
    } finally {
      limit.dispose();
      points.abandon(pointId);
    }
  }

  async #makeOverlay(diskPath: string): Promise<void> {
    const machine = this.#machine;
    const { disks, points } = machine.deps;
    const spec = machine.requiredSpec();
    const root = await machine.disk.root(spec, machine.journal);
    const layerPath = points.layerPathOf(this.#wanted.pointId);
    const place = { diskPath, directory: machine.directory, root, layerPath };
    await makeOnTop(disks, place, { spec, uid: machine.journal.uid });
  }

  async #ofRest(overlayPath: string): Promise<Point> {
    const madeAt = this.#machine.deps.clock.now();
    await this.#putOnTop(overlayPath);
    return await this.#add({ madeAt, pausedMs: 0, memory: null, memoryBytes: 0 });
  }

  async #ofRunning(
    { machine, vm, boot }: RunningMachine,
    { directory, overlayPath, signal }: { directory: string; overlayPath: string; signal: AbortSignal },
  ): Promise<Point> {
    const { hasMemory, isKept = false } = this.#wanted;
    if (vm.points === null) throw new PointRefused("refused", "this node cannot branch machines");
    // Otherwise it would be in the memory alone.
    if (hasMemory && isKept) await this.#inTime(vm.guest.sync(), signal);
    const memoryId = hasMemory ? randomBytes(16).toString("hex") : null;
    const request = { boot, directory: machine.directory, pointDirectory: directory, overlayPath, memoryId };
    const begun = await vm.points.begin(request, signal);
    try {
      await this.#putOnTop(overlayPath);
      await begun.copy(signal);
      // What is not on the disk yet would be written in the pause.
      await syncToDisk(machine.deps.points.layerPathOf(this.#wanted.pointId));
      const madeAt = machine.deps.clock.now();
      const pausedMs = await this.#take(begun, signal);
      const memory = this.#memoryOf(memoryId);
      const memoryBytes = await begun.finish();
      return await this.#add({ madeAt, pausedMs, memory, memoryBytes });
    } catch (error) {
      if (!begun.isOnTop) await this.#takeOff();
      await begun
        .discard()
        .catch((reason: unknown) => machine.log.warn({ reason }, "a point leaves something in a VMM"));
      throw error;
    }
  }

  /** With memory no program runs meanwhile, so that none runs in a clone before that has its own identity. */
  async #take(begun: BegunPoint, signal: AbortSignal): Promise<number> {
    const guest = this.#running?.vm.guest;
    if (!this.#wanted.hasMemory) {
      await this.#inTime(guest?.sync(), signal);
      return await begun.take();
    }
    let pausedMs: number;
    try {
      await this.#inTime(guest?.freeze?.(), signal);
      pausedMs = await begun.take();
    } catch (error) {
      // Its programs may have stopped too late. What is sent to the guest waits until this is.
      void guest?.thaw?.().catch(() => undefined);
      throw error;
    }
    await this.#inTime(guest?.thaw?.(), signal);
    return pausedMs;
  }

  async #inTime(answer: Promise<void> | undefined, signal: AbortSignal): Promise<void> {
    const limit = deadlineSignal(this.#machine.deps.clock, GUEST_DEADLINE_MS, signal);
    await orAborted(answer ?? Promise.resolve(), limit.signal).finally(() => limit.dispose());
  }

  /** The journal names the layer first: an empty disk on top of it reads as the layer. */
  async #putOnTop(overlayPath: string): Promise<void> {
    const machine = this.#machine;
    const { pointId } = this.#wanted;
    await machine.update({ layers: [pointId, ...(machine.journal.layers ?? [])] });
    await rename(overlayPath, this.#diskPath);
    await syncToDisk(machine.directory);
  }

  /** Nothing has been written to the disk on top: the machine has the one below again. */
  async #takeOff(): Promise<void> {
    const machine = this.#machine;
    const { pointId } = this.#wanted;
    const { layers = [] } = machine.journal;
    if (layers[0] !== pointId) return;
    const layer = machine.deps.points.layerPathOf(pointId);
    const second = `${this.#diskPath}.new`;
    await rm(second, { force: true });
    await link(layer, second);
    await rename(second, this.#diskPath);
    await machine.update({ layers: layers.slice(1) });
  }

  #memoryOf(memoryId: string | null): PointMemory | null {
    const machine = this.#machine;
    const { boot } = machine.journal;
    if (memoryId === null || boot === null) return null;
    const { cpus, memoryMb } = machine.requiredSpec();
    const format = this.#running?.vm.record.format ?? "";
    const guestBootId = boot.guestBootId ?? boot.bootId;
    return { memoryId, format, cpus, memoryMb, guestBootId, workload: boot.workload ?? null };
  }

  async #add(made: Pick<Point, "madeAt" | "pausedMs" | "memory" | "memoryBytes">): Promise<Point> {
    const { points } = this.#machine.deps;
    const { imageDigest, rootName = null, layers = [] } = this.#machine.journal;
    const { pointId, machineId } = this.#wanted;
    if (imageDigest === null) throw new Error("the image of the machine's disk is not known");
    const { blocks } = await stat(points.layerPathOf(pointId));
    const { diskGb } = this.#machine.requiredSpec();
    const bytes = blocks * 512 + made.memoryBytes;
    const point = { pointId, machineId, imageDigest, rootName, diskGb, layers: layers.slice(1), bytes, ...made };
    await points.add(point);
    return point;
  }
}

function madePoint({
  memory,
  pointId,
  machineId,
  madeAt,
  bytes,
  memoryBytes,
  pausedMs,
  imageDigest,
  layers,
}: Point): MadePoint {
  return {
    pointId,
    machineId,
    madeAt,
    bytes,
    memoryBytes,
    pausedMs,
    format: memory?.format ?? null,
    imageDigest,
    layers,
  };
}
