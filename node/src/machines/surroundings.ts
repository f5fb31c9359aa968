/**
 * What all machines of a node share and each supervisor is handed: the programs and files it works with, and whom it
 * tells. Types only.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { EventLevel } from "@flotilla/contract/machines";
import type { Disks } from "../disks/disks.ts";
import type { Driver } from "../driver/driver.ts";
import type { Images } from "../images/images.ts";
import type { BootSlots } from "./boot-slots.ts";
import type { PreparedVms } from "./prepared-vms.ts";

export interface RemovedMachine {
  readonly machineId: string;
  readonly generation: number;
  /** null: its user is not known. */
  readonly uid: number | null;
}

export interface Surroundings {
  readonly driver: Driver;
  readonly images: Images;
  readonly disks: Disks;
  /** For VMs that are booted or restored, and for those that waited prepared: each until it is configured. */
  readonly bootSlots: BootSlots;
  readonly wakeSlots: BootSlots;
  readonly prepared: PreparedVms;
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
  /** A number that a machine has had until now is another's to use. */
  readonly freeUser: (uid: number) => void;
  /** The machine and all its files are gone. */
  onRemoved(removed: RemovedMachine): void;
}
