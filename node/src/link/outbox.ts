/**
 * What the server is to be told and has not accepted yet: which machines have changed, and events of their timelines.
 *
 * Made before everything that puts something in, and emptied by report.ts. Always: events are numbered in the order in which
 * they came and stay until they were accepted, at most EVENTS_MAX of them: then the oldest goes. In memory alone: states are
 * in the journals, events that were not sent are lost with the process.
 */
import type { Clock } from "@flotilla/base/clock";
import type { NodeEvent } from "@flotilla/contract/link";
import type { EventLevel } from "@flotilla/contract/machines";

const EVENTS_MAX = 10_000;

export class Outbox {
  readonly #clock: Clock;
  readonly #changed = new Set<string>();
  #events: NodeEvent[] = [];
  #eventCount = 0;
  #haveImagesChanged = false;
  #added = new AbortController();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Something about a machine is different from what was last reported. */
  change(machineId: string): void {
    this.#changed.add(machineId);
    this.#added.abort();
  }

  /** For the machine's timeline. */
  event(machineId: string, level: EventLevel, message: string): void {
    this.#eventCount += 1;
    this.#events.push({ sequence: this.#eventCount, machineId, level, message, at: this.#clock.now() });
    if (this.#events.length > EVENTS_MAX) this.#events.shift();
    this.#added.abort();
  }

  /** Something else is there to be reported. */
  wake(): void {
    this.#added.abort();
  }

  /** An image has come or gone. */
  changeImages(): void {
    this.#haveImagesChanged = true;
    this.#added.abort();
  }

  get isEmpty(): boolean {
    return this.#changed.size === 0 && this.#events.length === 0 && !this.#haveImagesChanged;
  }

  /** Aborted when something is put in from now on. The signal of an earlier call is not any more. */
  watch(): AbortSignal {
    this.#added = new AbortController();
    return this.#added.signal;
  }

  /** The machines that have changed; they are taken out. */
  takeChanged(): readonly string[] {
    const changed = [...this.#changed];
    this.#changed.clear();
    return changed;
  }

  /** Whether an image has come or gone since the last call. */
  takeImagesChanged(): boolean {
    const haveChanged = this.#haveImagesChanged;
    this.#haveImagesChanged = false;
    return haveChanged;
  }

  /** The oldest events; they stay. */
  oldest(count: number): readonly NodeEvent[] {
    return this.#events.slice(0, count);
  }

  /** Removes the events up to this number. */
  accepted(sequence: number): void {
    this.#events = this.#events.filter((event) => event.sequence > sequence);
  }
}
