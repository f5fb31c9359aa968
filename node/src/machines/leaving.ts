/**
 * What this agent knows of a machine that leaves for another node, or may. The room moves/ sends it. Nothing
 * of it is on the disk.
 */
import type { MemoryWatch, Vm } from "../driver/driver.ts";
import type { DiskChanges } from "./disk-changes.ts";
import type { FlatDisk } from "./flat-disk.ts";

export interface WatchedMemory {
  readonly vm: Vm;
  readonly watch: MemoryWatch;
  /** The id of the rounds, when all of them were sent. */
  point: string | null;
  /** Bytes of each file of the log that were sent. */
  readonly logs: Map<string, number>;
}

export class Leaving {
  #watched: WatchedMemory | null = null;
  /** The machine was handed over, or is about to be: the server decides what becomes of it. */
  isUnderWay = false;
  /** What was written to its disk since points that the other node has. */
  readonly changes: DiskChanges;

  /** Its disk without layers, once that was asked for. */
  readonly flat: FlatDisk;

  constructor(changes: DiskChanges, flat: FlatDisk) {
    this.changes = changes;
    this.flat = flat;
  }

  get watched(): WatchedMemory | null {
    return this.#watched;
  }

  watch(watched: WatchedMemory): void {
    this.end();
    this.#watched = watched;
  }

  /** Nothing that was sent is known any more. A machine that was handed over stays paused. */
  async forget(): Promise<void> {
    if (this.isUnderWay) return;
    this.end();
    await this.changes.forget();
    await this.flat.forget();
  }

  end(): void {
    this.isUnderWay = false;
    this.#watched?.watch.end();
    this.#watched = null;
  }
}
