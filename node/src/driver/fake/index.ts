/**
 * A driver that runs no VMs: scripted guests in this process, for tests of the control plane at scale.
 *
 * FAKE: its facts contain `driver: fake`. A machine's environment controls its VM:
 *
 *     FAKE_BOOT_MS=N            time until the agent answers (default 5)
 *     FAKE_BOOT_FAIL=1          the boot fails after that time       FAKE_CONFIGURE_FAIL=1   configuring fails
 *     FAKE_RESTORED_CRASH=1     the VM is restored from a template and crashes when configured, unless it must boot
 *     FAKE_CRASH_AFTER_MS=N     the VM crashes                       FAKE_POWEROFF_AFTER_MS=N  the guest powers off
 *     FAKE_HANG_AFTER_MS=N      the guest's agent answers nothing any more
 *     FAKE_SUSPEND_FAIL=CODE    it cannot be suspended (no_space, conflict)   FAKE_RESUME_FAIL=1   its memory cannot be loaded
 *     FAKE_RESUME_SILENT=1      its guest agent does not answer when it is resumed
 *     FAKE_SUSPEND_MS=N         time that saving its memory takes (default 0)
 *     FAKE_KEEPS_COMMANDS=1     the commands in its memory can be resumed where that is loaded: each begins again
 *     FAKE_UNWATCHED=1          what it writes to its disk cannot be watched     FAKE_WATCH_FAIL=1   and that shows late
 *     FAKE_NO_FENCE=1           its VM cannot be fenced        FAKE_SENDS=N   what it sends in each millisecond
 *     FAKE_NOT_LIVE=1           moves suspend it       FAKE_IGNORE_SHUTDOWN=1   the guest ignores a shutdown request
 *     FAKE_REPLACE_FAIL=AT      its VMM cannot be replaced (next.ts)     FAKE_AGENT_SILENT=1       the guest boots, and then accepts no command
 *     FAKE_EXECS_MAX=N          limit of concurrent commands       FAKE_SENT_BYTES=N   what it has sent once it runs
 *     FAKE_PORTS=80=4001,…      its port 80 is port 4001 of the host's loopback     FAKE_LISTEN=80=200,…   it answers itself (servers.ts)
 *
 * Owns `vm.json` in each boot's directory: a VM runs while the file exists, whether or not a node agent
 * lives, so that adopting, sweeping and counting of VMs are tested as with real ones. Always: a second VM of
 * a machine is refused and logged as an error, because a real disk would be damaged.
 */
import { dirname, join } from "node:path";
import { orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { VmOrigin } from "@flotilla/contract/machines";
import {
  type BootRequest,
  type DiskWatch,
  type Driver,
  type DriverFacts,
  type BegunPoint,
  type FoundVm,
  type DriverLive,
  type DriverMemory,
  type NextVm,
  type PointRequest,
  type PreparedVm,
  type PrepareRequest,
  type ReplaceRequest,
  SuspendRefused,
  type SuspendRequest,
  type Vm,
  type VmExit,
  type VmFence,
  type VmLive,
  type VmMemory,
  type VmPoints,
  type VmRecord,
  type VmSuccessor,
} from "../driver.ts";
import { FenceLease } from "../../host/fence-lease.ts";
import type { VmNetwork } from "../../network/vm-network.ts";
import { FakeDiskWatch } from "./disk-watch.ts";
import { FakeFence, isOver, killed, vmFenceOf } from "./fence.ts";
import { FakeFiles } from "./files.ts";
import { type FakeCommand, type FakeConfiguration, FakeGuest } from "./guest.ts";
import type { FakeHost } from "./host.ts";
import { FakeLive } from "./live.ts";
import { FakeMemory, memoryUseIn } from "./memory.ts";
import { FakeNextVm } from "./next.ts";
import { FakeNetwork } from "./network.ts";
import { FakeServers } from "./servers.ts";
import {
  FORMAT,
  names,
  PROGRAM,
  readProgram,
  readVmFile,
  recordOf,
  removeVmFile,
  type SavedMemory,
  untilAnswers,
  type VmFile,
  writeMemory,
  writeVmFile,
} from "./vm-file.ts";
import { FakePreparedVm, type FakePreparing } from "./prepared.ts";

const BOOT_MS_DEFAULT = 5;
const AT_ONCE_MAX = 256;

export interface FakeDriverOptions {
  readonly machinesDirectory: string;
  /** The machine's environment, with the variables above. */
  readonly environmentOf: (machineId: string) => Readonly<Record<string, string>>;
  readonly bootsAtOnceMax?: number;
  /** Without every part that a driver may lack: its machines start and stop. */
  readonly isPlain?: boolean;
  /** What its VMs run. Default: `fake`. */
  readonly program?: string;
  /** The file that says what is installed now. Absent: that program. */
  readonly programPath?: string;
  /** Absent: no VMs are prepared. */
  readonly preparing?: FakePreparing;
  readonly clock: Clock;
  readonly log: Log;
}

interface FoundFile {
  readonly startedFor: string;
  readonly directory: string;
  readonly file: VmFile;
}

export class FakeDriver implements Driver {
  readonly prepare: Driver["prepare"];
  readonly facts: DriverFacts = {
    name: "fake",
    accelerator: "none",
    acceleratorReason: "the fake driver runs no virtual machines",
    runtime: "fake driver, no virtual machines",
    rootDevice: null,
  };
  readonly memory: DriverMemory | null;
  readonly live: DriverLive | null;
  readonly canFence: boolean;
  readonly lease: FenceLease;
  readonly program: string;
  readonly concurrentStartsMax: Driver["concurrentStartsMax"];
  /** The sizes for which `forgetTemplate` was called. */
  readonly forgottenTemplates: Pick<BootRequest, "cpus" | "memoryMb">[] = [];
  readonly #options: FakeDriverOptions;
  readonly #running = new Map<string, FakeVm>();
  readonly #waiting = new Map<string, FakePreparedVm>();
  readonly #files = new Map<string, FakeFiles>();

  constructor(options: FakeDriverOptions) {
    this.#options = options;
    this.lease = new FenceLease(options.clock);
    const { preparing, bootsAtOnceMax = AT_ONCE_MAX, program = PROGRAM, isPlain = false } = options;
    this.program = program;
    this.concurrentStartsMax = { boots: bootsAtOnceMax, wakes: AT_ONCE_MAX };
    const host: FakeHost = {
      ...options,
      ...{ lease: this.lease, program },
      filesOf: (machineId) => this.#filesOf(machineId),
      fenceOf: (request) => this.#fenceOf(request),
      refuseSecond: (request) => this.#refuseSecond(request),
      endOthers: (request) => this.#endOthers(request),
      hold: (request, file, kept) => this.#hold(request, file, null, kept),
    };
    this.canFence = !isPlain;
    this.memory = isPlain ? null : new FakeMemory(host);
    this.live = isPlain ? null : new FakeLive(host);
    this.prepare = preparing === undefined ? null : (request, signal) => this.#prepare(request, preparing, signal);
  }

  async installedProgram(): Promise<string> {
    const { programPath } = this.#options;
    return programPath === undefined ? this.program : await readProgram(programPath);
  }

  boot(request: BootRequest, signal: AbortSignal): Promise<Vm> {
    const isRestored = this.#options.environmentOf(request.machineId)["FAKE_RESTORED_CRASH"] !== undefined;
    return this.#boot(request, isRestored && request.mustBoot !== true ? "template" : "boot", signal);
  }

  async #boot(request: BootRequest, origin: VmOrigin, signal: AbortSignal): Promise<Vm> {
    const { clock, environmentOf } = this.#options;
    const environment = environmentOf(request.machineId);
    await this.#refuseSecond(request);
    const startedAt = clock.now();
    const answersAt = startedAt + Number(environment["FAKE_BOOT_MS"] ?? BOOT_MS_DEFAULT);
    const crashAfter = environment["FAKE_CRASH_AFTER_MS"];
    const endAfter = crashAfter ?? environment["FAKE_POWEROFF_AFTER_MS"];
    const file: VmFile = {
      bootId: request.bootId,
      startedAt,
      answersAt,
      endsAt: endAfter === undefined ? null : answersAt + Number(endAfter),
      endsAs: crashAfter === undefined ? "poweroff" : "crashed",
      configuration: null,
      hasWorkload: false,
      fencedUntil: this.#fenceOf(request),
      program: this.program,
    };
    request.mayBegin?.();
    await writeVmFile(request.bootDirectory, file);
    try {
      await orAborted(clock.sleep(answersAt - startedAt, signal), signal);
      if (environment["FAKE_BOOT_FAIL"] !== undefined) throw new Error("FAKE_BOOT_FAIL is set");
    } catch (error) {
      await removeVmFile(request.bootDirectory);
      throw error;
    }
    this.#filesOf(request.machineId).reboot();
    return this.#hold(request, file, origin);
  }

  #fenceOf({ fence, machineId }: BootRequest): number | null {
    const canFence = this.#options.environmentOf(machineId)["FAKE_NO_FENCE"] === undefined;
    return fence === "on" && canFence ? this.lease.until : null;
  }

  async forgetTemplate(size: Pick<BootRequest, "cpus" | "memoryMb">): Promise<void> {
    this.forgottenTemplates.push(size);
  }

  async adopt(request: BootRequest, _record: VmRecord | null, signal: AbortSignal): Promise<Vm | "gone"> {
    const { clock } = this.#options;
    const file = await readVmFile(request.bootDirectory);
    if (file === undefined || file.bootId !== request.bootId) return "gone";
    await this.#endOthers(request);
    if ((file.endsAt !== null && file.endsAt <= clock.now()) || isOver(file.fencedUntil, clock)) {
      await removeVmFile(request.bootDirectory);
      return "gone";
    }
    await untilAnswers(file, clock, signal);
    const running = { ...file, isPaused: false };
    if (file.isPaused === true) await writeVmFile(request.bootDirectory, running);
    return this.#hold(request, running, null);
  }

  /** What an agent left that was killed while it replaced the VMM. */
  async #endOthers({ bootId, bootDirectory }: BootRequest): Promise<void> {
    const boots = dirname(bootDirectory);
    for (const name of await names(boots)) {
      const other = await readVmFile(join(boots, name));
      if (other !== undefined && other.bootId !== bootId) await removeVmFile(join(boots, name));
    }
  }

  /** Another fake VMM takes over the guest of `vm`. */
  async #replace(vm: FakeVm, { next }: ReplaceRequest): Promise<NextVm> {
    const { clock, environmentOf } = this.#options;
    const { program } = this;
    const { bootId, bootDirectory, machineId } = next;
    const failsAt = environmentOf(machineId)["FAKE_REPLACE_FAIL"];
    if (failsAt === "start") throw new Error("FAKE_REPLACE_FAIL is set");
    const record = { bootId, pid: 0, startTime: clock.now(), format: FORMAT, program };
    let taken: SavedMemory | null = null;
    return new FakeNextVm({
      ...{ record, failsAt, now: () => clock.now() },
      take: async () => {
        const pausedAt = await vm.pause();
        taken = JSON.parse((await vm.devices()).toString()) as SavedMemory;
        await writeVmFile(bootDirectory, { ...taken.file, bootId, isPaused: true, program });
        return pausedAt;
      },
      giveBack: async () => {
        await removeVmFile(bootDirectory);
        if (taken !== null) await vm.unpause();
      },
      run: async () => {
        if (taken === null) throw new Error("the guest was not taken over");
        await vm.kill();
        await this.#refuseSecond(next);
        const running = { ...taken.file, bootId, isPaused: false, program, fencedUntil: this.#fenceOf(next) };
        await writeVmFile(bootDirectory, running);
        return this.#hold(next, running, null, taken.commands);
      },
    });
  }

  async find(): Promise<readonly FoundVm[]> {
    return (await this.#vmFiles()).map(({ file, startedFor }) => {
      return { record: { bootId: file.bootId, pid: 0, startTime: file.startedAt }, startedFor, uid: null };
    });
  }

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const unknown = (await this.#vmFiles()).filter(({ file }) => !known.has(file.bootId));
    for (const { file, directory } of unknown) {
      const vm = this.#running.get(file.bootId);
      const waiting = this.#waiting.get(file.bootId);
      if (vm !== undefined) await vm.kill();
      else if (waiting !== undefined) await waiting.discard();
      else await removeVmFile(directory);
    }
    return unknown.length;
  }

  async #prepare(request: PrepareRequest, { work }: FakePreparing, signal: AbortSignal): Promise<PreparedVm> {
    const startedAt = this.#options.clock.now();
    const { bootId, bootDirectory } = request;
    const file = { bootId, startedAt, answersAt: startedAt, endsAt: null, endsAs: "poweroff" } as const;
    await writeVmFile(bootDirectory, { ...file, configuration: null, hasWorkload: false });
    await work(request, signal);
    const prepared = new FakePreparedVm(request, async (bootRequest) => {
      this.#waiting.delete(bootId);
      await removeVmFile(bootRequest.bootDirectory);
      return await this.#boot(bootRequest, "prepared", new AbortController().signal);
    });
    this.#waiting.set(bootId, prepared);
    void prepared.exited.then(() => this.#waiting.delete(bootId));
    return prepared;
  }

  /** All running VMs: those of machines, and prepared ones. */
  async #vmFiles(): Promise<readonly FoundFile[]> {
    const { machinesDirectory, preparing } = this.#options;
    const waiting = preparing === undefined ? [] : await names(preparing.directory);
    const places = waiting.map((name) => ({
      startedFor: "prepared",
      directory: join(preparing?.directory ?? "", name),
    }));
    for (const machine of await names(machinesDirectory)) {
      const boots = join(machinesDirectory, machine, "boots");
      for (const name of await names(boots)) places.push({ startedFor: machine, directory: join(boots, name) });
    }
    const found = await Promise.all(
      places.map(async (place) => ({ ...place, file: await readVmFile(place.directory) })),
    );
    const { clock } = this.#options;
    return found.flatMap(({ file, ...place }) =>
      file === undefined || isOver(file.fencedUntil, clock) ? [] : [{ ...place, file }],
    );
  }

  #hold(request: BootRequest, file: VmFile, origin: VmOrigin | null, kept: readonly FakeCommand[] = []): Vm {
    const environment = this.#options.environmentOf(request.machineId);
    const { machineId, bootDirectory } = request;
    const { lease } = this;
    const files = this.#filesOf(machineId);
    const replace = (replaced: FakeVm, replacing: ReplaceRequest): Promise<NextVm> =>
      this.#replace(replaced, replacing);
    const { clock, isPlain = false } = this.#options;
    const parts = { origin, environment, clock, lease, files, kept, isPlain, replace };
    const vm = new FakeVm(bootDirectory, file, parts);
    this.#running.set(request.bootId, vm);
    void vm.exited.then(() => this.#running.delete(request.bootId));
    return vm;
  }

  #filesOf(machineId: string): FakeFiles {
    let files = this.#files.get(machineId);
    if (files === undefined) {
      files = new FakeFiles(this.#options.environmentOf(machineId));
      this.#files.set(machineId, files);
    }
    return files;
  }

  async #refuseSecond({ machineId, bootId, bootDirectory }: BootRequest): Promise<void> {
    const boots = dirname(bootDirectory);
    for (const name of await names(boots)) {
      const other = await readVmFile(join(boots, name));
      if (other === undefined || other.bootId === bootId) continue;
      this.#options.log.error({ machine: machineId, boots: [other.bootId, bootId] }, "refused to run a machine twice");
      throw new Error(`machine ${machineId} is already running, as ${other.bootId}`);
    }
  }
}

interface FakeVmParts {
  readonly origin: VmOrigin | null;
  readonly environment: Readonly<Record<string, string>>;
  readonly clock: Clock;
  readonly lease: FenceLease;
  readonly files: FakeFiles;
  readonly kept: readonly FakeCommand[];
  readonly isPlain: boolean;
  readonly replace: (vm: FakeVm, request: ReplaceRequest) => Promise<NextVm>;
}

class FakeVm implements Vm {
  readonly record: VmRecord;
  readonly origin: VmOrigin | null;
  readonly guest: FakeGuest;
  readonly network: VmNetwork;
  readonly watchDisk: Vm["watchDisk"];
  readonly processorTime = null;
  readonly memoryUse = () => Promise.resolve(memoryUseIn(this.#environment));
  readonly memory: VmMemory | null;
  readonly live: VmLive | null;
  readonly points: VmPoints | null;
  readonly fence: VmFence | null;
  readonly successor: VmSuccessor | null;
  readonly exited: Promise<VmExit>;
  readonly #directory: string;
  readonly #environment: FakeVmParts["environment"];
  readonly #clock: Clock;
  readonly #files: FakeFiles;
  #file: VmFile;
  readonly #ending = Promise.withResolvers<VmExit>();
  /** Aborted when the VM has ended or was released: connections to it break. */
  readonly #gone = new AbortController();
  /** Ended or released: nothing more happens here. */
  #isDone = false;
  #hasEnded = false;
  readonly #cancelEnd: () => void;
  readonly #fence: FakeFence;
  #writing: Promise<void> = Promise.resolve();

  constructor(directory: string, file: VmFile, parts: FakeVmParts) {
    const { origin, environment, clock, lease, files, kept, isPlain, replace } = parts;
    this.#directory = directory;
    this.#file = file;
    this.#environment = environment;
    this.#clock = clock;
    this.#files = files;
    this.origin = origin;
    this.record = recordOf(file);
    this.successor = isPlain ? null : { begin: (request) => replace(this, request) };
    this.exited = this.#ending.promise;
    const nothing = { take: async () => [], read: () => [], end: () => undefined };
    this.memory = isPlain
      ? null
      : { suspend: (request, signal) => this.#suspend(request, signal), base: () => Promise.resolve(null) };
    this.live =
      isPlain || environment["FAKE_NOT_LIVE"] !== undefined
        ? null
        : {
            watch: async () => nothing,
            pause: () => this.pause(),
            devices: () => this.devices(),
            unpause: () => this.unpause(),
          };
    this.points = isPlain
      ? null
      : { begin: async (request) => this.#beginPoint(request), collapse: (_boot, signal) => this.#collapse(signal) };
    const isWatched = !isPlain && environment["FAKE_UNWATCHED"] === undefined;
    this.watchDisk = isWatched ? (boot) => this.#watchDisk(boot) : null;
    const gone = this.#gone.signal;
    const hostname = (): string => this.#file.configuration?.hostname ?? "localhost";
    const servers = new FakeServers(environment, clock, { hostname, gone });
    this.network = new FakeNetwork({ environment, servers, clock, startedAt: file.startedAt, gone });
    const end = (how: "poweroff" | "crashed" | "flooded"): void => {
      const exit = { kind: how === "flooded" ? "killed" : how, detail: `the fake VM's end: ${how}` } as const;
      void this.#end(how === "flooded" ? { ...exit, excess: { cause: "output", bytes: 2 ** 20 + 1 } } : exit);
    };
    const timer = file.endsAt === null ? null : clock.timer(file.endsAt - clock.now(), () => end(file.endsAs));
    const hangAfter = environment["FAKE_HANG_AFTER_MS"];
    const hangsAt = file.answersAt + Number(hangAfter);
    const hang = hangAfter === undefined ? null : clock.timer(hangsAt - clock.now(), () => void this.guest.hang());
    this.#cancelEnd = () => {
      timer?.cancel();
      hang?.cancel();
      this.#fence.close();
    };
    this.#fence = new FakeFence({
      ...{ lease, clock, until: file.fencedUntil ?? null },
      save: (fencedUntil) => this.#save({ fencedUntil }),
      end: (exit) => void this.#end(exit),
    });
    this.fence = isPlain ? null : vmFenceOf(this.#fence, environment);
    const configured = (configuration: FakeConfiguration): Promise<void> => this.#save({ configuration });
    const startWorkload = (): boolean => {
      const isFirst = !this.#file.hasWorkload;
      // Best effort: the directory may have been removed, and then the file is not needed.
      if (isFirst) this.#save({ hasWorkload: true }).catch(() => undefined);
      return isFirst;
    };
    this.guest = new FakeGuest(
      {
        ...{ clock, environment, files, servers, configured, startWorkload, end },
        crashesWhenConfigured: origin === "template",
      },
      file.configuration,
      kept,
    );
  }

  /** Until it is killed or released a paused VM is the same as a running one. */
  async #suspend({ directory, memoryId }: SuspendRequest, signal: AbortSignal): Promise<number> {
    const { FAKE_SUSPEND_FAIL: code, FAKE_SUSPEND_MS: ms = "0" } = this.#environment;
    if (code !== undefined)
      throw new SuspendRefused(code === "no_space" ? "no_space" : "conflict", "FAKE_SUSPEND_FAIL is set");
    const pausedAt = this.#clock.now();
    await orAborted(this.#clock.sleep(Number(ms), signal), signal);
    const commands = this.guest.commands();
    const file = { ...this.#file, isPaused: false };
    await writeMemory(directory, { memoryId, file, commands, files: this.#files.inMemory() });
    if (this.#hasEnded) throw new Error("the VM ended while its memory was saved");
    return pausedAt;
  }

  /** FAKE_POINT_FAIL: the step that fails. FAKE_POINT_MS: how long the VM is paused. */
  #beginPoint({ pointDirectory, memoryId }: PointRequest): BegunPoint {
    const { FAKE_POINT_FAIL: failsAt, FAKE_POINT_MS: ms = "0" } = this.#environment;
    const failIf = (step: string): void => {
      if (failsAt === step) throw new Error("FAKE_POINT_FAIL is set");
      if (this.#hasEnded) throw new Error("the VM has ended");
    };
    failIf("begin");
    let isOnTop = false;
    let saved: SavedMemory | null = null;
    return {
      get isOnTop() {
        return isOnTop;
      },
      copy: async () => failIf("copy"),
      take: async () => {
        failIf("take");
        await this.#clock.sleep(Number(ms));
        failIf("");
        if (memoryId !== null) {
          const file = { ...this.#file, isPaused: false };
          saved = { memoryId, file, commands: [], files: this.#files.inMemory() };
        }
        isOnTop = true;
        return Number(ms);
      },
      finish: async () => {
        failIf("finish");
        if (saved === null) return 0;
        await writeMemory(pointDirectory, saved);
        return JSON.stringify(saved).length;
      },
      discard: () => Promise.resolve(),
    };
  }

  /** FAKE_COLLAPSE_FAIL: it fails. FAKE_COLLAPSE_MS: how long it takes. */
  async #collapse(signal: AbortSignal): Promise<void> {
    const { FAKE_COLLAPSE_FAIL: fails, FAKE_COLLAPSE_MS: ms = "0" } = this.#environment;
    await this.#clock.sleep(Number(ms), AbortSignal.any([signal, this.#gone.signal]));
    signal.throwIfAborted();
    if (fails !== undefined) throw new Error("FAKE_COLLAPSE_FAIL is set");
    if (this.#hasEnded) throw new Error("the VM has ended");
  }

  async pause(): Promise<number> {
    const pausedAt = this.#clock.now();
    await this.#setPaused(true);
    return pausedAt;
  }

  unpause(): Promise<void> {
    return this.#setPaused(false);
  }

  /** Takes FAKE_SUSPEND_MS, as saving does. */
  async devices(): Promise<Buffer> {
    await this.#clock.sleep(Number(this.#environment["FAKE_SUSPEND_MS"] ?? "0"));
    if (this.#hasEnded) throw new Error("the VM has ended");
    const commands = this.guest.commands();
    const saved: SavedMemory = { memoryId: "", file: this.#file, commands, files: this.#files.inMemory() };
    return Buffer.from(JSON.stringify(saved));
  }

  async #setPaused(isPaused: boolean): Promise<void> {
    if (this.#hasEnded) throw new Error("the VM has ended");
    await this.#save({ isPaused });
  }

  /** One after the other, so that the last change is what the file has. */
  async #save(change: Partial<VmFile>): Promise<void> {
    this.#file = { ...this.#file, ...change };
    const write = (): Promise<void> => writeVmFile(this.#directory, this.#file);
    this.#writing = this.#writing.then(write, write);
    await this.#writing;
    // It may have ended during the write; an ended VM must not look alive.
    if (this.#hasEnded) await removeVmFile(this.#directory);
  }

  watchDiskPause(onChange: (isPaused: boolean) => void): void {
    this.guest.onDiskPause = onChange;
  }

  async #watchDisk({ diskPath }: BootRequest): Promise<DiskWatch> {
    if (this.#environment["FAKE_WATCH_FAIL"] !== undefined) throw new Error("FAKE_WATCH_FAIL is set");
    return await FakeDiskWatch.begin(diskPath);
  }

  async kill(): Promise<void> {
    await this.#end(null);
  }

  release(): void {
    this.#isDone = true;
    this.#cancelEnd();
    this.#gone.abort();
    this.guest.close();
  }

  /** null: it is killed, unless its fence ends it before that is done. */
  async #end(exit: VmExit | null): Promise<void> {
    if (this.#hasEnded) return void (await this.exited);
    if (this.#isDone) return;
    this.#isDone = true;
    this.#hasEnded = true;
    this.#cancelEnd();
    this.#gone.abort();
    // A kernel's timer waits for no file, and what the file says is over.
    if (exit?.kind === "fenced") this.#ending.resolve(exit);
    // What is being written would make it look alive again.
    await this.#writing.catch(() => undefined);
    await removeVmFile(this.#directory);
    this.#ending.resolve(exit ?? killed(this.#fence));
    this.guest.lose("the VM ended");
  }
}
