/**
 * A machine's journal: one small file with the machine's desired state and its present boot.
 *
 * Owns `<machines directory>/<machine id>/journal.json`. It is authoritative for what runs on this node: a
 * boot is recorded before its VMM starts, and cleared after its VMM has ended.
 *
 * Always:
 * - The file is replaced atomically (temporary file, fsync, rename, fsync of the directory). So a reader
 *   finds the old or the new one, and a written journal survives a crash of the host.
 * - Only the last of several changes during a write is written.
 * - The file holds the machine's environment, so only the node agent's user can read it.
 *
 * The process may die at any point; adopt.ts removes the temporary file. A machine whose journal is lost
 * keeps its disk (lost-journal.ts).
 */
import { open, readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { endOfTurn } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import {
  DESIRED_STATES,
  type DesiredState,
  type EndedRun,
  type MachineSpec,
  type SuspendRefusalCode,
} from "@flotilla/contract/link/link";
import type { StartTimings } from "@flotilla/contract/machines";
import type { MemoryFiles, VmRecord } from "../driver/driver.ts";
import { JOURNAL_NAME } from "./paths.ts";
import type { Restarts } from "./restart-policy.ts";
import type { Ending, Fence } from "./state.ts";

/** A boot that was begun. */
export interface JournaledBoot {
  readonly bootId: string;
  /** null until the VMM has been started. */
  readonly record: VmRecord | null;
  /** Epoch milliseconds; null until the guest has been configured. */
  readonly runningSince: number | null;
  readonly timings: StartTimings | null;
  /** Epoch milliseconds; absent or null until a published port has taken a connection. */
  readonly readySince?: number | null;
  /** The boot in which the guest booted, when it was suspended since; absent or null: this one. */
  readonly guestBootId?: string | null;
  /**
   * It is at one end of a move: it is paused, or was about to be, and an agent that finds it must not let it
   * run before the server says that the machine is to run here. Absent: false.
   */
  readonly isPaused?: boolean;
  /** Its VM was started with a fence, or has confirmed one. Absent: false. */
  readonly isFenced?: boolean;
  /** The workload's command; null when there is none, or it is not known yet. */
  readonly workload?: readonly string[] | null;
  /** Names its VMM and the directory of that, since the VMM was replaced; absent: the boot's id does. */
  readonly vmmId?: string;
  /**
   * Its guest continues the memory of another machine, and has not confirmed yet that it is this one: an
   * agent that finds it ends it. Absent: false.
   */
  readonly isUnconfirmed?: boolean;
  /** Its `resume` hook has not ended yet. Absent: false. */
  readonly isHookDue?: boolean;
}

/** What a boot's VMM and its directory are called. */
export const vmmIdOf = ({ vmmId, bootId }: Pick<JournaledBoot, "bootId" | "vmmId">): string => vmmId ?? bootId;

export interface Journal {
  readonly machineId: string;
  /** The unprivileged user of the machine's VMM and files. */
  readonly uid: number;
  readonly generation: number;
  readonly desired: DesiredState;
  /** null only for a machine that this node never had and that is to be absent. */
  readonly spec: MachineSpec | null;
  /** Digest of the disk's image; set before the disk is made, so that the image is not collected before. */
  readonly imageDigest: string | null;
  readonly hasDisk: boolean;
  /**
   * The image's file that the disk is based on; absent or null: the one that the image gives for the disk's
   * size.
   */
  readonly rootName?: string | null;
  /** The points whose disks its own is on top of, nearest first; absent: there is only the image's file. */
  readonly layers?: readonly string[];
  /** The move with which the disk came to this node; absent or null: it was made here. */
  readonly arrivedBy?: string | null;
  readonly boot: JournaledBoot | null;
  /** The latest boot that ran and has ended; null or absent: none. */
  readonly lastRun?: EndedRun | null;
  readonly ending: Ending | null;
  /** Whether its VMs are fenced (fence.ts); absent: they never were. */
  readonly fence?: Fence;
  /** Whether a stop suspends the machine, or keeps its saved memory; absent: false. */
  readonly keepsMemory?: boolean;
  /** Whether its commands wait in that memory, because the machine moves; absent: false. */
  readonly keepsCommands?: boolean;
  /**
   * The saved memory of a suspended machine; null or absent: none. While it is there, no VM of the machine
   * runs.
   */
  readonly memory?: JournaledMemory | null;
  /** Why the machine could not be suspended in a generation; null or absent: nothing was refused. */
  readonly suspendRefusal?: SuspendRefusal | null;
  /** Restarts after unexpected ends; null or absent: none since the last request of the server. */
  readonly restarts?: Restarts | null;
}

export interface JournaledMemory {
  /** The id in the file, which an older file lacks. */
  readonly memoryId: string;
  /** Epoch milliseconds at which the guest was paused. Its run ended then. */
  readonly suspendedAt: number;
  /** The boot in which the guest booted. */
  readonly guestBootId: string;
  /** As in JournaledBoot. */
  readonly workload: readonly string[] | null;
  /** Whether the commands in it wait for their callers; absent: they end when it is loaded. */
  readonly keepsCommands?: boolean;
  /** What its files are here, when it came from another node; null or absent: it was saved here. */
  readonly moved?: MemoryFiles | null;
  /** The point that it is of, whose machine its guest is until it is configured; absent: it is this one's. */
  readonly pointId?: string;
}

export interface SuspendRefusal {
  readonly generation: number;
  readonly code: SuspendRefusalCode;
  readonly reason: string;
}

const VERSION = 1;
const TEMPORARY_NAME = `${JOURNAL_NAME}.new`;

/** `missing`: no file. `damaged`: it cannot be read. `newer`: a later version of Flotilla wrote it. */
export type ReadJournal =
  | { readonly kind: "sound"; readonly journal: Journal }
  | { readonly kind: "missing" | "damaged" | "newer"; readonly reason: string };

/** Reads the journal of a machine. Never rejects. */
export async function readJournal(directory: string, machineId: string): Promise<ReadJournal> {
  try {
    return parseJournal(await readFile(join(directory, JOURNAL_NAME), "utf8"), machineId);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return { kind: "missing", reason: "its journal is missing" };
    // A parser's message quotes the text, which has secrets.
    const why = error instanceof SyntaxError ? "it is not JSON" : messageOf(error);
    return { kind: "damaged", reason: `its journal cannot be read: ${why}` };
  }
}

function parseJournal(text: string, machineId: string): ReadJournal {
  const value = JSON.parse(text) as Partial<Journal> & { version?: unknown };
  if (typeof value.version === "number" && value.version > VERSION) {
    const reason = `its journal has version ${value.version}, and this version of Flotilla reads up to ${VERSION}`;
    return { kind: "newer", reason };
  }
  const isSound =
    value.version === VERSION &&
    value.machineId === machineId &&
    Number.isSafeInteger(value.uid) &&
    Number.isSafeInteger(value.generation) &&
    DESIRED_STATES.includes(value.desired as DesiredState) &&
    typeof value.hasDisk === "boolean";
  if (!isSound) return { kind: "damaged", reason: `its journal is not one of machine ${machineId}` };
  const { version: _version, ...journal } = value;
  return { kind: "sound", journal: journal as Journal };
}

/** Writes a machine's journal, one write at a time. The directory must exist until it is closed. */
export class JournalFile {
  readonly #directory: string;
  readonly #path: string;
  readonly #temporaryPath: string;
  #latest: Journal | null = null;
  /** In the file, or being written. */
  #begun: Journal | null = null;
  #queued: Promise<void> | null = null;
  #lastWrite: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(directory: string) {
    this.#directory = directory;
    this.#path = join(directory, JOURNAL_NAME);
    this.#temporaryPath = join(directory, TEMPORARY_NAME);
  }

  /** Resolves when this journal, or a later one, is on the disk; at once when the file is closed. */
  save(journal: Journal): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    if (this.#queued === null && this.#begun === journal) return this.#lastWrite;
    this.#latest = journal;
    this.#queued ??= this.#writeAfter(this.#lastWrite);
    return this.#queued;
  }

  /** Resolves when no write is in progress; never rejects. */
  idle(): Promise<void> {
    return (this.#queued ?? this.#lastWrite).then(
      () => undefined,
      () => undefined,
    );
  }

  /**
   * What is saved from now on is not written. Resolves when nothing is being written any more; never rejects.
   */
  close(): Promise<void> {
    this.#isClosed = true;
    return this.idle();
  }

  #writeAfter(previous: Promise<void>): Promise<void> {
    const write = previous
      .catch(() => undefined)
      // Later changes in this turn of the event loop go into the same write.
      .then(endOfTurn)
      .then(() => {
        this.#queued = null;
        this.#lastWrite = write;
        return this.#write(this.#latest);
      });
    return write;
  }

  async #write(journal: Journal | null): Promise<void> {
    this.#begun = journal;
    try {
      await this.#replace(journal);
    } catch (error) {
      // The next save writes it again.
      this.#begun = null;
      throw error;
    }
  }

  async #replace(journal: Journal | null): Promise<void> {
    const text = JSON.stringify({ version: VERSION, ...journal });
    const file = await open(this.#temporaryPath, "w", 0o600);
    try {
      await file.writeFile(text);
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(this.#temporaryPath, this.#path);
    await using directory = await open(this.#directory, "r");
    await directory.sync();
  }
}
