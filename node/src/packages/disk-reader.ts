/**
 * Reads the content of a machine's disk, cell by cell.
 *
 * Owns a directory with a copy of a part of the disk, without a format: confined programs make it, because
 * a VMM may have written anything into the disk's file. The part is all of it where there is room, and
 * otherwise a window that moves, so that a large disk needs little space.
 *
 * Always: one caller at a time, which asks for cells in ascending order or begins again.
 */
import { mkdir, open, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import type { Disks, FlattenRequest } from "../disks/disks.ts";
import { extentsOf } from "../images/blocks.ts";
import { CELL_BYTES, type DiskRecord, recordsOf } from "../images/disk-records.ts";
import { DiskFull, readFreeBytes } from "../images/space.ts";

export interface ReadDisk extends FlattenRequest {
  readonly disks: Pick<Disks, "readPart">;
  /** The size that the disk is known to have, whatever its file says. */
  readonly diskBytes: number;
  readonly signal: AbortSignal;
}

/** 4 GiB: a window takes no more space than that. */
const WINDOW_CELLS = 4096;

interface Window {
  /** The first cell, and the one after the last. */
  readonly from: number;
  readonly to: number;
  readonly path: string;
  /** The cells that may have content. */
  readonly cells: readonly number[];
}

/** A VMM has written something to the disk's file that is not one of ours. */
export class UnreadableDisk extends Error {}

export class DiskReader {
  readonly #disk: ReadDisk;
  readonly #windowCells: number;
  readonly #cell = Buffer.alloc(CELL_BYTES);
  #window: Window | null = null;

  private constructor(disk: ReadDisk, windowCells: number) {
    this.#disk = disk;
    this.#windowCells = windowCells;
  }

  /**
   * Throws DiskFull when there is no room for a copy of a part of the disk. `windowCells`: so many cells are
   * copied at a time; absent: as there is room.
   */
  static async open(disk: ReadDisk, windowCells?: number): Promise<DiskReader> {
    if (windowCells !== undefined) return new DiskReader(disk, windowCells);
    const { diskPath, layerPaths, root, diskBytes, directory } = disk;
    const sizes = await Promise.all([diskPath, root.rootPath, ...layerPaths].map(allocatedBytes));
    const usedBytes = Math.min(
      diskBytes,
      sizes.reduce((sum, bytes) => sum + bytes, 0),
    );
    const freeBytes = await readFreeBytes(dirname(directory));
    const cells = Math.ceil(diskBytes / CELL_BYTES);
    if (usedBytes <= freeBytes / 2) return new DiskReader(disk, cells);
    const neededBytes = Math.min(usedBytes, WINDOW_CELLS * CELL_BYTES);
    if (neededBytes > freeBytes)
      throw new DiskFull(`the export needs ${Math.ceil(neededBytes / 2 ** 20)} MB to read the machine's disk`);
    return new DiskReader(disk, WINDOW_CELLS);
  }

  /** The cells that have content, in ascending order. */
  async usedCells(): Promise<readonly number[]> {
    const used: number[] = [];
    const all = Math.ceil(this.#disk.diskBytes / CELL_BYTES);
    for (let cell = 0; cell < all; cell += this.#windowCells) {
      const { cells } = await this.#windowAt(cell, Math.min(cell + this.#windowCells, all));
      for (const each of cells) {
        const [first] = recordsOf(await this.#read(each), each * CELL_BYTES);
        if (first !== undefined) used.push(each);
      }
    }
    return used;
  }

  /** The records of the cells from `from` up to `to`. The data is valid until the next one is requested. */
  async *records(from: number, to: number): AsyncGenerator<DiskRecord, void> {
    const end = Math.min(to, Math.ceil(this.#disk.diskBytes / CELL_BYTES));
    const step = this.#windowCells;
    for (let at = from; at < end; ) {
      const start = Math.floor(at / step) * step;
      const { cells } = await this.#windowAt(
        start,
        Math.min(start + step, Math.ceil(this.#disk.diskBytes / CELL_BYTES)),
      );
      for (const cell of within(cells, at, end)) yield* recordsOf(await this.#read(cell), cell * CELL_BYTES);
      at = start + step;
    }
  }

  async #windowAt(from: number, to: number): Promise<Window> {
    if (this.#window?.from === from) return this.#window;
    this.#window = null;
    const { disks, diskPath, layerPaths, root, directory, diskBytes, signal } = this.#disk;
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory, { mode: 0o700 });
    const start = from * CELL_BYTES;
    const bytes = Math.min(to * CELL_BYTES, diskBytes) - start;
    const part = bytes === diskBytes ? null : { from: start, bytes };
    const path = await disks.readPart({ diskPath, layerPaths, root, directory, diskBytes, part, signal });
    const { size } = await stat(path);
    if (size !== bytes) throw new UnreadableDisk(`its file says that it has ${size} bytes, not ${bytes}`);
    const cells: number[] = [];
    await using file = await open(path, "r");
    for await (const extent of extentsOf(file, path, bytes)) {
      const first = from + Math.floor(extent.start / CELL_BYTES);
      for (let cell = Math.max(first, (cells.at(-1) ?? -1) + 1); (cell - from) * CELL_BYTES < extent.end; cell += 1)
        cells.push(cell);
    }
    this.#window = { from, to, path, cells };
    return this.#window;
  }

  /** A cell of the window, until the next one is read; at the end of the disk it is shorter. */
  async #read(cell: number): Promise<Buffer> {
    const window = this.#window;
    if (window === null) throw new Error("the disk is not being read");
    this.#disk.signal.throwIfAborted();
    const bytes = Math.min(CELL_BYTES, this.#disk.diskBytes - cell * CELL_BYTES);
    await using file = await open(window.path, "r");
    const data = this.#cell.subarray(0, bytes);
    for (let at = 0; at < bytes; ) {
      const { bytesRead } = await file.read(data, at, bytes - at, (cell - window.from) * CELL_BYTES + at);
      if (bytesRead === 0) throw new Error("the copy of the disk is shorter than the disk");
      at += bytesRead;
    }
    return data;
  }
}

/** The cells from `from` up to `to`; they are in ascending order. */
function* within(cells: readonly number[], from: number, to: number): Generator<number, void> {
  let [low, high] = [0, cells.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((cells[middle] ?? 0) < from) low = middle + 1;
    else high = middle;
  }
  for (let at = low; at < cells.length && (cells[at] ?? 0) < to; at += 1) yield cells[at] ?? 0;
}

/** What a file takes; 0: there is none, because the fake driver's images have none. */
const allocatedBytes = async (path: string): Promise<number> =>
  await stat(path).then(
    ({ blocks }) => blocks * 512,
    () => 0,
  );
