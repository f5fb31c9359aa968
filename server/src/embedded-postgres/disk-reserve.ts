/**
 * Disk space reserved for the embedded database, because it shares a disk with machines: a file that becomes
 * shorter by a piece whenever the database needs space and finds none, so that reads and deletes work on a
 * full disk. A piece is used at once by what asked for it: what fills the disk finds only what is left of it.
 *
 * Owns `<data dir>/postgres/reserve`.
 *
 * Always:
 * - All of the file is allocated on the disk.
 * - While some of it is missing, or little space is free, the server reports that it is not ready.
 * - What is missing is allocated again as soon as it is free, with some more.
 *
 * A crash leaves the file, whole or shorter.
 */
import { execFile } from "node:child_process";
import { open, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";

const RESERVE_BYTES_MAX = 256 * 1024 ** 2;
/** Share of the file system. */
const RESERVE_SHARE = 0.05;
/** Less free space than this share of the reserve counts as full. */
const FULL_SHARE = 1 / 8;
/** Share of its size that is free beside it when it is allocated. */
const SPARE_SHARE = 1 / 4;
const LOOK_MS = 1_000;
/** The first piece: a new connection writes 200 KB of caches, a statement a few pages of 8 KB. */
const PIECE_BYTES = 256 * 1024;
/** The last piece, of as many as one statement gets, has 8 MiB: a sort, or many new rows. */
const PIECES_MAX = 6;
/** What a start of PostgreSQL finds free; the second one twice as much, for a new file of its log. */
const START_BYTES = 8 * 1024 ** 2;
const START_DOUBLINGS_MAX = 3;

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
  /** What changes the file, one after the other. */
  #changing: Promise<unknown> = Promise.resolve();

  constructor(options: DiskReserveOptions) {
    this.#options = options;
    this.#path = join(options.directory, "reserve");
  }

  /** Whether the disk has no space left except the reserve, or some of that is used. */
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
    await Promise.all([this.#watching, this.#changing]);
  }

  /**
   * Gives space to a statement that has found none: twice as much with each attempt, from 0 on. False:
   * nothing is left, or it has tried often enough.
   */
  readonly give = async (attempt: number): Promise<boolean> =>
    attempt < PIECES_MAX && (await this.#shorten(PIECE_BYTES * 2 ** attempt));

  /** Gives space for a start of PostgreSQL where there is none. `failures`: starts that have failed before. */
  async giveForStart(failures: number): Promise<void> {
    const bytes = START_BYTES * 2 ** Math.min(failures, START_DOUBLINGS_MAX);
    const { bavail, bsize } = await statfs(this.#options.directory);
    if (bavail * bsize < bytes) await this.#shorten(bytes);
  }

  async #watch(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#stopping.signal.aborted) {
      await clock.sleep(LOOK_MS, this.#stopping.signal);
      await this.#look().catch((error: unknown) => log.warn({ error }, "the disk's free space could not be read"));
    }
  }

  #look(): Promise<void> {
    return this.#change(async () => {
      const { blocks, bsize, bavail } = await statfs(this.#options.directory);
      const bytes = Math.floor(Math.min(RESERVE_BYTES_MAX, blocks * bsize * RESERVE_SHARE));
      const missingBytes = bytes - (await this.#size());
      const freeBytes = bavail * bsize;
      const isFilled = missingBytes > 0 && freeBytes >= missingBytes + bytes * SPARE_SHARE && (await this.#fill(bytes));
      // A file system without fallocate has no reserve.
      const isWhole = missingBytes <= 0 || isFilled || this.#hasWarned;
      this.#note(!isWhole || freeBytes < bytes * FULL_SHARE);
    });
  }

  #note(isFull: boolean): void {
    if (isFull === this.#isFull) return;
    this.#isFull = isFull;
    const { log } = this.#options;
    if (isFull) log.error({ reserve: this.#path }, "the disk is full: its reserve is for reads and deletes");
    else log.info({ reserve: this.#path }, "the disk has room again");
  }

  /** Whether there was anything left. */
  #shorten(bytes: number): Promise<boolean> {
    return this.#change(async () => {
      this.#note(true);
      const size = await this.#size();
      if (size === 0) return false;
      await using file = await open(this.#path, "r+");
      await file.truncate(Math.max(0, size - bytes));
      // A file system with a journal has the space when that is written.
      await file.sync();
      return true;
    });
  }

  /** Whether the file has that size now. Allocates the space without writing it. */
  async #fill(bytes: number): Promise<boolean> {
    try {
      await promisify(execFile)("fallocate", ["--length", String(bytes), this.#path]);
      return true;
    } catch (error) {
      if (!this.#hasWarned) this.#options.log.warn({ error }, "no space can be reserved for the database");
      this.#hasWarned = true;
      return false;
    }
  }

  async #size(): Promise<number> {
    return (await stat(this.#path).catch(() => null))?.size ?? 0;
  }

  #change<T>(work: () => Promise<T>): Promise<T> {
    const changed = this.#changing.then(work);
    this.#changing = changed.catch(() => undefined);
    return changed;
  }
}
