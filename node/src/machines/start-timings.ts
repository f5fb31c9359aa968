/**
 * Measures the phases of a machine's start.
 *
 * Always: the timings belong to the latest attempt. A restarted agent continues with those of the journal.
 */
import type { Clock } from "@flotilla/base/clock";
import type { StartTimings } from "@flotilla/contract/machines";

export class AttemptTimings {
  readonly #clock: Clock;
  #startedAt = 0;
  #timings: StartTimings;

  constructor(clock: Clock, timings: StartTimings | null) {
    this.#clock = clock;
    this.#timings = timings ?? {};
  }

  get noted(): StartTimings {
    return this.#timings;
  }

  begin(): void {
    this.resume();
    this.#timings = {};
  }

  /** Continues an attempt that an earlier agent began; the time before is unknown. */
  resume(): void {
    this.#startedAt = this.#clock.monotonic();
  }

  /** Milliseconds since the attempt began. */
  get totalMs(): number {
    return this.#clock.monotonic() - this.#startedAt;
  }

  /** Rounds to tenths of a millisecond. */
  note({ vm, ...spans }: StartTimings): void {
    const rounded = Object.entries(spans).map(([name, ms]) => [name, Math.round(Number(ms) * 10) / 10] as const);
    this.#timings = { ...this.#timings, ...(vm === undefined ? {} : { vm }), ...Object.fromEntries(rounded) };
  }
}
