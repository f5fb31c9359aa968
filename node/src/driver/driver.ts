/**
 * The interface between the node agent and whatever runs machines. `qemu` is real; `fake` is scripted, for tests of
 * the control plane at scale. A third driver changes nothing outside this folder.
 *
 * Always: a VM does not end because the node agent ends. `boot` writes nothing outside the boot's directory; whoever
 * calls it has written the boot into the machine's journal before, so that a crash at any point leaves something that
 * `adopt` or `sweep` finds.
 */
import type { MachineSpec } from "@flotilla/contract/link";
import type { VmOrigin } from "@flotilla/contract/machines";
import type { Guest } from "../guest/guest.ts";
import type { VmNetwork } from "../network/vm-network.ts";

/** One incarnation of a machine, as the driver needs to know it. */
export interface BootRequest {
  readonly machineId: string;
  readonly bootId: string;
  /** Belongs to this boot alone: sockets, pid file, console log. Exists, and is removed by the caller afterwards. */
  readonly bootDirectory: string;
  readonly cpus: number;
  readonly memoryMb: number;
  /** The machine's own writable disk, and its size as the guest sees it. */
  readonly diskPath: string;
  readonly diskBytes: number;
  /** Files the disk depends on: the VMM must be able to read them. */
  readonly backingPaths: readonly string[];
  /** The unprivileged user the VMM runs as; owns diskPath and bootDirectory. */
  readonly uid: number;
  /** What the machine may reach. */
  readonly network: MachineSpec["network"];
  /** Its ports that others on the host may connect to. */
  readonly publishedPorts: readonly number[];
  /** The guest is to boot, whatever templates there are. */
  readonly mustBoot?: boolean;
}

/** What must be known to find a VM again after a crash; goes into the journal as it is. */
export interface VmRecord {
  readonly bootId: string;
  readonly pid: number;
  /** Of /proc/<pid>/stat, in clock ticks since the host's boot: the pair (pid, startTime) is never reused. */
  readonly startTime: number;
}

/** How a VM ended. */
export interface VmExit {
  /** `poweroff`: the guest ended by itself. `killed`: somebody ended the VMM. `crashed`: the VMM ended with an error. */
  readonly kind: "poweroff" | "killed" | "crashed";
  /** For people, such as the VMM's last words. */
  readonly detail: string;
}

export interface Vm {
  readonly record: VmRecord;
  /** null: an earlier node agent started it. */
  readonly origin: VmOrigin | null;
  readonly guest: Guest;
  /** null: the guest has no interface. */
  readonly network: VmNetwork | null;
  /** Resolves when the VM has ended. Never rejects. */
  readonly exited: Promise<VmExit>;
  /** Ends the VM at once and waits until its process is gone. */
  kill(): Promise<void>;
  /** Lets go of it without ending it: the node agent shuts down. */
  release(): void;
}

/** What a VM is prepared from. */
export interface PrepareRequest {
  readonly bootId: string;
  /** Exists. It becomes the boot's directory of the machine that takes the VM. */
  readonly bootDirectory: string;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly uid: number;
  /** The new disk of a machine to be, which the guest mounts: only a machine with that disk can take the VM. null: any machine can. */
  readonly disk: PreparedDisk | null;
  /** Makes a disk in the boot's directory for a guest that has none to practise on; the driver removes it. null: it can not be made. */
  readonly makeScratchDisk: (() => Promise<PreparedDisk>) | null;
}

export interface PreparedDisk {
  readonly path: string;
  readonly backingPaths: readonly string[];
  readonly bytes: number;
  /** As whom the machine's commands will run, as in an image's config. */
  readonly user: string;
}

/** A VM without a machine, which waits, paused as soon as it has settled. It is either started once or discarded. */
export interface PreparedVm {
  readonly bootId: string;
  readonly uid: number;
  /** Resolves when it has ended. Never rejects. */
  readonly exited: Promise<VmExit>;
  /** Makes it the machine's: `bootId` and `uid` of the request are this VM's. Rejects when it has ended. */
  start(request: BootRequest): Promise<Vm>;
  /** Ends it and removes its directory. */
  discard(): Promise<void>;
}

/** A VM that runs, of which only its process is known. */
export interface FoundVm {
  readonly record: VmRecord;
  /** What it was started for: a machine's id, or another word for one that waited prepared. */
  readonly startedFor: string;
  /** The unprivileged user that it runs as; null: the driver has none. */
  readonly uid: number | null;
}

/** How many VMs a host starts at the same time without making all of them slower. */
export interface StartsAtOnceMax {
  /** That are booted or restored. */
  readonly boots: number;
  /** That waited prepared, each until it is configured. */
  readonly wakes: number;
}

export interface DriverFacts {
  readonly name: "qemu" | "fake";
  /** `kvm` or `tcg`, or `none`. */
  readonly accelerator: string;
  /** Why this accelerator: what the probe saw. */
  readonly acceleratorReason: string;
  /** Such as `QEMU 7.2.22, Linux 6.1.0-40-cloud-amd64`. */
  readonly runtime: string;
  /** The device under which the guest sees its root disk; null when there is none. */
  readonly rootDevice: string | null;
}

export interface Driver {
  readonly facts: DriverFacts;
  readonly startsAtOnceMax: StartsAtOnceMax;
  /**
   * Starts a VM and waits for its agent's hello. Throws with a text for the machine's owner when it cannot, and has
   * ended the VMM then. `signal` gives up: the VMM is ended.
   */
  boot(request: BootRequest, signal: AbortSignal): Promise<Vm>;
  /** Makes a VM that can be started within milliseconds. null: this driver has none. */
  readonly prepare: ((request: PrepareRequest, signal: AbortSignal) => Promise<PreparedVm>) | null;
  /** Makes sure that no VM of this size is started from a template that exists now, unless it was made just before. */
  forgetTemplate(size: Pick<BootRequest, "cpus" | "memoryMb">): Promise<void>;
  /** Finds a VM of an earlier node agent again. `gone` when its process does not live; throws when its agent does not answer. */
  adopt(request: BootRequest, record: VmRecord | null, signal: AbortSignal): Promise<Vm | "gone">;
  /** Every VM of this node's directory that runs. */
  find(): Promise<readonly FoundVm[]>;
  /** Ends every VM of this node's directory whose boot is not in `known`. Returns how many there were. */
  sweep(known: ReadonlySet<string>): Promise<number>;
}
