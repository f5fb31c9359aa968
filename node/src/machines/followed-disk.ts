/**
 * The disk of a machine that runs here while its content still comes from the node where it was: docs/decisions/0060-lazy-moves.md.
 *
 * Owns, in the machine's directory: `disk.far`, which becomes the disk as the other node has it; `disk.far.map`, which parts of it are
 * there; `disk.far.nbd`, where a VMM reads it; and `disk.top`, which has what the machine has written since. There is no `disk` until
 * all of it is here and the machine has stopped: mergeDisk.
 *
 * Always:
 * - A part is there when it was compared with the hash of what the other node read, after it was synced. Nothing else is read by a VMM:
 *   a read waits for its parts, for as long as that takes.
 * - The map names only such parts, and is written after them. All of the disk is there only when the map says so, durably: then the
 *   other node's copy is removed.
 * - No part that is there changes, before all of them are. A merge that ends early leaves the file longer, and with the same content
 *   below `disk.top`; a VMM that connects next gets the new size.
 *
 * A crash of the agent breaks the VMM's connection; its reads wait until the next agent listens. What the map does not name is fetched
 * again.
 */
import { chown, type FileHandle, link, open, readFile, rename, rm, stat } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { serveNbd } from "../disks/nbd-server.ts";
import { syncToDisk } from "../host/sync-to-disk.ts";
import { type Extent, writeBlocks, writtenHash } from "../images/blocks.ts";
import { ContentDiffers } from "./content-differs.ts";
import { FAR_SOCKET_NAME, farMapPathOf, farPathOf, farSocketPathOf } from "./paths.ts";

/** A multiple of the size of blocks. A VMM that waits gets one. */
export const PART_BYTES = 1024 * 1024;
const PARTS_AT_A_TIME = 8;
/** A VMM has one. */
const CONNECTIONS_MAX = 4;
/** After this, parts that were to arrive are asked for again: a VM does not wait long for one whose sender has died. */
const AWAITED_MS = { read: 3_000, rest: 20_000 } as const;

/** `read`: what a VMM waits for. `rest`: everything else, in order. */
export type WantedKind = "read" | "rest";

export interface FollowedState {
  readonly isComplete: boolean;
  readonly bytes: number;
  readonly arrivedBytes: number;
  /** null: nothing now. */
  readonly wanted: Extent | null;
}

export interface FollowedDiskOptions {
  readonly directory: string;
  /** Of the file on the other node. */
  readonly bytes: number;
  readonly clock: Clock;
  readonly log: Log;
}

export class FollowedDisk {
  readonly #options: FollowedDiskOptions;
  readonly #parts: Uint8Array;
  #arrived = 0;
  /** Every part before this one is there. */
  #firstMissing = 0;
  #receiving = 0;
  #isClosed = false;
  #opened: Promise<void> | null = null;
  #server: Server | null = null;
  #place: FileHandle | null = null;
  readonly #sockets = new Set<Socket>();
  /** Parts that a VMM waits for. */
  readonly #read = new Set<number>();
  /** Parts that were asked for, with the monotonic time of that. */
  readonly #awaited = new Map<number, number>();
  #waiters = new Set<() => void>();
  #saving: Promise<void> = Promise.resolve();

  constructor(options: FollowedDiskOptions) {
    this.#options = options;
    this.#parts = new Uint8Array(Math.ceil(options.bytes / PART_BYTES));
  }

  /** All parts are there, and nothing writes the file any more. */
  get isComplete(): boolean {
    return this.#arrived === this.#parts.length && this.#receiving === 0;
  }

  /** Finds what has arrived, and listens. `boot`: the directory of a boot whose VMM may run, and its user. */
  open(boot: { readonly directory: string; readonly uid: number } | null): Promise<void> {
    this.#opened ??= this.#open(boot).catch(async (error: unknown) => {
      // It is opened again with the next request.
      await this.#unlisten();
      this.#opened = null;
      throw error;
    });
    return this.#opened;
  }

  async #open(boot: { readonly directory: string; readonly uid: number } | null): Promise<void> {
    const { directory, bytes } = this.#options;
    const map = await readFile(farMapPathOf(directory)).catch((error: NodeJS.ErrnoException) => {
      // One that cannot be read now is not replaced: the other node may have removed its copy.
      if (error.code === "ENOENT") return Buffer.alloc(0);
      throw error;
    });
    const isMap = map.byteLength === this.#parts.length;
    if (isMap) for (const [part, isHere] of map.entries()) if (isHere === 1) this.#note(part);
    // Never made here: an empty one would be a lost disk. A merge that was begun makes it longer.
    const { size } = await stat(farPathOf(directory));
    if (this.isComplete ? size < bytes : size !== bytes)
      throw new Error(`the file of the machine's disk has ${size} bytes and not ${bytes}`);
    if (!isMap) await makeMap(directory, this.#parts);
    const path = farSocketPathOf(directory);
    await rm(path, { force: true });
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      this.#sockets.add(socket);
      const read = (at: number, length: number, signal: AbortSignal) => this.#serve(at, length, signal);
      stat(farPathOf(directory))
        .then(({ size: length }) => serveNbd(socket, { bytes: length, read }))
        .catch((error: unknown) => this.#options.log.info({ reason: messageOf(error) }, "a reader of a disk has left"))
        .finally(() => {
          socket.destroy();
          this.#sockets.delete(socket);
        });
    });
    server.maxConnections = CONNECTIONS_MAX;
    // The path may be longer than an address of a socket.
    // Open as long as the server, which removes its name by this path when it ends.
    const place = await open(directory, "r");
    this.#place = place;
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ path: `/proc/self/fd/${place.fd}/${FAR_SOCKET_NAME}` }, () => resolve());
    });
    this.#server = server;
    if (boot === null) return;
    // The name of the earlier agent's socket, in the view of a VMM that runs.
    if (process.getuid?.() === 0) await chown(path, boot.uid, boot.uid);
    const seen = join(boot.directory, FAR_SOCKET_NAME);
    await rm(seen, { force: true });
    await link(path, seen).catch(() => undefined);
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#opened?.catch(() => undefined);
    this.#wake();
    await this.#unlisten();
    await this.#saving.catch(() => undefined);
  }

  async #unlisten(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    const [server, place] = [this.#server, this.#place];
    [this.#server, this.#place] = [null, null];
    if (server !== null) await new Promise<void>((resolve) => server.close(() => resolve()));
    await place?.close();
  }

  /** What is to be fetched; waits for something as long as `waitMs`. */
  async wanted(kind: WantedKind, waitMs: number, signal: AbortSignal): Promise<FollowedState> {
    const { clock, bytes } = this.#options;
    const deadline = clock.monotonic() + waitMs;
    for (;;) {
      const found = this.isComplete ? null : this.#next(kind);
      const leftMs = deadline - clock.monotonic();
      if (found !== null || this.isComplete || leftMs <= 0 || this.#isClosed || signal.aborted)
        return {
          isComplete: this.isComplete,
          bytes,
          arrivedBytes: Math.min(bytes, this.#arrived * PART_BYTES),
          wanted: found,
        };
      const ended = new AbortController();
      // Parts that were asked for in vain are asked for again then.
      const slept = clock.sleep(Math.min(leftMs, 1_000), AbortSignal.any([signal, ended.signal]));
      await Promise.race([this.#change(ended.signal), slept]);
      ended.abort();
    }
  }

  #next(kind: WantedKind): Extent | null {
    const now = this.#options.clock.monotonic();
    const isFree = (part: number): boolean =>
      this.#parts[part] === 0 && now - (this.#awaited.get(part) ?? Number.NEGATIVE_INFINITY) > AWAITED_MS[kind];
    let start: number | undefined;
    if (kind === "read") start = [...this.#read].find(isFree);
    else start = this.#firstFree(isFree);
    if (start === undefined) return null;
    let end = start + 1;
    while (kind === "rest" && end < this.#parts.length && end - start < PARTS_AT_A_TIME && isFree(end)) end += 1;
    for (let part = start; part < end; part += 1) this.#awaited.set(part, now);
    return { start: start * PART_BYTES, end: Math.min(end * PART_BYTES, this.#options.bytes) };
  }

  /** Of a large disk, what is there is most of it, and this is asked for each part. */
  #firstFree(isFree: (part: number) => boolean): number | undefined {
    while (this.#parts[this.#firstMissing] === 1) this.#firstMissing += 1;
    for (let part = this.#firstMissing; part < this.#parts.length; part += 1) if (isFree(part)) return part;
    return undefined;
  }

  /** Receives the blocks of an extent that was asked for. Throws ContentDiffers. */
  async receive(
    { start, end }: Extent,
    stream: AsyncIterable<Buffer>,
    onBytes: (more: number) => void,
    signal: AbortSignal,
  ): Promise<string> {
    const { directory, bytes } = this.#options;
    const path = farPathOf(directory);
    const parts = partsOf({ start, end }, bytes);
    if (this.#isClosed || this.isComplete) throw new Error("all of the disk is here, or its machine is being removed");
    this.#receiving += 1;
    try {
      await using file = await open(path, "r+");
      const written = await writeBlocks(file, stream, onBytes, { start, end, size: bytes });
      const [only, ...others] = written.extents;
      if (only?.start !== start || only.end !== end || others.length > 0)
        throw new Error("the other node did not send all of a part of the disk");
      if ((await writtenHash(path, written, signal)) !== written.sha256)
        throw new ContentDiffers("the content of a disk differs from what was sent; it is sent again");
      await this.#save(parts);
      for (const part of parts) this.#note(part);
      return written.sha256;
    } finally {
      this.#receiving -= 1;
      for (const part of parts) this.#awaited.delete(part);
      this.#wake();
    }
  }

  /** Resolves when a part is there, or rejects when the signal is aborted. */
  async #serve(at: number, length: number, signal: AbortSignal): Promise<Buffer> {
    for (const part of partsOf({ start: at, end: at + length }, this.#options.bytes)) {
      while (this.#parts[part] === 0) {
        // Once: those who wait would wake each other without end.
        if (!this.#read.has(part)) {
          this.#read.add(part);
          this.#wake();
        }
        signal.throwIfAborted();
        await this.#change(signal);
        signal.throwIfAborted();
        if (this.#isClosed) throw new Error("the node agent ends");
      }
    }
    await using file = await open(farPathOf(this.#options.directory), "r");
    const data = Buffer.alloc(length);
    const { bytesRead } = await file.read(data, 0, length, at);
    if (bytesRead !== length) throw new Error("the file of a disk is shorter than it was");
    return data;
  }

  /** Waits until the part at the beginning is there. false: it is not, after `waitMs`. */
  async awaitHead(waitMs: number, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    const ended = new AbortController();
    const leave = AbortSignal.any([signal, ended.signal]);
    const late = clock.sleep(waitMs, leave).then(() => false);
    try {
      return await Promise.race([this.#serve(0, 1, leave).then(() => true), late]);
    } finally {
      ended.abort();
      this.#wake();
      signal.throwIfAborted();
    }
  }

  #note(part: number): void {
    if (this.#parts[part] === 1) return;
    this.#parts[part] = 1;
    this.#arrived += 1;
    this.#read.delete(part);
  }

  /** Writes into the map that parts are there, which are one after the other. One write at a time. */
  #save(parts: readonly number[]): Promise<void> {
    const [first = 0] = parts;
    this.#saving = this.#saving
      .catch(() => undefined)
      .then(async () => {
        await using file = await open(farMapPathOf(this.#options.directory), "r+");
        await file.write(new Uint8Array(parts.length).fill(1), 0, parts.length, first);
        await file.datasync();
      });
    return this.#saving;
  }

  /** Resolves at the next change, or when the signal is aborted. Then nothing is kept of it: reads last as long as their VMM. */
  #change(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiters.delete(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#waiters.add(done);
      signal.addEventListener("abort", done, { once: true });
    });
  }

  #wake(): void {
    const waiters = this.#waiters;
    this.#waiters = new Set();
    for (const resolve of waiters) resolve();
  }
}

/** In place from then on: a byte says the same before and after it is written, or that its part is there. */
async function makeMap(directory: string, parts: Uint8Array): Promise<void> {
  const path = farMapPathOf(directory);
  {
    await using file = await open(`${path}.new`, "w", 0o600);
    await file.writeFile(parts);
    await file.datasync();
  }
  await rename(`${path}.new`, path);
  await syncToDisk(directory);
}

function partsOf({ start, end }: Extent, bytes: number): readonly number[] {
  const last = Math.ceil(Math.min(end, bytes) / PART_BYTES);
  const first = Math.floor(start / PART_BYTES);
  return Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
}
