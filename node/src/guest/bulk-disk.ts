/**
 * The host's side of a machine's bulk disk: a file that the VMM presents to the guest as a small disk. File
 * contents are transferred over it in large pieces; each transfer has its own window.
 *
 * Owns the open file. Always: its content is untrusted, because the guest can write all of it at any time; it
 * contains only file contents in transfer. While no transfer is running it takes no disk space.
 */
import type { FileHandle } from "node:fs/promises";
import { BULK_PIECE_BYTES } from "@flotilla/contract/guest/bulk";

/** Slots per transfer: enough to continue while a busy host does not run the guest for a few milliseconds. */
const WINDOW_PIECES = 4;
/** Concurrent transfers of one machine over the disk; others use the channel. */
const WINDOWS = 4;
const WINDOW_BYTES = WINDOW_PIECES * BULK_PIECE_BYTES;
export const BULK_DISK_BYTES = WINDOWS * WINDOW_BYTES;

/** The part of the disk that belongs to one transfer. */
export interface BulkWindow {
  /** The device's name in the guest. */
  readonly device: string;
  readonly offset: number;
  readonly bytes: number;
  readonly slots: number;
  write(slot: number, at: number, parts: readonly Buffer[]): Promise<void>;
  /** Fills the buffer. Rejects when the file is too short. */
  read(slot: number, at: number, into: Buffer): Promise<void>;
  /** Call once, when neither side uses the window any more. */
  release(): void;
}

export class BulkDisk {
  readonly #handle: FileHandle;
  readonly #device: string;
  readonly #free = new Set(Array.from({ length: WINDOWS }, (_, index) => index));
  #isEmptying = false;

  /** Takes ownership of the file, which has BULK_DISK_BYTES. */
  constructor(handle: FileHandle, device: string) {
    this.#handle = handle;
    this.#device = device;
  }

  /** Reserves a window; null when all are in use. */
  claim(): BulkWindow | null {
    const [index] = this.#free;
    if (index === undefined || this.#isEmptying) return null;
    this.#free.delete(index);
    const handle = this.#handle;
    const offset = index * WINDOW_BYTES;
    const positionOf = (slot: number, at: number): number => offset + slot * BULK_PIECE_BYTES + at;
    return {
      device: this.#device,
      offset,
      bytes: WINDOW_BYTES,
      slots: WINDOW_PIECES,
      async write(slot, at, parts) {
        const { bytesWritten } = await handle.writev(parts as Buffer[], positionOf(slot, at));
        const expected = parts.reduce((sum, part) => sum + part.byteLength, 0);
        if (bytesWritten !== expected) throw new Error("the machine's bulk disk could not be written completely");
      },
      async read(slot, at, into) {
        const { bytesRead } = await handle.read(into, 0, into.byteLength, positionOf(slot, at));
        if (bytesRead !== into.byteLength) throw new Error("the machine's bulk disk could not be read completely");
      },
      release: () => {
        this.#free.add(index);
        if (this.#free.size === WINDOWS) void this.#empty();
      },
    };
  }

  /** Waits for pending reads and writes. */
  async close(): Promise<void> {
    await this.#handle.close();
  }

  /** Frees the disk space. A failure, as after a close, is harmless. */
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
