/**
 * A prepared VM: restored from a template, and paused until a machine needs it.
 *
 * Owns its boot directory. machines/prepared-vms.ts decides how many there are and for what; the tuning
 * decides what else is done before the pause.
 *
 * Always:
 * - it contains nothing of a machine before `start`, and is started at most once;
 * - one with a disk was configured as a throw-away machine on a fresh disk of the image. A machine takes disk
 *   and VM together and is configured like any other, which replaces the host name, the machine id and the
 *   random seed.
 */
import { rename, rm } from "node:fs/promises";
import { basename } from "node:path";
import { orAborted } from "@flotilla/base/abort";
import type { Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { VmOrigin } from "@flotilla/contract/machines";
import type { Guest } from "../../guest/guest.ts";
import type { GuestNetwork } from "../../network/network.ts";
import type { BootRequest, PreparedDisk, PreparedVm, PrepareRequest, Vm } from "../driver.ts";
import type { Launcher } from "./launcher.ts";
import { isAlive } from "./processes.ts";
import type { Qmp } from "./qmp.ts";
import { attachDisk, copyDisk, detachDisk } from "./root-disk.ts";
import { restore, type Template } from "./save-template.ts";
import type { Tuning } from "./tuning.ts";
import { type PlaceholderFacts, placeholderConfiguration } from "./placeholder-machine.ts";
import type { Vmm } from "./vmm.ts";

/** The machine id on its command line, even after it was assigned to a machine. */
export const PREPARED = "prepared";

export interface PrepareContext {
  readonly launcher: Launcher;
  readonly tuning: Tuning;
  readonly template: Template;
  readonly rootDevice: string | null;
  /** The origin reported for a start with it. `prepared`: no machine waits for it yet. */
  readonly origin: VmOrigin;
  readonly asVm: (parts: VmParts) => Vm;
}

/** The parts of a running VM. */
export interface VmParts {
  readonly vmm: Vmm;
  readonly guest: Guest;
  readonly guestNetwork: GuestNetwork | null;
  readonly origin: Vm["origin"];
}

/** Rejects with the reason after killing the VMM. */
export async function prepareVm(
  request: PrepareRequest,
  context: PrepareContext,
  signal: AbortSignal,
): Promise<PreparedVm> {
  const { launcher, template } = context;
  const { bootId, bootDirectory, uid, cpus, memoryMb } = request;
  const mounted = template.diskPath === null ? null : request.disk;
  if (mounted !== null && template.diskPath !== null)
    await copyDisk(template.diskPath, { ...mounted, uid }, launcher.isRoot);
  const vmm = await launcher.spawn({
    machineId: PREPARED,
    bootId,
    bootDirectory,
    uid,
    cpus,
    memoryMb,
    memory: { kind: "file", path: template.memoryPath, isShared: false },
    diskPath: mounted?.path ?? null,
    diskBytes: request.disk?.bytes ?? null,
    backingPaths: mounted?.backingPaths ?? [],
    isIncoming: true,
  });
  try {
    return await orAborted(bringUp(vmm, request, context, signal), signal);
  } catch (error) {
    const output = await vmm.lastOutputIfAny();
    await vmm.kill();
    throw output === null ? error : new Error(`${messageOf(error)}; last output of the VM: ${output}`);
  }
}

/** A guest may hang at any step; the caller cancels by the signal and kills the VMM. */
async function bringUp(
  vmm: Vmm,
  request: PrepareRequest,
  context: PrepareContext,
  signal: AbortSignal,
): Promise<PreparedVm> {
  const { launcher, tuning, template, origin } = context;
  const { bootDirectory, uid } = request;
  const qmp = await launcher.control(vmm, { bootDirectory, uid }, signal);
  const guestNetwork = launcher.attachNetwork(vmm, uid);
  const prepare = async (): Promise<Guest> => {
    await restore(qmp, { launcher, template, bootDirectory, uid, signal });
    const guest = await launcher.guest({ bootDirectory, uid }, signal);
    if (origin === "prepared") await mountAndWarmUp(qmp, guest, request, context);
    return guest;
  };
  const guest = origin === "prepared" ? await tuning.inBackground(vmm, prepare) : await prepare();
  return new Prepared(request, context, { vmm, qmp, guest, guestNetwork });
}

/** Configures the guest with its disk, if any, and warms it up. */
async function mountAndWarmUp(qmp: Qmp, guest: Guest, request: PrepareRequest, context: PrepareContext): Promise<void> {
  const { launcher, tuning, template, rootDevice } = context;
  const { disk, makeScratchDisk, uid, bootDirectory } = request;
  const factsOf = ({ bytes, user }: PreparedDisk): PlaceholderFacts => {
    return { rootDevice, rootBytes: bytes, user, ...launcher.guestAddressing };
  };
  const attach = async (attached: PreparedDisk): Promise<PlaceholderFacts> => {
    const { path, backingPaths, bytes } = attached;
    await launcher.makeReachable(uid, [path], backingPaths);
    await attachDisk(qmp, await launcher.show(bootDirectory, [path, ...backingPaths]), bytes);
    return factsOf(attached);
  };
  const isMounted = disk !== null && template.diskPath !== null;
  const mounted = disk === null ? null : isMounted ? factsOf(disk) : await attach(disk);
  if (mounted !== null && !isMounted) {
    await guest.configure(placeholderConfiguration(mounted, { now: launcher.clock.now(), digit: "0" }));
  }
  await tuning.warmUp({ guest, mounted, makeScratchDisk, attach, detach: () => detachDisk(qmp) });
}

/** The parts of a prepared VM. */
interface Parts {
  readonly vmm: Vmm;
  readonly qmp: Qmp;
  readonly guest: Guest;
  readonly guestNetwork: GuestNetwork | null;
}

class Prepared implements PreparedVm {
  readonly bootId: string;
  readonly uid: number;
  readonly exited: PreparedVm["exited"];
  readonly #request: PrepareRequest;
  readonly #context: PrepareContext;
  readonly #vmm: Vmm;
  readonly #qmp: Qmp;
  readonly #guest: Guest;
  readonly #guestNetwork: GuestNetwork | null;
  /** null: it is started at once. */
  readonly #settling: Timer | null;

  constructor(request: PrepareRequest, context: PrepareContext, { vmm, qmp, guest, guestNetwork }: Parts) {
    this.bootId = request.bootId;
    this.uid = request.uid;
    this.exited = vmm.exited;
    this.#request = request;
    this.#context = context;
    this.#vmm = vmm;
    this.#qmp = qmp;
    this.#guest = guest;
    this.#guestNetwork = guestNetwork;
    const { launcher, tuning, origin } = context;
    const pause = (): void => void this.#pause();
    this.#settling = origin === "prepared" ? launcher.clock.timer(tuning.settleMs, pause) : null;
  }

  /** Pauses it until it is started. */
  async #pause(): Promise<void> {
    const { log } = this.#context.launcher;
    await this.#qmp.execute("stop").catch((error: unknown) => {
      if (!isAlive(this.#vmm.record)) return;
      log.warn({ boot: this.bootId, reason: messageOf(error) }, "a prepared VM could not be paused");
    });
  }

  async start(request: BootRequest): Promise<Vm> {
    const { bootDirectory, diskPath, diskBytes, backingPaths } = request;
    const { launcher, origin, asVm } = this.#context;
    const { disk } = this.#request;
    const hasDisk = disk !== null;
    // QMP answers in order, so a pause that was already requested completes before `cont` below.
    this.#settling?.cancel();
    // Open sockets survive the rename of their directory.
    if (bootDirectory !== this.#request.bootDirectory) {
      await rename(this.#request.bootDirectory, bootDirectory);
      this.#vmm.moved(bootDirectory);
    }
    // Before its guest runs for the machine.
    if (request.fence === "on") await this.#vmm.fence.arm();
    await launcher.makeReachable(this.uid, [diskPath], backingPaths);
    // QEMU opens a disk again by its name when another one is put on top: the machine has moved it away.
    const paths = hasDisk
      ? [await launcher.showAs(bootDirectory, diskPath, basename(disk.path))]
      : await launcher.show(bootDirectory, [diskPath, ...backingPaths]);
    request.mayBegin?.();
    await Promise.all([
      hasDisk ? undefined : attachDisk(this.#qmp, paths, diskBytes),
      // Closed until then; the guest need not wait for it.
      this.#guestNetwork?.open(request),
      this.#qmp.execute("cont"),
    ]);
    if (!hasDisk) launcher.limitDisk(this.#vmm, diskBytes);
    return asVm({ vmm: this.#vmm, guest: this.#guest, guestNetwork: this.#guestNetwork, origin });
  }

  async discard(): Promise<void> {
    this.#settling?.cancel();
    await this.#vmm.kill();
    await rm(this.#request.bootDirectory, { recursive: true, force: true });
  }
}
