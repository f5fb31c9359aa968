/**
 * The pages of another process's memory: which of a mapping it has changed, their content, and writing them.
 *
 * Reads /proc/<pid>/pagemap and /proc/<pid>/mem, which the kernel permits to root with CAP_SYS_PTRACE.
 *
 * Always:
 * - The open file belongs to the process's memory. When the process ends, reads and writes fail, whatever
 *   gets its id.
 * - Pages are read and written synchronously, at most a record at a time. That takes microseconds, and less
 *   than it takes to hand the call to another thread; most runs are of one page, and the guest is paused
 *   meanwhile.
 */
import { readSync, writeSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import type { Extent } from "../images/blocks.ts";
import { PAGE_BYTES, type PageRecord, RECORD_PAGES_MAX } from "./memory-file.ts";

/** Entries of the page map that are read at once. */
const ENTRIES_MAX = 131_072;
const ENTRY_BYTES = 8;
/**
 * Bits of the upper half of an entry: the page is in memory; it is swapped out; it belongs to a file or is
 * shared.
 */
const PRESENT = 0x8000_0000;
const SWAPPED = 0x4000_0000;
const OF_FILE = 0x2000_0000;
const ZEROS = Buffer.alloc(RECORD_PAGES_MAX * PAGE_BYTES);

/** A part of the process's memory, in bytes. Both are multiples of a page. */
export interface MemoryRange {
  readonly address: number;
  readonly bytes: number;
}

interface Run {
  readonly offset: number;
  readonly pages: number;
}

export class ProcessPages {
  readonly #map: FileHandle;
  readonly #memory: FileHandle;
  readonly #range: MemoryRange;

  private constructor(map: FileHandle, memory: FileHandle, range: MemoryRange) {
    this.#map = map;
    this.#memory = memory;
    this.#range = range;
  }

  /** Throws the system's error. Check afterwards that the process is still the intended one. */
  static async open(pid: number, range: MemoryRange): Promise<ProcessPages> {
    const map = await open(`/proc/${pid}/pagemap`, "r");
    try {
      return new ProcessPages(map, await open(`/proc/${pid}/mem`, "r+"), range);
    } catch (error) {
      await map.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#map.close(), this.#memory.close()]);
  }

  /** The bytes of all pages that `read` would visit. */
  async changedBytes(): Promise<number> {
    let pages = 0;
    for await (const run of this.#runs()) pages += run.pages;
    return pages * PAGE_BYTES;
  }

  /**
   * The pages that the process has changed, in order: those that are its own and not a file's. `hasBase`:
   * unchanged pages have a file's content, so zeros are reported. Otherwise they are zero, and zeros are left
   * out.
   */
  async *read({ hasBase }: { readonly hasBase: boolean }): AsyncGenerator<PageRecord> {
    const buffer = Buffer.allocUnsafe(RECORD_PAGES_MAX * PAGE_BYTES);
    for await (const run of this.#runs()) {
      const bytes = buffer.subarray(0, run.pages * PAGE_BYTES);
      this.#readAt(bytes, run.offset);
      for (const record of split(run.offset, bytes)) if (record.kind === "data" || hasBase) yield record;
    }
  }

  /** The content of some parts, in order, in records. The bytes of a record are valid until the next one. */
  *readParts(parts: readonly Extent[]): Generator<PageRecord> {
    const buffer = Buffer.allocUnsafe(RECORD_PAGES_MAX * PAGE_BYTES);
    for (const { start, end } of parts) {
      for (let offset = start; offset < end; offset += buffer.byteLength) {
        const bytes = buffer.subarray(0, Math.min(buffer.byteLength, end - offset));
        this.#readAt(bytes, offset);
        yield* split(offset, bytes);
      }
    }
  }

  write(record: PageRecord): void {
    const bytes = record.kind === "data" ? record.bytes : ZEROS.subarray(0, record.pages * PAGE_BYTES);
    for (let done = 0; done < bytes.byteLength; ) {
      const at = this.#range.address + record.offset + done;
      const bytesWritten = writeSync(this.#memory.fd, bytes, done, bytes.byteLength - done, at);
      if (bytesWritten === 0) throw new Error("a page could not be written: the process has ended");
      done += bytesWritten;
    }
  }

  async *#runs(): AsyncGenerator<Run> {
    const entries = Buffer.alloc(ENTRIES_MAX * ENTRY_BYTES);
    const total = this.#range.bytes / PAGE_BYTES;
    for (let first = 0; first < total; first += ENTRIES_MAX) {
      const count = Math.min(ENTRIES_MAX, total - first);
      const at = (this.#range.address / PAGE_BYTES + first) * ENTRY_BYTES;
      const { bytesRead } = await this.#map.read(entries, 0, count * ENTRY_BYTES, at);
      if (bytesRead !== count * ENTRY_BYTES) throw new Error("the page map ends early: the process has ended");
      yield* changedRuns(entries, { first, count });
    }
  }

  #readAt(bytes: Buffer, offset: number): void {
    for (let done = 0; done < bytes.byteLength; ) {
      const at = this.#range.address + offset + done;
      const bytesRead = readSync(this.#memory.fd, bytes, done, bytes.byteLength - done, at);
      if (bytesRead === 0) throw new Error("a page could not be read: the process has ended");
      done += bytesRead;
    }
  }
}

/** Runs of changed pages in entries of a page map, none longer than a record. Pure. */
export function* changedRuns(
  entries: Buffer,
  { first, count }: { readonly first: number; readonly count: number },
): Generator<Run> {
  const halves = new Uint32Array(entries.buffer, entries.byteOffset, count * 2);
  let start = -1;
  for (let page = 0; page <= count; page += 1) {
    const upper = page < count ? (halves[page * 2 + 1] ?? 0) : 0;
    const isChanged = (upper & (PRESENT | SWAPPED)) !== 0 && (upper & OF_FILE) === 0;
    if (start !== -1 && (!isChanged || page - start === RECORD_PAGES_MAX)) {
      yield { offset: (first + start) * PAGE_BYTES, pages: page - start };
      start = -1;
    }
    if (isChanged && start === -1) start = page;
  }
}

/** Pages as records of data and of zeros. Pure. */
export function* split(offset: number, bytes: Buffer): Generator<PageRecord> {
  const pages = bytes.byteLength / PAGE_BYTES;
  const isZero = (page: number): boolean =>
    bytes.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES).equals(ZEROS.subarray(0, PAGE_BYTES));
  for (let start = 0; start < pages; ) {
    const zero = isZero(start);
    let end = start + 1;
    while (end < pages && isZero(end) === zero) end += 1;
    const at = offset + start * PAGE_BYTES;
    if (zero) yield { kind: "zero", offset: at, pages: end - start };
    else yield { kind: "data", offset: at, bytes: bytes.subarray(start * PAGE_BYTES, end * PAGE_BYTES) };
    start = end;
  }
}
