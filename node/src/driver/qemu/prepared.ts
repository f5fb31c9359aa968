/**
 * A prepared VM: restored from a template, warmed up, and paused until a machine needs it.
 *
 * Owns its boot directory, with a scratch disk until it is paused. Leaves to machines/prepared-vms.ts how
 * many there are, and what for.
 *
 * Always: nothing of a machine is in it before `start`, and it is started at most once. With a scratch disk its guest
 * has mounted only in namespaces that are gone, and then the placeholder stands there again. With its own disk it has
 * played a machine without a name on a disk that has what the image has: a machine takes disk and VM together, and is
 * configured like any other, which replaces the name, the machine id and the seed of the random pool.
 */
import { rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { VmOrigin } from "@flotilla/contract/machines";
import type { Guest, GuestExecRequest } from "../../guest/guest.ts";
import type { Reach } from "../../network/network.ts";
import type { BootRequest, PreparedDisk, PreparedVm, PrepareRequest, Vm } from "../driver.ts";
import { diskLayers, PLACEHOLDER, ROOT_NODE } from "./argv.ts";
import { VIEW } from "./jail.ts";
import type { Launcher } from "./launcher.ts";
import type { Qmp } from "./qmp.ts";
import { connectWhenThere } from "./sockets.ts";
import { loadState, readState, type Template } from "./template.ts";
import type { Vmm } from "./vmm.ts";
import { WARM_UP_PROGRAM, WARM_UP_SHELL, warmUpConfiguration } from "./warm-up.ts";

/** What its command line names in place of a machine, also when it has become one. */
export const PREPARED = "prepared";
/** After that it takes its share of a busy host's processors like any VM, else it might not be ready there at all. */
const BACKGROUND_MS = 5_000;
/** Commands through the channel, as a machine's will come. */
const COMMANDS = 4;
/** The node of the disk below ROOT_NODE. */
const DISK_NODE = "disk";

export interface Preparing {
  readonly launcher: Launcher;
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
  readonly reach: Reach | null;
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
    diskBytes: request.disk?.kind === "own" ? request.disk.bytes : null,
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
  const { launcher } = preparing;
  const { bootDirectory, uid } = request;
  const qmp = await launcher.control(vmm, { bootDirectory, uid }, signal);
  const reach = launcher.reach(vmm, uid);
  const guest = await inBackground(vmm, preparing, async () => {
    await restore(qmp, request, preparing, signal);
    const restored = await launcher.guest({ bootDirectory, uid }, signal);
    if (request.disk !== null) await warmUp(qmp, restored, request.disk, request, preparing);
    return restored;
  });
  return new Prepared(request, preparing, { vmm, qmp, guest, reach });
}

/**
 * Does what nobody waits for with what is left of the host's processors. The VMM's launcher is not in it: it may hold what
 * others wait for, such as the kernel's lock of all interfaces.
 */
async function inBackground<T>(vmm: Vmm, { launcher, origin }: Preparing, work: () => Promise<T>): Promise<T> {
  if (origin !== "prepared") return work();
  await launcher.schedule(vmm, "background");
  // When it fails, the VMM has ended, and others say so.
  const hurry = (): void => void launcher.schedule(vmm, "usual").catch(() => {});
  const timer = launcher.clock.timer(BACKGROUND_MS, hurry);
  const result = await work().finally(() => timer.cancel());
  await launcher.schedule(vmm, "usual");
  return result;
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

async function warmUp(qmp: Qmp, guest: Guest, disk: PreparedDisk, request: PrepareRequest, preparing: Preparing) {
  const { launcher } = preparing;
  const { path } = disk;
  await launcher.makeReachable(request.uid, [path], disk.backingPaths);
  await attachDisk(qmp, await launcher.show(request.bootDirectory, [path, ...disk.backingPaths]), DISK_NODE);
  await qmp.execute("block_resize", { "node-name": ROOT_NODE, size: disk.bytes });
  const { rootDevice } = preparing;
  const facts = { rootDevice, rootBytes: disk.bytes, user: disk.user, ...launcher.guestNetwork };
  const configuration = (digit: "0" | "1") => warmUpConfiguration(facts, { now: launcher.clock.now(), digit });
  if (disk.kind === "own") {
    await guest.configure(configuration("0"));
    // The machine that takes it will give it another name.
    await guest.configure(configuration("1"));
    for (let count = 0; count < COMMANDS; count += 1) await run(guest, WARM_UP_SHELL);
    return;
  }
  await guest.warmUp(configuration("0"));
  for (let count = 0; count < COMMANDS; count += 1) await run(guest, WARM_UP_PROGRAM);
  await qmp.execute("blockdev-add", { ...PLACEHOLDER, "node-name": "placeholder" });
  await qmp.execute("blockdev-reopen", { options: [{ driver: "raw", "node-name": ROOT_NODE, file: "placeholder" }] });
  await qmp.execute("blockdev-del", { "node-name": DISK_NODE });
  await rm(path);
}

/** The command may be missing in the guest: then it has warmed up what it could. */
async function run(guest: Guest, request: GuestExecRequest): Promise<void> {
  const exec = guest.exec(request);
  exec.stdout.resume();
  exec.stderr.resume();
  await Promise.all([exec.exit, exec.pid.catch(() => {})]);
}

/** Puts files under the guest's disk device: what is asked is sent at once and answered in order. */
async function attachDisk(qmp: Qmp, paths: readonly string[], nodeName: string): Promise<void> {
  const disk = diskLayers(paths, nodeName);
  await Promise.all([
    qmp.execute("blockdev-add", disk),
    qmp.execute("blockdev-reopen", {
      options: [{ driver: "raw", "node-name": ROOT_NODE, discard: "unmap", file: nodeName }],
    }),
  ]);
}

/** What a prepared VM is held by. */
interface Parts {
  readonly vmm: Vmm;
  readonly qmp: Qmp;
  readonly guest: Guest;
  readonly reach: Reach | null;
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
  readonly #reach: Reach | null;

  constructor(request: PrepareRequest, preparing: Preparing, { vmm, qmp, guest, reach }: Parts) {
    this.bootId = request.bootId;
    this.uid = request.uid;
    this.exited = vmm.exited;
    this.#request = request;
    this.#preparing = preparing;
    this.#vmm = vmm;
    this.#qmp = qmp;
    this.#guest = guest;
    this.#reach = reach;
  }

  async rest(): Promise<void> {
    await this.#qmp.execute("stop");
  }

  async start(request: BootRequest): Promise<Vm> {
    const { bootDirectory, diskPath, diskBytes, backingPaths } = request;
    const { launcher, origin, asVm } = this.#preparing;
    // Sockets are known by what they are, not by their path: open ones are found under the new one.
    if (bootDirectory !== this.#request.bootDirectory) {
      await rename(this.#request.bootDirectory, bootDirectory);
      this.#vmm.moved(bootDirectory);
    }
    await launcher.makeReachable(this.uid, [diskPath], backingPaths);
    const attached: Promise<unknown>[] = [];
    if (this.#request.disk?.kind !== "own") {
      const paths = await launcher.show(bootDirectory, [diskPath, ...backingPaths]);
      attached.push(
        attachDisk(this.#qmp, paths, DISK_NODE),
        this.#qmp.execute("block_resize", { "node-name": ROOT_NODE, size: diskBytes }),
      );
    }
    await Promise.all([
      ...attached,
      // Closed until then, so the guest need not wait for it.
      this.#reach?.admit(request),
      this.#qmp.execute("cont"),
    ]);
    if (this.#request.disk?.kind !== "own") launcher.limitDisk(this.#vmm, diskBytes);
    return asVm({ vmm: this.#vmm, guest: this.#guest, reach: this.#reach, origin });
  }

  async discard(): Promise<void> {
    await this.#vmm.kill();
    await rm(this.#request.bootDirectory, { recursive: true, force: true });
  }
}
