/**
 * What is to be reported to the server: machines that have changed, and events of their timelines. report.ts sends it.
 *
 * Always: events are numbered in order of arrival and are kept until the server has accepted them. Above EVENTS_MAX the
 * oldest is dropped.
 *
 * In memory only: states are in the journals; events that were not sent are lost with the process.
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

  /** A machine has changed since the last report. */
  change(machineId: string): void {
    this.#changed.add(machineId);
    this.#added.abort();
  }

  /** Adds an event to the machine's timeline. */
  event(machineId: string, level: EventLevel, message: string): void {
    this.#eventCount += 1;
    this.#events.push({ sequence: this.#eventCount, machineId, level, message, at: this.#clock.now() });
    if (this.#events.length > EVENTS_MAX) this.#events.shift();
    this.#added.abort();
  }

  /** Something else is to be reported. */
  wake(): void {
    this.#added.abort();
  }

  /** An image was added or removed. */
  changeImages(): void {
    this.#haveImagesChanged = true;
    this.#added.abort();
  }

  get isEmpty(): boolean {
    return this.#changed.size === 0 && this.#events.length === 0 && !this.#haveImagesChanged;
  }

  /** A signal that is aborted at the next addition. It replaces the signal of an earlier call. */
  watch(): AbortSignal {
    this.#added = new AbortController();
    return this.#added.signal;
  }

  /** Removes and returns the machines that have changed. */
  takeChanged(): readonly string[] {
    const changed = [...this.#changed];
    this.#changed.clear();
    return changed;
  }

  /** Whether an image was added or removed since the last call. */
  takeImagesChanged(): boolean {
    const haveChanged = this.#haveImagesChanged;
    this.#haveImagesChanged = false;
    return haveChanged;
  }

  /** The oldest events. They are kept. */
  oldest(count: number): readonly NodeEvent[] {
    return this.#events.slice(0, count);
  }

  /** Removes the events up to this number. */
  accepted(sequence: number): void {
    this.#events = this.#events.filter((event) => event.sequence > sequence);
  }
}
