/**
 * What all machines of a node share and each supervisor is handed: the programs and files it works with, and whom it
 * tells. Types and paths only.
 */
import { join } from "node:path";
import type { EventLevel } from "@flotilla/contract/machines";
import type { Clock } from "../clock.ts";
import type { Driver } from "../driver/driver.ts";
import type { Images, RootFile } from "../images/images.ts";
import type { Log } from "../log.ts";
import type { BootSlots } from "./boot-slots.ts";
import type { Journal } from "./journal.ts";
import type { PreparedVms } from "./prepared-vms.ts";

/** Makes the writable disk of a machine. */
export interface Disks {
  /** A file at `diskPath` on top of an image's file system, owned by `uid`. After a crash in the middle the path may hold anything. */
  make(request: {
    readonly diskPath: string;
    readonly root: RootFile;
    readonly diskGb: number;
    readonly uid: number;
  }): Promise<void>;
}

export interface Surroundings {
  readonly driver: Driver;
  readonly images: Images;
  readonly disks: Disks;
  readonly slots: BootSlots;
  readonly prepared: PreparedVms;
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
  onRemoved(journal: Journal): void;
}

/** The machine's disk, in the machine's directory. */
export const diskPathOf = (directory: string): string => join(directory, DISK_NAME);
/** One directory per boot, in the machine's directory. */
export const bootsPathOf = (directory: string): string => join(directory, BOOTS_NAME);
/**
 * A boot's directory in there is named by the first digits of its id: the path of a socket in it may have 107 bytes,
 * and a machine has one boot at a time.
 */
export const bootDirectoryName = (bootId: string): string => bootId.slice("boot-".length, "boot-".length + 12);

export const DISK_NAME = "disk";
export const BOOTS_NAME = "boots";
