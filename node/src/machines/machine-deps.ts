/**
 * What all machines of a node share and each supervisor is handed: the programs and files it works with, and whom it
 * tells.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { EventLevel } from "@flotilla/contract/machines";
import type { Disks } from "../disks/disks.ts";
import type { Driver } from "../driver/driver.ts";
import { UserIds } from "../host/user-ids.ts";
import type { Images } from "../images/images.ts";
import { BootSlots } from "./boot-slots.ts";
import { ensureMemoryRoom } from "./memory-room.ts";
import { PreparedVms, type PreparedVmsOptions } from "./prepared-vms.ts";
import type { RunJournal } from "./run-journal.ts";

export interface RemovedMachine {
  readonly machineId: string;
  readonly generation: number;
  /** null: its user is not known. */
  readonly uid: number | null;
}

export interface MachineDeps {
  /** Holds a directory for each machine. */
  readonly machinesDirectory: string;
  readonly users: UserIds;
  readonly driver: Driver;
  readonly images: Images;
  readonly disks: Disks;
  /** For VMs that are booted or restored, and for those that waited prepared: each until it is configured. */
  readonly bootSlots: BootSlots;
  readonly wakeSlots: BootSlots;
  readonly prepared: PreparedVms;
  readonly runs: RunJournal;
  /** Throws an Error for the machine's owner when memory is too short for another VM. */
  readonly ensureMemoryRoom: () => Promise<void>;
  /** Epoch milliseconds at which an earlier agent of this node was last alive; null: there was none. */
  readonly lastAliveAt: number | null;
  readonly clock: Clock;
  readonly log: Log;
  /** Boots that may have a VMM: what is not in here is swept away. */
  readonly liveBoots: Set<string>;
  /** For the machine's timeline. */
  onEvent(machineId: string, level: EventLevel, message: string): void;
  /** What the server should know has changed. */
  onChange(machineId: string): void;
}

/** Of one machine's supervisor. */
export interface SupervisorDeps extends MachineDeps {
  /** The machine and all its files are gone. */
  onRemoved(removed: RemovedMachine): void;
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
  /** Where VMs wait until a machine needs them. */
  readonly preparedDirectory: string;
  readonly observeResources: PreparedVmsOptions["observeResources"];
}

/** Puts them together. Nothing runs yet. */
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
    prepared,
    bootSlots: new BootSlots(driver.concurrentStartsMax.boots),
    wakeSlots: new BootSlots(driver.concurrentStartsMax.wakes),
    ensureMemoryRoom: () => ensureMemoryRoom(room),
  };
}
