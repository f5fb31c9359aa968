/**
 * Where the time of a machine's start goes, phase by phase.
 *
 * Always: what is noted belongs to the attempt that was begun last; an agent that comes back goes on with what the
 * journal says of it.
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

  /** An attempt that an earlier agent began: the time before is not known. */
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
