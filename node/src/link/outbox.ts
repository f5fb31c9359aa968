/**
 * What is to be reported to the server: changed machines, events of their timelines, and whether the set of
 * images has changed. report.ts sends it.
 *
 * Always:
 * - Events are numbered in order of arrival and are kept until the server has accepted them. Above EVENTS_MAX
 *   the oldest is dropped.
 * - A machine or an event is reported immediately. Images are reported together, when they may be listed
 *   again: no one waits for them, and tenants can change them many times a second.
 *
 * In memory only: states are in the journals; events that were not sent are lost with the process.
 */
import type { Clock, Timer } from "@flotilla/base/clock";
import type { NodeEvent } from "@flotilla/contract/link/link";
import type { NewEvent } from "@flotilla/contract/event-types";

const EVENTS_MAX = 10_000;

export class Outbox {
  readonly #clock: Clock;
  readonly #changed = new Set<string>();
  #events: NodeEvent[] = [];
  #eventCount = 0;
  /** Until images that have changed are due; null: none have changed. */
  #imagesTimer: Timer | null = null;
  #areImagesDue = false;
  /** When they are due at the earliest; `Clock.monotonic`. */
  #imagesFrom = Number.NEGATIVE_INFINITY;
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
  event(machineId: string, { type, data }: NewEvent): void {
    this.#eventCount += 1;
    // Only servers write the events that have more than facts.
    const facts = { ...data } as NodeEvent["data"];
    this.#events.push({ sequence: this.#eventCount, machineId, type, data: facts, at: this.#clock.now() });
    if (this.#events.length > EVENTS_MAX) this.#events.shift();
    this.#added.abort();
  }

  /** Something else is to be reported. */
  wake(): void {
    this.#added.abort();
  }

  /** An image was added or removed. */
  changeImages(): void {
    const ms = Math.max(0, this.#imagesFrom - this.#clock.monotonic());
    this.#imagesTimer ??= this.#clock.timer(ms, () => {
      this.#areImagesDue = true;
      this.#added.abort();
    });
  }

  /** Holds the report of changed images back until this instant of `Clock.monotonic`. */
  keepImagesUntil(instant: number): void {
    this.#imagesFrom = instant;
    if (this.#forgetImages()) this.changeImages();
  }

  get isEmpty(): boolean {
    return this.#changed.size === 0 && this.#events.length === 0 && !this.#areImagesDue;
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

  /** Whether images are to be listed for this report: they are due, or the report holds all. */
  takeImages(report: { readonly isComplete: boolean }): boolean {
    if (!this.#areImagesDue && !report.isComplete) return false;
    this.#forgetImages();
    return true;
  }

  /** Whether images had changed. */
  #forgetImages(): boolean {
    const haveChanged = this.#imagesTimer !== null;
    this.#imagesTimer?.cancel();
    this.#imagesTimer = null;
    this.#areImagesDue = false;
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
