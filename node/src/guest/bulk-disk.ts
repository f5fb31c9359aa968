/**
 * The host's side of a machine's bulk disk: a file that its VMM shows the guest as a small disk. Content of files goes over
 * it in large pieces; each transfer has a window of it.
 *
 * Owns the open file. Always: nothing in it is believed to be what was put there, because the guest may write all of it
 * at any time: it holds content of files on their way and nothing else. While no transfer is under way it takes no space.
 */
import type { FileHandle } from "node:fs/promises";
import { BULK_PIECE_BYTES } from "@flotilla/contract/guest/bulk";

/** Places of one transfer: enough to go on while a busy host has not run the guest for some milliseconds. */
const WINDOW_PIECES = 4;
/** Transfers of one machine that go over the disk at once; others go over the channel. */
const WINDOWS = 4;
const WINDOW_BYTES = WINDOW_PIECES * BULK_PIECE_BYTES;
export const BULK_DISK_BYTES = WINDOWS * WINDOW_BYTES;

/** The part of the disk that is one transfer's. */
export interface BulkWindow {
  /** Inside the guest. */
  readonly device: string;
  readonly offset: number;
  readonly bytes: number;
  readonly places: number;
  write(place: number, at: number, parts: readonly Buffer[]): Promise<void>;
  /** Fills the buffer. Rejects when the file is shorter. */
  read(place: number, at: number, into: Buffer): Promise<void>;
  /** Once, when neither side uses it any more. */
  release(): void;
}

export class BulkDisk {
  readonly #handle: FileHandle;
  readonly #device: string;
  readonly #free = new Set(Array.from({ length: WINDOWS }, (_, index) => index));
  #isEmptying = false;

  /** The file has BULK_DISK_BYTES and belongs to this object from now on. */
  constructor(handle: FileHandle, device: string) {
    this.#handle = handle;
    this.#device = device;
  }

  /** null when all are taken. */
  take(): BulkWindow | null {
    const [index] = this.#free;
    if (index === undefined || this.#isEmptying) return null;
    this.#free.delete(index);
    const handle = this.#handle;
    const offset = index * WINDOW_BYTES;
    const placeOf = (place: number, at: number): number => offset + place * BULK_PIECE_BYTES + at;
    return {
      device: this.#device,
      offset,
      bytes: WINDOW_BYTES,
      places: WINDOW_PIECES,
      async write(place, at, parts) {
        const { bytesWritten } = await handle.writev(parts as Buffer[], placeOf(place, at));
        const wanted = parts.reduce((sum, part) => sum + part.byteLength, 0);
        if (bytesWritten !== wanted) throw new Error("the machine's bulk disk could not be written in full");
      },
      async read(place, at, into) {
        const { bytesRead } = await handle.read(into, 0, into.byteLength, placeOf(place, at));
        if (bytesRead !== into.byteLength) throw new Error("the machine's bulk disk could not be read in full");
      },
      release: () => {
        this.#free.add(index);
        if (this.#free.size === WINDOWS) void this.#empty();
      },
    };
  }

  /** Waits for what is being read and written. */
  async close(): Promise<void> {
    await this.#handle.close();
  }

  /** Gives its space back. That it cannot, as after a close, does no harm. */
  async #empty(): Promise<void> {
    this.#isEmptying = true;
    try {
      await this.#handle.truncate(0);
      await this.#handle.truncate(BULK_DISK_BYTES);
    } catch {
      return;
    } finally {
      this.#isEmptying = false;
    }
  }
}
