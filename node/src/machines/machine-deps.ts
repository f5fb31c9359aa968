/**
 * The dependencies that all machines of a node share: drivers, files, limits and callbacks. Each supervisor
 * receives them.
 */
import { dirname, join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Disks } from "../disks/disks.ts";
import type { Driver } from "../driver/driver.ts";
import { UserIds } from "../host/user-ids.ts";
import type { Images } from "../images/images.ts";
import { HostStop } from "./host-stop.ts";
import { BootSlots } from "./boot-slots.ts";
import { MemoryBases } from "./memory-bases.ts";
import { ensureMemoryRoom } from "./memory-room.ts";
import { Points } from "../points/points.ts";
import { PreparedVms, type PreparedVmsOptions } from "./prepared/prepared-vms.ts";
import type { RunJournal } from "./run-journal.ts";

const SUSPENDS_MAX = 2;
const SENT_EARLY_MAX = 2;

export interface RemovedMachine {
  readonly machineId: string;
  readonly generation: number;
  /** null: its user is unknown. */
  readonly uid: number | null;
}

export interface MachineDeps {
  /** Holds a directory for each machine. */
  readonly machinesDirectory: string;
  readonly users: UserIds;
  readonly driver: Driver;
  readonly images: Images;
  readonly disks: Disks;
  /** Slots of VMs that are booted or restored from a template. Held until the VM is configured. */
  readonly bootSlots: BootSlots;
  /** Slots of prepared VMs that are resumed. Held until the VM is configured. */
  readonly wakeSlots: BootSlots;
  /** Slots of machines whose memory is being saved: more would share the disk, and be paused longer. */
  readonly suspendSlots: BootSlots;
  /** Slots of disks that are sent to other nodes while their machines run. */
  readonly earlySlots: BootSlots;
  /** Whether the host is about to go down. */
  readonly hostStop: HostStop;
  readonly prepared: PreparedVms;
  readonly memoryBases: MemoryBases;
  readonly points: Points;
  readonly runs: RunJournal;
  /** Throws an Error for the machine's owner when the host has too little memory for another VM. */
  readonly ensureMemoryRoom: () => Promise<void>;
  /** Epoch milliseconds at which an earlier agent of this node was last alive; null: none. */
  readonly lastAliveAt: number | null;
  readonly clock: Clock;
  readonly log: Log;
  /** Boots that may have a VMM. The driver's sweep ends all others. */
  readonly liveBoots: Set<string>;
  /** Digests that images of machines have, or may have, which are moving to this node, by the move. */
  readonly imagesArriving: Map<string, readonly string[]>;
  /** Adds an event to the machine's timeline. */
  onEvent(machineId: string, event: NewEvent): void;
  /** Something that is reported to the server has changed. */
  onChange(machineId: string): void;
}

/** What one machine's supervisor gets. */
export interface SupervisorDeps extends MachineDeps {
  /** The machine and all its files have been removed. */
  onRemoved(removed: RemovedMachine): void;
  /** A machine's disk is not on top of its layers any more. */
  onLayersFreed(): void;
}

export interface MachineDepsOptions
  extends Pick<
    MachineDeps,
    | "machinesDirectory"
    | "driver"
    | "images"
    | "disks"
    | "runs"
    | "lastAliveAt"
    | "clock"
    | "log"
    | "onEvent"
    | "onChange"
  > {
  /** Holds the directories of prepared VMs. */
  readonly preparedDirectory: string;
  readonly observeResources: PreparedVmsOptions["observeResources"];
}

/** Makes the objects; starts nothing. */
export function makeMachineDeps(options: MachineDepsOptions): MachineDeps {
  const { preparedDirectory, observeResources, ...shared } = options;
  const { machinesDirectory, driver } = shared;
  const liveBoots = new Set<string>();
  const users = new UserIds(machinesDirectory);
  const prepared = new PreparedVms({ ...shared, directory: preparedDirectory, liveBoots, users, observeResources });
  const room = { observe: observeResources, discardPrepared: () => prepared.discardWaiting() };
  return {
    ...shared,
    users,
    liveBoots,
    imagesArriving: new Map(),
    hostStop: new HostStop(shared.clock),
    prepared,
    points: new Points(join(dirname(machinesDirectory), "points"), shared.log),
    memoryBases: new MemoryBases({ memory: driver.memory, machinesDirectory }),
    bootSlots: new BootSlots(driver.concurrentStartsMax.boots),
    suspendSlots: new BootSlots(SUSPENDS_MAX),
    earlySlots: new BootSlots(SENT_EARLY_MAX),
    wakeSlots: new BootSlots(driver.concurrentStartsMax.wakes),
    ensureMemoryRoom: () => ensureMemoryRoom(room),
  };
}
