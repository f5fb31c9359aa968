/**
 * A prepared VM: restored from a template, and paused until a machine needs it.
 *
 * Owns its boot directory. Leaves to machines/prepared-vms.ts how many there are, and what for; to the tuning what else it
 * does before it is paused.
 *
 * Always: nothing of a machine is in it before `start`, and it is started at most once. One with a disk has played a machine
 * without a name on a disk that has what the image has: a machine takes disk and VM together, and is configured like any
 * other, which replaces the name, the machine id and the seed of the random pool.
 */
import { rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { orAborted } from "@flotilla/base/abort";
import type { Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { VmOrigin } from "@flotilla/contract/machines";
import type { Guest } from "../../guest/guest.ts";
import type { GuestNetwork } from "../../network/network.ts";
import type { BootRequest, PreparedDisk, PreparedVm, PrepareRequest, Vm } from "../driver.ts";
import { VIEW } from "./jail.ts";
import type { Launcher } from "./launcher.ts";
import { isAlive } from "./processes.ts";
import type { Qmp } from "./qmp.ts";
import { attachDisk, detachDisk } from "./root-disk.ts";
import { connectWhenThere } from "./sockets.ts";
import { loadState, readState, type Template } from "./template.ts";
import type { Tuning } from "./tuning.ts";
import { type UnnamedFacts, unnamedConfiguration } from "./unnamed.ts";
import type { Vmm } from "./vmm.ts";

/** What its command line names in place of a machine, also when it has become one. */
export const PREPARED = "prepared";

export interface Preparing {
  readonly launcher: Launcher;
  readonly tuning: Tuning;
  readonly template: Template;
  readonly rootDevice: string | null;
  /** What a start by it will be called. `prepared`: nobody waits for it yet. */
  readonly origin: VmOrigin;
  readonly asVm: (parts: VmParts) => Vm;
}

/** What is held of a VM that runs. */
export interface VmParts {
  readonly vmm: Vmm;
  readonly guest: Guest;
  readonly guestNetwork: GuestNetwork | null;
  readonly origin: Vm["origin"];
}

/** Rejects with the reason, and has ended the VMM then. */
export async function prepareVm(
  request: PrepareRequest,
  preparing: Preparing,
  signal: AbortSignal,
): Promise<PreparedVm> {
  const { launcher, template } = preparing;
  const { bootId, bootDirectory, uid, cpus, memoryMb } = request;
  const vmm = await launcher.spawn({
    machineId: PREPARED,
    bootId,
    bootDirectory,
    uid,
    cpus,
    memoryMb,
    memory: { kind: "file", path: template.memoryPath, isShared: false },
    diskPath: null,
    diskBytes: request.disk?.bytes ?? null,
    backingPaths: [],
    isIncoming: true,
  });
  try {
    return await orAborted(bringUp(vmm, request, preparing, signal), signal);
  } catch (error) {
    const words = await vmm.saidLast();
    await vmm.kill();
    throw words === null ? error : new Error(`${messageOf(error)}; the guest's last words: ${words}`);
  }
}

/** A guest may be silent at any step of it, for ever: whoever waits gives up by the signal and ends the VMM. */
async function bringUp(
  vmm: Vmm,
  request: PrepareRequest,
  preparing: Preparing,
  signal: AbortSignal,
): Promise<PreparedVm> {
  const { launcher, tuning, origin } = preparing;
  const { bootDirectory, uid } = request;
  const qmp = await launcher.control(vmm, { bootDirectory, uid }, signal);
  const guestNetwork = launcher.attachNetwork(vmm, uid);
  const prepare = async (): Promise<Guest> => {
    await restore(qmp, request, preparing, signal);
    const guest = await launcher.guest({ bootDirectory, uid }, signal);
    if (origin === "prepared") await makeReady(qmp, guest, request, preparing);
    return guest;
  };
  const guest = origin === "prepared" ? await tuning.inBackground(vmm, prepare) : await prepare();
  return new Prepared(request, preparing, { vmm, qmp, guest, guestNetwork });
}

async function restore(qmp: Qmp, request: PrepareRequest, preparing: Preparing, signal: AbortSignal): Promise<void> {
  const { launcher, template } = preparing;
  const name = "incoming.sock";
  const socketPath = join(request.bootDirectory, name);
  const state = await readState(template);
  await loadState(qmp, {
    uri: `unix:${join(VIEW.boot, name)}`,
    send: async () => {
      const place = { path: socketPath, uid: launcher.uidOf(request) };
      const socket = await connectWhenThere(place, launcher.clock, signal);
      socket.on("error", () => {}); // The VMM's end says more.
      socket.end(state);
    },
    sleep: (ms) => launcher.clock.sleep(ms, signal),
  });
  await rm(socketPath, { force: true });
}

/** Has the guest mount the disk that it waits with, if any, and warm up. */
async function makeReady(qmp: Qmp, guest: Guest, request: PrepareRequest, preparing: Preparing): Promise<void> {
  const { launcher, tuning, rootDevice } = preparing;
  const { disk, makeScratchDisk, uid, bootDirectory } = request;
  const attach = async ({ path, backingPaths, bytes, user }: PreparedDisk): Promise<UnnamedFacts> => {
    await launcher.makeReachable(uid, [path], backingPaths);
    await attachDisk(qmp, await launcher.show(bootDirectory, [path, ...backingPaths]), bytes);
    return { rootDevice, rootBytes: bytes, user, ...launcher.guestAddressing };
  };
  const mounted = disk === null ? null : await attach(disk);
  if (mounted !== null) {
    await guest.configure(unnamedConfiguration(mounted, { now: launcher.clock.now(), digit: "0" }));
  }
  await tuning.warmUp({ guest, mounted, makeScratchDisk, attach, detach: () => detachDisk(qmp) });
}

/** What a prepared VM is held by. */
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
  readonly #preparing: Preparing;
  readonly #vmm: Vmm;
  readonly #qmp: Qmp;
  readonly #guest: Guest;
  readonly #guestNetwork: GuestNetwork | null;
  /** null: it is started at once. */
  readonly #settling: Timer | null;

  constructor(request: PrepareRequest, preparing: Preparing, { vmm, qmp, guest, guestNetwork }: Parts) {
    this.bootId = request.bootId;
    this.uid = request.uid;
    this.exited = vmm.exited;
    this.#request = request;
    this.#preparing = preparing;
    this.#vmm = vmm;
    this.#qmp = qmp;
    this.#guest = guest;
    this.#guestNetwork = guestNetwork;
    const { launcher, tuning, origin } = preparing;
    const rest = (): void => void this.#rest();
    this.#settling = origin === "prepared" ? launcher.clock.timer(tuning.settleMs, rest) : null;
  }

  /** Pauses it until it is started. */
  async #rest(): Promise<void> {
    const { log } = this.#preparing.launcher;
    await this.#qmp.execute("stop").catch((error: unknown) => {
      if (!isAlive(this.#vmm.record)) return;
      log.warn({ boot: this.bootId, reason: messageOf(error) }, "a prepared VM does not rest");
    });
  }

  async start(request: BootRequest): Promise<Vm> {
    const { bootDirectory, diskPath, diskBytes, backingPaths } = request;
    const { launcher, origin, asVm } = this.#preparing;
    const hasDisk = this.#request.disk !== null;
    // A pause that was asked for before is answered before the VM is let run below.
    this.#settling?.cancel();
    // Sockets are known by what they are, not by their path: open ones are found under the new one.
    if (bootDirectory !== this.#request.bootDirectory) {
      await rename(this.#request.bootDirectory, bootDirectory);
      this.#vmm.moved(bootDirectory);
    }
    await launcher.makeReachable(this.uid, [diskPath], backingPaths);
    const paths = hasDisk ? [] : await launcher.show(bootDirectory, [diskPath, ...backingPaths]);
    await Promise.all([
      hasDisk ? undefined : attachDisk(this.#qmp, paths, diskBytes),
      // Closed until then, so the guest need not wait for it.
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
