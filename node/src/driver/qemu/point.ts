/**
 * Copies a VM at one instant while its guest runs on: its memory and devices into files of the format that
 * suspend.ts loads, and its disk by giving it an empty one on top of the one that it has.
 *
 * Owns `pages` in the point's directory, in which the guest's pages are collected at their offsets, and there
 * `memory` and `memory-base`.
 *
 * Always:
 * - The guest is paused from before its last pages are read until its disk is on top: pages, devices and disk
 *   are of one instant. Nothing reads its memory later.
 * - Every fault before the disk is on top lets the guest run on with the disk it had. `isOnTop` says which.
 * - Nothing of its channel and its network is touched.
 *
 * A crash leaves a paused VMM, which the next agent lets run on, and files in the point's directory.
 */
import { readSync, writeSync } from "node:fs";
import { type FileHandle, link, open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { endOfTurn } from "@flotilla/base/clock";
import { type BegunPoint, type PointRequest, SuspendRefused } from "../driver.ts";
import type { Extent } from "../../images/blocks.ts";
import { MemoryWriter, PAGE_BYTES, type PageRecord, RECORD_PAGES_MAX } from "../../memory/memory-file.ts";
import { split } from "../../memory/process-pages.ts";
import { bytesOf, isLastRound, ROUNDS_MAX } from "../../memory/rounds.ts";
import type { KnownVmm } from "./live.ts";
import type { Launcher } from "./launcher.ts";
import type { Qmp } from "./qmp.ts";
import { openSource, type Source } from "./replace.ts";
import { type AddedLayer, addLayer, removeLayer, switchToLayer } from "./root-disk.ts";
import {
  devicesState,
  ensureSpace,
  findBase,
  guestMemory,
  identityOf,
  type MemoryHeader,
  memoryBasePathOf,
  memoryPathOf,
} from "./suspend.ts";
import type { Templates } from "./template.ts";
import type { Vmm } from "./vmm.ts";

const PAGES_NAME = "pages";
/** Copied between two turns of the event loop while the guest runs. */
const BYTES_PER_TURN = 4 * 2 ** 20;
const ZEROS = Buffer.alloc(RECORD_PAGES_MAX * PAGE_BYTES);

export interface PointContext {
  readonly launcher: Launcher;
  readonly templates: Templates;
  /** What is known of the VMM. */
  readonly known: KnownVmm;
}

/** As `VmPoints.begin`. */
export async function beginPoint(
  vmm: Vmm,
  request: PointRequest,
  { signal, ...context }: PointContext & { readonly signal: AbortSignal },
): Promise<BegunPoint> {
  const { boot, overlayPath, memoryId } = request;
  const { launcher } = context;
  const memory = memoryId === null ? null : await openMemory(vmm, { ...request, memoryId }, context);
  try {
    signal.throwIfAborted();
    await launcher.makeReachable(boot.uid, [overlayPath], []);
    const shown = await launcher.showAs(boot.bootDirectory, overlayPath, `layer-${pointNameOf(request)}`);
    return new QemuPoint(vmm, request, { memory, layer: await addLayer(vmm.control, shown), launcher });
  } catch (error) {
    await memory?.discard();
    throw error;
  }
}

/** Short, because the boot's directory has many names. */
const pointNameOf = ({ pointDirectory }: PointRequest): string => pointDirectory.slice(-12);

interface PointParts {
  readonly memory: PointMemory | null;
  readonly layer: AddedLayer;
  readonly launcher: Launcher;
}

class QemuPoint implements BegunPoint {
  readonly #vmm: Vmm;
  readonly #request: PointRequest;
  readonly #parts: PointParts;
  #isOnTop = false;

  constructor(vmm: Vmm, request: PointRequest, parts: PointParts) {
    this.#vmm = vmm;
    this.#request = request;
    this.#parts = parts;
  }

  get isOnTop(): boolean {
    return this.#isOnTop;
  }

  async copy(signal: AbortSignal): Promise<void> {
    await this.#parts.memory?.copy(signal);
  }

  async take(): Promise<number> {
    const { memory, layer, launcher } = this.#parts;
    const qmp = this.#vmm.control;
    const startedAt = launcher.clock.monotonic();
    await this.#vmm.pause();
    try {
      await memory?.takeRest(qmp, this.#request.boot.bootDirectory);
      await switchToLayer(qmp, layer);
      this.#isOnTop = true;
    } finally {
      await this.#vmm.unpause();
    }
    return launcher.clock.monotonic() - startedAt;
  }

  async finish(): Promise<number> {
    return (await this.#parts.memory?.finish()) ?? 0;
  }

  async discard(): Promise<void> {
    await this.#parts.memory?.discard();
    if (!this.#isOnTop) await removeLayer(this.#vmm.control, this.#parts.layer);
  }
}

async function openMemory(
  vmm: Vmm,
  { boot, directory, pointDirectory, memoryId }: PointRequest & { readonly memoryId: string },
  { launcher, templates, known: { format } }: PointContext,
): Promise<PointMemory> {
  if (format !== templates.format)
    throw new SuspendRefused(
      "conflict",
      "the machine was started by another version of Flotilla or QEMU; stop it and start it, then it can be branched",
    );
  await ensureSpace(vmm, boot.memoryMb, pointDirectory);
  const range = await guestMemory(vmm.control, boot.memoryMb);
  const found = await findBase(vmm, range, { templates, directory });
  const basePath = memoryBasePathOf(pointDirectory);
  if (found !== null) await link(found, basePath);
  const base = found === null ? null : await identityOf(basePath);
  const { cpus, memoryMb } = boot;
  // The memory fits every empty disk on top of the point's, which `KeptMemory` names.
  const header = { memoryId, format, cpus, memoryMb, disk: "", base } satisfies MemoryHeader;
  const source = await openSource(vmm, range, { launcher, hasBase: base !== null });
  try {
    const path = join(pointDirectory, PAGES_NAME);
    await rm(path, { force: true });
    return new PointMemory(await open(path, "wx+", 0o600), { source, header, directory: pointDirectory });
  } catch (error) {
    source.end();
    throw error;
  }
}

interface MemoryParts {
  readonly source: Source;
  readonly header: MemoryHeader;
  readonly directory: string;
}

/** The guest's pages, each as it was last read, until the file is written in the order of their offsets. */
class PointMemory {
  readonly #pages: FileHandle;
  readonly #parts: MemoryParts;
  readonly #taken: Extent[] = [];
  #state: Buffer | null = null;
  #unyielded = 0;

  constructor(pages: FileHandle, parts: MemoryParts) {
    this.#pages = pages;
    this.#parts = parts;
  }

  async copy(signal: AbortSignal): Promise<void> {
    const { watch } = this.#parts.source;
    let before = Number.POSITIVE_INFINITY;
    for (let round = 1; watch !== null && round <= ROUNDS_MAX; round += 1) {
      const changed = await watch.take();
      await this.#collect(watch.read(changed), signal);
      const bytes = bytesOf(changed);
      if (isLastRound(bytes, before)) break;
      before = bytes;
    }
  }

  /** What is left, of the paused guest. */
  async takeRest(qmp: Qmp, bootDirectory: string): Promise<void> {
    const { source } = this.#parts;
    const { watch } = source;
    if (watch !== null) await this.#collect(watch.read(await watch.take()));
    this.#state = await devicesState(qmp, bootDirectory);
    if (watch !== null && (await watch.take()).length > 0) throw new Error("the paused guest's memory has changed");
    await this.#collect(source.all());
    source.end();
  }

  /** Resolves with the size of the file, when that is on the disk. */
  async finish(): Promise<number> {
    const { header, directory } = this.#parts;
    if (this.#state === null) throw new Error("the guest's memory was not taken");
    const path = memoryPathOf(directory);
    await using file = await open(`${path}.new`, "w", 0o600);
    const writer = new MemoryWriter(async (bytes) => {
      for (let done = 0; done < bytes.byteLength; ) done += (await file.write(bytes, done)).bytesWritten;
    });
    await writer.begin(header, this.#state);
    for (const record of this.#records()) await writer.add(record);
    await writer.end();
    await file.sync();
    await rename(`${path}.new`, path);
    await this.discard();
    return (await file.stat()).size;
  }

  async discard(): Promise<void> {
    this.#parts.source.end();
    await this.#pages.close();
    await rm(join(this.#parts.directory, PAGES_NAME), { force: true });
  }

  async #collect(records: Iterable<PageRecord> | AsyncIterable<PageRecord>, signal?: AbortSignal): Promise<void> {
    for await (const record of records) {
      const bytes = record.kind === "data" ? record.bytes : ZEROS.subarray(0, record.pages * PAGE_BYTES);
      // Most records have one page, for which a thread would cost more than the copy.
      for (let done = 0; done < bytes.byteLength; )
        done += writeSync(this.#pages.fd, bytes, done, bytes.byteLength - done, record.offset + done);
      this.#taken.push({ start: record.offset, end: record.offset + bytes.byteLength });
      this.#unyielded += bytes.byteLength;
      if (signal === undefined || this.#unyielded < BYTES_PER_TURN) continue;
      this.#unyielded = 0;
      signal.throwIfAborted();
      await endOfTurn();
    }
  }

  *#records(): Generator<PageRecord> {
    const buffer = Buffer.allocUnsafe(RECORD_PAGES_MAX * PAGE_BYTES);
    for (const { start, end } of merged(this.#taken)) {
      for (let offset = start; offset < end; offset += buffer.byteLength) {
        const bytes = buffer.subarray(0, Math.min(buffer.byteLength, end - offset));
        readSync(this.#pages.fd, bytes, 0, bytes.byteLength, offset);
        yield* split(offset, bytes);
      }
    }
  }
}

/** The same bytes in extents that are in order and do not touch. Pure. */
function merged(extents: readonly Extent[]): readonly Extent[] {
  const result: Extent[] = [];
  for (const { start, end } of [...extents].sort((one, other) => one.start - other.start)) {
    const last = result.at(-1);
    if (last !== undefined && start <= last.end)
      result[result.length - 1] = { start: last.start, end: Math.max(last.end, end) };
    else result.push({ start, end });
  }
  return result;
}
