/**
 * What this agent knows of a machine that leaves for another node while it runs. hand-over.ts sends it. Nothing of it is on the disk.
 */
import type { MemoryWatch, Vm } from "../driver/driver.ts";

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

  get watched(): WatchedMemory | null {
    return this.#watched;
  }

  watch(watched: WatchedMemory): void {
    this.end();
    this.#watched = watched;
  }

  end(): void {
    this.isUnderWay = false;
    this.#watched?.watch.end();
    this.#watched = null;
  }
}
