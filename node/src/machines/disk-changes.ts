/**
 * What a machine has written to its disk since the points that a move has named (contract/src/link/moves.ts),
 * so that the disk can be sent while the machine runs and only the rest after it has stopped.
 *
 * Always:
 * - A point is either known completely or not at all: whatever cannot be followed to the end of the run
 *   forgets all points, and the disk is sent as a whole.
 * - After the run the points are valid for exactly the file that the run left.
 *
 * Nothing of it is on the disk. After a crash of the agent there are no points.
 */
import { stat } from "node:fs/promises";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { BootRequest, DiskWatch, Vm } from "../driver/driver.ts";
import { type Extent, mergeExtents } from "../images/blocks.ts";

/** A point that the node does not know, or the machine cannot be watched now. */
export class UnknownPoint extends Error {}

export interface NextPoint {
  /** The point that becomes known. */
  readonly point: string;
  /** The one that the other node has; null: nothing yet. */
  readonly since: string | null;
}

interface Watched {
  readonly vm: Vm;
  readonly watch: DiskWatch;
}

export class DiskChanges {
  readonly #log: Log;
  #watched: Watched | null = null;
  #points: ReadonlyMap<string, readonly Extent[]> = new Map();
  /** The file that the last run left; null: it has not ended, or was not followed to its end. */
  #left: string | null = null;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(log: Log) {
    this.#log = log;
  }

  /**
   * Begins a point of a running VM. Resolves with what has changed since the one before; null: everything is
   * to be sent. Points that the other node has left behind are forgotten.
   */
  next(vm: Vm, boot: BootRequest, { point, since }: NextPoint): Promise<readonly Extent[] | null> {
    return this.#inTurn(async () => {
      if (since === null) {
        await this.#forget();
        const watch = await vm.watchDisk?.(boot).catch((error: unknown) => {
          const reason = messageOf(error);
          this.#log.warn({ reason }, "a machine's disk cannot be watched, so it is sent when the machine has stopped");
          throw new UnknownPoint(`the machine's disk cannot be watched: ${reason}`);
        });
        if (watch === undefined) throw new UnknownPoint("the machine's disk cannot be watched");
        this.#watched = { vm, watch };
        this.#points = new Map([[point, []]]);
        return null;
      }
      if (this.#watched?.vm !== vm || !this.#points.has(since)) throw new UnknownPoint(`there is no point ${since}`);
      await this.#add(this.#watched.watch.take());
      const changed = this.#points.get(since) ?? [];
      this.#points = new Map([
        [since, changed],
        [point, []],
      ]);
      return changed;
    });
  }

  /** Whether a point of this VM is known. */
  knows(vm: Vm, point: string): boolean {
    return this.#watched?.vm === vm && this.#points.has(point);
  }

  /**
   * The VM is paused for ever, or has ended after its guest powered off; null: this agent did not see it run.
   * Never rejects. Does nothing the second time.
   */
  async finish(vm: Vm | null, diskPath: string): Promise<void> {
    const finished = this.#inTurn(async () => {
      const watched = this.#watched;
      if (watched === null && this.#left !== null) return;
      if (watched === null || watched.vm !== vm) return await this.#forget();
      this.#watched = null;
      await this.#add(watched.watch.takeLast());
      this.#left = await identityOf(diskPath);
    });
    await finished.catch((error: unknown) =>
      this.#log.warn({ reason: messageOf(error) }, "a machine's whole disk is sent: its last changes are not known"),
    );
  }

  /** The points of a machine at rest. */
  async points(diskPath: string): Promise<readonly string[]> {
    if (this.#left === null || this.#left !== (await identityOf(diskPath))) return [];
    return [...this.#points.keys()];
  }

  /** What has changed since a point, on the disk of a machine at rest. Throws UnknownPoint. */
  async since(point: string, diskPath: string): Promise<readonly Extent[]> {
    if (!(await this.points(diskPath)).includes(point)) throw new UnknownPoint(`there is no point ${point}`);
    return this.#points.get(point) ?? [];
  }

  /** Ends the watch. Never rejects. */
  async forget(): Promise<void> {
    await this.#inTurn(() => this.#forget()).catch(() => undefined);
  }

  async #forget(): Promise<void> {
    const watched = this.#watched;
    this.#watched = null;
    this.#points = new Map();
    this.#left = null;
    await watched?.watch.end().catch(() => undefined);
  }

  /** To every point. When the changes are not known, no point is. */
  async #add(taken: Promise<readonly Extent[]>): Promise<void> {
    try {
      const changed = await taken;
      this.#points = new Map([...this.#points].map(([point, before]) => [point, mergeExtents(before, changed)]));
    } catch (error) {
      await this.#forget();
      throw error;
    }
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(work, work);
    this.#turn = done.catch(() => undefined);
    return done;
  }
}

/** Changes when the file is written to or replaced. */
export async function identityOf(path: string): Promise<string | null> {
  const found = await stat(path, { bigint: true }).catch(() => null);
  return found === null ? null : `${found.ino} ${found.size} ${found.mtimeNs}`;
}
