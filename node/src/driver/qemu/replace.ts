/**
 * A VMM that takes over the guest of another VMM on this host (docs/decisions/0065-new-vmms.md), such as one
 * of an older QEMU.
 *
 * Always:
 * - At most one of the two has the disk open for writing, which QEMU's locks of the file ensure as well: the
 *   old VMM closes it when its devices are saved, and opens it again only when it continues. The new one
 *   opens it when they are loaded.
 * - The old VMM keeps the guest, paused, until the new one runs it. Every fault before that ends the new one
 *   and continues the old.
 * - Both are in one network namespace, each with its own interface. The guest's packets go to the interface
 *   that has the name in the rules.
 * - The state of the devices is that of the memory: nothing has changed in it since the state was saved.
 *
 * A crash leaves two VMMs, of which the machine's journal names one; the next agent ends the other before it
 * continues that one.
 */
import { execFile } from "node:child_process";
import { readFile, rename, rm } from "node:fs/promises";
import { promisify } from "node:util";
import { endOfTurn } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Guest } from "../../guest/guest.ts";
import type { PageRecord } from "../../memory/memory-file.ts";
import type { MemoryRange, ProcessPages } from "../../memory/process-pages.ts";
import { bytesOf, isLastRound, ROUNDS_MAX } from "../../memory/rounds.ts";
import type { GuestNetwork } from "../../network/network.ts";
import type { PrestartedProgram } from "../../network/programs.ts";
import { type MemoryWatch, type NextVm, NextVmLost, type ReplaceRequest, SuspendRefused, type Vm } from "../driver.ts";
import {
  connectResumed,
  type LiveContext,
  QemuWaitingVm,
  startWaiting,
  type WaitingParts,
  watchPages,
} from "./live.ts";
import { isAlive } from "./processes.ts";
import { baseOf, devicesState, guestMemory, mappingAt, memoryBasePathOf, openPages } from "./suspend.ts";
import type { Vmm } from "./vmm.ts";

/** Copied between two turns of the event loop. */
const BYTES_PER_TURN = 4 * 2 ** 20;
/** Max memory that cannot be watched, so all of it is copied in the pause: 5 to 10 s. */
const UNWATCHED_BYTES_MAX = 4 * 2 ** 30;
const PAGE_BYTES = 4096;

/** The parts of the VM that is replaced. */
export interface ReplacedVm {
  readonly vmm: Vmm;
  readonly guest: Guest;
  readonly guestNetwork: GuestNetwork | null;
}

/** As `Vm.replace`. */
export async function replaceVm(
  old: ReplacedVm,
  request: ReplaceRequest,
  { signal, ...context }: LiveContext & { readonly signal: AbortSignal },
): Promise<NextVm> {
  const { launcher, templates } = context;
  const { boot, next, directory } = request;
  if (!launcher.isRoot) throw new Error("the node agent needs root to replace a VMM");
  const range = await guestMemory(old.vmm.control, boot.memoryMb);
  const hasBase = await keepBase(old.vmm, range, { templates, directory, signal });
  const base = memoryBasePathOf(directory);
  const memory = hasBase ? ({ kind: "file", path: base, isShared: false } as const) : ({ kind: "private" } as const);
  const source = await openSource(old.vmm, range, { launcher, hasBase });
  try {
    const parts = await startWaiting(next, { memory, replaces: old.vmm.record, launcher, signal });
    try {
      // Its namespace was that of the old VMM, and not of another process that has its id now.
      if (!isAlive(old.vmm.record)) throw new Error("the machine's VMM has ended");
      // Before the guest runs there.
      if (next.fence === "on") await parts.vmm.fence.arm();
    } catch (error) {
      // Its caller has nothing yet with which to end it.
      await parts.pages.close();
      await parts.vmm.kill();
      throw error;
    }
    return new QemuNextVm(old, request, { source, parts, context });
  } catch (error) {
    source.end();
    throw error;
  }
}

/**
 * Makes the file from which the guest's memory differs one of the machine's own. Resolves with whether there
 * is one.
 */
async function keepBase(
  vmm: Vmm,
  range: MemoryRange,
  { signal, ...context }: Pick<LiveContext, "templates"> & { readonly directory: string; readonly signal: AbortSignal },
): Promise<boolean> {
  try {
    return (await baseOf(vmm, range, context)) !== null;
  } catch (error) {
    if (!(error instanceof SuspendRefused)) throw error;
    // An earlier release has removed the template's last name. The VMM still has the file.
    const { pid } = vmm.record;
    const { name } = mappingAt(await readFile(`/proc/${pid}/maps`, "utf8"), range.address);
    const path = memoryBasePathOf(context.directory);
    try {
      // Holes remain holes. A stop does not wait for it, nor for a disk that does not answer.
      await promisify(execFile)("cp", ["--sparse=always", `/proc/${pid}/map_files/${name}`, `${path}.new`], { signal });
      await promisify(execFile)("chmod", ["0444", `${path}.new`]);
      if (!isAlive(vmm.record)) throw new Error("the machine's VMM has ended");
      await rename(`${path}.new`, path);
      return true;
    } finally {
      await rm(`${path}.new`, { force: true });
    }
  }
}

/** The memory of the guest, as it is read from the old VMM. */
export interface Source {
  /** null: it cannot be watched, and is read only in the pause. */
  readonly watch: MemoryWatch | null;
  /** Everything that differs from the base, of a guest that is paused. */
  all(): AsyncIterable<PageRecord>;
  end(): void;
}

export async function openSource(
  vmm: Vmm,
  range: MemoryRange,
  { launcher, hasBase }: Pick<LiveContext, "launcher"> & { readonly hasBase: boolean },
): Promise<Source> {
  const watch = await watchPages(vmm, range, launcher).catch((error: unknown) => {
    if (error instanceof SuspendRefused) throw error;
    launcher.log.debug({ boot: vmm.record.bootId, reason: messageOf(error) }, "a guest's memory cannot be watched");
    return null;
  });
  if (watch !== null) return { watch, all: none, end: () => watch.end() };
  const pages: ProcessPages = await openPages(vmm, range);
  const end = (): void => void pages.close().catch(() => undefined);
  try {
    if ((await pages.changedBytes()) <= UNWATCHED_BYTES_MAX) return { watch, all: () => pages.read({ hasBase }), end };
    throw new Error("its memory cannot be watched while it runs, and is too large to be copied in a pause of seconds");
  } catch (error) {
    end();
    throw error;
  }
}

async function* none(): AsyncGenerator<PageRecord> {
  // A watch has it.
}

interface NextParts {
  readonly source: Source;
  readonly parts: WaitingParts;
  readonly context: LiveContext;
}

class QemuNextVm implements NextVm {
  readonly record: NextVm["record"];
  readonly #old: ReplacedVm;
  readonly #request: ReplaceRequest;
  readonly #source: Source;
  readonly #waiting: QemuWaitingVm;
  readonly #next: Vmm;
  readonly #context: LiveContext;
  #packets: PrestartedProgram | null = null;
  #unyielded = 0;

  constructor(old: ReplacedVm, request: ReplaceRequest, { source, parts, context }: NextParts) {
    this.#old = old;
    this.#request = request;
    this.#source = source;
    this.#waiting = new QemuWaitingVm(request.next, context, parts);
    this.#next = parts.vmm;
    this.#context = context;
    this.record = this.#waiting.record;
  }

  async copy(signal: AbortSignal): Promise<void> {
    const { watch } = this.#source;
    let before = Number.POSITIVE_INFINITY;
    for (let round = 1; watch !== null && round <= ROUNDS_MAX; round += 1) {
      const changed = await watch.take();
      await this.#write(watch.read(changed), signal);
      const bytes = bytesOf(changed);
      if (isLastRound(bytes, before)) break;
      before = bytes;
    }
    // Spawned before the pause.
    this.#packets ??= this.#old.guestNetwork?.prepareNext() ?? null;
  }

  async take(): Promise<number> {
    const { vmm, guestNetwork } = this.#old;
    const { watch } = this.#source;
    const pausedAt = this.#context.launcher.clock.now();
    guestNetwork?.share();
    try {
      await vmm.pause();
      const packets = this.#packets === null ? undefined : guestNetwork?.next(this.#packets);
      packets?.catch(() => undefined);
      this.#packets = null;
      if (watch !== null) await this.#write(watch.read(await watch.take()));
      const state = await devicesState(vmm.control, this.#request.boot.bootDirectory, { releasesDisk: true });
      const late = (await watch?.take()) ?? [];
      if (late.length > 0) throw new Error("the paused guest's memory has changed");
      await this.#write(this.#source.all());
      this.#source.end();
      await this.#waiting.load(state);
      await packets;
      return pausedAt;
    } catch (error) {
      await this.#giveBack();
      throw error;
    }
  }

  async run(onRunning: (at: number) => void, signal: AbortSignal): Promise<Vm> {
    const { vmm, guest, guestNetwork } = this.#old;
    const { launcher, own, asVm } = this.#context;
    if (!isAlive(this.#next.record)) {
      await this.#giveBack();
      throw new NextVmLost("the new VMM ended before it ran the guest");
    }
    try {
      // From here on the disk may be that of the new VMM, so the old one must not run.
      await this.#next.unpause();
      onRunning(launcher.clock.now());
      guestNetwork?.belongsTo(this.#next.record.pid);
      void launcher.closesNetwork(this.#next, guestNetwork);
      // Callers of commands look for them at the new VMM.
      guest.close();
      const connected = await connectResumed(this.#next, this.#request.next, { launcher, signal });
      return asVm({ vmm: this.#next, guest: connected, guestNetwork, origin: null }, own);
    } catch (error) {
      guestNetwork?.close();
      throw error;
    } finally {
      await vmm.kill();
      await launcher.keepOnlyNetworkOf(this.#next);
    }
  }

  async discard(): Promise<void> {
    this.#packets?.cancel();
    this.#packets = null;
    this.#source.end();
    await this.#next.kill();
    await this.#context.launcher.keepOnlyNetworkOf(this.#old.vmm);
  }

  /** The guest runs on in the old VMM, which opens the disk again. */
  async #giveBack(): Promise<void> {
    const { vmm, guestNetwork } = this.#old;
    // It may have the disk open.
    await this.discard();
    guestNetwork?.belongsTo(vmm.record.pid);
    if (isAlive(vmm.record)) await vmm.unpause();
    else guestNetwork?.close();
  }

  async #write(records: Iterable<PageRecord> | AsyncIterable<PageRecord>, signal?: AbortSignal): Promise<void> {
    for await (const record of records) {
      this.#waiting.write(record);
      this.#unyielded += record.kind === "data" ? record.bytes.byteLength : record.pages * PAGE_BYTES;
      if (this.#unyielded < BYTES_PER_TURN) continue;
      this.#unyielded = 0;
      signal?.throwIfAborted();
      await endOfTurn();
    }
  }
}
