/**
 * The files of the fake driver: `vm.json` in a boot's directory, and the memory of a suspended machine.
 *
 * Always: a file is replaced by a rename, so that a killed agent leaves no incomplete one.
 */
import { readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { GuestPaused, type VmRecord } from "../driver.ts";
import type { FakeCommand, FakeConfiguration } from "./guest.ts";

/** What the memory of its VMs depends on. */
export const FORMAT = "fake";
/** What its VMs run, unless a test installs another program. */
export const PROGRAM = "fake";
const MEMORY_NAME = "memory";

/** The content of vm.json. Times are epoch milliseconds, because the next node agent must understand them. */
export interface VmFile {
  readonly bootId: string;
  readonly startedAt: number;
  readonly answersAt: number;
  readonly endsAt: number | null;
  readonly endsAs: "poweroff" | "crashed";
  readonly configuration: FakeConfiguration | null;
  readonly hasWorkload: boolean;
  /** Paused for a move, or while another VMM takes its guest over. */
  readonly isPaused?: boolean;
  /**
   * By the clock: until then its VMM keeps the guest paused, because the host's disk is full. Written by
   * tests.
   */
  readonly outOfSpaceUntil?: number;
  /** In milliseconds of `Clock.boottime`; null or absent: it is not fenced. */
  readonly fencedUntil?: number | null;
  readonly program?: string;
}

/**
 * Waits until the guest answers. Throws GuestPaused when the signal is aborted while its VMM keeps it paused.
 */
export async function untilAnswers(
  { answersAt, outOfSpaceUntil = 0 }: VmFile,
  clock: Pick<Clock, "now" | "sleep">,
  signal: AbortSignal,
): Promise<void> {
  const wait = (until: number): Promise<unknown> =>
    orAborted(clock.sleep(Math.max(0, until - clock.now()), signal), signal);
  if (outOfSpaceUntil > clock.now())
    await wait(outOfSpaceUntil).catch(() => Promise.reject(new GuestPaused("the guest is paused")));
  await wait(answersAt);
}

/** What the file of a suspended machine contains. */
export interface SavedMemory {
  readonly memoryId: string;
  readonly file: VmFile;
  readonly commands: readonly FakeCommand[];
  /** In base64, by path: files in memory. */
  readonly files: Readonly<Record<string, string>>;
}

export function recordOf({ bootId, startedAt, program }: VmFile): VmRecord {
  return { bootId, pid: 0, startTime: startedAt, format: FORMAT, ...(program !== undefined && { program }) };
}

/** The content of the file; without one the default. */
export const readProgram = (path: string): Promise<string> =>
  readFile(path, "utf8").then(
    (text) => text.trim(),
    () => PROGRAM,
  );

export async function writeMemory(directory: string, saved: SavedMemory): Promise<void> {
  const path = join(directory, MEMORY_NAME);
  await writeFile(`${path}.new`, JSON.stringify(saved));
  await rename(`${path}.new`, path);
}

export async function readMemory(directory: string): Promise<SavedMemory> {
  const text = await readFile(join(directory, MEMORY_NAME), "utf8").catch(() => {
    throw new Error("its file is missing");
  });
  return JSON.parse(text) as SavedMemory;
}

/** As that of the qemu driver. A machine without a disk has none. */
export const identityOf = (path: string): Promise<string> =>
  stat(path, { bigint: true }).then(
    ({ ino, size, mtimeNs }) => `${ino} ${size} ${mtimeNs}`,
    () => "",
  );

export async function names(directory: string): Promise<readonly string[]> {
  return readdir(directory).catch(() => []);
}

/** Writes by rename, so that a killed agent leaves no incomplete file. */
export async function writeVmFile(directory: string, file: VmFile): Promise<void> {
  await writeFile(join(directory, "vm.json.new"), JSON.stringify(file));
  await rename(join(directory, "vm.json.new"), join(directory, "vm.json"));
}

export async function readVmFile(directory: string): Promise<VmFile | undefined> {
  const text = await readFile(join(directory, "vm.json"), "utf8").catch(() => undefined);
  return text === undefined ? undefined : (JSON.parse(text) as VmFile);
}

export async function removeVmFile(directory: string): Promise<void> {
  await rm(join(directory, "vm.json"), { force: true });
}
