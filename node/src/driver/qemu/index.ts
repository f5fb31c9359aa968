/**
 * The driver that runs machines in QEMU: one unprivileged, jailed VMM per boot.
 *
 * Owns the VMM processes of one node directory, and in each boot's directory `qmp.sock`, `guest.sock`, `bulk`
 * and `output`. Leaves directories, journals and the limit of concurrent boots to machines/.
 *
 * Always:
 * - a VMM has its own session and outlives this process;
 * - it is found again by its command line, which names machine, boot and node directory, so a crash between
 *   spawning it and writing its record loses nothing;
 * - when `boot` rejects, its VMM has ended.
 */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, stat } from "node:fs/promises";
import { release } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import { type Clock, isBoottimeOfKernel } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { VmOrigin } from "@flotilla/contract/machines";
import { type AcceleratorVerdict, chooseAccelerator } from "../../host/accelerator.ts";
import { type Cgroups, openCgroups } from "../../host/cgroups.ts";
import { FenceLease } from "../../host/fence-lease.ts";
import { loadAdjustedMs } from "../../host/load-adjusted-timeout.ts";
import { processorIdentity, tscKhzIn } from "../../host/processor.ts";
import type { GuestNetwork, Network } from "../../network/network.ts";
import {
  type BootRequest,
  type Driver,
  type DriverFacts,
  type FoundVm,
  GuestPaused,
  type KeptMemory,
  type PausedVm,
  type PreparedVm,
  type PrepareRequest,
  type ReceiveRequest,
  type Vm,
  type VmRecord,
  type WaitingVm,
} from "../driver.ts";
import { type Accelerator, QEMU_PROGRAM } from "./argv.ts";
import { watchDisk } from "./disk-watch.ts";
import { endedGuest } from "./ended-guest.ts";
import { assertTimer, GuestTimerError, MACHINE_TOLERANCES, withGoodTimer } from "./guest-timer.ts";
import { ensureGuestFiles, type GuestFiles } from "./guest-files.ts";
import { type Launch, Launcher, NOBODY_UID } from "./launcher.ts";
import { PREPARED, type PrepareContext, prepareVm, type VmParts } from "./prepared.ts";
import { findVmms, type FoundVmm, isAlive, killNow, memoryUseOf, processorTimeOf, VmmFinder } from "./processes.ts";
import { type KnownVmm, type LiveContext, pausedVm, receiveVm, watchMemory } from "./live.ts";
import { collapseLayers, endCollapse } from "./collapse.ts";
import { beginPoint } from "./point.ts";
import { InstalledProgram } from "./program.ts";
import { replaceVm } from "./replace.ts";
import { findRuntimeFiles, type RuntimeFiles } from "./runtime-files.ts";
import { ATTEMPT_MS, FIRST_BOOT_MS, retryBoot } from "./boot-retry.ts";
import type { Template } from "./save-template.ts";
import { describeMemory, devicesState, memoryBase, memoryFiles, resumeVm, saveMemory } from "./suspend.ts";
import { templateIngredients, Templates } from "./template.ts";
import { emulationTuning } from "./tcg/tuning.ts";
import { KVM_TUNING, type Tuning } from "./tuning.ts";
import type { Vmm } from "./vmm.ts";

export interface QemuDriverOptions {
  /** Contains everything that a VMM reads and writes: boots, disks, images. */
  readonly nodeDirectory: string;
  readonly cacheDirectory: string;
  readonly accelerator: "auto" | Accelerator;
  /** null: guests have no network interface. */
  readonly network: Network | null;
  readonly clock: Clock;
  readonly log: Log;
}

/** Contains guest/. */
const REPOSITORY_DIRECTORY = join(import.meta.dirname, "../../../..");
/** A guest that really runs under KVM answers within a second; this allows for a host shared with many. */
const PROBE_MS = 8_000;
const PROBE_PREFIX = "probe-";
const OLD_PROBE_MS = 10 * 60_000;

/** What guests of this checkout boot from. Throws with instructions when set-up has not run. */
export const makeGuestFiles = (cacheDirectory: string): Promise<GuestFiles> =>
  ensureGuestFiles({ cacheDirectory, repositoryDirectory: REPOSITORY_DIRECTORY });

/** Throws with instructions when QEMU, kernel or agent are missing. Probes KVM if that has not been done. */
export async function openQemuDriver(options: QemuDriverOptions): Promise<Driver> {
  const { cacheDirectory, accelerator, clock, log } = options;
  const runtime = await openRuntime({ cacheDirectory, setting: accelerator, clock, log });
  return openIn(options.nodeDirectory, { ...runtime, network: options.network, clock, log });
}

/** The facts for `doctor`: the same that a driver would have. */
export async function qemuFacts(options: Omit<QemuDriverOptions, "nodeDirectory" | "network">): Promise<DriverFacts> {
  const { cacheDirectory, accelerator, clock, log } = options;
  const runtime = await openRuntime({ cacheDirectory, setting: accelerator, clock, log });
  return factsOf(runtime);
}

/** Programs and files on this host, and its capabilities. */
interface Runtime {
  readonly qemuVersion: string;
  readonly runtimeFiles: RuntimeFiles;
  readonly guestFiles: GuestFiles;
  readonly installed: InstalledProgram;
  readonly tscKhz: number | null;
  /** The host's processor as guests under KVM see it. */
  readonly processor: string;
  readonly verdict: AcceleratorVerdict;
}

type Host = Runtime & { readonly network: Network | null; readonly clock: Clock; readonly log: Log };

interface RuntimeOptions {
  readonly cacheDirectory: string;
  readonly setting: "auto" | Accelerator;
  readonly clock: Clock;
  readonly log: Log;
}

async function openRuntime({ cacheDirectory, setting, clock, log }: RuntimeOptions): Promise<Runtime> {
  const [qemuVersion, runtimeFiles, guestFiles, cpuinfo] = await Promise.all([
    readQemuVersion(),
    findRuntimeFiles(),
    makeGuestFiles(cacheDirectory),
    readFile("/proc/cpuinfo", "utf8"),
  ]);
  const installed = await InstalledProgram.read(runtimeFiles, guestFiles);
  const tscKhz = tscKhzIn(cpuinfo);
  const processor = processorIdentity(cpuinfo, release());
  const versions = `QEMU ${qemuVersion}, guest ${guestFiles.key}`;
  const probe = (): ReturnType<typeof probeKvm> =>
    probeKvm({ qemuVersion, runtimeFiles, guestFiles, installed, tscKhz, processor, cacheDirectory, clock, log });
  const verdict = await chooseAccelerator({ setting, cacheDirectory, versions, probe, now: clock.now() });
  return { qemuVersion, runtimeFiles, guestFiles, installed, tscKhz, processor, verdict };
}

async function openIn(directory: string, host: Host): Promise<QemuDriver> {
  const givenDirectory = resolve(directory);
  await mkdir(givenDirectory, { recursive: true, mode: 0o700 });
  const nodeDirectory = await realpath(givenDirectory);
  const cgroups =
    process.getuid?.() === 0 ? await openCgroups({ nodeDirectory, clock: host.clock, log: host.log }) : null;
  const driver = new QemuDriver({ ...host, givenDirectory, nodeDirectory, cgroups });
  await driver.open();
  return driver;
}

async function readQemuVersion(): Promise<string> {
  const { stdout } = await promisify(execFile)(QEMU_PROGRAM, ["--version"]).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") throw new Error(`${QEMU_PROGRAM} is not installed; run scripts/setup`);
    throw error;
  });
  return /version (\S+)/.exec(stdout)?.[1] ?? "unknown";
}

/** Boots a minimal guest with KVM, without a disk; leaves nothing behind. Rejects when its VMM fails. */
async function probeKvm(host: Omit<Host, "verdict" | "network"> & Pick<RuntimeOptions, "cacheDirectory">) {
  await removeOldProbes(host.cacheDirectory, host.clock);
  const nodeDirectory = await mkdtemp(join(host.cacheDirectory, PROBE_PREFIX));
  const deadline = deadlineSignal(host.clock, loadAdjustedMs(PROBE_MS));
  try {
    const verdict = { accelerator: "kvm", reason: "probe" } as const;
    const driver = await openIn(nodeDirectory, { ...host, network: null, verdict });
    await driver.probe(deadline.signal);
    return "answered" as const;
  } catch (error) {
    if (deadline.signal.aborted) return "silent" as const;
    throw error;
  } finally {
    deadline.dispose();
    await rm(nodeDirectory, { recursive: true, force: true });
  }
}

/** Removes directories of killed probes, whose VMMs ended with them. Other probes may be running. */
async function removeOldProbes(cacheDirectory: string, clock: Clock): Promise<void> {
  for (const name of await readdir(cacheDirectory)) {
    if (!name.startsWith(PROBE_PREFIX)) continue;
    const path = join(cacheDirectory, name);
    const made = await stat(path).catch(() => null);
    if (made !== null && clock.now() - made.mtimeMs > OLD_PROBE_MS) await rm(path, { recursive: true, force: true });
  }
}

function factsOf({
  qemuVersion,
  guestFiles,
  verdict,
}: Pick<Runtime, "qemuVersion" | "guestFiles" | "verdict">): DriverFacts {
  return {
    name: "qemu",
    accelerator: verdict.accelerator,
    acceleratorReason: verdict.reason,
    runtime: `QEMU ${qemuVersion}, Linux ${guestFiles.kernelVersion}`,
    rootDevice: "/dev/vda",
  };
}

/** What an attempt to open a VM's channels needs. */
type Channels = Pick<Launch, "machineId" | "bootDirectory" | "uid" | "bootId"> &
  Partial<Pick<BootRequest, "network" | "publishedPorts">>;

interface Opening {
  readonly origin: Vm["origin"];
  /** What is known of the VMM. */
  readonly known: KnownVmm;
  readonly callerSignal: AbortSignal;
  /** Default: every command in the guest ends. */
  readonly keepsCommands?: boolean;
}

class QemuDriver implements Driver {
  readonly facts: DriverFacts;
  readonly memory: NonNullable<Driver["memory"]>;
  readonly live: Driver["live"];
  /** Timers of the kernel are set by its own clock. */
  readonly canFence = isBoottimeOfKernel();
  readonly lease: FenceLease;
  readonly program: string;
  readonly prepare: Driver["prepare"];
  readonly concurrentStartsMax: Driver["concurrentStartsMax"];
  readonly #installed: InstalledProgram;
  readonly #tuning: Tuning;
  readonly #launcher: Launcher;
  readonly #templates: Templates;
  readonly #vmms: VmmFinder;
  readonly #cgroups: Cgroups | null;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(
    options: Host & {
      readonly nodeDirectory: string;
      readonly givenDirectory: string;
      readonly cgroups: Cgroups | null;
    },
  ) {
    this.facts = factsOf(options);
    this.#installed = options.installed;
    this.program = options.installed.hash;
    this.#clock = options.clock;
    this.#cgroups = options.cgroups;
    this.#log = options.log.child({ driver: "qemu" });
    const { accelerator } = options.verdict;
    this.#tuning = accelerator === "kvm" ? KVM_TUNING : emulationTuning(options);
    this.concurrentStartsMax = this.#tuning.concurrentStartsMax;
    this.lease = new FenceLease(options.clock);
    this.#launcher = new Launcher({ ...options, tuning: this.#tuning, lease: this.lease, log: this.#log });
    this.#vmms = new VmmFinder(() => findVmms(options.nodeDirectory));
    const hasNetwork = options.network !== null;
    const ingredients = templateIngredients({ ...options, accelerator, hasNetwork });
    this.#templates = new Templates({ launcher: this.#launcher, ingredients });
    this.memory = {
      format: this.#templates.format,
      resume: (request, memory, signal) => this.#resume(request, memory, signal),
      describe: describeMemory,
      files: memoryFiles,
      bases: () => this.#templates.memoryPaths(),
    };
    this.live = {
      receive: (request, basePath, signal) => this.#receive(request, basePath, signal),
      adopt: (request, record, signal) => this.#adoptPaused(request, record, signal),
    };
    this.prepare = (request, signal) => this.#prepare(request, signal);
  }

  installedProgram(): Promise<string> {
    return this.#installed.now();
  }

  /** What the VMMs that it starts have. */
  get #own(): KnownVmm {
    return { format: this.#templates.format, program: this.program };
  }

  /** Removes what a crash left of templates. */
  open(): Promise<void> {
    return this.#templates.open();
  }

  async boot(request: BootRequest, signal: AbortSignal): Promise<Vm> {
    try {
      const restored = await this.#restore(request, signal);
      if (restored !== undefined) return restored;
      const isFenced = request.fence === "on";
      const launch = { ...request, memory: { kind: "private" }, isIncoming: false, isFenced } as const;
      const options = { clock: this.#clock, signal, firstMs: loadAdjustedMs(FIRST_BOOT_MS) };
      const attempt = (timerTolerance: number): Promise<Vm> =>
        retryBoot((attemptSignal) => this.#start(launch, attemptSignal, timerTolerance), options);
      return await withGoodTimer(attempt, { tolerances: MACHINE_TOLERANCES, log: this.#log });
    } catch (error) {
      throw new Error(`the VM of machine ${request.machineId} failed to start: ${messageOf(error)}`);
    }
  }

  async probe(signal: AbortSignal): Promise<void> {
    const bootDirectory = join(this.#launcher.nodeDirectory, "boot");
    await mkdir(bootDirectory);
    const names = { machineId: "probe", bootId: "probe", bootDirectory, uid: NOBODY_UID };
    const size = { cpus: 1, memoryMb: 128, memory: { kind: "private" } } as const;
    const vm = await this.#start(
      { ...names, ...size, diskPath: null, diskBytes: 0, backingPaths: [], isIncoming: false, diesWithParent: true },
      signal,
    );
    vm.guest.close();
    await vm.kill();
  }

  /** The VMM of a boot, with which nothing is done yet. */
  async #findVmm(request: BootRequest, record: VmRecord | null): Promise<Vmm | undefined> {
    const uid = this.#launcher.uidOf(request);
    const all = await this.#vmms.find();
    // An agent was killed while it replaced this VMM. The other one does not run, but has the machine's disk
    // open.
    const others = all.filter(({ bootId, machineId }) => machineId === request.machineId && bootId !== request.bootId);
    for (const other of others) await this.#endNow(other);
    const found = all.find(
      (vmm) =>
        vmm.bootId === request.bootId &&
        (record === null || (vmm.pid === record.pid && vmm.startTime === record.startTime)) &&
        // A launcher is still root. A process of any other user only pretends to be this boot.
        (vmm.uid === uid || vmm.uid === process.getuid?.()),
    );
    if (found === undefined) return undefined;
    const { bootId, pid, startTime } = found;
    const vmm = await this.#launcher.watch({ bootId, pid, startTime }, request.bootDirectory);
    // A prepared VM whose start was not recorded: it may lack its directory or disk, may be paused or half
    // restored, and the machine was never reported as running.
    if (found.machineId !== PREPARED || record !== null) return vmm;
    await vmm.kill();
    return undefined;
  }

  async adopt(request: BootRequest, record: VmRecord | null, signal: AbortSignal): Promise<Vm | "gone"> {
    const vmm = await this.#findVmm(request, record);
    if (vmm === undefined) return "gone";
    if (request.fence === "had") vmm.fence.inherit(UNKNOWN_FENCE);
    const known = knownOf(record);
    await this.#launcher.keepOnlyNetworkOf(vmm);
    try {
      const vm = await this.#open(vmm, request, { origin: null, known, callerSignal: signal, keepsCommands: true });
      // An agent was killed while it collapsed the disk.
      if (request.backingPaths.length > 1) await endCollapse(vmm.control, this.#clock);
      return vm;
    } catch (error) {
      // The guest powered off in the meantime. `exited` reports that, which "gone" could not.
      if (vmm.hasShutDown) return this.#asVm({ vmm, guest: endedGuest(), guestNetwork: null, origin: null }, known);
      if (!isAlive(vmm.record)) return "gone";
      const isPaused = vmm.isOutOfSpace;
      vmm.release();
      if (isPaused)
        throw new GuestPaused(
          `the guest of machine ${request.machineId} is paused: its host's disk is full or failing`,
        );
      throw new Error(
        `the VM of machine ${request.machineId} runs, but its guest agent does not answer: ${messageOf(error)}`,
      );
    }
  }

  async #resume(request: BootRequest, memory: KeptMemory, signal: AbortSignal): Promise<Vm> {
    const context = { launcher: this.#launcher, templates: this.#templates, signal };
    const resumed = await resumeVm(request, memory, context);
    return this.#asVm({ ...resumed, origin: null }, this.#own);
  }

  #receive(request: ReceiveRequest, basePath: string | null, signal: AbortSignal): Promise<WaitingVm> {
    if (basePath === null) throw new Error("the guest's memory has no base");
    return receiveVm(request, basePath, { ...this.#liveContext(), signal });
  }

  #liveContext(): LiveContext {
    const asVm = (parts: VmParts, known: KnownVmm): Vm => this.#asVm(parts, known);
    return { launcher: this.#launcher, templates: this.#templates, own: this.#own, asVm };
  }

  async #adoptPaused(request: BootRequest, record: VmRecord | null, signal: AbortSignal): Promise<PausedVm | "gone"> {
    const vmm = await this.#findVmm(request, record);
    if (vmm === undefined) return "gone";
    if (request.fence === "had") vmm.fence.inherit(UNKNOWN_FENCE);
    try {
      await this.#launcher.control(vmm, request, signal, { staysPaused: true });
    } catch (error) {
      if (!isAlive(vmm.record)) return "gone";
      vmm.release();
      throw error;
    }
    await this.#launcher.keepOnlyNetworkOf(vmm);
    const guestNetwork = this.#launcher.attachNetwork(vmm, request.uid);
    return pausedVm({ vmm, guestNetwork, known: knownOf(record) }, this.#liveContext());
  }

  async #endNow(vmm: FoundVmm): Promise<void> {
    this.#log.warn({ boot: vmm.bootId, pid: vmm.pid }, "killing a VM that was to replace another one");
    killNow(vmm);
    while (isAlive(vmm)) await this.#clock.sleep(SWEEP_POLL_MS);
    await this.#cgroups?.find(vmm.bootId).remove();
  }

  async find(): Promise<readonly FoundVm[]> {
    const found = await this.#vmms.find();
    return found.map(({ bootId, pid, startTime, machineId, uid }) => {
      return { record: { bootId, pid, startTime }, startedFor: machineId, uid };
    });
  }

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const unknown = (await this.#vmms.find()).filter(({ bootId }) => !known.has(bootId));
    for (const vmm of unknown) {
      this.#log.warn({ boot: vmm.bootId, pid: vmm.pid }, "killing a VM that is in no machine's journal");
      killNow(vmm);
    }
    for (const vmm of unknown) while (isAlive(vmm)) await this.#clock.sleep(SWEEP_POLL_MS);
    if (this.#cgroups !== null) for (const { bootId } of unknown) await this.#cgroups.find(bootId).remove();
    return unknown.length;
  }

  forgetTemplate(size: Pick<BootRequest, "cpus" | "memoryMb">): Promise<void> {
    return this.#templates.forget(size);
  }

  /** Starts from a template of the size, if there is one. A template that does not work costs only time. */
  async #restore(request: BootRequest, signal: AbortSignal): Promise<Vm | undefined> {
    if (request.mustBoot === true) return undefined;
    const { diskPath: path, diskBytes: bytes, backingPaths } = request;
    const disk = request.hasNewDisk === true ? { path, bytes, backingPaths, user: "" } : null;
    const mounted = disk === null ? undefined : await this.#templates.findMounted(request, disk);
    const template = mounted ?? (await orAborted(this.#templates.findOrAwait(request), signal));
    if (template === undefined) return undefined;
    try {
      const restored = {
        ...request,
        disk: mounted === undefined ? null : disk,
        isFrequent: false,
        makeScratchDisk: null,
      };
      const deadline = deadlineSignal(this.#clock, ATTEMPT_MS, signal);
      const preparing = prepareVm(restored, this.#context(template, "template"), deadline.signal);
      const prepared = await preparing.finally(() => deadline.dispose());
      return await prepared.start(request).catch(async (error: unknown) => {
        await prepared.discard();
        // The boot that follows needs its directory.
        await mkdir(request.bootDirectory, { recursive: true, mode: 0o700 });
        throw error;
      });
    } catch (error) {
      signal.throwIfAborted();
      this.#log.warn({ reason: messageOf(error) }, "a template could not be used; the machine boots instead");
      return undefined;
    }
  }

  async #prepare(request: PrepareRequest, signal: AbortSignal): Promise<PreparedVm> {
    const base = await this.#templates.ensure(request, signal);
    const template = (await this.#mountedTemplate(base, request, signal)) ?? base;
    const context = this.#context(template, "prepared");
    const deadline = deadlineSignal(this.#clock, loadAdjustedMs(PREPARE_MS), signal);
    return prepareVm(request, context, deadline.signal).finally(() => deadline.dispose());
  }

  /** The template whose guest has mounted the image of the request's disk; made if it is worth it. */
  #mountedTemplate(base: Template, request: PrepareRequest, signal: AbortSignal): Promise<Template | undefined> {
    const { disk, isFrequent } = request;
    if (disk === null) return Promise.resolve(undefined);
    if (!this.#tuning.savesMountedGuests || !isFrequent) return this.#templates.findMounted(request, disk);
    const mounting = { base, disk, rootDevice: this.facts.rootDevice, tuning: this.#tuning };
    return this.#templates.ensureMounted(request, mounting, signal);
  }

  #context(template: Template, origin: VmOrigin): PrepareContext {
    const { rootDevice } = this.facts;
    const asVm = (parts: VmParts): Vm => this.#asVm(parts, this.#own);
    return { launcher: this.#launcher, tuning: this.#tuning, template, rootDevice, origin, asVm };
  }

  #asVm(parts: VmParts, known: KnownVmm): Vm {
    const { vmm, guest, guestNetwork, origin } = parts;
    const { format } = known;
    const templates = this.#templates;
    const clock = this.#clock;
    return {
      record: { ...vmm.record, ...known },
      origin,
      guest,
      network: guestNetwork?.vmNetwork() ?? null,
      exited: vmm.exited,
      watchDisk: (boot) => watchDisk(vmm, boot, this.#launcher),
      memory: {
        suspend: (request, signal) => saveMemory(vmm, request, { templates, clock, format, signal }),
        base: (boot, directory) => memoryBase(vmm, boot, { templates, directory, format }),
      },
      live: {
        watch: (boot, directory) => watchMemory(vmm, boot, { launcher: this.#launcher, templates, directory, format }),
        pause: async () => {
          const pausedAt = clock.now();
          await vmm.pause();
          return pausedAt;
        },
        devices: (boot) => devicesState(vmm.control, boot.bootDirectory),
        unpause: () => vmm.unpause(),
      },
      points: {
        begin: (request, signal) => beginPoint(vmm, request, { launcher: this.#launcher, templates, known, signal }),
        collapse: (boot, signal) => collapseLayers(vmm, boot, { launcher: this.#launcher, signal }),
      },
      watchDiskPause: (onChange) => vmm.watchDiskPause(onChange),
      processorTime: () => processorTimeOf(vmm.record.pid),
      memoryUse: () => memoryUseOf(vmm.record.pid),
      fence: {
        get isArmed() {
          return vmm.fence.isArmed;
        },
        set: (isArmed) => (isArmed ? vmm.fence.arm() : vmm.fence.lift()),
      },
      successor: {
        begin: (request, signal) =>
          replaceVm({ vmm, guest, guestNetwork }, request, { ...this.#liveContext(), signal }),
      },
      kill: () => vmm.kill(),
      release: () => {
        guest.close();
        guestNetwork?.close();
        vmm.release();
      },
    };
  }

  async #start(launch: Launch & Channels, signal: AbortSignal, timerTolerance = Number.POSITIVE_INFINITY): Promise<Vm> {
    signal.throwIfAborted();
    const vmm = await this.#launcher.spawn(launch);
    try {
      const vm = await this.#open(vmm, launch, { origin: "boot", known: this.#own, callerSignal: signal });
      assertTimer(vm.guest.hello, { rightKhz: this.#tuning.timerKhz, tolerance: timerTolerance });
      return vm;
    } catch (error) {
      const output = await Promise.race([vmm.lastOutput(), this.#clock.sleep(LAST_OUTPUT_MS)]);
      await vmm.kill();
      if (error instanceof GuestTimerError) throw error;
      const suffix = output && !messageOf(error).includes(output) ? `; last output of the VM: ${output}` : "";
      throw new Error(`${messageOf(error)}${suffix}`);
    }
  }

  /** Connects to a VMM's channels and waits for the agent's hello; ends early when the VMM does. */
  async #open(
    vmm: Vmm,
    channels: Channels,
    { origin, known, callerSignal, keepsCommands = false }: Opening,
  ): Promise<Vm> {
    const ended = new AbortController();
    void vmm.exited.then((exit) => ended.abort(new Error(exit.detail)));
    const signal = AbortSignal.any([callerSignal, ended.signal]);
    let guestNetwork: GuestNetwork | null = null;
    try {
      const startedAt = this.#clock.monotonic();
      await this.#launcher.control(vmm, channels, signal);
      if (vmm.hasShutDown) return this.#asVm({ vmm, guest: endedGuest(), guestNetwork: null, origin }, known);
      const qmpMs = Math.round(this.#clock.monotonic() - startedAt);
      const { machineId, network, publishedPorts = [] } = channels;
      guestNetwork = network === undefined ? null : this.#launcher.attachNetwork(vmm, channels.uid);
      if (network !== undefined) await guestNetwork?.open({ machineId, network, publishedPorts });
      const guest = await this.#launcher.guest(channels, signal, { keepsCommands });
      const helloMs = Math.round(this.#clock.monotonic() - startedAt);
      this.#log.debug({ boot: channels.bootId, qmpMs, helloMs }, "a guest agent answered");
      return this.#asVm({ vmm, guest, guestNetwork, origin }, known);
    } catch (error) {
      guestNetwork?.close();
      // The reason of the VMM's end says more than the channel that broke because of it.
      await Promise.race([vmm.exited, this.#clock.sleep(LAST_OUTPUT_MS, callerSignal)]);
      signal.throwIfAborted();
      throw error;
    }
  }
}

/** What the journal knows of a VMM. */
const knownOf = (record: VmRecord | null): KnownVmm => ({
  ...(record?.format !== undefined && { format: record.format }),
  ...(record?.program !== undefined && { program: record.program }),
});

const SWEEP_POLL_MS = 5;
const UNKNOWN_FENCE = 0;
/** How long to wait for the last output of a VMM that is about to be killed. */
const LAST_OUTPUT_MS = 500;
/** Time limit of a preparation, which usually takes a second: a guest that takes longer never answers. */
const PREPARE_MS = 30_000;
