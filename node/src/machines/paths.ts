/**
 * The paths of a machine's files in its directory. Pure.
 */
import { join } from "node:path";

/** The machine's disk, in the machine's directory. */
export const diskPathOf = (directory: string): string => join(directory, DISK_NAME);
/** One directory per boot, in the machine's directory. */
export const bootsPathOf = (directory: string): string => join(directory, BOOTS_NAME);
/**
 * A boot's directory in there is named by the first digits of its id: the path of a socket in it may have 107
 * bytes, and a machine has one boot at a time.
 */
export const bootDirectoryName = (bootId: string): string => bootId.slice("boot-".length, "boot-".length + 12);

/** A machine's directory is named by its id. Other names in the machines directory are not Flotilla's. */
export const isMachineDirectory = (name: string): boolean => /^mach-[0-9a-f]{32}$/.test(name);

/** The log of the machine's workload. */
export const logsPathOf = (directory: string): string => join(directory, LOGS_NAME);

/** What the driver saves of a suspended machine: its memory, and the file from which that differs. */
export const MEMORY_NAMES = ["memory", "memory-base"] as const;

export const memoryPathOf = (directory: string): string => join(directory, MEMORY_NAMES[0]);
export const memoryBasePathOf = (directory: string): string => join(directory, MEMORY_NAMES[1]);

export const DISK_NAME = "disk";
export const BOOTS_NAME = "boots";
export const LOGS_NAME = "logs";
export const JOURNAL_NAME = "journal.json";

/** Whether a name in a machine's directory is one of these, or that of an incomplete file of one. */
export const isOurName = (name: string): boolean =>
  [DISK_NAME, BOOTS_NAME, LOGS_NAME, JOURNAL_NAME, ...MEMORY_NAMES].includes(name.replace(/\.new$/, ""));
