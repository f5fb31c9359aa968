/**
 * Disk space reserved for the embedded database, because it shares a disk with machines: a file that is
 * removed when the disk is full, so that machines and images can still be deleted, which frees space again.
 *
 * Owns `<data dir>/postgres/reserve`.
 *
 * Always:
 * - The file has its whole size allocated on the disk, or does not exist.
 * - While it does not exist, the server reports that it is not ready.
 * - It is made again once REFILL_TIMES its size is free.
 *
 * A crash leaves the file, or part of it as `reserve.new`, which the next start replaces.
 */
import { execFile } from "node:child_process";
import { rename, rm, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";

const RESERVE_BYTES_MAX = 256 * 1024 ** 2;
/** Share of the file system. */
const RESERVE_SHARE = 0.05;
/** Less free space than this share of the reserve counts as full. */
const FULL_SHARE = 1 / 8;
const REFILL_TIMES = 4;
const LOOK_MS = 1_000;

export interface DiskReserveOptions {
  /** `<data dir>/postgres`. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Log;
}

export class DiskReserve {
  readonly #options: DiskReserveOptions;
  readonly #path: string;
  readonly #stopping = new AbortController();
  #isFull = false;
  #hasWarned = false;
  #watching: Promise<void> = Promise.resolve();

  constructor(options: DiskReserveOptions) {
    this.#options = options;
    this.#path = join(options.directory, "reserve");
  }

  /** Whether the reserve is released. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** Makes the file if there is room, and maintains it until `stop`. */
  async start(): Promise<void> {
    await this.#look();
    this.#watching = this.#watch();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#watching;
  }

  /** Called when the database found no room. */
  async release(): Promise<void> {
    if (!this.#isFull) this.#options.log.error({ reserve: this.#path }, "the disk is full: its reserve is released");
    this.#isFull = true;
    await rm(this.#path, { force: true });
  }

  async #watch(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#stopping.signal.aborted) {
      await clock.sleep(LOOK_MS, this.#stopping.signal);
      await this.#look().catch((error: unknown) => log.warn({ error }, "the disk's free space could not be read"));
    }
  }

  async #look(): Promise<void> {
    const { blocks, bsize, bavail } = await statfs(this.#options.directory);
    const bytes = Math.floor(Math.min(RESERVE_BYTES_MAX, blocks * bsize * RESERVE_SHARE));
    const freeBytes = bavail * bsize;
    if (freeBytes < bytes * FULL_SHARE) return await this.release();
    const found = await stat(this.#path).catch(() => null);
    if (found !== null && found.size > 0) {
      this.#isFull = false;
    } else if (freeBytes >= bytes * REFILL_TIMES) {
      await this.#fill(bytes);
    } else {
      this.#isFull = true;
    }
  }

  async #fill(bytes: number): Promise<void> {
    const unfinished = `${this.#path}.new`;
    try {
      // Allocates the space without writing it.
      await promisify(execFile)("fallocate", ["--length", String(bytes), unfinished]);
      await rename(unfinished, this.#path);
      if (this.#isFull) this.#options.log.info({ reserve: this.#path }, "the disk has room again");
      this.#isFull = false;
    } catch (error) {
      // A file system without fallocate has no reserve; its disk counts as full when no space is left.
      this.#isFull = false;
      await rm(unfinished, { force: true });
      if (!this.#hasWarned) this.#options.log.warn({ error }, "no space can be reserved for the database");
      this.#hasWarned = true;
    }
  }
}
