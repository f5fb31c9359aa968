/**
 * The interface between the node agent and what runs machines. `qemu` is real; `fake` is scripted, for tests
 * of the control plane at scale. A third driver would change nothing outside this folder.
 *
 * What not every driver can do is a part that is null where it is missing: `memory`, `live` and `prepare` of
 * a driver, `memory`, `live`, `points`, `watchDisk`, `processorTime`, `memoryUse`, `fence` and `successor` of
 * a VM. Machines do without it.
 *
 * Always:
 * - a VM does not end when the node agent ends;
 * - `boot` writes only into the boot's directory;
 * - the caller has recorded the boot in the machine's journal before, so a crash at any point leaves
 *   something that `adopt` or `sweep` finds.
 */
import type { MachineSpec, SuspendRefusalCode } from "@flotilla/contract/link/link";
import type { MemoryUse } from "@flotilla/contract/link/points";
import type { VmOrigin } from "@flotilla/contract/machines";
import type { Guest, GuestConfiguration } from "../guest/guest.ts";
import type { FenceLease } from "../host/fence-lease.ts";
import type { Extent } from "../images/blocks.ts";
import type { PageRecord } from "../memory/memory-file.ts";
import type { VmNetwork } from "../network/vm-network.ts";

/** One boot of a machine: what the driver needs to know. */
export interface BootRequest {
  readonly machineId: string;
  readonly bootId: string;
  /**
   * Directory of this boot alone: sockets, bulk file, VMM log. Exists already; the caller removes it
   * afterwards.
   */
  readonly bootDirectory: string;
  readonly cpus: number;
  readonly memoryMb: number;
  /** The machine's writable disk, and its size as the guest sees it. */
  readonly diskPath: string;
  readonly diskBytes: number;
  /** Files the disk depends on; the VMM must be able to read them. */
  readonly backingPaths: readonly string[];
  /**
   * The disk was made for this boot and never used, so the driver may replace it with one that a guest has
   * mounted.
   */
  readonly hasNewDisk?: boolean;
  /** The unprivileged user the VMM runs as; owns diskPath and bootDirectory. */
  readonly uid: number;
  /** What the machine may connect to. */
  readonly network: MachineSpec["network"];
  /** The machine's ports that are published on the host. */
  readonly publishedPorts: readonly number[];
  /** Boot the guest instead of restoring a template. */
  readonly mustBoot?: boolean;
  /** Absent: it never had one. */
  readonly fence?: RequestedFence;
  /**
   * Called right before a VM begins, or its guest does. Throws when it must not any more: `boot` and what
   * else starts it then rejects.
   */
  readonly mayBegin?: () => void;
}

/**
 * `on`: the VM has a fence before its guest runs. `had`: the VM that is looked for was started with one by an
 * earlier agent.
 */
export type RequestedFence = "on" | "had";

/** What is known of a machine that arrives. It gets its network when it runs. */
export type ReceiveRequest = Omit<BootRequest, "network" | "publishedPorts">;

/** Identifies a VM after a crash of the agent; stored in the journal unchanged. */
export interface VmRecord {
  readonly bootId: string;
  readonly pid: number;
  /**
   * From /proc/<pid>/stat, in clock ticks since the host's boot. The pair (pid, startTime) is never reused.
   */
  readonly startTime: number;
  /** What its saved memory depends on; absent: unknown, so it cannot be suspended. */
  readonly format?: string;
  /** The program that it runs, as `Driver.program`; absent: unknown. */
  readonly program?: string;
}

/** How a VM ended. */
export interface VmExit {
  /**
   * `poweroff`: the guest powered off. `killed`: someone killed the VMM. `crashed`: the VMM failed. `fenced`:
   * its fence ended it.
   */
  readonly kind: "poweroff" | "killed" | "crashed" | "fenced";
  /** Text for people, such as the VMM's last message. */
  readonly detail: string;
  /** When, in epoch milliseconds; absent: just now. */
  readonly at?: number;
  /** Why it was ended here; absent: it was not, or by request. */
  readonly excess?: VmmExcess;
}

/** What a VMM took of its host beyond what it may. `output`: it printed so many bytes within a minute. */
export interface VmmExcess {
  readonly cause: "output";
  readonly bytes: number;
}

export interface Vm {
  readonly record: VmRecord;
  /** null: started by an earlier node agent. */
  readonly origin: VmOrigin | null;
  readonly guest: Guest;
  /** null: the guest has no network interface. */
  readonly network: VmNetwork | null;
  /** Resolves when the VM has ended. Never rejects. */
  readonly exited: Promise<VmExit>;
  /** null: its memory cannot be kept. */
  readonly memory: VmMemory | null;
  /** null: it cannot be moved while it runs. */
  readonly live: VmLive | null;
  /** null: it cannot be branched while it runs. */
  readonly points: VmPoints | null;
  /**
   * Begins to watch what the VM writes to its disk's file. `boot`: the request of its boot. null: it cannot
   * be watched.
   */
  readonly watchDisk: ((boot: BootRequest) => Promise<DiskWatch>) | null;
  /**
   * The VMM pauses the guest while the host's disk does not take what it writes, and resumes it when there is
   * space. `onChange` is called with whether it is paused so, now if it is and at each change; the last one
   * that was given counts.
   */
  watchDiskPause(onChange: (isPaused: boolean) => void): void;
  /** What its threads have had of the host's processors until now. null: it is not known. */
  readonly processorTime: (() => ProcessorTime) | null;
  /** The host's memory that its process takes. null: it is not known. */
  readonly memoryUse: (() => Promise<MemoryUse>) | null;
  /** null: it cannot be fenced. */
  readonly fence: VmFence | null;
  /** null: this driver cannot replace the VMM of a guest that runs. */
  readonly successor: VmSuccessor | null;
  /** Kills the VM at once and waits until its process is gone. */
  kill(): Promise<void>;
  /** Stops watching the VM without ending it; for the shutdown of the node agent. */
  release(): void;
}

/** Milliseconds, of all threads together. */
export interface ProcessorTime {
  readonly ranMs: number;
  /** They could have run, and other processes had the processors. */
  readonly waitedMs: number;
}

/** How the memory of a VM is kept in files. */
export interface VmMemory {
  /**
   * Pauses the VM and saves its memory and devices into `directory`, for `DriverMemory.resume`. When it
   * resolves, the files are on the disk and the VM is paused: it must not run again. When it rejects, the VM
   * runs on; with SuspendRefused the reason is for the machine's owner. Resolves with when the guest was
   * paused, in epoch milliseconds.
   */
  suspend(request: SuspendRequest, signal: AbortSignal): Promise<number>;
  /**
   * The file from which the memory will differ when the VM is suspended; null: none. `directory`: the
   * machine's. Rejects when the VM cannot be suspended.
   */
  base(boot: BootRequest, directory: string): Promise<string | null>;
}

/** How a VM leaves for another node while it runs. */
export interface VmLive {
  /**
   * Begins to watch what the guest writes to its memory. Rejects when it cannot be watched. `directory`: the
   * machine's.
   */
  watch(boot: BootRequest, directory: string): Promise<MemoryWatch>;
  /**
   * Pauses the VM for a move: only `unpause` lets it run again. Resolves with when the guest was paused, in
   * epoch milliseconds.
   */
  pause(): Promise<number>;
  /** The state of the devices of the paused VM, which `WaitingVm.load` takes. */
  devices(boot: BootRequest): Promise<Buffer>;
  unpause(): Promise<void>;
}

/** How a VM that runs is copied at one instant. */
export interface VmPoints {
  /**
   * Prepares the copy while the guest runs. Rejects when it cannot be made; with SuspendRefused the reason is
   * for the machine's owner.
   */
  begin(request: PointRequest, signal: AbortSignal): Promise<BegunPoint>;
  /**
   * Copies into the VM's disk, while the guest runs, what it has of the layers below it. They are not needed
   * any more when this resolves; until then they are. `boot`: the request of its boot.
   */
  collapse(boot: BootRequest, signal: AbortSignal): Promise<void>;
}

export interface PointRequest {
  /** The request of the VM's boot. */
  readonly boot: BootRequest;
  /** The machine's directory. */
  readonly directory: string;
  /** The point's directory, for its memory. */
  readonly pointDirectory: string;
  /** An empty disk, on top of the VM's, to which the guest writes after that instant. */
  readonly overlayPath: string;
  /** A new random id, which `KeptMemory` repeats; null: only the disk is copied. */
  readonly memoryId: string | null;
}

/** `take` comes after `copy` and before `finish`. One of `finish` and `discard` is the last call. */
export interface BegunPoint {
  /** Whether the guest writes to the overlay now. */
  readonly isOnTop: boolean;
  /** Copies the guest's memory while it runs, until little is left. */
  copy(signal: AbortSignal): Promise<void>;
  /**
   * Pauses the guest, takes the rest, puts the overlay on top of its disk and continues it. Resolves with how
   * many milliseconds it was paused. When it rejects, the guest runs on.
   */
  take(): Promise<number>;
  /** Resolves with the bytes of the memory's file when that is on the disk; 0: there is none. */
  finish(): Promise<number>;
  discard(): Promise<void>;
}

/** What ends a VM at the end of the driver's lease, also when no agent runs. */
export interface VmFence {
  readonly isArmed: boolean;
  /** Rejects when it could not be changed. */
  set(isArmed: boolean): Promise<void>;
}

/** How the guest of a VM can continue in another VMM of this host. */
export interface VmSuccessor {
  /**
   * Starts a VMM of the driver's program, to which this VM's guest can go. Rejects with the reason, for
   * people, when it cannot.
   */
  begin(request: ReplaceRequest, signal: AbortSignal): Promise<NextVm>;
}

/** A VM that is paused and must not run before its machine's owner is known: at either end of a move. */
export interface PausedVm extends Pick<Vm, "record" | "exited" | "kill" | "release">, Pick<VmMemory, "suspend"> {
  /**
   * Continues the guest, and connects to it: nothing was said to it before. `onRunning`: called with when it
   * ran again, in epoch milliseconds.
   */
  resume(request: BootRequest, onRunning: (at: number) => void, signal: AbortSignal): Promise<Vm>;
  /** As of `VmNetwork`; 0 without a network. */
  sentBytes(): number;
}

/** What a VMM needs that is to replace another one. */
export interface ReplaceRequest {
  /** The request of the running VM's boot. */
  readonly boot: BootRequest;
  /** The same machine, with an id and a directory of the new VMM's own. */
  readonly next: BootRequest;
  /** The machine's directory. */
  readonly directory: string;
}

/**
 * A VMM that waits for the guest of another VMM of its machine, on this host.
 *
 * Always: of the two at most one runs the guest, and has its disk open for writing. This one does not before
 * `run`.
 */
export interface NextVm {
  readonly record: VmRecord;
  /** Copies the guest's memory while it runs, until little is left. */
  copy(signal: AbortSignal): Promise<void>;
  /**
   * Pauses the guest and takes over the rest: its memory, its devices and its network. Resolves with when it
   * was paused, in epoch milliseconds; both VMs are paused then. When it rejects, this VMM has ended, and the
   * guest runs on in the other VM, if that lives.
   */
  take(): Promise<number>;
  /**
   * The guest continues here, and the other VM ends: call it when that is recorded. `onRunning`: called with
   * when it ran again, in epoch milliseconds. Rejects with NextVmLost, and the guest runs on in the other VM,
   * when this VMM had ended before; when it rejects otherwise, the other VM has ended.
   */
  run(onRunning: (at: number) => void, signal: AbortSignal): Promise<Vm>;
  /** Ends this VMM. Only before `run`. */
  discard(): Promise<void>;
}

/** A VMM ended before it ran the guest that it had taken over, which runs on where it was. */
export class NextVmLost extends Error {}

/** A VM without a guest yet, which waits for one that comes from another node. */
export interface WaitingVm {
  readonly record: VmRecord;
  /** Resolves when the VM has ended. Never rejects. */
  readonly exited: Promise<VmExit>;
  /** Writes pages of the guest's memory. Throws when they are outside of it. Only before `load`. */
  write(record: PageRecord): void;
  /**
   * Loads the state of the devices, once; the memory and the disk are complete. Its boot directory may have
   * been renamed.
   */
  load(state: Buffer): Promise<PausedVm>;
  /** Its boot directory was renamed after `load`. */
  moved(bootDirectory: string): void;
  kill(): Promise<void>;
}

/** What a guest writes to its memory while it runs. Ends with the VM. */
export interface MemoryWatch {
  /** The parts that changed since the last call, in order; at first all that differ from the base. */
  take(): Promise<readonly Extent[]>;
  /** The content of some parts. The bytes of a record are valid until the next one. */
  read(parts: readonly Extent[]): Iterable<PageRecord>;
  end(): void;
}

/** What a VM writes to its disk's file. Ends with the VM. */
export interface DiskWatch {
  /**
   * The parts that were written since the last call, or since the watch began. When it rejects, that is lost.
   */
  take(): Promise<readonly Extent[]>;
  /** The same, once, of a VM that is paused for ever or has ended. Rejects when it is not known. */
  takeLast(): Promise<readonly Extent[]>;
  /** Ends it while the VM runs on. */
  end(): Promise<void>;
}

/** What is saved of a VM. */
export interface SuspendRequest {
  /** The request of its boot. */
  readonly boot: BootRequest;
  /** The machine's directory. */
  readonly directory: string;
  /** A new random id, which `KeptMemory` repeats. */
  readonly memoryId: string;
}

/** The configuration of a guest's network; null where it is used: the guest has none. */
export type GuestAddressing = Pick<GuestConfiguration, "address" | "nameservers">;

/** The memory of a VM that was suspended. */
export interface KeptMemory {
  readonly directory: string;
  readonly memoryId: string;
  /** What the files of memory that came from another node are now; null: the memory itself names them. */
  readonly moved: MemoryFiles | null;
  /** Whether the commands in it wait for their callers. Otherwise they end. */
  readonly keepsCommands: boolean;
  /**
   * Called when everything is loaded, before the VM runs. The VM changes the disk from then on, so the memory
   * must never be used again: records that, and resolves when the record is on the disk.
   */
  used(): Promise<void>;
  /** Called right before the VM runs, with that time in epoch milliseconds. */
  onRunning(at: number): void;
  /**
   * Makes the guest this machine, when the memory was copied from another one. Called when the guest has
   * answered, and before anything else reaches it and it reaches anything; its programs wait for that. When
   * it rejects, the VM is killed.
   */
  readonly becomes?: (guest: Guest, network: GuestAddressing | null) => Promise<void>;
}

/** Identities of the files that a memory depends on. They change when a file is written to or replaced. */
export interface MemoryFiles {
  readonly disk: string;
  /** null: the memory is complete. */
  readonly base: string | null;
}

/** Where the files of kept memory are. */
export interface MemoryPlace {
  /** The machine's directory. */
  readonly directory: string;
  readonly diskPath: string;
}

/**
 * A VM cannot be adopted now, because its VMM has paused the guest at a write that the host's disk did not
 * take. Nothing is wrong with it.
 */
export class GuestPaused extends Error {}

/** The VM cannot be suspended, and runs on. */
export class SuspendRefused extends Error {
  readonly code: SuspendRefusalCode;

  constructor(code: SuspendRefusalCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** A VM to prepare. */
export interface PrepareRequest {
  readonly bootId: string;
  /** Exists already. Becomes the boot directory of the machine that uses the VM. */
  readonly bootDirectory: string;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly uid: number;
  /**
   * A machine's new disk for the guest to mount: only a machine with that disk can use the VM. null: any
   * machine can.
   */
  readonly disk: PreparedDisk | null;
  /**
   * Whether such VMs are wanted often, so that the driver may spend seconds and disk space to prepare them
   * faster.
   */
  readonly isFrequent: boolean;
  /**
   * Makes a temporary disk in the boot directory for warming up a guest without a disk; the driver removes
   * it. null: not available.
   */
  readonly makeScratchDisk: (() => Promise<PreparedDisk>) | null;
}

export interface PreparedDisk {
  readonly path: string;
  readonly backingPaths: readonly string[];
  readonly bytes: number;
  /** The user of the machine's commands, as in an image's config. */
  readonly user: string;
}

/** A VM that waits for a machine, paused once it has settled. It is either started once or discarded. */
export interface PreparedVm {
  readonly bootId: string;
  readonly uid: number;
  /** Resolves when it has ended. Never rejects. */
  readonly exited: Promise<VmExit>;
  /** Assigns it to the machine; `request` has this VM's `bootId` and `uid`. Rejects when the VM has ended. */
  start(request: BootRequest): Promise<Vm>;
  /** Kills it and removes its directory. */
  discard(): Promise<void>;
}

/** A running VM of which only the process is known. */
export interface FoundVm {
  readonly record: VmRecord;
  /** What it was started for: a machine's id, or a constant for a VM that was prepared. */
  readonly startedFor: string;
  /** The unprivileged user it runs as; null if the driver has none. */
  readonly uid: number | null;
}

/** How many VMs may start concurrently on this host without all of them becoming slower. */
export interface ConcurrentStartsMax {
  /** VMs that boot or are restored. */
  readonly boots: number;
  /** Prepared VMs that are resumed, each until it is configured. */
  readonly wakes: number;
}

export interface DriverFacts {
  readonly name: "qemu" | "fake";
  /** `kvm` or `tcg`, or `none`. */
  readonly accelerator: string;
  /** Why this accelerator was chosen: the result of the probe. */
  readonly acceleratorReason: string;
  /** Such as `QEMU 7.2.22, Linux 6.1.0-40-cloud-amd64`. */
  readonly runtime: string;
  /** The guest's block device for its root disk; null if there is none. */
  readonly rootDevice: string | null;
}

export interface Driver {
  readonly facts: DriverFacts;
  /** null: it keeps no memory of VMs. */
  readonly memory: DriverMemory | null;
  /**
   * null: no machine arrives while it runs. A driver whose VMs have `live` or `successor` has it, and has
   * `memory` too.
   */
  readonly live: DriverLive | null;
  /** Whether new VMs can be fenced. */
  readonly canFence: boolean;
  /** Until when fenced VMs run. */
  readonly lease: FenceLease;
  /** Identifies the program of the VMMs that it starts, by its content. */
  readonly program: string;
  /** The same of what is installed now: another one needs another agent. Rejects while that changes. */
  installedProgram(): Promise<string>;
  readonly concurrentStartsMax: ConcurrentStartsMax;
  /**
   * Starts a VM and waits for its agent's hello. On failure it has killed the VMM and throws with a message
   * for the machine's owner. Aborting `signal` cancels the start.
   */
  boot(request: BootRequest, signal: AbortSignal): Promise<Vm>;
  /** Makes a VM that can be started within milliseconds. null: none is prepared. */
  readonly prepare: ((request: PrepareRequest, signal: AbortSignal) => Promise<PreparedVm>) | null;
  /**
   * Makes sure that no VM of this size starts from the current template, unless that was made within the last
   * hour.
   */
  forgetTemplate(size: Pick<BootRequest, "cpus" | "memoryMb">): Promise<void>;
  /**
   * Finds a VM started by an earlier agent. `gone` if its process has ended; throws when its guest does not
   * answer.
   */
  adopt(request: BootRequest, record: VmRecord | null, signal: AbortSignal): Promise<Vm | "gone">;
  /** All running VMs of this node's directory. */
  find(): Promise<readonly FoundVm[]>;
  /** Kills every VM of this node's directory whose boot is not in `known`. Returns their number. */
  sweep(known: ReadonlySet<string>): Promise<number>;
}

/** What a driver does with the kept memory of VMs that have ended. */
export interface DriverMemory {
  /** What the memory of its VMs depends on, besides their size: a node with the same can load it. */
  readonly format: string;
  /**
   * Continues a suspended VM in a new one. Rejects with the reason when its memory cannot be loaded, and has
   * killed the new VM. Aborting `signal` cancels it.
   */
  resume(request: BootRequest, memory: KeptMemory, signal: AbortSignal): Promise<Vm>;
  /**
   * Checks the memory of a machine before it moves: resolves with its format, and whether it depends on a
   * base file. Rejects with the reason when the memory does not fit the machine's files any more.
   */
  describe(
    place: MemoryPlace,
    memory: Pick<KeptMemory, "memoryId" | "moved">,
  ): Promise<{ readonly format: string; readonly hasBase: boolean }>;
  /**
   * The identities of a machine's files, which were compared with those of the node that saved the memory.
   */
  files(place: MemoryPlace): Promise<MemoryFiles>;
  /**
   * Files of this driver that may be the base of a machine's memory; machines' own files are not among them.
   */
  bases(): Promise<readonly string[]>;
}

/** How a driver receives VMs that run on another node, and finds those that are paused at either end. */
export interface DriverLive {
  /**
   * Starts a VM that waits for a guest. `basePath`: the file from which the guest's memory differs; null: it
   * differs from none.
   */
  receive(request: ReceiveRequest, basePath: string | null, signal: AbortSignal): Promise<WaitingVm>;
  /** As `Driver.adopt`, of a VM that must not run: it is paused if it is not yet. */
  adopt(request: BootRequest, record: VmRecord | null, signal: AbortSignal): Promise<PausedVm | "gone">;
}
