/**
 * Saves the memory of a machine's VM, and continues it in a new VMM (docs/decisions/0045-suspend.md).
 *
 * Owns in the machine's directory `memory` (the pages that the guest has changed, and the devices' state) and
 * `memory-base`, a second name of the template's memory from which the pages differ; a VM that was booted has
 * none.
 *
 * Always:
 * - Memory and disk are of the same moment: both are on stable storage before `saveMemory` resolves, and
 *   `resumeVm` refuses the memory when the disk has changed since. The guest does not run between `used` and
 *   the save.
 * - `memory` gets its name only when it is complete. It can be read by root only, and no VMM sees it.
 * - A VMM may have been taken over by its guest. It can harm only its own memory: its pages are read from and
 *   written to its own process, and its state is loaded into a VMM with the same jail.
 *
 * A crash leaves `memory.new`, which the next agent removes, and a paused VM, which it resumes or kills
 * (machines/plan.ts).
 */
import { constants } from "node:fs";
import { type FileHandle, link, open, readFile, rename, rm, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Guest } from "../../guest/guest.ts";
import { syncToDisk } from "../../host/sync-to-disk.ts";
import { InvalidMemory, MemoryReader, MemoryWriter } from "../../memory/memory-file.ts";
import { type MemoryRange, ProcessPages } from "../../memory/process-pages.ts";
import type { GuestNetwork } from "../../network/network.ts";
import {
  type BootRequest,
  type KeptMemory,
  type MemoryFiles,
  type MemoryPlace,
  SuspendRefused,
  type SuspendRequest,
} from "../driver.ts";
import { VIEW } from "./jail.ts";
import type { Launcher } from "./launcher.ts";
import { isAlive } from "./processes.ts";
import type { Qmp } from "./qmp.ts";
import { loadState } from "./save-template.ts";
import type { Templates } from "./template.ts";
import type { Vmm } from "./vmm.ts";

/** The files in a machine's directory. */
export const memoryPathOf = (directory: string): string => join(directory, "memory");
export const memoryBasePathOf = (directory: string): string => join(directory, "memory-base");

const MIB = 2 ** 20;
const DEVICES_NAME = "devices";
const DEVICES_BYTES_MAX = 16 * MIB;
/** Space that is left for the disks of machines and the database. */
const FREE_BYTES_KEPT = 512 * MIB;
/** What QEMU's file begins with: its magic and version. */
const QEMU_MAGIC = Buffer.from([0x51, 0x45, 0x56, 0x4d, 0, 0, 0, 3]);
/**
 * A section that QEMU requires before the devices and leaves out when it saves only them: the name of the
 * machine type.
 */
const CONFIGURATION = Buffer.from([7, 0, 0, 0, 7, ...Buffer.from("microvm")]);

const GLOBAL_STATE = "globalstate";
const RUN_STATE_BYTES = 100;
const PAUSED = "paused";

/** What the memory depends on. It can be loaded only where all of it is the same. */
export interface MemoryHeader {
  readonly memoryId: string;
  readonly format: string;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly disk: string;
  readonly base: string | null;
}

export interface SuspendContext {
  readonly launcher: Launcher;
  readonly templates: Templates;
}

interface SavingContext extends Pick<SuspendContext, "templates"> {
  readonly clock: Clock;
  readonly format: string | undefined;
  readonly signal: AbortSignal;
}

/** As `VmMemory.suspend`. `format`: that of the VMM; absent: unknown. */
export async function saveMemory(
  vmm: Vmm,
  request: SuspendRequest,
  { templates, clock, format, signal }: SavingContext,
): Promise<number> {
  const { boot, directory, memoryId } = request;
  if (format !== templates.format)
    throw new SuspendRefused(
      "conflict",
      "the machine was started by another version of Flotilla or QEMU; stop it and start it, then it can be suspended",
    );
  const path = memoryPathOf(directory);
  const unfinished = `${path}.new`;
  let pausedAt = 0;
  const save = async (qmp: Qmp): Promise<void> => {
    pausedAt = clock.now();
    const range = await guestMemory(qmp, boot.memoryMb);
    const base = await baseOf(vmm, range, { templates, directory });
    const pages = await openPages(vmm, range);
    try {
      const state = await devicesState(qmp, boot.bootDirectory);
      signal.throwIfAborted();
      await syncToDisk(boot.diskPath);
      const { cpus, memoryMb, diskPath } = boot;
      const header = {
        memoryId,
        format,
        cpus,
        memoryMb,
        disk: await identityOf(diskPath),
        base,
      } satisfies MemoryHeader;
      await write(unfinished, { header, state, pages, hasBase: base !== null, signal });
      if (!isAlive(vmm.record)) throw new Error("the VMM ended while its memory was saved");
      await rename(unfinished, path);
      await syncToDisk(directory);
    } finally {
      await pages.close();
    }
  };
  try {
    await ensureSpace(vmm, boot.memoryMb, directory);
    await vmm.pauseFor(save);
    return pausedAt;
  } catch (error) {
    for (const file of [unfinished, path]) await rm(file, { force: true });
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOSPC" || code === "EDQUOT") throw new SuspendRefused("no_space", NO_SPACE);
    throw error;
  }
}

const NO_SPACE =
  "the node's disk has no room for the machine's memory; stop it without keeping its memory, or free space";

interface Writing {
  readonly header: MemoryHeader;
  readonly state: Buffer;
  readonly pages: ProcessPages;
  readonly hasBase: boolean;
  readonly signal: AbortSignal;
}

async function write(path: string, { header, state, pages, hasBase, signal }: Writing): Promise<void> {
  await rm(path, { force: true });
  const file = await open(path, "wx", 0o600);
  try {
    const writer = new MemoryWriter(async (bytes) => {
      for (let done = 0; done < bytes.byteLength; ) done += (await file.write(bytes, done)).bytesWritten;
    });
    await writer.begin(header, state);
    for await (const record of pages.read({ hasBase })) {
      signal.throwIfAborted();
      await writer.add(record);
    }
    await writer.end();
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Refuses before the pause what would fail in it. */
export async function ensureSpace(vmm: Vmm, memoryMb: number, directory: string): Promise<void> {
  const anonymous = /^RssAnon:\s+(\d+) kB$/m.exec(await readFile(`/proc/${vmm.record.pid}/status`, "utf8"))?.[1];
  const needed = Math.min(Number(anonymous ?? 0) * 1024, memoryMb * MIB) + FREE_BYTES_KEPT;
  const { bavail, bsize } = await statfs(directory);
  if (bavail * bsize < needed) throw new SuspendRefused("no_space", NO_SPACE);
}

/** Where the guest's memory is in the VMM's process. */
export async function guestMemory(qmp: Qmp, memoryMb: number): Promise<MemoryRange> {
  const text = String(await qmp.execute("human-monitor-command", { "command-line": "gpa2hva 0" }));
  const address = Number(/ is (0x[0-9a-f]{1,12})\s*$/.exec(text)?.[1]);
  if (!Number.isSafeInteger(address) || address % 4096 !== 0) throw new Error(`the guest's memory is unknown: ${text}`);
  return { address, bytes: memoryMb * MIB };
}

export async function openPages(vmm: Vmm, range: MemoryRange): Promise<ProcessPages> {
  const pages = await ProcessPages.open(vmm.record.pid, range).catch((error: NodeJS.ErrnoException) => {
    const isDenied = error.code === "EACCES" || error.code === "EPERM";
    if (!isDenied) throw error;
    const text = "the node agent may not read the memory of VMs; it needs root and the capability CAP_SYS_PTRACE";
    throw new SuspendRefused("conflict", text);
  });
  if (isAlive(vmm.record)) return pages;
  await pages.close();
  throw new Error("the VMM has ended");
}

/**
 * Keeps the file from which the guest's memory differs, and returns its identity; null: there is none. A
 * template may be removed while its VMs run or are suspended; a second name keeps its content.
 */
export async function baseOf(vmm: Vmm, range: MemoryRange, context: BaseContext): Promise<string | null> {
  const found = await findBase(vmm, range, context);
  if (found === null) return null;
  const path = memoryBasePathOf(context.directory);
  if (found !== path) {
    await rm(path, { force: true });
    await link(found, path);
  }
  return await identityOf(path);
}

export interface BaseContext extends Pick<SuspendContext, "templates"> {
  readonly directory: string;
}

/** The file that the guest's memory is a private mapping of: the machine's own, or a template; null: none. */
export async function findBase(
  vmm: Vmm,
  { address }: MemoryRange,
  { templates, directory }: BaseContext,
): Promise<string | null> {
  const { inode } = mappingAt(await readFile(`/proc/${vmm.record.pid}/maps`, "utf8"), address);
  if (inode === 0n) return null;
  const path = memoryBasePathOf(directory);
  const kept = await stat(path, { bigint: true }).catch(() => null);
  if (kept?.ino === inode) return path;
  const template = await templates.memoryWithInode(inode);
  if (template !== null) return template;
  throw new SuspendRefused(
    "conflict",
    "the template from which the machine was started is gone; stop it and start it, then it can be suspended",
  );
}

/** As `VmMemory.base`. `format`: that of the VMM; absent: unknown. */
export async function memoryBase(
  vmm: Vmm,
  { memoryMb }: BootRequest,
  { format, ...context }: BaseContext & { readonly format: string | undefined },
): Promise<string | null> {
  if (format !== context.templates.format) throw new Error("the machine cannot be suspended");
  return await findBase(vmm, await guestMemory(vmm.control, memoryMb), context);
}

/**
 * The inode of the file that a process has mapped at an address, 0: none; and the mapping's name in
 * /proc/PID/map_files. Pure.
 */
export function mappingAt(maps: string, address: number): { readonly inode: bigint; readonly name: string } {
  for (const line of maps.split("\n")) {
    const [, from, to, inode] = /^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+)/.exec(line) ?? [];
    if (inode === undefined || Number(`0x${from}`) > address || Number(`0x${to}`) <= address) continue;
    return { inode: BigInt(inode), name: `${from}-${to}` };
  }
  throw new Error("the guest's memory is not mapped");
}

/** Changes when the file is written to or replaced. */
export async function identityOf(path: string): Promise<string> {
  const { ino, size, mtimeNs } = await stat(path, { bigint: true });
  return `${ino} ${size} ${mtimeNs}`;
}

/**
 * The devices' state of a paused guest, as a VMM loads it. The file is in a directory of the VMM, so it is
 * not trusted. `releasesDisk`: the VMM closes the disk for writing, once, until it continues the guest, so
 * that another one may open it.
 */
export async function devicesState(qmp: Qmp, bootDirectory: string, { releasesDisk = false } = {}): Promise<Buffer> {
  const path = join(bootDirectory, DEVICES_NAME);
  // Not recursively: the VMM could make a directory of it a link to one of the host's meanwhile.
  await rm(path, { force: true });
  // The VMM, whose user has the directory, cannot make files.
  const { uid, gid } = await stat(bootDirectory);
  await using made = await open(path, "wx", 0o600);
  await made.chown(uid, gid);
  // Without `live` QEMU keeps the disks, so that it can be repeated, and the guest can continue.
  await qmp.execute("xen-save-devices-state", { filename: join(VIEW.boot, DEVICES_NAME), live: releasesDisk });
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const { size } = await file.stat();
    if (size <= QEMU_MAGIC.byteLength || size > DEVICES_BYTES_MAX)
      throw new Error(`the devices' state has ${size} bytes`);
    const saved = Buffer.alloc(size);
    await file.read(saved, 0, size, 0);
    if (!saved.subarray(0, QEMU_MAGIC.byteLength).equals(QEMU_MAGIC)) throw new Error("the devices' state is unknown");
    pauseInState(saved);
    return Buffer.concat([QEMU_MAGIC, CONFIGURATION, saved.subarray(QEMU_MAGIC.byteLength)]);
  } finally {
    await file.close();
    await rm(path, { force: true });
  }
}

/**
 * Replaces the run state in the devices' state by `paused`: QEMU leaves there what it had at the last
 * migration, which is `running` in a VM that was booted. A VMM that loads `running` resumes the guest at
 * once.
 */
function pauseInState(saved: Buffer): void {
  const at = saved.indexOf(GLOBAL_STATE);
  if (at === -1 || saved.indexOf(GLOBAL_STATE, at + 1) !== -1) throw new Error("the devices' state has no run state");
  // After the name an instance and a version, then the length of the run state and a field for it.
  const lengthAt = at + GLOBAL_STATE.length + 8;
  if (lengthAt + 4 + RUN_STATE_BYTES > saved.byteLength) throw new Error("the devices' state is truncated");
  saved.writeUInt32BE(PAUSED.length + 1, lengthAt);
  saved.fill(0, lengthAt + 4, lengthAt + 4 + RUN_STATE_BYTES);
  saved.write(PAUSED, lengthAt + 4);
}

/** A VM that continues. */
export interface ResumedVm {
  readonly vmm: Vmm;
  readonly guest: Guest;
  readonly guestNetwork: GuestNetwork | null;
}

/** As `Driver.resume`. */
export async function resumeVm(
  request: BootRequest,
  memory: KeptMemory,
  { launcher, templates, signal }: SuspendContext & { readonly signal: AbortSignal },
): Promise<ResumedVm> {
  const file = await openMemory(memory.directory);
  try {
    const { reader, header, state } = await begin(file);
    const base = await checkedBase(header as Partial<MemoryHeader> | null, request, { memory, templates });
    const vmm = await launcher.spawn({
      isFenced: request.fence === "on",
      ...request,
      memory: base === null ? { kind: "private" } : { kind: "file", path: base, isShared: false },
      isIncoming: true,
    });
    try {
      return await load(vmm, { request, memory, reader, state, launcher, signal });
    } catch (error) {
      const output = isAlive(vmm.record) || error instanceof InvalidMemory ? null : await vmm.lastOutputIfAny();
      await vmm.kill();
      throw output === null ? error : new Error(`${messageOf(error)}; last output of the VM: ${output}`);
    }
  } finally {
    await file.close();
  }
}

async function openMemory(directory: string): Promise<FileHandle> {
  return await open(memoryPathOf(directory), "r").catch(() => {
    throw new Error("its file is missing");
  });
}

async function begin(file: FileHandle) {
  const stream = file.createReadStream({ autoClose: false, highWaterMark: MIB }) as AsyncIterable<Buffer>;
  const reader = new MemoryReader(stream);
  return { reader, ...(await reader.begin()) };
}

/** As `DriverMemory.describe`. */
export async function describeMemory(
  place: MemoryPlace,
  memory: Pick<KeptMemory, "memoryId" | "moved">,
): Promise<{ readonly format: string; readonly hasBase: boolean }> {
  const file = await openMemory(place.directory);
  try {
    const { header: found } = await begin(file);
    const header = found as Partial<MemoryHeader> | null;
    const base = await checkFiles(header, place, memory);
    return { format: header?.format ?? "", hasBase: base !== null };
  } finally {
    await file.close();
  }
}

/** As `DriverMemory.files`. */
export async function memoryFiles({ directory, diskPath }: MemoryPlace): Promise<MemoryFiles> {
  const base = await identityOf(memoryBasePathOf(directory)).catch(() => null);
  return { disk: await identityOf(diskPath), base };
}

/**
 * The file of the memory's base. Throws with the reason when the memory does not fit the machine, its disk or
 * this node.
 */
async function checkedBase(
  header: Partial<MemoryHeader> | null,
  { cpus, memoryMb, diskPath }: BootRequest,
  { memory, templates }: Pick<SuspendContext, "templates"> & { readonly memory: KeptMemory },
): Promise<string | null> {
  const base = await checkFiles(header, { directory: memory.directory, diskPath }, memory);
  if (header?.format !== templates.format)
    throw new Error("Flotilla, QEMU or the host's processor has changed since it was suspended");
  if (header.cpus !== cpus || header.memoryMb !== memoryMb) throw new Error("the machine's size has changed");
  return base;
}

/**
 * The file of the memory's base; null: it has none. Throws when a file is not the one with which the memory
 * was saved. For memory from another node, `moved` names the files whose content was compared when they
 * arrived.
 */
async function checkFiles(
  header: Partial<MemoryHeader> | null,
  { directory, diskPath }: MemoryPlace,
  { memoryId, moved }: Pick<KeptMemory, "memoryId" | "moved">,
): Promise<string | null> {
  if (header?.memoryId !== memoryId) throw new Error("its file is that of another time");
  const { disk, base } = moved ?? { disk: header.disk, base: header.base ?? null };
  if (disk !== (await identityOf(diskPath))) throw new Error("the machine's disk has changed");
  if ((header.base ?? null) === null) return null;
  const path = memoryBasePathOf(directory);
  if (base !== (await identityOf(path).catch(() => null))) throw new Error("the template that it depends on is gone");
  return path;
}

interface Resuming {
  readonly request: BootRequest;
  readonly memory: KeptMemory;
  readonly reader: MemoryReader;
  readonly state: Buffer;
  readonly launcher: Launcher;
  readonly signal: AbortSignal;
}

/** The pages first, because devices read the guest's memory when their state is loaded. */
async function load(vmm: Vmm, { request, memory, reader, state, launcher, signal }: Resuming): Promise<ResumedVm> {
  const ended = new AbortController();
  void vmm.exited.then((exit) => ended.abort(new Error(exit.detail)));
  const either = AbortSignal.any([signal, ended.signal]);
  const { bootDirectory, uid, memoryMb, machineId, network, publishedPorts } = request;
  const qmp = await launcher.control(vmm, { bootDirectory, uid }, either);
  const guestNetwork = launcher.attachNetwork(vmm, uid);
  try {
    const range = await guestMemory(qmp, memoryMb);
    const pages = await openPages(vmm, range);
    try {
      for await (const record of reader.records(range.bytes)) {
        either.throwIfAborted();
        pages.write(record);
      }
    } finally {
      await pages.close();
    }
    const status = await loadState(qmp, state, { launcher, bootDirectory, uid, signal: either });
    if (status !== "paused") throw new Error(`the VMM did not load the devices' state: it is ${status}`);
    either.throwIfAborted();
    await memory.used();
    memory.onRunning(launcher.clock.now());
    await qmp.execute("cont");
    const { keepsCommands } = memory;
    const isClone = memory.becomes !== undefined;
    const guest = await launcher.guest({ bootDirectory, uid }, either, { keepsCommands, isClone });
    const addressing = guestNetwork?.addressing(network) ?? null;
    if (memory.becomes !== undefined) await orAborted(memory.becomes(guest, addressing), either);
    // A guest whose agent does not answer reaches nothing.
    await guestNetwork?.open({ machineId, network, publishedPorts });
    return { vmm, guest, guestNetwork };
  } catch (error) {
    guestNetwork?.close();
    throw error;
  }
}
