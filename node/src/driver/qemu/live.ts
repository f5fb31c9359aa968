/**
 * The two ends of a move of a guest that runs (docs/decisions/0054-live-moves.md): the memory of a VMM is
 * watched and read while its guest runs, and a VMM on the other node waits for it.
 *
 * Always:
 * - Pages are written only before the state of the devices is loaded. QEMU translates and caches what it
 *   finds in memory afterwards.
 * - Nothing is said to the guest before it is resumed.
 * - A VMM that waits is in no journal: the agent that started it ends it, or the next one does.
 */
import { messageOf } from "@flotilla/base/errors";
import type { Guest } from "../../guest/guest.ts";
import { MemoryRounds } from "../../memory/memory-watch.ts";
import { PAGE_BYTES, type PageRecord } from "../../memory/memory-file.ts";
import type { MemoryRange, ProcessPages } from "../../memory/process-pages.ts";
import type { Extent } from "../../images/blocks.ts";
import type { GuestNetwork } from "../../network/network.ts";
import type { BootRequest, MemoryWatch, PausedVm, ReceiveRequest, Vm, VmRecord, WaitingVm } from "../driver.ts";
import type { GuestMemory } from "./argv.ts";
import type { Launcher } from "./launcher.ts";
import type { VmParts } from "./prepared.ts";
import { isAlive } from "./processes.ts";
import type { Qmp } from "./qmp.ts";
import { loadState } from "./save-template.ts";
import { findBase, guestMemory, openPages, saveMemory, type SuspendContext } from "./suspend.ts";
import type { Vmm } from "./vmm.ts";

export interface LiveContext extends SuspendContext {
  /** What a VMM that is started now has. */
  readonly own: KnownVmm;
  readonly asVm: (parts: VmParts, known: KnownVmm) => Vm;
}

/** What a VMM's memory depends on, and the program that it runs; absent: unknown. */
export type KnownVmm = Pick<VmRecord, "format" | "program">;

/** As `VmLive.watch`. `format`: that of the VMM; undefined: unknown. */
export async function watchMemory(
  vmm: Vmm,
  { memoryMb }: BootRequest,
  {
    launcher,
    templates,
    directory,
    format,
  }: SuspendContext & { readonly directory: string; readonly format: string | undefined },
): Promise<MemoryWatch> {
  if (format !== templates.format) throw new Error("the machine was started by another version of Flotilla or QEMU");
  const range = await guestMemory(vmm.control, memoryMb);
  if ((await findBase(vmm, range, { templates, directory })) === null) throw new Error("its memory has no base");
  return await watchPages(vmm, range, launcher);
}

/** Watches the pages of a guest's memory, whatever they differ from. Rejects when they cannot be watched. */
export async function watchPages(vmm: Vmm, range: MemoryRange, launcher: Launcher): Promise<MemoryWatch> {
  const pages = await openPages(vmm, range);
  try {
    const { pid } = vmm.record;
    const rounds = await MemoryRounds.begin({ program: launcher.memoryWatchPath, pid, range, clock: launcher.clock });
    return new QemuMemoryWatch(vmm, pages, rounds);
  } catch (error) {
    await pages.close();
    throw error;
  }
}

class QemuMemoryWatch implements MemoryWatch {
  readonly #vmm: Vmm;
  readonly #pages: ProcessPages;
  readonly #rounds: MemoryRounds;

  constructor(vmm: Vmm, pages: ProcessPages, rounds: MemoryRounds) {
    this.#vmm = vmm;
    this.#pages = pages;
    this.#rounds = rounds;
  }

  async take(): Promise<readonly Extent[]> {
    const changed = await this.#rounds.take();
    // The page map of a process that has ended is empty.
    if (!isAlive(this.#vmm.record)) throw new Error("the VM has ended");
    return changed;
  }

  read(parts: readonly Extent[]): Iterable<PageRecord> {
    return this.#pages.readParts(parts);
  }

  end(): void {
    this.#rounds.end();
    this.#pages.close().catch(() => undefined);
  }
}

/** As `DriverLive.receive`. */
export async function receiveVm(
  request: ReceiveRequest,
  basePath: string,
  { signal, ...context }: LiveContext & { readonly signal: AbortSignal },
): Promise<WaitingVm> {
  const memory = { kind: "file", path: basePath, isShared: false } as const;
  const parts = await startWaiting(request, { memory, launcher: context.launcher, signal });
  return new QemuWaitingVm(request, context, parts);
}

interface StartWaiting {
  readonly memory: GuestMemory;
  /** The VMM of the same machine that it is to replace, whose network it joins. Absent: none. */
  readonly replaces?: VmRecord;
  readonly launcher: Launcher;
  readonly signal: AbortSignal;
}

/** Starts a VMM that waits for a guest. Rejects with the reason when it has ended. */
export async function startWaiting(
  request: ReceiveRequest,
  { memory, replaces, launcher, signal }: StartWaiting,
): Promise<WaitingParts> {
  const { bootDirectory, uid, memoryMb } = request;
  const vmm = await launcher.spawn({ ...request, memory, isIncoming: true, ...(replaces && { replaces }) });
  try {
    const ended = new AbortController();
    void vmm.exited.then((exit) => ended.abort(new Error(exit.detail)));
    const qmp = await launcher.control(vmm, { bootDirectory, uid }, AbortSignal.any([signal, ended.signal]), {
      staysPaused: true,
    });
    const guestNetwork = replaces === undefined ? launcher.attachNetwork(vmm, uid) : null;
    const range = await guestMemory(qmp, memoryMb);
    return { vmm, qmp, guestNetwork, range, pages: await openPages(vmm, range) };
  } catch (error) {
    const output = isAlive(vmm.record) ? null : await vmm.lastOutputIfAny();
    await vmm.kill();
    throw output === null ? error : new Error(`${messageOf(error)}; last output of the VM: ${output}`);
  }
}

export interface WaitingParts {
  readonly vmm: Vmm;
  readonly qmp: Qmp;
  readonly guestNetwork: GuestNetwork | null;
  readonly range: MemoryRange;
  readonly pages: ProcessPages;
}

export class QemuWaitingVm implements WaitingVm {
  readonly record: WaitingVm["record"];
  readonly exited: WaitingVm["exited"];
  readonly #request: ReceiveRequest;
  readonly #context: LiveContext;
  readonly #parts: WaitingParts;
  #isLoading = false;

  constructor(request: ReceiveRequest, context: LiveContext, parts: WaitingParts) {
    this.record = { ...parts.vmm.record, ...context.own };
    this.exited = parts.vmm.exited;
    this.#request = request;
    this.#context = context;
    this.#parts = parts;
    void this.exited.then(() => this.#closePages());
  }

  write(record: PageRecord): void {
    const { pages, range } = this.#parts;
    const bytes = record.kind === "data" ? record.bytes.byteLength : record.pages * PAGE_BYTES;
    if (record.offset + bytes > range.bytes) throw new RangeError("a page is outside of the guest's memory");
    if (this.#isLoading) throw new Error("the guest's memory is complete already");
    pages.write(record);
  }

  async load(state: Buffer): Promise<PausedVm> {
    this.#isLoading = true;
    const { vmm, qmp, guestNetwork } = this.#parts;
    const { launcher } = this.#context;
    const { bootDirectory, uid } = this.#request;
    this.#closePages();
    const ended = new AbortController();
    void vmm.exited.then((exit) => ended.abort(new Error(exit.detail)));
    const loading = { launcher, bootDirectory, uid, signal: ended.signal };
    const status = await loadState(qmp, state, loading).catch(async (error: unknown) => {
      const output = await vmm.lastOutputIfAny();
      throw output === null ? error : new Error(`${messageOf(error)}; last output of the VM: ${output}`);
    });
    if (status !== "paused") throw new Error(`the VMM did not load the devices' state: it is ${status}`);
    return pausedVm({ vmm, guestNetwork, known: this.#context.own }, this.#context);
  }

  moved(bootDirectory: string): void {
    this.#parts.vmm.moved(bootDirectory);
  }

  async kill(): Promise<void> {
    this.#parts.guestNetwork?.close();
    await this.#parts.vmm.kill();
  }

  #closePages(): void {
    this.#parts.pages.close().catch(() => undefined);
  }
}

interface PausedParts {
  readonly vmm: Vmm;
  readonly guestNetwork: GuestNetwork | null;
  readonly known: KnownVmm;
}

/** A VM that is paused, and is resumed or killed later. */
export function pausedVm({ vmm, guestNetwork, known }: PausedParts, context: LiveContext): PausedVm {
  const { launcher, templates, asVm } = context;
  const { clock } = launcher;
  const { format } = known;
  return {
    record: { ...vmm.record, ...known },
    exited: vmm.exited,
    suspend: (request, signal) => saveMemory(vmm, request, { templates, clock, format, signal }),
    sentBytes: () => guestNetwork?.sentBytes() ?? 0,
    async resume(request, onRunning, signal) {
      const { machineId, network, publishedPorts } = request;
      if (request.fence === "on") await vmm.fence.arm();
      await vmm.unpause();
      onRunning(clock.now());
      const guest = await connectResumed(vmm, request, { ...context, signal });
      // A guest whose agent does not answer reaches nothing.
      await guestNetwork?.open({ machineId, network, publishedPorts });
      return asVm({ vmm, guest, guestNetwork, origin: null }, known);
    },
    kill: async () => {
      guestNetwork?.close();
      await vmm.kill();
    },
    release: () => {
      guestNetwork?.close();
      vmm.release();
    },
  };
}

/** Connects to a guest that continues after a move, with its commands. */
export async function connectResumed(
  vmm: Vmm,
  { bootDirectory, uid }: BootRequest,
  { launcher, signal }: Pick<LiveContext, "launcher"> & { readonly signal: AbortSignal },
): Promise<Guest> {
  const ended = new AbortController();
  void vmm.exited.then((exit) => ended.abort(new Error(exit.detail)));
  return await launcher.guest({ bootDirectory, uid }, AbortSignal.any([signal, ended.signal]), { keepsCommands: true });
}
